"""WriteTxnMarkers: a transaction's coordinator ends it in the partitions that this node leads.

Each marker is an append with acks=all: the coordinator hears of it when it is committed, and on the disk
where the flush settings want that. A marker that was stored before may come again, and is stored again; but
not into the producer's next transaction, where its version tells one from the other (KIP-1228). In
`__consumer_offsets` it decides about offsets that groups committed in the transaction: there the group
coordinator must have read the partition first, and has taken the end in when it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError
from broker.groups.coordinator import GroupCoordinator
from broker.records.control import Marker, MarkerType
from broker.replication.replica import Replica
from broker.server.internal_topics import CONSUMER_OFFSETS
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_RAISES_EPOCH_FROM = 2
"""First `transaction.version` with which an end has a later epoch than what it ends."""


class _Pending(NamedTuple):
    """A marker that is in the log, and its answer."""

    replica: Replica
    next_offset: int
    commit: asyncio.Future[None] | None
    answer: WritableTxnMarkerPartitionResult
    producer_id: int
    committed: bool


async def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Append every marker, then wait for all of them."""
    pending: list[_Pending] = []
    response = _response(request, partial(_append, services, pending))
    await _settle(services.groups, pending, services.limits.request_timeout_ms)
    return response


def refuse(request: WriteTxnMarkersRequest, error: ProtocolError, version: int) -> WriteTxnMarkersResponse:
    """Every partition answered with the same error."""
    return _response(
        request,
        lambda marker, topic, partition: WritableTxnMarkerPartitionResult(
            partition_index=partition, error_code=error.code
        ),
    )


def _response(
    request: WriteTxnMarkersRequest,
    answer: Callable[[WritableTxnMarker, str, int], WritableTxnMarkerPartitionResult],
) -> WriteTxnMarkersResponse:
    """The answers to every marker, topic and partition of the request."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[answer(marker, topic.name, index) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _append(
    services: Services, pending: list[_Pending], asked: WritableTxnMarker, topic: str, partition: int
) -> WritableTxnMarkerPartitionResult:
    answer = WritableTxnMarkerPartitionResult(partition_index=partition)
    marker = Marker(
        type=MarkerType.COMMIT if asked.transaction_result else MarkerType.ABORT,
        coordinator_epoch=asked.coordinator_epoch,
    )
    try:
        replica = services.replicas.leader(topic, partition)
        if topic == CONSUMER_OFFSETS and not services.groups.serves(partition):
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not read yet")
        _require_in_time(replica, asked)
        appended = replica.append_marker(
            marker, asked.producer_id, asked.producer_epoch, now_ms=services.clock.now_ms()
        )
    except ProtocolError as error:
        answer.error_code = error.code
        return answer
    next_offset = appended.last_offset + 1
    acknowledged = replica.acknowledgement(next_offset, -1)
    pending.append(
        _Pending(
            replica, next_offset, acknowledged, answer, asked.producer_id, bool(asked.transaction_result)
        )
    )
    return answer


def _require_in_time(replica: Replica, asked: WritableTxnMarker) -> None:
    """From `transaction.version` 2 on every end raises the epoch, so a marker never has that of what it ends.
    Raises ProtocolError INVALID_PRODUCER_EPOCH for one that would end the next transaction.
    """
    if asked.transaction_version >= _RAISES_EPOCH_FROM and replica.log.producers.is_in_transaction(
        asked.producer_id, asked.producer_epoch
    ):
        raise ProtocolError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"marker of epoch {asked.producer_epoch} for producer {asked.producer_id}, whose transaction of "
            "that epoch is still open",
        )


async def _settle(groups: GroupCoordinator, pending: list[_Pending], timeout_ms: int) -> None:
    """Wait for the disk and the other replicas; what is not done in time is answered so, and may yet be
    committed.
    """
    settled = 0
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for waiting in pending:
                await _settle_one(groups, waiting)
                settled += 1
    except TimeoutError:
        for waiting in pending[settled:]:
            waiting.answer.error_code = ErrorCode.REQUEST_TIMED_OUT


async def _settle_one(groups: GroupCoordinator, waiting: _Pending) -> None:
    try:
        if waiting.replica.flush_is_due:
            await waiting.replica.flush_through(waiting.next_offset)
        if waiting.commit is not None:
            await waiting.commit
        topic, partition = waiting.replica.topic_partition
        if topic == CONSUMER_OFFSETS:
            await groups.transaction_ended(partition, waiting.producer_id, committed=waiting.committed)
    except ProtocolError as error:
        waiting.answer.error_code = error.code
