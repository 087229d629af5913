"""DeleteGroups: forget groups that have no members."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.access import group_named, is_allowed
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def handle(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Answered by the group coordinator, for those that may be deleted."""
    denied = [
        name
        for name in request.groups_names
        if not is_allowed(services, context, Operation.DELETE, group_named(name))
    ]
    request.groups_names = [name for name in request.groups_names if name not in denied]
    response = await services.groups.delete_groups(request)
    response.results += [
        DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for name in denied
    ]
    return response
