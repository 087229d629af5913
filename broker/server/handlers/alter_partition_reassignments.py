"""AlterPartitionReassignments: partitions move to other brokers, or no longer."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answered by the controller once the moves are written down, partition by partition."""
    targets = {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(map(BrokerId, partition.replicas))
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    errors = await services.controller.reassign(targets)
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(
                        partition.partition_index,
                        errors[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(partition: int, error: ProtocolError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
