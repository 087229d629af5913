"""DeleteGroups: forget groups that have no members."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


async def handle(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Answered by the group coordinator."""
    return await services.groups.delete_groups(request)
