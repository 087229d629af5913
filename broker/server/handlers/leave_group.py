"""LeaveGroup: members go, and the others share their partitions at once."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


async def handle(
    services: Services, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Answered by the group coordinator."""
    return await services.groups.leave(request, version=context.api_version)
