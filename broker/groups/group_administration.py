"""Groups as a whole: described, listed, deleted."""

from __future__ import annotations

import asyncio

from broker.errors import ErrorCode, ProtocolError
from broker.groups.consumer_requests import described_consumer_group
from broker.groups.led_groups import LedGroups
from broker.groups.requests import DESCRIBE_VERSION_WITH_MESSAGE, described
from broker.groups.state import State
from broker.groups.view import view_of
from broker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from broker.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from broker.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


class GroupAdministration(LedGroups):
    """What administrators ask of the groups that this node leads."""

    async def describe(self, request: DescribeGroupsRequest, *, version: int) -> DescribeGroupsResponse:
        """DescribeGroups, of classic groups: others are shown as Dead, by newer versions as not found."""
        return DescribeGroupsResponse(
            groups=[self._describe(group_id, version=version) for group_id in request.groups]
        )

    def _describe(self, group_id: str, *, version: int) -> DescribedGroup:
        try:
            group = self._partition_for(group_id).find(group_id)
        except ProtocolError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        if group is not None and group.image is None:
            return described(group_id, view_of(group.standing))
        told = version >= DESCRIBE_VERSION_WITH_MESSAGE
        is_not = "is not a classic group" if group is not None else "not found"
        return DescribedGroup(
            group_id=group_id,
            group_state=State.DEAD.value,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if told else ErrorCode.NONE,
            error_message=f"Group {group_id} {is_not}." if told else None,
        )

    async def describe_consumer_groups(
        self, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        """ConsumerGroupDescribe, of groups of the consumer protocol."""
        return ConsumerGroupDescribeResponse(
            groups=[self._describe_consumer_group(group_id) for group_id in request.group_ids]
        )

    def _describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        if not group_id:
            return DescribedConsumerGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            group = self._partition_for(group_id).find(group_id)
        except ProtocolError as error:
            return DescribedConsumerGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
        image = group.image if group is not None else None
        if image is not None and image.exists:
            default_assignor = self._config.consumer.assignors[0]
            return described_consumer_group(group_id, image, self._topics.current(), default_assignor)
        is_not = "is not a consumer group" if group is not None else "not found"
        return DescribedConsumerGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {is_not}.",
        )

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups: those on this node, by state and type where asked; the error says that some are still
        being read.
        """
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        loading = any(not partition.is_live for partition in self._partitions)
        return ListGroupsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE,
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state_name,
                    group_type=group.type.value,
                )
                for group in self._live_groups()
                if (not states or group.state_name.lower() in states)
                and (not types or group.type.value in types)
            ],
        )

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """DeleteGroups: those without members, with all their offsets."""
        errors = await asyncio.gather(*(self._delete_group(group_id) for group_id in request.groups_names))
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=group_id, error_code=error)
                for group_id, error in zip(request.groups_names, errors, strict=True)
            ]
        )

    async def _delete_group(self, group_id: str) -> ErrorCode:
        try:
            group = self._partition_for(group_id).find(group_id)
        except ProtocolError as error:
            return error.code
        if group is None or group.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        return await group.delete()
