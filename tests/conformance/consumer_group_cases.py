"""Outcomes of the APIs of groups of the consumer protocol (KIP-848), version by version."""

from __future__ import annotations

from uuid import uuid4

from broker.errors import ErrorCode
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.conformance.scene import NONE, Scene, until

OWN_IDS_FROM = 1
"""First version in which a member makes its id up by itself."""
JOINS, LEAVES = 0, -1


class Member:
    """A member of a group of its own, subscribed to a topic of two partitions."""

    def __init__(self, scene: Scene, version: int, group_id: str, topic: str) -> None:
        self.scene = scene
        self.version = version
        self.group_id = group_id
        self.topic = topic
        self.member_id = str(uuid4()) if version >= OWN_IDS_FROM else ""
        self.epoch = JOINS

    async def beat(
        self, *, epoch: int | None = None, owned: list[TopicPartitions] | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        joins = epoch is None and self.epoch == JOINS
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=[self.topic] if joins else None,
            topic_partitions=[] if joins else owned,
        )
        return await self.scene.ask(request, self.version)

    async def join(self) -> ConsumerGroupHeartbeatResponse:
        """Joins, and has its partitions."""
        answer = await self.beat()
        assert answer.error_code == NONE
        self.member_id, self.epoch = answer.member_id or self.member_id, answer.member_epoch
        if not (answer.assignment and answer.assignment.topic_partitions):
            answer = await until(self.beat, lambda told: bool(told.assignment))
        return answer


async def _member(scene: Scene, version: int) -> Member:
    return Member(scene, version, await scene.new_group(), await scene.new_topic(partitions=2))


async def _describe(scene: Scene, version: int, group_id: str) -> DescribedGroup:
    (group,) = (await scene.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), version)).groups
    assert group.group_id == group_id
    return group


async def heartbeat_joins_and_assigns(scene: Scene, version: int) -> None:
    member = await _member(scene, version)
    answer = await member.join()
    assert member.member_id
    assert answer.member_epoch > 0
    assert answer.heartbeat_interval_ms > 0
    assert answer.assignment is not None
    (assigned,) = answer.assignment.topic_partitions
    assert assigned.topic_id == await scene.topic_id(member.topic)
    assert sorted(assigned.partitions) == [0, 1]
    owned = [TopicPartitions(topic_id=assigned.topic_id, partitions=[0, 1])]
    kept = await member.beat(owned=owned)
    assert (kept.error_code, kept.member_epoch, kept.assignment) == (NONE, member.epoch, None)


async def heartbeat_leaves(scene: Scene, version: int) -> None:
    member = await _member(scene, version)
    await member.join()
    left = await member.beat(epoch=LEAVES)
    assert (left.error_code, left.member_epoch) == (NONE, LEAVES)
    assert (await member.beat(owned=[])).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def heartbeat_fences_a_member_of_another_epoch(scene: Scene, version: int) -> None:
    member = await _member(scene, version)
    await member.join()
    assert (await member.beat(epoch=member.epoch + 1)).error_code == ErrorCode.FENCED_MEMBER_EPOCH


async def heartbeat_refuses_strangers(scene: Scene, version: int) -> None:
    member = await _member(scene, version)
    await member.join()
    member.member_id = str(uuid4())
    assert (await member.beat(owned=[])).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def describe_shows_members(scene: Scene, version: int) -> None:
    member = await _member(scene, version)
    await member.join()
    group = await _describe(scene, version, member.group_id)
    assert (group.error_code, group.group_state) in ((NONE, "Stable"), (NONE, "Reconciling"))
    assert (group.assignor_name, group.group_epoch) == ("uniform", group.assignment_epoch)
    (shown,) = group.members
    assert (shown.member_id, shown.member_epoch) == (member.member_id, member.epoch)
    assert (shown.client_id, shown.subscribed_topic_names) == ("mirrormaker", [member.topic])
    (target,) = shown.target_assignment.topic_partitions
    assert (target.topic_name, sorted(target.partitions)) == (member.topic, [0, 1])
    assert shown.member_type == (1 if version >= 1 else -1)


async def describe_does_not_find_the_unknown(scene: Scene, version: int) -> None:
    group = await _describe(scene, version, await scene.new_group())
    assert (group.error_code, group.members) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
