"""CreatePartitions: topics grow; they never shrink."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.types import BrokerId
from broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Each topic grows, or is refused, by itself."""
    return CreatePartitionsResponse(
        results=[await _grow(services, context, request, topic) for topic in request.topics]
    )


async def _grow(
    services: Services,
    context: RequestContext,
    request: CreatePartitionsRequest,
    topic: CreatePartitionsTopic,
) -> CreatePartitionsTopicResult:
    try:
        require(services, context, Operation.ALTER, topic_named(topic.name))
        current = services.view.image.topic(topic.name)
        if current is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.count <= len(current.partitions):
            raise ProtocolError(
                ErrorCode.INVALID_PARTITIONS,
                f"{topic.name} has {len(current.partitions)} partitions, {topic.count} would not be more",
            )
        if context.throttle is not None and not request.validate_only:
            context.throttle.spend_mutations(topic.count - len(current.partitions))
        await services.topics.add_partitions(
            topic.name,
            topic.count,
            assignment=_assignment(topic),
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
    except ProtocolError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=topic.name)


def _assignment(topic: CreatePartitionsTopic) -> list[list[BrokerId]] | None:
    if topic.assignments is None:
        return None
    return [[BrokerId(broker) for broker in assignment.broker_ids] for assignment in topic.assignments]
