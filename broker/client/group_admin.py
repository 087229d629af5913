"""Consumer groups: list, describe, delete, and move their offsets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from broker.client.admin_requests import AdminRequests, Results
from broker.client.coordinator import CoordinatorLink
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.client.group_protocol import PROTOCOL_TYPE, read_assignment
from broker.errors import ErrorCode, ProtocolError, WireError
from broker.types import TopicPartition
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as its coordinator lists it; `state` and `type` are empty where the node is too old to tell."""

    group_id: str
    protocol_type: str
    state: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group and the partitions it has."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as its coordinator sees it; `protocol` is the name of the assignor in use."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]


class GroupAdmin(AdminRequests):
    """Operations on groups.

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all coordinators, sorted by name. Raises ProtocolError."""
        metadata = await self._retried(lambda: self._cluster.refresh([]))
        listed = await asyncio.gather(*(self._list_groups_at(node_id) for node_id in metadata.nodes))
        groups = {group.group_id: group for groups in listed for group in groups}
        return [groups[group_id] for group_id in sorted(groups)]

    async def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        """The groups by name; one that nobody knows is described as Dead. Raises ProtocolError."""
        described = await asyncio.gather(*(self._describe_group(group_id) for group_id in group_ids))
        return dict(zip(group_ids, described, strict=True))

    async def delete_groups(self, group_ids: Collection[str]) -> Results:
        """Delete groups that have no members. Each succeeds or fails by itself."""
        outcomes = await asyncio.gather(*(self._delete_group(group_id) for group_id in group_ids))
        return dict(zip(group_ids, outcomes, strict=True))

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, for all partitions or for those given. Raises ProtocolError."""
        return await fetch_offsets(self._cluster, group_id, partitions, timeout_ms=self._timeout_ms)

    async def reset_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Set the offsets of a group without members.

        Raises ProtocolError: UNKNOWN_MEMBER_ID when it has some.
        """
        positions = {
            partition: OffsetAndMetadata(offset=offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        await commit_offsets(self._cluster, group_id, positions, timeout_ms=self._timeout_ms)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Forget the group's offsets of topics that it does not subscribe to.

        Raises ProtocolError for the whole group.
        """
        link = self._link(group_id)
        topics: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
        for partition in partitions:
            topics[partition.topic].append(OffsetDeleteRequestPartition(partition_index=partition.partition))
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=listed) for name, listed in topics.items()
            ],
        )

        async def attempt() -> dict[TopicPartition, ProtocolError | None]:
            response = await link.request(request)
            link.check(response.error_code, f"group {group_id}")
            return {
                TopicPartition(topic.name, answer.partition_index): (
                    ProtocolError(ErrorCode.of(answer.error_code)) if answer.error_code else None
                )
                for topic in response.topics
                for answer in topic.partitions
            }

        return await self._retried(attempt)

    def _link(self, group_id: str) -> CoordinatorLink:
        return CoordinatorLink(self._cluster, group_id)

    async def _list_groups_at(self, node_id: int) -> list[GroupListing]:
        async def attempt() -> list[GroupListing]:
            response = await self._cluster.request(node_id, ListGroupsRequest())
            if response.error_code:
                raise ProtocolError(ErrorCode.of(response.error_code), f"groups of node {node_id}")
            return [
                GroupListing(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    state=group.group_state,
                    type=group.group_type,
                )
                for group in response.groups
            ]

        return await self._retried(attempt)

    async def _describe_group(self, group_id: str) -> GroupDescription:
        link = self._link(group_id)

        async def attempt() -> GroupDescription:
            response = await link.request(DescribeGroupsRequest(groups=[group_id]))
            for group in response.groups:
                link.check(group.error_code, f"group {group_id}")
                return _description(group, await self._cluster.coordinator(group_id))
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}: no answer about it")

        return await self._retried(attempt)

    async def _delete_group(self, group_id: str) -> ProtocolError | None:
        link = self._link(group_id)

        async def attempt() -> None:
            response = await link.request(DeleteGroupsRequest(groups_names=[group_id]))
            for result in response.results:
                link.check(result.error_code, f"group {group_id}")

        try:
            await self._retried(attempt)
        except ProtocolError as error:
            return error
        return None


def _description(group: DescribedGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_member(member, group.protocol_type) for member in group.members),
    )


def _member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    """A member of another protocol, or one whose assignment is garbled, is shown without partitions."""
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            assignment = read_assignment(member.member_assignment).partitions
        except WireError:
            assignment = ()
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=assignment,
    )
