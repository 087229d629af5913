"""OffsetDelete: forget committed offsets of topics that nobody in the group reads."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.access import is_allowed, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Answered by the group coordinator, for topics that may be read."""
    denied = [
        topic
        for topic in request.topics
        if not is_allowed(services, context, Operation.READ, topic_named(topic.name))
    ]
    request.topics = [topic for topic in request.topics if topic not in denied]
    response = await services.groups.delete_offsets(request)
    if response.error_code == ErrorCode.NONE:
        response.topics += [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in denied
        ]
    return response
