"""DeleteRecords: let logs start later; the space is freed by retention."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.server.access import require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.server.topics import INTERNAL_TOPICS
from broker.types import TopicPartition
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


async def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Each partition by itself; -1 means up to the high watermark. A crash brings nothing back."""
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(services, context, topic.name, partition) for partition in topic.partitions
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
        results[partition].low_watermark = -1
        results[partition].error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return response


def _delete(
    services: Services, context: RequestContext, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
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
        replica.log.advance_start(offset)
        result.low_watermark = replica.log.log_start_offset
    except ProtocolError as error:
        result.error_code = error.code
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
