"""What a cluster says of itself: nodes, topics, partitions and their leaders, as an immutable picture.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from broker.errors import ErrorCode
from broker.types import NO_TOPIC_ID, HostPort, TopicId, TopicPartition
from broker.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_VERSION_WITH_SURE_EPOCHS = 9
"""Of Metadata. Before, a node may tell a former epoch while partitions are reassigned (KAFKA-9212), and the
leader refuses whoever names it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker of the cluster, at the address it advertises."""

    id: int
    address: HostPort
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition; `leader` is -1 while it has none, `leader_epoch` -1 where the peer does not tell."""

    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic; `error` says why it has no partitions."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    internal: bool = False
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """What is known of a cluster. Topics that were never asked for are not in it."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """The partition, or None while it is not known."""
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic is not None else None

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Id of the partition's leader, or None while it has none, is unknown, or its leader's address is."""
        partition = self.partition(topic_partition)
        return partition.leader if partition is not None and partition.leader in self.nodes else None

    def partitions(self, topic: str) -> list[int]:
        """Numbers of the topic's partitions, sorted; empty while it is not known."""
        known = self.topics.get(topic)
        return sorted(known.partitions) if known is not None else []

    def topic_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every known partition of the topics."""
        return [TopicPartition(topic, number) for topic in topics for number in self.partitions(topic)]

    def merged(
        self, response: MetadataResponse, *, complete: bool, version: int = FIRST_VERSION_WITH_SURE_EPOCHS
    ) -> ClusterMetadata:
        """This picture brought up to date by an answer of this `version`; `complete` when it was about all
        topics.

        A partition's leader never goes back to an older epoch of the same topic: a node that lags behind may
        answer (KIP-320). Epochs of versions that may tell former ones (KAFKA-9212) count as not told.
        """
        nodes = {
            node.node_id: Node(id=node.node_id, address=HostPort(node.host, node.port), rack=node.rack)
            for node in response.brokers
        }
        topics = {} if complete else dict(self.topics)
        for told in (_read_topic(topic, version) for topic in response.topics):
            topics[told.name] = _newest(self.topics.get(told.name), told)
        return ClusterMetadata(
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=response.controller_id,
            nodes=nodes or self.nodes,
            topics=topics,
            topic_names={
                topic.topic_id: topic.name for topic in topics.values() if topic.topic_id != NO_TOPIC_ID
            },
        )


def _read_topic(told: MetadataResponseTopic, version: int) -> TopicMetadata:
    return TopicMetadata(
        name=told.name or "",
        topic_id=TopicId(told.topic_id),
        internal=told.is_internal,
        partitions={each.partition_index: _read_partition(each, version) for each in told.partitions},
        error=ErrorCode.of(told.error_code),
    )


def _read_partition(told: MetadataResponsePartition, version: int) -> PartitionMetadata:
    return PartitionMetadata(
        leader=told.leader_id,
        leader_epoch=told.leader_epoch if version >= FIRST_VERSION_WITH_SURE_EPOCHS else -1,
        replicas=tuple(told.replica_nodes),
        isr=tuple(told.isr_nodes),
        offline=tuple(told.offline_replicas),
        error=ErrorCode.of(told.error_code),
    )


def _newest(known: TopicMetadata | None, told: TopicMetadata) -> TopicMetadata:
    """What was told, with those partitions kept as known of which more recent news was had before."""
    if known is None or known.topic_id != told.topic_id:
        return told
    newest = {
        number: known.partitions[number] if _is_older(partition, known.partitions.get(number)) else partition
        for number, partition in told.partitions.items()
    }
    return replace(told, partitions=newest)


def _is_older(told: PartitionMetadata, known: PartitionMetadata | None) -> bool:
    return known is not None and 0 <= told.leader_epoch < known.leader_epoch
