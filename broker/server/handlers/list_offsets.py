"""ListOffsets: either end of a log, or the first record at or after a time.

What a lookup by time needs of the disk is read by the disk's threads.
"""

from __future__ import annotations

from collections.abc import Coroutine
from enum import IntEnum
from functools import partial
from typing import Any

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.replication.replica import READ_COMMITTED, Replica
from broker.server.access import require, topic_named
from broker.server.cold_reads import read_once_warm
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.storage.page_cache import ColdReadError, resident_only
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_EPOCH_FROM = 4
_NOT_AVAILABLE_FROM = 5
"""First version whose clients know OFFSET_NOT_AVAILABLE."""


CONSUMER = -1
DEBUGGER = -2
"""Ids of clients in place of a node's: the second asks any replica, and for its log as it is."""


class Special(IntEnum):
    """Timestamps that mean an end of the log and no time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Each partition is looked up by itself; at once where all that this needs is in memory."""
    try:
        with resident_only:
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            _look_up(services, context, request, topic.name, partition)
                            for partition in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
    except ColdReadError:
        return _from_disk(services, context, request)


async def _from_disk(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        found = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(found)
        for partition in topic.partitions:
            look_up = partial(_look_up, services, context, request, topic.name, partition)
            found.partitions.append(await read_once_warm(look_up, services.disk_threads))
    return response


def _look_up(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    partition: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    answer, version = (
        ListOffsetsPartitionResponse(partition_index=partition.partition_index),
        context.api_version,
    )
    try:
        require(services, context, Operation.DESCRIBE, topic_named(topic))
        replica = _replica(services, request.replica_id, topic, partition)
        if version == 0:
            answer.old_style_offsets = _old_style(replica, partition)
            return answer
        is_settled = replica.machine.is_settled
        if request.replica_id != CONSUMER:
            end, is_settled = replica.log.log_end_offset, True
        elif request.isolation_level == READ_COMMITTED:
            end = replica.last_stable_offset
        else:
            end = replica.high_watermark
        answer.offset, answer.timestamp = _offset_of(replica, partition.timestamp, end, is_settled=is_settled)
        if answer.offset >= 0 and version >= _EPOCH_FROM:
            answer.leader_epoch = _epoch_of(replica, answer.offset)
    except StorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    except ProtocolError as error:
        answer.error_code = error.code
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _NOT_AVAILABLE_FROM:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return answer


def _replica(services: Services, asker: int, topic: str, partition: ListOffsetsPartition) -> Replica:
    """The leader, or whatever replica is here for those who look at each. Raises ProtocolError."""
    number, epoch = partition.partition_index, partition.current_leader_epoch
    if asker != DEBUGGER:
        return services.replicas.leader(topic, number, epoch)
    replica = services.replicas.find(topic, number)
    replica.machine.require_epoch(epoch)
    return replica


def _offset_of(replica: Replica, timestamp: int, end: int, *, is_settled: bool) -> tuple[int, int]:
    """Offset and timestamp; (-1, -1) when no record is that young.

    Raises ProtocolError OFFSET_NOT_AVAILABLE where a new leader does not know yet (KIP-207): former ones may
    have committed more than is settled here.
    """
    log = replica.log
    match timestamp:
        case Special.LATEST:
            if not is_settled:
                raise _not_available(replica)
            return end, -1
        case Special.EARLIEST | Special.EARLIEST_LOCAL:
            return log.log_start_offset, -1
        case Special.LATEST_TIERED:
            return -1, -1
        case Special.MAX_TIMESTAMP:
            found = log.offset_of_largest_timestamp()
        case _ if timestamp < 0:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} means nothing")
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        if not is_settled:
            raise _not_available(replica)
        return -1, -1
    return found.offset, found.timestamp


def _not_available(replica: Replica) -> ProtocolError:
    machine = replica.machine
    return ProtocolError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{machine.topic_partition}: known to be committed up to {machine.high_watermark}, the leader epoch "
        f"began at {machine.epoch_start_offset}",
    )


def _epoch_of(replica: Replica, offset: int) -> int:
    """The leader epoch that the record was written in; the current one for the end of the log."""
    if offset >= replica.log.log_end_offset:
        return replica.machine.leader_epoch
    return replica.log.leader_epochs.epoch_at(offset)


def _old_style(replica: Replica, partition: ListOffsetsPartition) -> list[int]:
    """At most so many offsets at or before a time, the largest first: where it is, and where the segments
    before begin. Version 0.
    """
    log = replica.log
    match partition.timestamp:
        case Special.LATEST:
            last = replica.high_watermark
        case Special.EARLIEST:
            last = log.log_start_offset
        case timestamp:
            found = log.offset_for_timestamp(timestamp)
            last = replica.high_watermark if found is None else min(found.offset, replica.high_watermark)
    begins = {max(segment.base_offset, log.log_start_offset) for segment in log.segments}
    offsets = sorted({last, *(begin for begin in begins if begin < last)}, reverse=True)
    return offsets[: max(partition.max_num_offsets, 0)]
