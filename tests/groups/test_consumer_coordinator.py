"""Groups of the consumer protocol as a server sees them, over a log that may refuse, move and be read back;
and groups that change from one protocol to the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.consumer_groups.classic_members import write_assignment
from broker.groups.consumer_groups.config import ConsumerGroupConfig, MigrationPolicy
from broker.groups.consumer_groups.members import TopicIdPartition
from broker.groups.coordinator import GroupCoordinator
from broker.groups.requests import Client
from broker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.coordinators.memory_log import MemoryLog
from tests.coordinators.virtual_time import VirtualClock, run
from tests.groups.fixed_topics import FixedTopics
from tests.groups.scripted_consumers import cooperative

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
CLIENT = Client(client_id="client", host="/127.0.0.1")
NONE = ErrorCode.NONE
Answer = ConsumerGroupHeartbeatResponse


class Node:
    """A coordinator with its log, and the requests that the tests send to it."""

    def __init__(self, log: MemoryLog, topics: FixedTopics, coordinator: GroupCoordinator) -> None:
        self.log = log
        self.topics = topics
        self.coordinator = coordinator

    async def join(
        self, member_id: str, *, group: str = "g", topics: list[str] | None = None, version: int = 1
    ) -> Answer:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=topics if topics is not None else ["flights"],
            topic_partitions=[],
        )
        return await self.coordinator.consumer_heartbeat(request, version=version, client=CLIENT)

    async def beat(self, member_id: str, epoch: int, owned: list[int] | None = None) -> Answer:
        topic = self.topics.current().named("flights")
        assert topic is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=[TopicPartitions(topic_id=topic.topic_id, partitions=owned)]
            if owned is not None
            else None,
        )
        return await self.coordinator.consumer_heartbeat(request, version=1, client=CLIENT)

    async def classic_join(
        self, member_id: str = "", *, owned: Mapping[str, list[int]] | None = None, version: int = 3
    ) -> JoinGroupResponse:
        metadata = cooperative(["flights"], owned)
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)],
        )
        return await self.coordinator.join(request, version=version, client=CLIENT)

    async def classic_sync(
        self, joined: JoinGroupResponse, assignments: Mapping[str, bytes] | None = None
    ) -> SyncGroupResponse:
        return await self.coordinator.sync(
            SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ],
            ),
            version=4,
        )

    async def classic_beat(self, joined: JoinGroupResponse) -> int:
        request = HeartbeatRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        return (await self.coordinator.heartbeat(request)).error_code

    async def classic_leave(self, member_id: str) -> list[int]:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
        response = await self.coordinator.leave(request, version=5)
        return [member.error_code for member in response.members]

    async def commit(self, epoch: int, member_id: str, *, version: int = 9) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name="flights", partitions=[partition])],
        )
        response = await self.coordinator.commit_offsets(request, version=version)
        return response.topics[0].partitions[0].error_code

    async def fetch(self, epoch: int = -1, member_id: str | None = None) -> tuple[int, list[int]]:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)
            ]
        )
        (group,) = (await self.coordinator.fetch_offsets(request, version=9)).groups
        offsets = [each.committed_offset for topic in group.topics for each in topic.partitions]
        return group.error_code, offsets

    async def describe(self, group: str = "g") -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        return (await self.coordinator.describe_consumer_groups(request)).groups[0]

    async def describe_classic(self, version: int = 6) -> tuple[int, str | None, str]:
        request = DescribeGroupsRequest(groups=["g"])
        (group,) = (await self.coordinator.describe(request, version=version)).groups
        return group.error_code, group.error_message, group.group_state

    async def listed(self, **filters: list[str]) -> list[tuple[str, str, str]]:
        response = await self.coordinator.list_groups(ListGroupsRequest(**filters))
        return [(each.group_id, each.group_type, each.group_state) for each in response.groups]

    async def delete(self) -> int:
        request = DeleteGroupsRequest(groups_names=["g"])
        return (await self.coordinator.delete_groups(request)).results[0].error_code

    async def move(self) -> None:
        """The partitions are led by another node for a while, then by this one again."""
        for partition in range(self.log.partition_count):
            self.coordinator.on_resigned(partition)
        for partition in range(self.log.partition_count):
            await self.coordinator.on_elected(partition, 2)


@asynccontextmanager
async def node(
    consumer: ConsumerGroupConfig | None = None,
    *,
    config: GroupConfig = CONFIG,
    of_groups: Mapping[str, ConsumerGroupConfig] | None = None,
) -> AsyncIterator[Node]:
    """`of_groups`: what holds for single groups."""
    log, topics = MemoryLog(), FixedTopics({"flights": 4})
    counter = iter(range(1, 10_000))
    everyones = consumer or ConsumerGroupConfig()
    coordinator = GroupCoordinator(
        log,
        VirtualClock(),
        replace(config, consumer=everyones),
        topics,
        consumer_config_of=None if of_groups is None else lambda group: of_groups.get(group, everyones),
        new_uuid=lambda: UUID(int=next(counter)),
    )
    async with coordinator:
        for partition in range(log.partition_count):
            await coordinator.on_elected(partition, 1)
        yield Node(log, topics, coordinator)


def partitions(answer: Answer) -> list[int]:
    assert answer.assignment is not None
    return [number for topic in answer.assignment.topic_partitions for number in topic.partitions]


# Members


def test_members_join_share_the_work_and_are_described() -> None:
    async def scenario() -> None:
        async with node() as at:
            first = await at.join("m1")
            assert (first.error_code, first.member_epoch, first.heartbeat_interval_ms) == (NONE, 1, 5000)
            assert partitions(first) == [0, 1, 2, 3]
            second = await at.join("m2")
            assert (second.member_epoch, partitions(second)) == (2, [])
            assert partitions(await at.beat("m1", 1)) == [0, 1]
            assert (await at.beat("m1", 1, [0, 1])).member_epoch == 2
            assert partitions(await at.beat("m2", 2)) == [2, 3]
            described = await at.describe()
            assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
                "Stable",
                2,
                2,
            )
            assert described.assignor_name == "uniform"
            assert [member.member_type for member in described.members] == [1, 1]
            held = [member.assignment.topic_partitions[0] for member in described.members]
            assert [(each.topic_name, list(each.partitions)) for each in held] == [
                ("flights", [0, 1]),
                ("flights", [2, 3]),
            ]

    run(scenario())


def test_a_group_goes_by_its_own_settings_from_its_next_heartbeats_on() -> None:
    async def scenario() -> None:
        own: dict[str, ConsumerGroupConfig] = {}
        async with node(of_groups=own) as at:
            assert (await at.join("m1")).heartbeat_interval_ms == 5_000
            own["g"] = ConsumerGroupConfig(session_timeout_ms=60_000, heartbeat_interval_ms=15_000)
            assert (await at.beat("m1", 1)).heartbeat_interval_ms == 15_000
            await asyncio.sleep(59.9)
            assert (await at.beat("m1", 1)).error_code == NONE
            assert (await at.join("m1", group="other")).heartbeat_interval_ms == 5_000
            own.clear()
            assert (await at.beat("m1", 1)).heartbeat_interval_ms == 5_000
            await asyncio.sleep(45.1)
            assert (await at.beat("m1", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


def test_a_member_of_the_first_version_is_given_its_name() -> None:
    async def scenario() -> None:
        async with node() as at:
            assert (await at.join("", version=0)).member_id == str(UUID(int=1))
            refused = await at.join("", version=1)
            assert (refused.error_code, refused.error_message) == (
                ErrorCode.INVALID_REQUEST,
                "MemberId can't be empty.",
            )

    run(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"member_epoch": 1, "member_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(topic_id=UUID(int=1), partitions=[1])]},
        {"subscribed_topic_names": None},
    ],
    ids=str,
)
def test_requests_that_cannot_be_right_are_refused(wrong: dict[str, object]) -> None:
    async def scenario() -> None:
        async with node() as at:
            fields: dict[str, object] = {
                "group_id": "g",
                "member_id": "m1",
                "member_epoch": 0,
                "rebalance_timeout_ms": 1000,
                "subscribed_topic_names": ["flights"],
                "topic_partitions": [],
            }
            request = ConsumerGroupHeartbeatRequest(**(fields | wrong))
            answer = await at.coordinator.consumer_heartbeat(request, version=1, client=CLIENT)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_message
            assert await at.listed() == []

    run(scenario())


def test_a_late_heartbeat_for_a_group_that_is_gone_is_told_so() -> None:
    async def scenario() -> None:
        async with node() as at:
            assert (await at.beat("m1", 3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert await at.listed() == []

    run(scenario())


def test_the_protocol_can_be_turned_off() -> None:
    async def scenario() -> None:
        async with node(ConsumerGroupConfig(is_enabled=False)) as at:
            assert (await at.join("m1")).error_code == ErrorCode.UNSUPPORTED_VERSION

    run(scenario())


# The log


def test_the_group_goes_on_where_its_partition_is_led_next() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            await at.join("m2")
            await at.beat("m1", 1)
            await at.move()
            assert (await at.beat("m1", 1, [0, 1])).member_epoch == 2
            assert partitions(await at.beat("m2", 2)) == [2, 3]
            await asyncio.sleep(44)
            await at.beat("m2", 2)
            await asyncio.sleep(2)
            assert (await at.beat("m1", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


def test_whoever_waits_when_the_coordinator_moves_is_sent_there() -> None:
    async def scenario() -> None:
        async with node() as at:
            at.log.gate.clear()
            stored = asyncio.create_task(at.join("m1"))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(at.join("m2"))
            await asyncio.sleep(0.1)
            await at.move()
            for answer in (await stored, await waiting):
                assert answer.error_code == ErrorCode.NOT_COORDINATOR
            at.log.gate.set()

    run(scenario())


def test_a_log_that_refuses_leaves_the_group_as_it_was_and_sessions_running() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            at.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await at.join("m2")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert [each.member_id for each in (await at.describe()).members] == ["m1"]
            await asyncio.sleep(100)
            assert [each.member_id for each in (await at.describe()).members] == ["m1"]
            at.log.refuses = None
            await asyncio.sleep(46)
            assert (await at.describe()).members == []

    run(scenario())


def test_a_group_that_could_not_be_made_leaves_nothing() -> None:
    async def scenario() -> None:
        async with node() as at:
            at.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await at.join("m1")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await at.listed() == []

    run(scenario())


def test_a_log_that_is_slow_has_the_round_all_the_same() -> None:
    async def scenario() -> None:
        async with node() as at:
            at.log.refuses = ErrorCode.REQUEST_TIMED_OUT
            assert (await at.join("m1")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            at.log.refuses = None
            assert (await at.join("m1")).member_epoch == 1

    run(scenario())


# Offsets


def test_offsets_are_committed_and_read_at_the_members_epoch() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            assert await at.commit(1, "m1") == NONE
            assert await at.commit(0, "m1") == ErrorCode.STALE_MEMBER_EPOCH
            assert await at.commit(1, "zombie") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await at.commit(-1, "") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await at.commit(1, "m1", version=8) == ErrorCode.UNSUPPORTED_VERSION
            assert await at.fetch() == (NONE, [5])
            assert await at.fetch(1, "m1") == (NONE, [5])
            assert await at.fetch(2, "m1") == (ErrorCode.STALE_MEMBER_EPOCH, [])
            assert await at.fetch(1, "zombie") == (ErrorCode.UNKNOWN_MEMBER_ID, [])
            await at.beat("m1", -1)
            assert await at.commit(-1, "") == NONE

    run(scenario())


def test_offsets_of_topics_in_use_stay() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            await at.commit(1, "m1")
            request = OffsetDeleteRequest(
                group_id="g",
                topics=[
                    OffsetDeleteRequestTopic(
                        name="flights", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                    )
                ],
            )
            answer = await at.coordinator.delete_offsets(request)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            await at.beat("m1", -1)
            answer = await at.coordinator.delete_offsets(request)
            assert answer.topics[0].partitions[0].error_code == NONE
            assert await at.fetch() == (NONE, [])

    run(scenario())


def test_offsets_expire_when_no_member_uses_their_topic_and_an_empty_group_with_them() -> None:
    async def scenario() -> None:
        day = 24 * 60 * 60
        config = replace(CONFIG, offsets_retention_ms=day * 1000)
        async with node(config=config) as at:
            await at.join("m1")
            await at.commit(1, "m1")
            for _ in range(2 * day // 40):
                await asyncio.sleep(40)
                await at.beat("m1", 1)
            assert await at.fetch() == (NONE, [5])
            await at.beat("m1", -1)
            at.coordinator.expire_offsets()
            await asyncio.sleep(1)
            assert await at.listed() == []
            await at.move()
            assert await at.listed() == []

    run(scenario())


# Groups as a whole


def test_groups_are_listed_by_type_and_state() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            assert await at.listed() == [("g", "consumer", "Stable")]
            assert await at.listed(types_filter=["Consumer"], states_filter=["stable"]) != []
            assert await at.listed(types_filter=["classic"]) == []
            assert await at.listed(states_filter=["Empty"]) == []

    run(scenario())


def test_each_kind_of_group_is_described_by_its_own_request() -> None:
    async def scenario() -> None:
        async with node() as at:
            missing = await at.describe()
            assert (missing.error_code, missing.error_message) == (
                ErrorCode.GROUP_ID_NOT_FOUND,
                "Group g not found.",
            )
            await at.join("m1")
            assert await at.describe_classic() == (
                ErrorCode.GROUP_ID_NOT_FOUND,
                "Group g is not a classic group.",
                "Dead",
            )
            assert await at.describe_classic(version=5) == (NONE, None, "Dead")
            await at.beat("m1", -1)
            assert await at.delete() == NONE
            await at.classic_join()
            assert (await at.describe()).error_message == "Group g is not a consumer group."
            assert (await at.describe("")).error_code == ErrorCode.INVALID_GROUP_ID

    run(scenario())


def test_a_group_is_deleted_when_nobody_is_in_it() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            await at.commit(1, "m1")
            assert await at.delete() == ErrorCode.NON_EMPTY_GROUP
            await at.beat("m1", -1)
            at.log.gate.clear()
            deletion = asyncio.create_task(at.delete())
            await asyncio.sleep(0.1)
            assert await at.commit(-1, "") == ErrorCode.COORDINATOR_NOT_AVAILABLE
            joining = asyncio.create_task(at.join("m2"))
            await asyncio.sleep(0.1)
            at.log.gate.set()
            assert await deletion == NONE
            assert (await joining).member_epoch == 1
            assert await at.fetch() == (NONE, [])
            await at.move()
            assert [each.member_id for each in (await at.describe()).members] == ["m2"]

    run(scenario())


def test_a_deletion_that_the_log_refuses_deletes_nothing() -> None:
    async def scenario() -> None:
        async with node() as at:
            await at.join("m1")
            await at.commit(1, "m1")
            await at.beat("m1", -1)
            at.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            assert await at.delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            at.log.refuses = None
            assert await at.listed() == [("g", "consumer", "Empty")]
            assert await at.fetch() == (NONE, [5])

    run(scenario())


# From one protocol to the other


async def classic_group(at: Node) -> JoinGroupResponse:
    """A stable group of one classic member that has everything."""
    joined = await at.classic_join()
    topic = at.topics.current().named("flights")
    assert topic is not None
    everything = frozenset(TopicIdPartition(topic.topic_id, number) for number in range(4))
    assignment = write_assignment(everything, at.topics.current(), 1)
    assert (await at.classic_sync(joined, {joined.member_id: assignment})).error_code == NONE
    return joined


def test_a_live_classic_group_is_upgraded_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with node() as at:
            joined = await classic_group(at)
            await at.commit(joined.generation_id, joined.member_id)
            answer = await at.join("m1")
            assert (answer.error_code, answer.member_epoch, partitions(answer)) == (NONE, 2, [])
            assert await at.listed() == [("g", "consumer", "Reconciling")]
            assert await at.fetch() == (NONE, [5])
            assert await at.commit(joined.generation_id, joined.member_id, version=8) == NONE
            assert await at.classic_beat(joined) == ErrorCode.REBALANCE_IN_PROGRESS
            await at.move()
            joined = await at.classic_join(joined.member_id, owned={"flights": [0, 1, 2, 3]})
            assert joined.generation_id == 1
            joined = await at.classic_join(joined.member_id, owned={"flights": [0, 1]})
            assert joined.generation_id == 2
            assert (await at.classic_sync(joined)).error_code == NONE
            assert partitions(await at.beat("m1", 2)) == [2, 3]
            assert [member.member_type for member in (await at.describe()).members] == [0, 1]

    run(scenario())


def test_a_classic_group_in_the_middle_of_a_rebalance_is_upgraded() -> None:
    async def scenario() -> None:
        async with node() as at:
            joined = await classic_group(at)
            other = asyncio.create_task(at.classic_join())
            await asyncio.sleep(0.1)
            assert (await at.join("m1")).error_code == NONE
            assert (await other).error_code == ErrorCode.REBALANCE_IN_PROGRESS
            again = await at.classic_join(joined.member_id)
            assert again.error_code == NONE

    run(scenario())


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_classic_group_with_members_stays_classic_where_the_policy_says_so(policy: MigrationPolicy) -> None:
    async def scenario() -> None:
        async with node(ConsumerGroupConfig(migration=policy)) as at:
            joined = await classic_group(at)
            assert (await at.join("m1")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert await at.classic_beat(joined) == NONE
            await at.classic_leave(joined.member_id)
            assert (await at.join("m1")).error_code == NONE

    run(scenario())


def test_an_upgrade_that_the_log_refuses_leaves_the_classic_group() -> None:
    async def scenario() -> None:
        async with node() as at:
            joined = await classic_group(at)
            at.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await at.join("m1")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            at.log.refuses = None
            assert await at.listed() == [("g", "classic", "Stable")]
            assert await at.classic_beat(joined) == NONE

    run(scenario())


def test_a_coordinator_that_moves_during_an_upgrade_leaves_the_classic_group() -> None:
    async def scenario() -> None:
        async with node() as at:
            joined = await classic_group(at)
            at.log.gate.clear()
            joining = asyncio.create_task(at.join("m1"))
            await asyncio.sleep(0.1)
            await at.move()
            assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
            at.log.gate.set()
            assert await at.listed() == [("g", "classic", "Stable")]
            assert await at.classic_beat(joined) == NONE

    run(scenario())


def test_the_group_is_classic_again_when_the_last_consumer_has_left() -> None:
    async def scenario() -> None:
        async with node() as at:
            joined = await classic_group(at)
            await at.join("m1")
            joined = await at.classic_join(joined.member_id, owned={})
            await at.classic_sync(joined)
            assert (await at.beat("m1", -1)).error_code == NONE
            assert await at.listed() == [("g", "classic", "PreparingRebalance")]
            assert await at.classic_beat(joined) == ErrorCode.REBALANCE_IN_PROGRESS
            await at.move()
            assert await at.listed() == [("g", "classic", "Stable")]
            joined = await at.classic_join(joined.member_id)
            assert (joined.error_code, joined.generation_id, joined.leader) == (NONE, 3, joined.member_id)

    run(scenario())


def test_an_empty_group_takes_the_protocol_of_whoever_comes() -> None:
    async def scenario() -> None:
        async with node(ConsumerGroupConfig(migration=MigrationPolicy.DISABLED)) as at:
            await at.join("m1")
            await at.commit(1, "m1")
            await at.beat("m1", -1)
            joined = await at.classic_join()
            assert (joined.error_code, joined.generation_id) == (NONE, 1)
            assert await at.listed() == [("g", "classic", "CompletingRebalance")]
            await at.classic_sync(joined, {})
            await at.classic_leave(joined.member_id)
            assert (await at.join("m2")).error_code == NONE
            assert await at.fetch() == (NONE, [5])
            await at.move()
            assert await at.listed() == [("g", "consumer", "Stable")]

    run(scenario())
