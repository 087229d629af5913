"""ConsumerGroupHeartbeat: all that a member of the consumer protocol says (KIP-848)."""

from __future__ import annotations

from broker.server.access import is_allowed, require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Answered by the group coordinator. Raises ProtocolError when a topic may not be described; what may not
    be is not found by an expression.
    """
    for name in request.subscribed_topic_names or ():
        require(services, context, Operation.DESCRIBE, topic_named(name))
    return await services.groups.consumer_heartbeat(
        request,
        version=context.api_version,
        client=context.client,
        may_see=lambda name: is_allowed(services, context, Operation.DESCRIBE, topic_named(name)),
    )
