"""ListGroups: the groups that this node coordinates."""

from __future__ import annotations

from broker.server.access import group_named, is_allowed
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


async def handle(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """Answered by the group coordinator; shown are those that may be described, or all with the cluster."""
    response = await services.groups.list_groups(request)
    if not is_allowed(services, context, Operation.DESCRIBE, CLUSTER):
        response.groups = [
            listed
            for listed in response.groups
            if is_allowed(services, context, Operation.DESCRIBE, group_named(listed.group_id))
        ]
    return response
