"""ListGroups: the groups that this node coordinates."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


async def handle(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """Answered by the group coordinator."""
    return await services.groups.list_groups(request)
