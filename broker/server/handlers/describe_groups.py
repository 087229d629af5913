"""DescribeGroups: state and members of groups."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.access import allowed_operations, group_named, is_allowed
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


async def handle(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Answered by the group coordinator, for those that may be described."""
    denied = [
        name
        for name in request.groups
        if not is_allowed(services, context, Operation.DESCRIBE, group_named(name))
    ]
    request.groups = [name for name in request.groups if name not in denied]
    response = await services.groups.describe(request, version=context.api_version)
    if request.include_authorized_operations:
        for described in response.groups:
            described.authorized_operations = allowed_operations(
                services, context, group_named(described.group_id)
            )
    response.groups += [
        DescribedGroup(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in denied
    ]
    return response
