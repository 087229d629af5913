"""Heartbeat: a member lives."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(services: Services, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Answered by the group coordinator."""
    return await services.groups.heartbeat(request)
