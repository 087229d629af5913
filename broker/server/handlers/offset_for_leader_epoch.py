"""OffsetForLeaderEpoch: where a leader epoch ended, so that whoever has records beyond it knows what to
drop.
"""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Each partition is looked up by itself."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_look_up(services, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _look_up(services: Services, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=partition.partition, error_code=ErrorCode.NONE)
    try:
        replica = services.replicas.leader(topic, partition.partition, partition.current_leader_epoch)
    except ProtocolError as error:
        answer.error_code = error.code
        return answer
    if partition.leader_epoch == replica.machine.leader_epoch:
        answer.leader_epoch, answer.end_offset = partition.leader_epoch, replica.log.log_end_offset
    else:
        end = replica.log.leader_epochs.end_offset_for(partition.leader_epoch, replica.log.log_end_offset)
        answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
    return answer
