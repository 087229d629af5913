"""DescribeGroups: state and members of groups."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


async def handle(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Answered by the group coordinator."""
    return await services.groups.describe(request)
