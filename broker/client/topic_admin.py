"""Topics: create, list, describe, delete, grow, cut off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.client.admin_requests import AdminRequests, Results, error_of
from broker.client.connection import Connection
from broker.client.metadata import TopicMetadata
from broker.client.partition_leaders import find_leaders
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

CLUSTER_DEFAULT = -1
"""As a number of partitions or replicas: what the cluster's settings say (KIP-464)."""
HIGH_WATERMARK = -1
"""As an offset to delete records before: the end of what is committed."""

_FIRST_DELETE_VERSION_WITH_STATES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. `assignments` names the replicas of each partition, first the preferred leader, and
    then stands for both numbers.
    """

    name: str
    partitions: int = CLUSTER_DEFAULT
    replication_factor: int = CLUSTER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


class TopicAdmin(AdminRequests):
    """Operations on topics.

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Create one topic. Raises ProtocolError."""
        _raise_only((await self.create_topics([topic], validate_only=validate_only)).values())

    async def create_topics(self, topics: Collection[NewTopic], *, validate_only: bool = False) -> Results:
        """Create topics, or only say whether they could be created. Each succeeds or fails by itself."""
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask_controller(
            lambda _: request, lambda answer: [topic.error_code for topic in answer.topics]
        )
        return {
            topic.name: error_of(topic.error_code, topic.error_message, f"topic {topic.name}")
            for topic in response.topics
        }

    async def delete_topics(self, names: Collection[str]) -> Results:
        """Delete topics. Each succeeds or fails by itself."""

        def build(connection: Connection) -> DeleteTopicsRequest:
            if connection.version_of(DeleteTopicsRequest) >= _FIRST_DELETE_VERSION_WITH_STATES:
                states = [DeleteTopicState(name=name) for name in names]
                return DeleteTopicsRequest(topics=states, timeout_ms=self._timeout_ms)
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=self._timeout_ms)

        response = await self._ask_controller(
            build, lambda answer: [topic.error_code for topic in answer.responses]
        )
        return {
            topic.name or "": error_of(topic.error_code, topic.error_message, f"topic {topic.name}")
            for topic in response.responses
        }

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> Results:
        """Let topics grow to the given numbers of partitions. Each succeeds or fails by itself."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in counts.items()
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response = await self._ask_controller(
            lambda _: request, lambda answer: [topic.error_code for topic in answer.results]
        )
        return {
            topic.name: error_of(topic.error_code, topic.error_message, f"topic {topic.name}")
            for topic in response.results
        }

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names of all topics, sorted; the cluster's own ones only if asked for."""
        metadata = await self._retried(lambda: self._cluster.refresh())
        return sorted(
            topic.name
            for topic in metadata.topics.values()
            if not topic.error and (internal or not topic.internal)
        )

    async def describe_topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """The topics as the cluster sees them. Raises ProtocolError for one that is not there."""
        metadata = await self._retried(lambda: self._cluster.refresh(names))
        described: dict[str, TopicMetadata] = {}
        for name in names:
            topic = metadata.topics.get(name)
            code = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is None or code:
                raise ProtocolError(code, f"topic {name}: {code.meaning}")
            described[name] = topic
        return described

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Let the logs begin at the given offsets (or HIGH_WATERMARK); returns where they begin now.

        Raises ProtocolError.
        """
        done: dict[TopicPartition, int] = {}

        async def attempt() -> dict[TopicPartition, int]:
            missing = {partition: offset for partition, offset in offsets.items() if partition not in done}
            leaders: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
            for partition, leader in (await find_leaders(self._cluster, missing, refresh=True)).items():
                leaders[leader][partition] = missing[partition]
            for node_id, wanted in leaders.items():
                await self._delete_records_at(node_id, wanted, done)
            return done

        return await self._retried(attempt)

    async def _delete_records_at(
        self, node_id: int, wanted: Mapping[TopicPartition, int], done: dict[TopicPartition, int]
    ) -> None:
        topics: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
        for partition, offset in wanted.items():
            cut = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            topics[partition.topic].append(cut)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=cuts) for name, cuts in topics.items()],
            timeout_ms=self._timeout_ms,
        )
        response = await self._cluster.request(node_id, request)
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if error := error_of(answer.error_code, None, str(partition)):
                    raise error
                done[partition] = answer.low_watermark

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Make the preferred replicas leaders (None: everywhere), or with `unclean` any live one where there
        is no leader.
        """
        topics: dict[str, list[int]] = defaultdict(list)
        for partition in partitions or ():
            topics[partition.topic].append(partition.partition)
        listed = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()]
        request = ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=None if partitions is None else listed,
            timeout_ms=self._timeout_ms,
        )
        response = await self._ask_controller(lambda _: request, lambda answer: [answer.error_code])
        if error := error_of(response.error_code, None, "election"):
            raise error
        return {
            TopicPartition(topic.topic, answer.partition_id): error_of(
                answer.error_code, answer.error_message, f"{topic.topic}-{answer.partition_id}"
            )
            for topic in response.replica_election_results
            for answer in topic.partition_result
        }


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.assignments or {}
    return CreatableTopic(
        name=topic.name,
        num_partitions=CLUSTER_DEFAULT if assignments else topic.partitions,
        replication_factor=CLUSTER_DEFAULT if assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _raise_only(results: Iterable[ProtocolError | None]) -> None:
    for error in results:
        if error is not None:
            raise error
