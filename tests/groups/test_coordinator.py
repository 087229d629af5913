"""The coordinator as a server sees it, over a log that may refuse, move and be read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.coordinator import GroupCoordinator
from broker.groups.log_codec import GroupRecord, OffsetRecord, read_log
from broker.groups.requests import Client
from broker.types import TopicPartition
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
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
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.coordinators.memory_log import MemoryLog
from tests.coordinators.virtual_time import VirtualClock, run, stall
from tests.groups.fixed_topics import FixedTopics
from tests.groups.scripted_group import subscription

CONFIG = GroupConfig(initial_rebalance_delay_ms=100)
SESSION_MS = 10_000
CLIENT = Client(client_id="client", host="/127.0.0.1")
COMMIT_VERSION = 8


class Node:
    """A coordinator with its log, and the requests that the tests send to it."""

    def __init__(self, log: MemoryLog, coordinator: GroupCoordinator) -> None:
        self.log = log
        self.coordinator = coordinator

    async def join(
        self, member_id: str = "", *, group: str = "g", instance_id: str | None = None, version: int = 3
    ) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("flights"))],
        )
        return await self.coordinator.join(request, version=version, client=CLIENT)

    async def sync(
        self, joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None, *, group: str = "g"
    ) -> SyncGroupResponse:
        return await self.coordinator.sync(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ],
            ),
            version=4,
        )

    async def heartbeat(self, joined: JoinGroupResponse, *, group: str = "g") -> int:
        request = HeartbeatRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        return (await self.coordinator.heartbeat(request)).error_code

    async def leave(self, *member_ids: str, group: str = "g") -> list[int]:
        request = LeaveGroupRequest(
            group_id=group, members=[MemberIdentity(member_id=member_id) for member_id in member_ids]
        )
        response = await self.coordinator.leave(request, version=5)
        return [response.error_code, *(member.error_code for member in response.members)]

    async def commit(
        self,
        offset: int,
        *,
        joined: JoinGroupResponse | None = None,
        group: str = "g",
        topic: str = "flights",
        metadata: str | None = None,
        version: int = COMMIT_VERSION,
    ) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=joined.generation_id if joined is not None else -1,
            member_id=joined.member_id if joined is not None else "",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        response = await self.coordinator.commit_offsets(request, version=version)
        return response.topics[0].partitions[0].error_code

    async def committed(self, *, group: str = "g") -> dict[TopicPartition, int]:
        response = await self.coordinator.fetch_offsets(
            OffsetFetchRequest(group_id=group, topics=None), version=7
        )
        assert response.error_code == ErrorCode.NONE
        return {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in response.topics
            for partition in topic.partitions
        }

    async def describe(self, group: str = "g") -> DescribedGroup:
        return (await self.coordinator.describe(DescribeGroupsRequest(groups=[group]), version=5)).groups[0]

    async def list(self, *states: str, types: tuple[str, ...] = ()) -> dict[str, str]:
        response = await self.coordinator.list_groups(
            ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        )
        assert response.error_code == ErrorCode.NONE
        return {group.group_id: group.group_state for group in response.groups}

    async def delete(self, group: str = "g") -> int:
        response = await self.coordinator.delete_groups(DeleteGroupsRequest(groups_names=[group]))
        return response.results[0].error_code

    async def stable(self, count: int, *, group: str = "g") -> list[JoinGroupResponse]:
        """Members that share the work, the leader first."""
        joined = await asyncio.gather(*(self.join(group=group) for _ in range(count)))
        assignments = {each.member_id: each.member_id.encode() for each in joined}
        await asyncio.gather(
            *(self.sync(each, assignments if each.members else None, group=group) for each in joined)
        )
        assert (await self.describe(group)).group_state == "Stable"
        return sorted(joined, key=lambda each: not each.members)

    def records(self) -> list[object]:
        return [
            entry
            for partition in sorted(self.log.batches)
            for batch in self.log.batches[partition]
            for entry in read_log(batch, batch_bytes_max=1 << 20)
        ]


@asynccontextmanager
async def node(
    config: GroupConfig = CONFIG, *, log: MemoryLog | None = None, elected: bool = True
) -> AsyncIterator[Node]:
    log = log or MemoryLog()
    counter = iter(range(1, 10_000))
    coordinator = GroupCoordinator(
        log, VirtualClock(), config, FixedTopics(), new_uuid=lambda: UUID(int=next(counter))
    )
    async with coordinator:
        if elected:
            for partition in range(log.partition_count):
                await coordinator.on_elected(partition, 1)
        yield Node(log, coordinator)


def test_members_join_share_the_work_and_send_heartbeats() -> None:
    async def scenario() -> None:
        async with node() as here:
            leader, second = await here.stable(2)
            assert leader.leader == second.leader == leader.member_id
            assert leader.protocol_name == "range"
            assert await here.heartbeat(second) == ErrorCode.NONE
            described = await here.describe()
            assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
            assert {member.member_assignment for member in described.members} == {
                leader.member_id.encode(),
                second.member_id.encode(),
            }
            assert {(member.client_id, member.client_host) for member in described.members} == {
                ("client", "/127.0.0.1")
            }

    run(scenario())


def test_a_new_member_has_the_others_join_again_and_one_that_vanishes_is_noticed() -> None:
    async def scenario() -> None:
        async with node() as here:
            (first,) = await here.stable(1)
            joining = asyncio.create_task(here.join())
            await asyncio.sleep(0)
            assert await here.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
            first = await here.join(first.member_id)
            second = await joining
            await asyncio.gather(here.sync(first, {second.member_id: b"2"}), here.sync(second))
            for _ in range(3):
                await asyncio.sleep(SESSION_MS / 1_000 - 1)
                await here.heartbeat(first)
            assert [each.member_id for each in (await here.describe()).members] == [first.member_id]
            assert await here.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


def test_from_version_4_on_a_member_comes_back_with_the_id_it_was_given() -> None:
    async def scenario() -> None:
        async with node() as here:
            first = await here.join(version=9)
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert first.member_id == f"client-{UUID(int=1)}"
            assert first.protocol_name is None
            joined = await here.join(first.member_id, version=9)
            assert (joined.error_code, joined.protocol_type) == (ErrorCode.NONE, "consumer")

    run(scenario())


def test_the_group_is_stored_before_anyone_is_told_its_assignment() -> None:
    async def scenario() -> None:
        async with node() as here:
            joined = await here.join()
            here.log.gate.clear()
            syncing = asyncio.create_task(here.sync(joined, {joined.member_id: b"all"}))
            await asyncio.sleep(5)
            assert not syncing.done()
            here.log.gate.set()
            assert (await syncing).assignment == b"all"
            stored = here.records()[-1]
            assert isinstance(stored, GroupRecord)
            assert stored.metadata is not None
            assert stored.metadata.members[0].assignment == b"all"

    run(scenario())


@pytest.mark.parametrize(
    ("version", "protocol_type", "protocol", "error", "error_when_stale"),
    [
        (4, None, None, ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION),
        (5, "consumer", "range", ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION),
        (5, "consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.ILLEGAL_GENERATION),
        (5, None, None, *[ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2),
        (5, "consumer", None, *[ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2),
        (5, None, "range", *[ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 2),
    ],
)
def test_a_sync_says_what_the_group_speaks_from_the_version_on_that_can(
    version: int,
    protocol_type: str | None,
    protocol: str | None,
    error: ErrorCode,
    error_when_stale: ErrorCode,
) -> None:
    async def scenario() -> None:
        async with node() as here:
            joined = await here.join()
            current = joined.generation_id
            for generation, expected in ((current - 1, error_when_stale), (current, error)):
                request = SyncGroupRequest(
                    group_id="g",
                    generation_id=generation,
                    member_id=joined.member_id,
                    protocol_type=protocol_type,
                    protocol_name=protocol,
                )
                answer = await here.coordinator.sync(request, version=version)
                assert answer.error_code == expected

    run(scenario())


def test_an_assignment_that_the_log_refuses_is_told_and_the_group_starts_over() -> None:
    async def scenario() -> None:
        async with node() as here:
            joined = await here.join()
            here.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            synced = await here.sync(joined, {joined.member_id: b"all"})
            assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await here.describe()).group_state == "PreparingRebalance"

    run(scenario())


def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with node() as here:
            joining = asyncio.create_task(here.join())
            await asyncio.sleep(0)
            joining.cancel()
            await asyncio.sleep(1)
            waiters = here.coordinator._waiters
            assert len(waiters) == 0
            await asyncio.sleep(70)
            assert (await here.describe()).group_state == "Empty"

    run(scenario())


def test_requests_about_groups_that_are_not_known_leave_no_trace() -> None:
    async def scenario() -> None:
        async with node() as here:
            nobody = JoinGroupResponse(member_id="nobody", generation_id=1)
            assert await here.heartbeat(nobody) == ErrorCode.UNKNOWN_MEMBER_ID
            assert (await here.sync(nobody)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await here.leave("nobody") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
            assert (await here.join("nobody")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await here.commit(1, joined=nobody) == ErrorCode.ILLEGAL_GENERATION
            assert await here.commit(1, joined=nobody, version=9) == ErrorCode.GROUP_ID_NOT_FOUND
            assert await here.committed() == {}
            assert (await here.describe()).group_state == "Dead"
            assert await here.delete() == ErrorCode.GROUP_ID_NOT_FOUND
            assert await here.list() == {}
            assert here.records() == []

    run(scenario())


def test_an_empty_group_id_is_refused_where_members_are_meant() -> None:
    async def scenario() -> None:
        async with node() as here:
            assert (await here.join(group="")).error_code == ErrorCode.INVALID_GROUP_ID
            assert await here.commit(5, group="") == ErrorCode.NONE
            assert await here.committed(group="") == {TopicPartition("flights", 0): 5}

    run(scenario())


def test_offsets_are_committed_by_members_and_fetched_by_anyone() -> None:
    async def scenario() -> None:
        async with node() as here:
            (member,) = await here.stable(1)
            assert await here.commit(10, joined=member, metadata="note") == ErrorCode.NONE
            assert await here.commit(11, topic="weather", joined=member) == ErrorCode.NONE
            request = OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[OffsetFetchRequestTopics(name="flights", partition_indexes=[0, 1])],
                    ),
                    OffsetFetchRequestGroup(group_id="other", topics=None),
                ]
            )
            here_too, other = (await here.coordinator.fetch_offsets(request, version=8)).groups
            known, unknown = here_too.topics[0].partitions
            assert (known.committed_offset, known.metadata) == (10, "note")
            assert (unknown.committed_offset, unknown.metadata, unknown.error_code) == (-1, "", 0)
            assert (other.error_code, other.topics) == (ErrorCode.NONE, [])

    run(scenario())


def test_a_commit_is_seen_only_once_it_is_in_the_log_and_many_share_a_batch() -> None:
    async def scenario() -> None:
        async with node() as here:
            here.log.gate.clear()
            commits = [asyncio.create_task(here.commit(offset)) for offset in range(50)]
            await asyncio.sleep(1)
            assert await here.committed() == {}
            here.log.gate.set()
            assert await asyncio.gather(*commits) == [ErrorCode.NONE] * 50
            assert await here.committed() == {TopicPartition("flights", 0): 49}
            assert sum(len(batches) for batches in here.log.batches.values()) <= 2

    run(scenario())


def test_a_zombies_commit_and_one_of_an_outsider_are_refused() -> None:
    async def scenario() -> None:
        async with node() as here:
            zombie, other = await here.stable(2)
            await here.leave(zombie.member_id)
            rejoined = await here.join(other.member_id)
            assert await here.commit(1, joined=zombie) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await here.commit(1, joined=other) == ErrorCode.ILLEGAL_GENERATION
            assert await here.commit(1, joined=rejoined) == ErrorCode.REBALANCE_IN_PROGRESS
            assert await here.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await here.committed() == {}

    run(scenario())


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_the_log_refuses_is_not_seen(refusal: ErrorCode, told: ErrorCode) -> None:
    async def scenario() -> None:
        async with node() as here:
            await here.commit(1)
            here.log.refuses = refusal
            assert await here.commit(2) == told
            assert await here.committed() == {TopicPartition("flights", 0): 1}

    run(scenario())


def test_partitions_of_a_commit_are_refused_one_by_one() -> None:
    async def scenario() -> None:
        async with node(replace(CONFIG, offset_metadata_size_max=4)) as here:
            request = OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=index,
                                committed_offset=1,
                                committed_metadata="x" * (3 + index),
                            )
                            for index in range(3)
                        ],
                    )
                ],
            )
            response = await here.coordinator.commit_offsets(request, version=COMMIT_VERSION)
            assert [each.error_code for each in response.topics[0].partitions] == [
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ]
            assert len(await here.committed()) == 2

    run(scenario())


def test_more_commits_than_may_wait_are_turned_away() -> None:
    async def scenario() -> None:
        async with node(replace(CONFIG, appends_pending_max=3)) as here:
            here.log.gate.clear()
            commits = [asyncio.create_task(here.commit(offset)) for offset in range(10)]
            await asyncio.sleep(1)
            here.log.gate.set()
            errors = await asyncio.gather(*commits)
            assert errors == [*[ErrorCode.NONE] * 3, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 7]

    run(scenario())


def test_a_fetch_of_a_version_without_a_group_error_shows_it_on_every_partition() -> None:
    async def scenario() -> None:
        async with node(elected=False) as here:
            request = OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            )
            old = await here.coordinator.fetch_offsets(request, version=1)
            assert [each.error_code for each in old.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2
            new = await here.coordinator.fetch_offsets(request, version=2)
            assert (new.error_code, new.topics) == (ErrorCode.NOT_COORDINATOR, [])

    run(scenario())


def test_groups_are_listed_by_state_and_type() -> None:
    async def scenario() -> None:
        async with node() as here:
            await here.stable(1, group="active")
            await here.commit(1, group="simple")
            assert await here.list() == {"active": "Stable", "simple": "Empty"}
            assert await here.list("stable") == {"active": "Stable"}
            assert await here.list(types=("Classic",)) == {"active": "Stable", "simple": "Empty"}
            assert await here.list(types=("consumer",)) == {}

    run(scenario())


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        async with node(log=log) as here:
            (member,) = await here.stable(1)
            await here.commit(1, joined=member)
            assert await here.delete() == ErrorCode.NON_EMPTY_GROUP
            await here.leave(member.member_id)
            assert await here.delete() == ErrorCode.NONE
            assert await here.list() == {}
            assert await here.committed() == {}
            assert await here.delete() == ErrorCode.GROUP_ID_NOT_FOUND
        async with node(log=log) as there:
            assert await there.list() == {}
            assert await there.committed() == {}

    run(scenario())


def test_a_group_whose_deletion_the_log_refuses_is_there_as_before() -> None:
    async def scenario() -> None:
        async with node() as here:
            (member,) = await here.stable(1)
            await here.commit(1, joined=member)
            await here.leave(member.member_id)
            await asyncio.sleep(1)
            assert len(here.records()) == 3
            here.log.gate.clear()
            here.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            deleting = asyncio.create_task(here.delete())
            await asyncio.sleep(1)
            assert (await here.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await here.commit(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            here.log.gate.set()
            assert await deleting == ErrorCode.COORDINATOR_NOT_AVAILABLE
            here.log.refuses = None
            assert (await here.describe()).group_state == "Empty"
            assert await here.committed() == {TopicPartition("flights", 0): 1}
            assert (await here.join()).generation_id == member.generation_id + 2

    run(scenario())


def test_members_that_left_before_the_log_failed_do_not_come_back_for_good() -> None:
    async def scenario() -> None:
        async with node() as here:
            (member,) = await here.stable(1)
            here.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
            await here.leave(member.member_id)
            assert await here.delete() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            here.log.refuses = None
            await asyncio.sleep(SESSION_MS / 1_000 + 1)
            assert (await here.describe()).group_state == "Empty"
            assert await here.delete() == ErrorCode.NONE

    run(scenario())


def test_offsets_of_topics_in_use_are_not_deleted_others_are() -> None:
    async def scenario() -> None:
        async with node() as here:
            (member,) = await here.stable(1)
            for topic in ("flights", "weather"):
                await here.commit(1, joined=member, topic=topic)
            request = OffsetDeleteRequest(
                group_id="g",
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                    )
                    for topic in ("flights", "weather", "never committed")
                ],
            )
            response = await here.coordinator.delete_offsets(request)
            assert [topic.partitions[0].error_code for topic in response.topics] == [
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                ErrorCode.NONE,
                ErrorCode.NONE,
            ]
            assert await here.committed() == {TopicPartition("flights", 0): 1}
            await here.leave(member.member_id)
            await here.coordinator.delete_offsets(request)
            assert await here.committed() == {}

    run(scenario())


def test_offsets_of_deleted_topics_are_forgotten() -> None:
    async def scenario() -> None:
        async with node() as here:
            for group in ("one", "two"):
                await here.commit(1, group=group)
                await here.commit(2, group=group, topic="weather")
            await here.coordinator.on_topics_deleted({"flights"})
            for group in ("one", "two"):
                assert await here.committed(group=group) == {TopicPartition("weather", 0): 2}

    run(scenario())


def test_offsets_of_a_group_without_members_expire_and_the_group_with_them() -> None:
    async def scenario() -> None:
        config = replace(CONFIG, offsets_retention_ms=3_600_000, offsets_retention_check_interval_ms=60_000)
        async with node(config) as here:
            (member,) = await here.stable(1)
            await here.commit(1, joined=member)
            for _ in range(1_000):
                await asyncio.sleep(5)
                await here.heartbeat(member)
            await here.leave(member.member_id)
            await asyncio.sleep(3_500)
            assert await here.committed() == {TopicPartition("flights", 0): 1}
            await asyncio.sleep(200)
            assert await here.committed() == {}
            assert await here.list() == {}
            gone = [record for record in here.records() if isinstance(record, GroupRecord)][-1]
            assert gone.metadata is None

    run(scenario())


def test_a_stall_of_this_process_does_not_throw_everyone_out() -> None:
    async def scenario() -> None:
        async with node() as here:
            members = await here.stable(3)
            stall(60_000)
            await asyncio.sleep(1)
            assert [await here.heartbeat(member) for member in members[:2]] == [ErrorCode.NONE] * 2
            assert len((await here.describe()).members) == 3
            await asyncio.sleep(SESSION_MS / 1_000 - 1)
            assert len((await here.describe()).members) == 2

    run(scenario())


def test_a_group_moves_to_another_node_with_its_members_and_offsets() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        async with node(log=log) as here:
            leader, second = await here.stable(2)
            await here.commit(7, joined=second)
            before = await here.describe()
        async with node(log=log) as there:
            assert await there.describe() == before
            assert await there.committed() == {TopicPartition("flights", 0): 7}
            assert await there.heartbeat(second) == ErrorCode.NONE
            assert (await there.sync(second)).assignment == second.member_id.encode()
            assert await there.commit(8, joined=leader) == ErrorCode.NONE
            await asyncio.sleep(SESSION_MS / 1_000 + 1)
            assert (await there.describe()).group_state == "Empty"

    run(scenario())


def test_when_the_coordinator_moves_in_the_middle_of_a_rebalance_its_waiters_look_elsewhere() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        async with node(log=log) as here:
            (member,) = await here.stable(1)
            joining = asyncio.create_task(here.join())
            log.gate.clear()
            committing = asyncio.create_task(here.commit(1, joined=member))
            await asyncio.sleep(0.001)
            here.coordinator.on_resigned(here.coordinator.partition_of("g"))
            assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
            assert await committing == ErrorCode.NOT_COORDINATOR
            assert await here.heartbeat(member) == ErrorCode.NOT_COORDINATOR
            log.gate.set()
            await here.coordinator.on_elected(here.coordinator.partition_of("g"), 2)
            assert await here.heartbeat(member) == ErrorCode.NONE

    run(scenario())


def test_while_a_partition_is_being_read_its_groups_are_not_served() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        async with node(log=log) as here:
            (member,) = await here.stable(1)
        log.reading.clear()
        async with node(log=log, elected=False) as there:
            partition = there.coordinator.partition_of("g")
            loading = asyncio.create_task(there.coordinator.on_elected(partition, 2))
            await asyncio.sleep(1)
            assert (await there.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await there.commit(1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await there.heartbeat(member) == ErrorCode.NONE
            assert (await there.sync(member)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
            assert (await there.describe()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            listed = await there.coordinator.list_groups(ListGroupsRequest())
            assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            log.reading.set()
            await loading
            assert (await there.describe()).group_state == "Stable"

    run(scenario())


def test_a_node_that_resigns_while_it_reads_serves_nothing() -> None:
    async def scenario() -> None:
        log = MemoryLog(1)
        async with node(log=log) as here:
            await here.stable(1)
        log.reading.clear()
        async with node(log=log, elected=False) as there:
            loading = asyncio.create_task(there.coordinator.on_elected(0, 2))
            await asyncio.sleep(1)
            there.coordinator.on_resigned(0)
            log.reading.set()
            await loading
            assert (await there.join()).error_code == ErrorCode.NOT_COORDINATOR

    run(scenario())


def test_an_election_told_again_changes_nothing_and_a_newer_one_reads_the_log_anew() -> None:
    async def scenario() -> None:
        async with node() as here:
            (member,) = await here.stable(1)
            joining = asyncio.create_task(here.join())
            await asyncio.sleep(0)
            partition = here.coordinator.partition_of("g")
            await here.coordinator.on_elected(partition, 1)
            assert (await here.describe()).group_state == "PreparingRebalance"
            await here.coordinator.on_elected(partition, 2)
            assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
            assert (await here.describe()).group_state == "Stable"
            assert await here.heartbeat(member) == ErrorCode.NONE

    run(scenario())


def test_a_node_that_lost_the_leadership_without_being_told_does_not_serve() -> None:
    async def scenario() -> None:
        async with node() as here:
            (member,) = await here.stable(1)
            here.log.leads.clear()
            assert await here.heartbeat(member) == ErrorCode.NOT_COORDINATOR

    run(scenario())


def test_before_the_topic_exists_there_is_no_coordinator() -> None:
    async def scenario() -> None:
        async with node(log=MemoryLog(0)) as here:
            assert (await here.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario())


def test_a_damaged_log_costs_what_is_damaged_and_no_more() -> None:
    async def scenario() -> None:
        log = MemoryLog(1)
        async with node(log=log) as here:
            await here.commit(1, group="one")
            await here.commit(2, group="two")
        damaged = bytearray(log.batches[0][0])
        damaged[-1] ^= 0xFF
        log.batches[0][0] = bytes(damaged)
        async with node(log=log) as there:
            assert await there.list() == {"two": "Empty"}

    run(scenario())


def test_closing_the_coordinator_answers_everyone_and_leaves_no_task() -> None:
    async def scenario() -> None:
        async with node() as here:
            joining = asyncio.create_task(here.join())
            here.log.gate.clear()
            committing = asyncio.create_task(here.commit(1, group="other"))
            await asyncio.sleep(0)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert await committing == ErrorCode.NOT_COORDINATOR
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())


def test_a_member_id_stays_short_however_long_the_client_id_is() -> None:
    async def scenario() -> None:
        async with node() as here:
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=SESSION_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            long_named = Client(client_id="é" * 16_000, host="/h")
            joined = await here.coordinator.join(request, version=0, client=long_named)
            assert joined.error_code == ErrorCode.NONE
            synced = await here.sync(joined, {joined.member_id: b"all"})
            assert synced.error_code == ErrorCode.NONE

    run(scenario())


def test_a_commit_with_a_retention_of_its_own_is_stored_with_it() -> None:
    async def scenario() -> None:
        async with node() as here:
            request = OffsetCommitRequest(
                group_id="g",
                retention_time_ms=1_000,
                topics=[
                    OffsetCommitRequestTopic(
                        name="t", partitions=[OffsetCommitRequestPartition(committed_offset=3)]
                    )
                ],
            )
            await here.coordinator.commit_offsets(request, version=4)
            (record,) = here.records()
            assert isinstance(record, OffsetRecord)
            assert record.committed is not None
            assert record.committed.expire_timestamp_ms == record.committed.commit_timestamp_ms + 1_000

    run(scenario())
