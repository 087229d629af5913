from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from broker.client import group_offsets
from broker.client.assignors import Assignment, Assignor, CooperativeStickyAssignor, RangeAssignor
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.group import GroupMember
from broker.client.group_offsets import (
    OffsetAndMetadata,
    OffsetsRefusedError,
    commit_offsets,
    fetch_offsets,
)
from broker.client.group_protocol import describe_assignments, read_assignment, read_subscription
from broker.client.group_settings import GroupSettings
from broker.client.subscription import TopicFilter
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from broker.wire.messages.leave_group import LeaveGroupRequest
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
)
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.client.coordinating import CoordinatingPeer
from tests.client.peers import PeerCluster, serving
from tests.client.running import QUICK, run, until

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
SETTINGS = GroupSettings(
    group_id="g", heartbeat_interval_ms=5, session_timeout_ms=5_000, rebalance_timeout_ms=5_000
)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Membership:
    """A member under test and what it was told, in order."""

    def __init__(self, cluster: Cluster, scripted: PeerCluster, peer: CoordinatingPeer) -> None:
        self.cluster, self.scripted, self.peer = cluster, scripted, peer
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.member: GroupMember
        self.running: asyncio.Task[None]

    def join(
        self,
        settings: GroupSettings = SETTINGS,
        subscription: list[str] | TopicFilter | None = None,
        assignors: tuple[Assignor, ...] = (RangeAssignor(),),
    ) -> GroupMember:
        async def assigned(partitions: frozenset[TopicPartition]) -> None:
            self.told.append(("assigned", partitions))

        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            self.told.append(("revoked", partitions))
            await self.member.commit({partition: OffsetAndMetadata(offset=9) for partition in partitions})

        async def lost(partitions: frozenset[TopicPartition]) -> None:
            self.told.append(("lost", partitions))

        self.member = GroupMember(
            self.cluster,
            settings,
            subscription=["t"] if subscription is None else subscription,
            on_assigned=assigned,
            on_revoked=revoked,
            on_lost=lost,
            assignors=assignors,
        )
        self.running = asyncio.create_task(self.member.run())
        return self.member

    async def generation(self, number: int) -> None:
        """Wait until the member has adopted this generation."""
        await until(lambda: self.member.generation >= number and self.member._settled.is_set())


@asynccontextmanager
async def membership(*, partitions: int = 2, nodes: int = 1) -> AsyncIterator[Membership]:
    peers = [CoordinatingPeer(number + 1) for number in range(nodes)]
    async with (
        serving(peers, partitions=partitions) as scripted,
        Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
    ):
        subject = Membership(cluster, scripted, peers[0])
        yield subject
        if not subject.running.done():
            await subject.member.close()
            await subject.running


BOTH = frozenset({ZERO, ONE})


def test_a_member_joins_is_assigned_commits_and_leaves() -> None:
    async def main() -> None:
        async with membership() as subject:
            member = subject.join()
            await member.settled()
            assert (member.member_id, member.generation, member.is_leader) == ("member-1", 1, True)
            assert member.assignment == BOTH
            await member.commit({ZERO: OffsetAndMetadata(offset=5, metadata="note", leader_epoch=2)})
            assert await member.committed([ZERO, ONE]) == {ZERO: OffsetAndMetadata(offset=5, metadata="note")}
            await member.close()
            await subject.running
            assert subject.told == [("assigned", BOTH), ("revoked", BOTH)]
            (left,) = subject.peer.seen(LeaveGroupRequest)
            assert left.members[0].member_id == "member-1"
            assert {
                (c.member_id, c.generation_id_or_member_epoch) for c in subject.peer.seen(OffsetCommitRequest)
            } == {("member-1", 1)}
            with pytest.raises(ProtocolError, match="ILLEGAL_GENERATION"):
                await member.commit({ZERO: OffsetAndMetadata(offset=5)})

    run(main)


def test_a_member_leaves_while_a_node_does_not_tell_of_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.client.test_group.CONNECTIONS", replace(CONNECTIONS, request_timeout_ms=3_600_000)
    )

    async def main() -> None:
        async with membership() as subject:
            await subject.join(replace(SETTINGS, metadata_max_age_ms=1)).settled()
            subject.peer.on(MetadataRequest, lambda _: None)
            asked = len(subject.peer.seen(MetadataRequest))
            await until(lambda: len(subject.peer.seen(MetadataRequest)) > asked)
            await subject.member.close()
            await subject.running
            assert subject.told == [("assigned", BOTH), ("revoked", BOTH)]

    run(main)


def test_a_member_joins_again_with_the_id_it_is_given() -> None:
    async def main() -> None:
        async with membership() as subject:
            subject.peer.join_codes = [ErrorCode.MEMBER_ID_REQUIRED]
            await subject.join().settled()
            assert [request.member_id for request in subject.peer.seen(JoinGroupRequest)] == ["", "given"]
            assert subject.member.member_id == "given"

    run(main)


def test_a_rebalance_revokes_everything_while_commits_still_count_then_assigns_anew() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.heartbeat_codes = [ErrorCode.REBALANCE_IN_PROGRESS]
            await subject.generation(2)
            assert subject.told == [("assigned", BOTH), ("revoked", BOTH), ("assigned", BOTH)]
            assert [c.generation_id_or_member_epoch for c in subject.peer.seen(OffsetCommitRequest)] == [1]
            assert subject.peer.seen(JoinGroupRequest)[1].member_id == "member-1"

    run(main)


def test_a_member_that_was_thrown_out_loses_its_partitions_and_joins_as_a_new_one() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.join_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
            subject.peer.heartbeat_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
            await subject.generation(2)
            assert subject.told == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]
            assert [request.member_id for request in subject.peer.seen(JoinGroupRequest)] == [
                "",
                "member-1",
                "",
            ]

    run(main)


def test_a_refused_commit_is_raised_and_the_member_joins_again() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.commit_codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION]
            with pytest.raises(ProtocolError, match="ILLEGAL_GENERATION: offset of group g for t-0"):
                await subject.member.commit({ZERO: OffsetAndMetadata(offset=5)})
            await subject.generation(2)
            assert subject.told == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]

    run(main)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_of_the_generation_before_is_refused_and_costs_no_partitions(code: ErrorCode) -> None:
    """The coordinator has all members of the next generation, of which this one has not heard yet."""

    async def main() -> None:
        async with membership() as subject:
            await subject.join(assignors=(CooperativeStickyAssignor(),)).settled()
            subject.peer.may_join.clear()
            subject.member.request_rejoin()
            await until(lambda: len(subject.peer.seen(JoinGroupRequest)) == 2)
            subject.peer.commit_codes = [code]
            with pytest.raises(ProtocolError, match=code.name):
                await subject.member.commit({ZERO: OffsetAndMetadata(offset=5)})
            subject.peer.may_join.set()
            await subject.generation(2)
            await subject.member.commit({ZERO: OffsetAndMetadata(offset=5)})
            subject.member.request_rejoin()
            await subject.generation(3)
            assert subject.told == [("assigned", BOTH), ("assigned", frozenset()), ("assigned", frozenset())]
            assert subject.peer.offsets[ZERO].offset == 5

    run(main)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_generation_that_ends_before_the_sync_is_joined_again(code: ErrorCode) -> None:
    async def main() -> None:
        async with membership() as subject:
            subject.peer.sync_codes = [code]
            await subject.join().settled()
            assert subject.member.generation == 2
            assert subject.told == [("assigned", BOTH)]

    run(main)


def test_a_coordinator_that_moved_is_found_without_a_rebalance() -> None:
    async def main() -> None:
        async with membership(nodes=2) as subject:
            await subject.join().settled()
            subject.scripted.coordinator = 2
            subject.peer.heartbeat_codes = [ErrorCode.NOT_COORDINATOR]
            other = subject.scripted.peers[2]
            await until(lambda: len(other.seen(HeartbeatRequest)) > 2)
            subject.peer.commit_codes = [ErrorCode.NOT_COORDINATOR]
            await subject.member.commit({ZERO: OffsetAndMetadata(offset=5)})
            assert len(other.seen(OffsetCommitRequest)) == 1
            assert subject.told == [("assigned", BOTH)]

    run(main)


def test_heartbeats_go_on_through_a_broken_connection() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            for _ in range(3):
                seen = len(subject.peer.seen(HeartbeatRequest))
                subject.peer.disconnect()
                await until(lambda seen=seen: len(subject.peer.seen(HeartbeatRequest)) > seen + 1)  # type: ignore[misc]
            assert subject.told == [("assigned", BOTH)]

    run(main)


def test_partitions_are_lost_when_the_coordinator_is_silent_for_the_session_timeout() -> None:
    async def main() -> None:
        settings = GroupSettings(
            group_id="g", heartbeat_interval_ms=5, session_timeout_ms=60, rebalance_timeout_ms=5_000
        )
        async with membership() as subject:
            await subject.join(settings).settled()
            subject.peer.on(HeartbeatRequest, lambda _: None)
            await until(lambda: ("lost", BOTH) in subject.told)

    run(main)


def test_what_a_member_keeps_is_in_doubt_once_it_is_cut_off_while_it_joins_again() -> None:
    async def main() -> None:
        settings = replace(SETTINGS, session_timeout_ms=60)
        async with membership() as subject:
            member = subject.join(settings, assignors=(CooperativeStickyAssignor(),))
            await member.settled()
            subject.peer.may_join.clear()
            subject.peer.on(HeartbeatRequest, lambda _: None)
            member.request_rejoin()
            await until(lambda: not member._takes_part)
            assert member.assignment == BOTH
            await until(lambda: member.is_in_doubt)
            subject.peer.on(HeartbeatRequest, lambda _: HeartbeatResponse())
            subject.peer.may_join.set()
            await subject.generation(2)
            assert not member.is_in_doubt

    run(main)


def test_a_member_that_is_heard_of_while_others_are_waited_for_is_sure_for_the_rebalance_timeout() -> None:
    async def main() -> None:
        settings = replace(SETTINGS, session_timeout_ms=1_000, rebalance_timeout_ms=2_500)
        async with membership() as subject:
            member = subject.join(settings, assignors=(CooperativeStickyAssignor(),))
            await member.settled()
            subject.peer.may_join.clear()
            rebalancing = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            subject.peer.on(HeartbeatRequest, lambda _: rebalancing)
            began = asyncio.get_running_loop().time()
            await until(lambda: member.is_in_doubt)
            assert asyncio.get_running_loop().time() - began > 2.4
            assert member.assignment == BOTH
            subject.peer.may_join.set()
            await subject.generation(2)
            assert not member.is_in_doubt

    run(main)


def test_a_member_that_is_thrown_out_while_it_joins_again_is_in_doubt_at_once() -> None:
    async def main() -> None:
        async with membership() as subject:
            member = subject.join(
                replace(SETTINGS, session_timeout_ms=60_000), assignors=(CooperativeStickyAssignor(),)
            )
            await member.settled()
            subject.peer.may_join.clear()
            member.request_rejoin()
            await until(lambda: not member._takes_part)
            subject.peer.on(
                HeartbeatRequest, lambda _: HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            )
            await until(lambda: member.is_in_doubt)
            subject.peer.join_codes = [ErrorCode.UNKNOWN_MEMBER_ID]
            subject.peer.on(HeartbeatRequest, lambda _: HeartbeatResponse())
            subject.peer.may_join.set()
            await until(lambda: ("lost", BOTH) in subject.told)

    run(main)


def test_a_session_counts_from_when_a_member_asked_for_its_share() -> None:
    """The answer may have lain here long, where the process stood still."""

    async def main() -> None:
        settings = GroupSettings(group_id="g", heartbeat_interval_ms=4_000, session_timeout_ms=5_000)
        seen_at: list[float] = []
        async with membership() as subject:
            answer = subject.peer._sync

            def sync(request: SyncGroupRequest) -> SyncGroupResponse:
                seen_at.append(asyncio.get_running_loop().time())
                return answer(request)

            subject.peer.on(SyncGroupRequest, sync)
            member = subject.join(settings)
            await member.settled()
            assert member.sure_until_ms <= seen_at[0] * 1000 + settings.session_timeout_ms

    run(main)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_what_joining_again_does_not_mend_ends_the_membership(code: ErrorCode) -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.join_codes = [code]
            subject.member.request_rejoin()
            with pytest.raises(ProtocolError, match=f"{code.name}: join of group g"):
                await subject.running
            assert subject.told[0] == ("assigned", BOTH)
            assert subject.member.assignment == frozenset()
            await subject.member.close()

    run(main)


def test_a_group_that_outgrew_its_topic_is_named_as_what_may_be_in_the_way() -> None:
    async def main() -> None:
        async with membership() as subject:
            subject.peer.sync_codes = [ErrorCode.UNKNOWN_SERVER_ERROR]
            subject.join()
            told = r"sync of group g: the group's metadata of \d+ bytes .* raise its max\.message\.bytes"
            with pytest.raises(ProtocolError, match=told):
                await subject.running

    run(main)


def test_closing_does_not_wait_for_the_other_members_to_join() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.on(JoinGroupRequest, lambda _: None)
            subject.member.request_rejoin()
            await until(lambda: len(subject.peer.seen(JoinGroupRequest)) == 2)
            await subject.member.close()
            await subject.running
            assert len(subject.peer.seen(LeaveGroupRequest)) == 1

    run(main)


def test_a_static_member_keeps_its_place_when_closed() -> None:
    async def main() -> None:
        settings = GroupSettings(group_id="g", instance_id="rack-1", heartbeat_interval_ms=5)
        async with membership() as subject:
            await subject.join(settings).settled()
            await until(lambda: len(subject.peer.seen(HeartbeatRequest)) > 0)
            await subject.member.close()
            assert subject.peer.seen(LeaveGroupRequest) == []
            seen = [*subject.peer.seen(JoinGroupRequest), *subject.peer.seen(HeartbeatRequest)]
            assert {request.group_instance_id for request in seen} == {"rack-1"}

    run(main)


@pytest.mark.parametrize("version", [5, 9])
@pytest.mark.parametrize("grown", [False, True])
def test_a_static_member_that_comes_back_asks_for_what_came_meanwhile(version: int, grown: bool) -> None:
    """Kafka's coordinator gives it what it had, and before version 9 does not tell it that it leads."""
    is_told = version >= 9
    has = (ZERO,) if grown else (ZERO, ONE)
    (before,) = describe_assignments({"member-1": Assignment(partitions=has)})

    def back(request: JoinGroupRequest) -> JoinGroupResponse:
        (protocol,) = request.protocols
        member = JoinGroupResponseMember(
            member_id="member-1", metadata=protocol.metadata, group_instance_id=request.group_instance_id
        )
        return JoinGroupResponse(
            generation_id=1,
            protocol_name=protocol.name,
            leader="member-1" if is_told else "its former id",
            member_id="member-1",
            skip_assignment=is_told,
            members=[member] if is_told else [],
        )

    def describe(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        member = DescribedGroupMember(member_id="member-1", member_assignment=before.assignment)
        group = DescribedGroup(group_id="g", protocol_type="consumer", members=[member])
        return DescribeGroupsResponse(groups=[group])

    async def main() -> None:
        settings = GroupSettings(group_id="g", instance_id="rack-1", heartbeat_interval_ms=5)
        async with membership() as subject:
            peer = subject.peer
            peer.generation = 1
            peer.versions[JoinGroupRequest.api_key] = (0, version)
            peer.once(JoinGroupRequest, back)
            peer.once(SyncGroupRequest, lambda _: SyncGroupResponse(assignment=before.assignment))
            peer.on(DescribeGroupsRequest, describe)
            subject.join(settings, assignors=(CooperativeStickyAssignor(),))
            await until(lambda: len(peer.seen(DescribeGroupsRequest)) == 1)
            if grown or not is_told:
                await subject.generation(2)
                assert subject.member.is_leader
            await until(lambda: len(peer.seen(HeartbeatRequest)) > 1)
            assert subject.member.assignment == BOTH
            assert subject.member.generation == (2 if grown or not is_told else 1)
            joins = peer.seen(JoinGroupRequest)
            assert [request.member_id for request in joins] == ["", "member-1"][: len(joins)]
            assert joins[0].protocols != joins[-1].protocols or len(joins) == 1, "or nobody would look"

    run(main)


def test_the_leader_rebalances_when_a_topic_grows() -> None:
    async def main() -> None:
        settings = GroupSettings(group_id="g", heartbeat_interval_ms=5, metadata_max_age_ms=10)
        async with membership(partitions=1) as subject:
            await subject.join(settings).settled()
            subject.scripted.leaders = {"t": [1, 1]}
            await subject.generation(2)
            assert subject.member.assignment == BOTH

    run(main)


def test_a_topic_filter_picks_up_topics_as_they_appear() -> None:
    async def main() -> None:
        settings = GroupSettings(group_id="g", heartbeat_interval_ms=5, metadata_max_age_ms=10)
        async with membership(partitions=1) as subject:
            member = subject.join(
                settings, lambda metadata: [name for name in metadata.topics if name != "secret"]
            )
            await member.settled()
            subject.scripted.leaders = {"t": [1], "new": [1], "secret": [1]}
            await subject.generation(2)
            assert member.assignment == {ZERO, TopicPartition("new", 0)}

    run(main)


def test_a_subscription_can_be_replaced() -> None:
    async def main() -> None:
        async with membership(partitions=1) as subject:
            await subject.join().settled()
            subject.scripted.leaders = {"t": [1], "u": [1]}
            subject.member.subscribe(["u"])
            await subject.generation(2)
            assert subject.member.assignment == {TopicPartition("u", 0)}

    run(main)


def test_a_cooperative_member_keeps_what_it_owns_and_gives_up_only_what_is_taken() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join(assignors=(CooperativeStickyAssignor(),)).settled()
            (kept,) = describe_assignments({"member-1": Assignment(partitions=(ONE,))})
            subject.peer.once(SyncGroupRequest, lambda _: SyncGroupResponse(assignment=kept.assignment))
            subject.peer.once(SyncGroupRequest, lambda _: SyncGroupResponse(assignment=kept.assignment))
            subject.member.request_rejoin()
            await subject.generation(3)
            assert subject.told == [
                ("assigned", BOTH),
                ("revoked", frozenset({ZERO})),
                ("assigned", frozenset()),
                ("assigned", frozenset()),
            ]
            assert subject.member.assignment == {ONE}
            owned = [
                read_subscription(request.protocols[0].metadata, None)
                for request in subject.peer.seen(JoinGroupRequest)
            ]
            assert [subscription.owned for subscription in owned] == [frozenset(), BOTH, frozenset({ONE})]
            assert [subscription.generation for subscription in owned] == [-1, 1, 2]

    run(main)


def test_what_the_leaders_assignor_says_beside_partitions_reaches_the_member() -> None:
    class Buckets(RangeAssignor):
        name = "buckets"

        def assign(self, members, partitions):  # type: ignore[no-untyped-def]
            return {member: Assignment(user_data=b"bucket 7") for member in members}

    async def main() -> None:
        async with membership() as subject:
            await subject.join(assignors=(Buckets(),)).settled()
            assert subject.member.assignment_user_data == b"bucket 7"
            assert subject.peer.seen(SyncGroupRequest)[0].protocol_name == "buckets"

    run(main)


def test_partitions_that_cannot_be_taken_up_are_lost_and_joined_for_again() -> None:
    async def main() -> None:
        async with membership() as subject:
            told: list[str] = []

            async def assigned(_: frozenset[TopicPartition]) -> None:
                told.append("assigned")
                if len(told) == 1:
                    raise ConnectionFailedError("the store of positions is away")

            async def lost(_: frozenset[TopicPartition]) -> None:
                told.append("lost")

            subject.member = GroupMember(
                subject.cluster,
                SETTINGS,
                subscription=["t"],
                on_assigned=assigned,
                on_revoked=lost,
                on_lost=lost,
            )
            subject.running = asyncio.create_task(subject.member.run())
            await subject.member.settled()
            assert told == ["assigned", "lost", "assigned"]
            assert subject.member.assignment == BOTH

    run(main)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (ConnectionFailedError("the store of positions is away"), {ONE}),
        (ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS), {ONE}),
        (ProtocolError(ErrorCode.ILLEGAL_GENERATION), {ZERO, ONE}),
    ],
)
def test_a_cooperative_member_keeps_what_it_had_when_more_cannot_be_taken_up(
    error: BrokerError, lost: set[TopicPartition]
) -> None:
    async def main() -> None:
        async with membership() as subject:
            failures = [error]
            losses: list[frozenset[TopicPartition]] = []

            async def assigned(partitions: frozenset[TopicPartition]) -> None:
                if ONE in partitions and failures:
                    raise failures.pop()

            async def told_lost(partitions: frozenset[TopicPartition]) -> None:
                losses.append(partitions)

            (first,) = describe_assignments({"member-1": Assignment(partitions=(ZERO,))})
            subject.peer.once(SyncGroupRequest, lambda _: SyncGroupResponse(assignment=first.assignment))
            subject.member = GroupMember(
                subject.cluster,
                SETTINGS,
                subscription=["t"],
                on_assigned=assigned,
                on_revoked=told_lost,
                on_lost=told_lost,
                assignors=(CooperativeStickyAssignor(),),
            )
            subject.running = asyncio.create_task(subject.member.run())
            await subject.member.settled()
            subject.member.request_rejoin()
            await subject.generation(3)
            assert losses == [lost]
            joins = subject.peer.seen(JoinGroupRequest)
            assert set(read_subscription(joins[-1].protocols[0].metadata, None).owned) == BOTH - lost
            assert subject.member.assignment == BOTH

    run(main)


def test_a_revocation_that_fails_does_not_keep_the_partitions() -> None:
    async def main() -> None:
        async with membership() as subject:
            await subject.join().settled()
            subject.peer.commit_codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
            subject.member.request_rejoin()
            await subject.generation(2)
            assert subject.told == [("assigned", BOTH), ("revoked", BOTH), ("assigned", BOTH)]

    run(main)


def test_an_error_of_a_callback_ends_the_membership() -> None:
    async def main() -> None:
        async with membership() as subject:

            async def fail(_: frozenset[TopicPartition]) -> None:
                raise LookupError("no such handler")

            subject.member = GroupMember(
                subject.cluster, SETTINGS, subscription=["t"], on_assigned=fail, on_revoked=fail
            )
            subject.running = asyncio.create_task(subject.member.run())
            with pytest.raises(LookupError):
                await subject.running

    run(main)


@pytest.mark.parametrize("version", [1, 2, 5, 7, 8, 9])
def test_offsets_of_a_group_are_read_and_written_without_a_membership(version: int) -> None:
    async def main() -> None:
        peer = CoordinatingPeer()
        async with peer:
            scripted = PeerCluster(peer)
            for request in (OffsetFetchRequest, OffsetCommitRequest):
                peer.versions[request.api_key] = (0, min(version, request.max_version))
            async with Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                position = OffsetAndMetadata(offset=3, metadata="note")
                await commit_offsets(cluster, "g", {ZERO: position})
                assert await fetch_offsets(cluster, "g", [ZERO, ONE]) == {ZERO: position}
                if version >= 8:
                    assert await fetch_offsets(cluster, "g") == {ZERO: position}

    run(main)


def test_of_offsets_that_are_refused_in_part_it_is_told_which() -> None:
    async def main() -> None:
        async with CoordinatingPeer() as peer:

            def refuse(request: OffsetCommitRequest) -> OffsetCommitResponse:
                answer = peer._commit(request)
                answer.topics[0].partitions[1].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return answer

            peer.on(OffsetCommitRequest, refuse)
            async with Cluster(PeerCluster(peer).bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                position = OffsetAndMetadata(offset=3)
                with pytest.raises(OffsetsRefusedError, match=r"TOPIC_AUTHORIZATION_FAILED.* t-1") as refused:
                    await commit_offsets(cluster, "g", {ZERO: position, ONE: position})
                assert refused.value.refused == {ONE: ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    run(main)


def test_many_offsets_are_sent_in_several_requests_of_which_each_may_be_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_offsets, "COMMIT_BYTES_MAX", 500)

    async def main() -> None:
        async with CoordinatingPeer() as peer:

            def refuse(request: OffsetCommitRequest) -> OffsetCommitResponse:
                answer = peer._commit(request)
                for partition in answer.topics[0].partitions:
                    if partition.partition_index in (3, 9):
                        partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                return answer

            peer.on(OffsetCommitRequest, refuse)
            async with Cluster(PeerCluster(peer).bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                position = OffsetAndMetadata(offset=3, metadata="x" * 40)
                offsets = {TopicPartition("t", number): position for number in range(10)}
                with pytest.raises(OffsetsRefusedError) as refused:
                    await commit_offsets(cluster, "g", offsets)
                assert [each.partition for each in refused.value.refused] == [3, 9]
                sent = [len(request.topics[0].partitions) for request in peer.seen(OffsetCommitRequest)]
                assert sent == [4, 4, 2]

    run(main)


def test_offsets_are_sent_again_where_what_refused_some_of_them_passes_by_itself() -> None:
    async def main() -> None:
        async with CoordinatingPeer() as peer:
            passing = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

            def refuse(request: OffsetCommitRequest) -> OffsetCommitResponse:
                answer = peer._commit(request)
                first, second = answer.topics[0].partitions
                first.error_code, second.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED, passing.pop(0)
                return answer

            peer.on(OffsetCommitRequest, refuse)
            async with Cluster(PeerCluster(peer).bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster:
                position = OffsetAndMetadata(offset=3)
                with pytest.raises(OffsetsRefusedError, match="TOPIC_AUTHORIZATION_FAILED") as refused:
                    await commit_offsets(cluster, "g", {ZERO: position, ONE: position})
                assert refused.value.refused == {ZERO: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
                assert not passing

    run(main)


def test_a_share_without_bytes_is_none() -> None:
    assert read_assignment(b"") == Assignment()
