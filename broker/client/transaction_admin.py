"""Transactions: list and describe them, find those that hang, and end them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from broker.client.admin_requests import AdminRequests
from broker.client.cluster import CoordinatorKind
from broker.client.coordinator import CoordinatorLink
from broker.client.partition_leaders import find_leaders
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_FIRST_VERSION_WITH_DURATIONS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id as its coordinator sees it; `started_ms` is -1 before its first transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerDescription:
    """A producer that a partition remembers; `first_offset` is where its open transaction begins, -1 if it
    has none, `heard_ms` when it last wrote.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    heard_ms: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """An open transaction of a partition that no coordinator knows to be open."""

    partition: TopicPartition
    producer: ProducerDescription


class TransactionAdmin(AdminRequests):
    """Operations on transactions.

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time, and ProtocolError.
    """

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, sorted by name; those of some states, producers and ages
        where asked.
        """
        metadata = await self._retried(lambda: self._cluster.refresh([]))
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=open_longer_than_ms,
        )
        listed = await asyncio.gather(*(self._list_at(node_id, request) for node_id in metadata.nodes))
        found = {each.transactional_id: each for listings in listed for each in listings}
        return [found[name] for name in sorted(found)]

    async def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription]:
        """The ids by name. Raises ProtocolError TRANSACTIONAL_ID_NOT_FOUND for one that nobody knows."""
        described = await asyncio.gather(*(self._describe_transaction(name) for name in transactional_ids))
        return dict(zip(transactional_ids, described, strict=True))

    async def describe_producers(self, partition: TopicPartition) -> list[ProducerDescription]:
        """The producers that the partition's leader remembers."""

        async def attempt() -> list[ProducerDescription]:
            node_id = await self._leader(partition)
            asked = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
            response = await self._cluster.request(node_id, DescribeProducersRequest(topics=[asked]))
            answer = response.topics[0].partitions[0]
            if answer.error_code:
                raise ProtocolError(
                    ErrorCode.of(answer.error_code), f"{partition}: {answer.error_message or 'refused'}"
                )
            return [
                ProducerDescription(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    coordinator_epoch=producer.coordinator_epoch,
                    last_sequence=producer.last_sequence,
                    heard_ms=producer.last_timestamp,
                    first_offset=producer.current_txn_start_offset,
                )
                for producer in answer.active_producers
            ]

        return await self._retried(attempt)

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, *, heard_before_ms: int
    ) -> list[HangingTransaction]:
        """Open transactions of the partitions (None: all) whose producer has not written since
        `heard_before_ms`, and which no coordinator has as open or being ended in that partition.
        """
        if partitions is None:
            metadata = await self._retried(lambda: self._cluster.refresh())
            partitions = metadata.topic_partitions(sorted(metadata.topics))
        suspects = [
            HangingTransaction(partition=partition, producer=producer)
            for partition in partitions
            for producer in await self.describe_producers(partition)
            if producer.first_offset >= 0 and producer.heard_ms <= heard_before_ms
        ]
        if not suspects:
            return []
        ids = {suspect.producer.producer_id for suspect in suspects}
        listed = await self.list_transactions(producer_ids=ids)
        described = await self.describe_transactions([each.transactional_id for each in listed])
        known = {
            (each.producer_id, partition) for each in described.values() for partition in each.partitions
        }
        return [
            suspect for suspect in suspects if (suspect.producer.producer_id, suspect.partition) not in known
        ]

    async def abort_transaction(self, partition: TopicPartition, producer: ProducerDescription) -> None:
        """End the producer's transaction in one partition, over its coordinator's head: for one
        that hangs.
        """
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )

        async def attempt() -> None:
            node_id = await self._leader(partition)
            response = await self._cluster.request(node_id, WriteTxnMarkersRequest(markers=[marker]))
            code = ErrorCode.of(response.markers[0].topics[0].partitions[0].error_code)
            if code is not ErrorCode.NONE:
                raise ProtocolError(code, f"{partition}: {code.meaning}")

        await self._retried(attempt)

    async def abort_open_transaction(
        self, partition: TopicPartition, *, start_offset: int | None = None, producer_id: int | None = None
    ) -> None:
        """As `abort_transaction`, of the transaction that begins at `start_offset`, or that the producer has.

        Raises ProtocolError INVALID_TXN_STATE when the partition has none such open.
        """
        for producer in await self.describe_producers(partition):
            is_named = producer.first_offset == start_offset or producer.producer_id == producer_id
            if producer.first_offset >= 0 and is_named:
                await self.abort_transaction(partition, producer)
                return
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE, f"{partition} has no such transaction open")

    async def _leader(self, partition: TopicPartition) -> int:
        return (await find_leaders(self._cluster, [partition], refresh=True))[partition]

    async def _list_at(self, node_id: int, request: ListTransactionsRequest) -> list[TransactionListing]:
        async def attempt() -> list[TransactionListing]:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(ListTransactionsRequest)
            if request.duration_filter >= 0 and version < _FIRST_VERSION_WITH_DURATIONS:
                raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"node {node_id} knows no durations")
            response = await connection.request(request, version)
            if response.error_code:
                raise ProtocolError(ErrorCode.of(response.error_code), f"transactions of node {node_id}")
            if response.unknown_state_filters:
                names = ", ".join(response.unknown_state_filters)
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"no such state: {names}")
            return [
                TransactionListing(
                    transactional_id=state.transactional_id,
                    coordinator=node_id,
                    producer_id=state.producer_id,
                    state=state.transaction_state,
                )
                for state in response.transaction_states
            ]

        return await self._retried(attempt)

    async def _describe_transaction(self, name: str) -> TransactionDescription:
        link = CoordinatorLink(self._cluster, name, kind=CoordinatorKind.TRANSACTION)

        async def attempt() -> TransactionDescription:
            response = await link.request(DescribeTransactionsRequest(transactional_ids=[name]))
            (state,) = response.transaction_states
            link.check(state.error_code, f"transactional id {name}")
            coordinator = await self._cluster.coordinator(name, CoordinatorKind.TRANSACTION)
            return _description(state, coordinator)

        return await self._retried(attempt)


def _description(state: TransactionState, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=coordinator,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=state.transaction_start_time_ms,
        partitions=tuple(
            TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions
        ),
    )
