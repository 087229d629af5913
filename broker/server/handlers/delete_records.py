"""DeleteRecords: let logs start later; the space is freed by retention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.replication.replica import Replica
from broker.server.access import require, topic_named
from broker.server.internal_topics import INTERNAL_TOPICS
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


class _Pending(NamedTuple):
    """A partition whose followers have not all heard yet."""

    replica: Replica
    offset: int
    done: asyncio.Future[None]
    result: DeleteRecordsPartitionResult


async def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Each partition by itself; -1 means up to the high watermark. A crash brings nothing back, nor does
    another leader: it is answered when the in-sync replicas start there too.
    """
    pending: list[_Pending] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(services, context, topic.name, partition, pending)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    results = {
        TopicPartition(topic.name, result.partition_index): result
        for topic in response.topics
        for result in topic.partitions
        if not result.error_code
    }
    for partition in await services.replicas.store_start_offsets(results):
        _fail(results[partition], ErrorCode.KAFKA_STORAGE_ERROR)
    await _settle(pending, request.timeout_ms)
    return response


async def _settle(pending: Sequence[_Pending], timeout_ms: int) -> None:
    """Wait for the followers; who is not done in time may yet be."""
    settled = 0
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            for waiting in pending:
                await _settle_one(waiting)
                settled += 1
    except TimeoutError:
        for waiting in pending[settled:]:
            waiting.done.cancel()
            _fail(waiting.result, ErrorCode.REQUEST_TIMED_OUT)


async def _settle_one(waiting: _Pending) -> None:
    try:
        await waiting.done
        waiting.result.low_watermark = waiting.replica.low_watermark
    except ProtocolError as error:
        _fail(waiting.result, error.code)


def _fail(result: DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    result.low_watermark, result.error_code = -1, code


def _delete(
    services: Services,
    context: RequestContext,
    topic: str,
    asked: DeleteRecordsPartition,
    pending: list[_Pending],
) -> DeleteRecordsPartitionResult:
    """What is to be told; what has to be waited for is noted in `pending`."""
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        require(services, context, Operation.DELETE, topic_named(topic))
        if topic in INTERNAL_TOPICS:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by its cluster only")
        replica = services.replicas.leader(topic, asked.partition_index)
        if not replica.log.config.deletes:
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted")
        offset = replica.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= replica.high_watermark:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is beyond the high watermark {replica.high_watermark}",
            )
        done = replica.delete_before(offset)
        result.low_watermark = replica.low_watermark
        if done is not None:
            pending.append(_Pending(replica, offset, done, result))
    except ProtocolError as error:
        result.error_code = error.code
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
