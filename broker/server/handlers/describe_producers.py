"""DescribeProducers: the producers that partitions remember, and where their open transactions begin."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Each partition by itself; any replica answers, whether it leads or not."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(services, context, topic.name, partition)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(services: Services, context: RequestContext, topic: str, partition: int) -> PartitionResponse:
    try:
        require(services, context, Operation.READ, topic_named(topic))
        return PartitionResponse(
            partition_index=partition, active_producers=_producers(services, topic, partition)
        )
    except ProtocolError as error:
        return PartitionResponse(
            partition_index=partition, error_code=error.code, error_message=error.message
        )


def _producers(services: Services, topic: str, partition: int) -> list[ProducerState]:
    """Raises ProtocolError when this node holds no replica."""
    replica = services.replicas.get(topic, partition)
    if replica is None:
        known = services.view.image.partition(TopicPartition(topic, partition))
        raise ProtocolError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"no replica of {topic}-{partition} is here",
        )
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_heard_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for producer_id, entry in replica.log.producers
    ]
