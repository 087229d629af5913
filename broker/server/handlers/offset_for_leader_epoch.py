"""OffsetForLeaderEpoch: where a leader epoch ended, so that whoever has records beyond it knows what to
drop.
"""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import is_allowed, require, topic_named
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
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
                partitions=[
                    _look_up(services, context, topic.topic, partition) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    services: Services, context: RequestContext, topic: str, partition: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=partition.partition, error_code=ErrorCode.NONE)
    try:
        if not is_allowed(services, context, Operation.CLUSTER_ACTION, CLUSTER):
            require(services, context, Operation.DESCRIBE, topic_named(topic))
        replica = services.replicas.leader(topic, partition.partition, partition.current_leader_epoch)
    except ProtocolError as error:
        answer.error_code = error.code
        return answer
    answer.leader_epoch, answer.end_offset = replica.epoch_end(partition.leader_epoch)
    return answer
