"""Consumer groups: list, describe, delete, and move their offsets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from broker.client.admin_requests import AdminRequests, Results
from broker.client.coordinator import CoordinatorLink
from broker.client.group_descriptions import (
    DEAD,
    GroupDescription,
    GroupListing,
    described_classic,
    described_consumers,
)
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


class GroupAdmin(AdminRequests):
    """Operations on groups.

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """The groups of all coordinators, sorted by name; of these states and types where any are given.
        Raises ProtocolError.
        """
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        metadata = await self._retried(lambda: self._cluster.refresh([]))
        listed = await asyncio.gather(*(self._list_groups_at(node_id, request) for node_id in metadata.nodes))
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

    async def _list_groups_at(self, node_id: int, request: ListGroupsRequest) -> list[GroupListing]:
        async def attempt() -> list[GroupListing]:
            response = await self._cluster.request(node_id, request)
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
            coordinator = await self._cluster.coordinator(group_id)
            return (
                await self._describe_consumers(link, group_id, coordinator)
                or await self._describe_classic(link, group_id, coordinator)
                or GroupDescription(
                    group_id=group_id,
                    state=DEAD,
                    protocol_type="",
                    protocol="",
                    coordinator=coordinator,
                    members=(),
                )
            )

        return await self._retried(attempt)

    async def _describe_consumers(
        self, link: CoordinatorLink, group_id: str, coordinator: int
    ) -> GroupDescription | None:
        """None when it is no group of the consumer protocol, or the node does not serve those.

        One that does not may lack the API, or name it and refuse it, as Kafka 3.7 to 3.9 do with ZooKeeper.
        """
        try:
            response = await link.request(ConsumerGroupDescribeRequest(group_ids=[group_id]))
            for group in response.groups:
                if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    return None
                link.check(group.error_code, f"group {group_id}")
                return described_consumers(group, coordinator)
        except ProtocolError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        return None

    async def _describe_classic(
        self, link: CoordinatorLink, group_id: str, coordinator: int
    ) -> GroupDescription | None:
        """None when there is no such group, where the node tells that apart from a dead one."""
        response = await link.request(DescribeGroupsRequest(groups=[group_id]))
        for group in response.groups:
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            link.check(group.error_code, f"group {group_id}")
            return described_classic(group, coordinator)
        return None

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
