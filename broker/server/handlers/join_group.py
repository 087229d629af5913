"""JoinGroup: become a member; the answer waits until the generation is complete."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


async def handle(services: Services, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Answered by the group coordinator."""
    return await services.groups.join(request, version=context.api_version, client=context.client)
