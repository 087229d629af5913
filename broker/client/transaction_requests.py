"""What a transactional producer asks of coordinators: its own, and those of the groups whose offsets it
commits. Requests are repeated where that helps, for a time; everything else is raised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from broker.client.backoff import Backoff, Retries
from broker.client.cluster import Cluster, CoordinatorKind
from broker.client.coordinator import CoordinatorLink
from broker.client.group_offsets import Membership, OffsetAndMetadata
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.client.producer_settings import ProducerSettings
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import NO_PRODUCER_ID, TopicPartition
from broker.wire.features import TRANSACTION_VERSION
from broker.wire.message import Request, ResponseType
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_FIRST_INIT_VERSION_WITH_FORMER = 3
_LAST_SINGLE_ADD_VERSION = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
_LAST_END_VERSION_OF_FIRST_PROTOCOL = 4
_LAST_OFFSET_COMMIT_VERSION_OF_FIRST_PROTOCOL = 4
_FIRST_OFFSET_COMMIT_VERSION_WITH_MEMBERS = 3
_PAUSES = Backoff(initial_ms=20.0, max_ms=500.0)
"""Markers of the transaction before this one take a moment to be written."""
_Result = TypeVar("_Result")


class Ended(NamedTuple):
    """A transaction's end, as the coordinator answers it."""

    identity: ProducerIdentity | None
    """For the next one; None to go on with the present one."""
    version: int
    """The finalized `transaction.version` by now."""


class TransactionRequests:
    """The requests of one transactional id. All raise ProtocolError for a refusal, and the last
    ConnectionFailedError or RequestTimedOutError when `max_block_ms` are over.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, settings: ProducerSettings, *, lane: str | None = None
    ) -> None:
        """`lane`: connections of the caller's, which `close` leaves alone; None for own ones."""
        self._cluster = cluster
        self._id = transactional_id
        self._settings = settings
        self._owns_lane = lane is None
        self._lane = lane if lane is not None else cluster.new_lane("transaction")
        self._link = CoordinatorLink(
            cluster, transactional_id, kind=CoordinatorKind.TRANSACTION, lane=self._lane
        )

    async def close(self) -> None:
        """Close the connections that are its own."""
        if self._owns_lane:
            await self._cluster.release_lane(self._lane)

    async def init(self, former: ProducerIdentity) -> Ended:
        """An identity that fences every earlier producer of the id; `former` (or NO_IDENTITY) is the one that
        the caller had itself. The coordinator aborts what was left open first.
        """

        async def attempt() -> Ended:
            connection = await self._link.connection()
            known = former is not NO_IDENTITY and (
                connection.version_of(InitProducerIdRequest) >= _FIRST_INIT_VERSION_WITH_FORMER
            )
            request = InitProducerIdRequest(
                transactional_id=self._id,
                transaction_timeout_ms=self._settings.transaction_timeout_ms,
                producer_id=former.producer_id if known else NO_PRODUCER_ID,
                producer_epoch=former.epoch if known else -1,
            )
            response = await self._ask(self._link, request)
            self._link.check(response.error_code, f"producer id of {self._id}")
            return Ended(
                ProducerIdentity(response.producer_id, response.producer_epoch), await self._version()
            )

        return await self._until_done(attempt)

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        awaits_topics: bool = True,
    ) -> None:
        """Make partitions part of the transaction (first protocol). Unless it `awaits_topics`, one that is
        not there is a refusal: what comes to be there may be another than was meant.
        """
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            by_topic[topic].append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic.items()
            ],
        )

        async def attempt() -> None:
            response = await self._ask(self._link, request, at_most=_LAST_SINGLE_ADD_VERSION)
            answers = [
                (result.partition_error_code, f"{topic.name}-{result.partition_index}")
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
            answers.sort(key=lambda answer: answer[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for code, name in answers:
                self._link.check(code, f"{name} in a transaction of {self._id}")

        final_codes = () if awaits_topics else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
        await self._until_done(attempt, final_codes)

    async def end(self, identity: ProducerIdentity, *, commit: bool, by_leaders: bool) -> Ended:
        """Commit or abort; `by_leaders`: it is a transaction of the second protocol."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )
        at_most = None if by_leaders else _LAST_END_VERSION_OF_FIRST_PROTOCOL

        async def attempt() -> Ended:
            response = await self._ask(self._link, request, at_most=at_most)
            self._link.check(response.error_code, f"end of a transaction of {self._id}")
            told = ProducerIdentity(response.producer_id, response.producer_epoch)
            return Ended(told if told.producer_id >= 0 else None, await self._version())

        return await self._until_done(attempt)

    async def add_offsets(self, identity: ProducerIdentity, group_id: str) -> None:
        """Make the offsets of a group part of the transaction (first protocol)."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )

        async def attempt() -> None:
            response = await self._ask(self._link, request)
            self._link.check(response.error_code, f"offsets of {group_id} in a transaction of {self._id}")

        await self._until_done(attempt)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        group_id: str,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        by_leaders: bool,
    ) -> None:
        """Commit positions of a group, to count once the transaction is committed."""
        link = CoordinatorLink(self._cluster, group_id, lane=self._lane)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=_topics_of(offsets),
        )
        at_most = None if by_leaders else _LAST_OFFSET_COMMIT_VERSION_OF_FIRST_PROTOCOL

        async def attempt() -> None:
            connection = await link.connection()
            version = connection.version_of(TxnOffsetCommitRequest, at_most=at_most)
            if version >= _FIRST_OFFSET_COMMIT_VERSION_WITH_MEMBERS:
                request.generation_id = membership.generation
                request.member_id = membership.member_id
                request.group_instance_id = membership.instance_id
            response = await self._ask(link, request, at_most=at_most)
            for topic in response.topics:
                for partition in topic.partitions:
                    link.check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}")

        await self._until_done(attempt)

    async def _version(self) -> int:
        connection = await self._link.connection()
        return connection.finalized_features.get(TRANSACTION_VERSION, 0)

    async def _ask(
        self, link: CoordinatorLink, request: Request[ResponseType], *, at_most: int | None = None
    ) -> ResponseType:
        connection = await link.connection()
        return await link.request(request, connection.version_of(type(request), at_most=at_most))

    async def _until_done(
        self, attempt: Callable[[], Awaitable[_Result]], final_codes: Collection[ErrorCode] = ()
    ) -> _Result:
        retries = Retries(_PAUSES, timeout_ms=self._settings.max_block_ms, random=self._cluster.random)
        while True:
            try:
                return await attempt()
            except BrokerError as error:
                if isinstance(error, ProtocolError) and error.code in final_codes:
                    raise
                await retries.pause(error)


def _topics_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TxnOffsetCommitRequestTopic]:
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), position in offsets.items():
        by_topic[topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return [
        TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
        for topic, partitions in by_topic.items()
    ]
