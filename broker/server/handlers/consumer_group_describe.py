"""ConsumerGroupDescribe: state and members of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import ErrorCode
from broker.server.access import allowed_operations, group_named, is_allowed, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Answered by the group coordinator, for those that may be described with all topics they name."""
    denied = [
        name
        for name in request.group_ids
        if not is_allowed(services, context, Operation.DESCRIBE, group_named(name))
    ]
    request.group_ids = [name for name in request.group_ids if name not in denied]
    response = await services.groups.describe_consumer_groups(request)
    response.groups = [
        described
        if all(
            is_allowed(services, context, Operation.DESCRIBE, topic_named(name))
            for name in _topics_of(described)
        )
        else DescribedGroup(
            group_id=described.group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
        for described in response.groups
    ]
    if request.include_authorized_operations:
        for described in response.groups:
            described.authorized_operations = allowed_operations(
                services, context, group_named(described.group_id)
            )
    response.groups += [
        DescribedGroup(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in denied
    ]
    return response


def _topics_of(described: DescribedGroup) -> Iterator[str]:
    for member in described.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            yield from (each.topic_name for each in assignment.topic_partitions)
