"""SyncGroup: a member's part of its generation; the leader brings everyone's."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(services: Services, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Answered by the group coordinator."""
    return await services.groups.sync(request, version=context.api_version)
