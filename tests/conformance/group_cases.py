"""Cases of the APIs of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.errors import ErrorCode
from broker.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
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
from tests.conformance.scene import MISSING_PARTITION, MISSING_TOPIC, NONE, Scene, until

GROUP = 0
SESSION_TIMEOUT_MS = 10_000
ASSIGNMENT = b"\0\0\0\0\0\0\0\0\0\0"
LAST_JOIN_VERSION = 3
"""Last version whose first join makes a member at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The only member of a group: its leader."""

    group_id: str
    member_id: str
    generation: int


# FindCoordinator


async def find_coordinator_names_the_node(scene: Scene, version: int) -> None:
    group_id = await scene.new_group()
    place = scene.place
    expected = (place.node_id, *place.address)
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=[group_id, "other"], key_type=GROUP)
        response = await scene.ask(request, version)
        assert [found.key for found in response.coordinators] == [group_id, "other"]
        for found in response.coordinators:
            assert (found.error_code, found.node_id, found.host, found.port) == (NONE, *expected)
    else:
        response = await scene.ask(FindCoordinatorRequest(key=group_id), version)
        assert (response.error_code, response.node_id, response.host, response.port) == (NONE, *expected)


# JoinGroup


def _join_request(
    scene: Scene, group_id: str, *, member_id: str = "", instance_id: str | None = None, **fields: Any
) -> JoinGroupRequest:
    subscription = ConsumerProtocolSubscription(topics=[scene.place.shelf]).encode_with_version(0)
    return JoinGroupRequest(
        **{
            "group_id": group_id,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription)],
            **fields,
        }
    )


async def _join(
    scene: Scene, version: int, group_id: str, *, instance_id: str | None = None
) -> JoinGroupResponse:
    """Join a group of no members, twice where a member needs its id first."""
    request = _join_request(scene, group_id, instance_id=instance_id)
    response = await scene.ask(request, version)
    if version > LAST_JOIN_VERSION and instance_id is None:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.member_id
        request.member_id = response.member_id
        response = await scene.ask(request, version)
        assert response.member_id == request.member_id
    return response


async def join_group_makes_a_leader(scene: Scene, version: int) -> None:
    response = await _join(scene, version, await scene.new_group())
    assert (response.error_code, response.generation_id, response.protocol_name) == (NONE, 1, "range")
    assert response.leader == response.member_id
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    (member,) = response.members
    subscription = ConsumerProtocolSubscription(topics=[scene.place.shelf]).encode_with_version(0)
    assert (member.member_id, member.metadata) == (response.member_id, subscription)


async def join_group_keeps_a_static_member(scene: Scene, version: int) -> None:
    group_id = await scene.new_group()
    first = await _join(scene, version, group_id, instance_id="seat 1")
    assert (first.error_code, first.generation_id) == (NONE, 1)
    assert first.members[0].group_instance_id == "seat 1"
    again = await _join(scene, version, group_id, instance_id="seat 1")
    assert again.error_code == NONE
    assert again.member_id != first.member_id


async def join_group_refuses_what_cannot_be(scene: Scene, version: int) -> None:
    group_id = await scene.new_group()
    for request, code in (
        (_join_request(scene, group_id, member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (_join_request(scene, group_id, session_timeout_ms=1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (_join_request(scene, "", member_id="x"), ErrorCode.INVALID_GROUP_ID),
        (_join_request(scene, group_id, protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        response = await scene.ask(request, version)
        assert (response.error_code, response.generation_id) == (code, -1)
        assert response.members == []


# SyncGroup


async def _sync(
    scene: Scene, version: int, member: Member, assignment: bytes = ASSIGNMENT, **fields: Any
) -> SyncGroupResponse:
    given = SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
    request = SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[given],
        **fields,
    )
    return await scene.ask(request, version)


async def _joined(scene: Scene) -> Member:
    group_id = await scene.new_group()
    joined = await _join(scene, 5, group_id)
    assert joined.error_code == NONE
    return Member(group_id=group_id, member_id=joined.member_id, generation=joined.generation_id)


async def _settled(scene: Scene) -> Member:
    """The member of a stable group."""
    member = await _joined(scene)
    assert (await _sync(scene, 3, member)).error_code == NONE
    return member


async def sync_group_hands_out_the_assignment(scene: Scene, version: int) -> None:
    response = await _sync(scene, version, await _joined(scene))
    assert (response.error_code, response.assignment) == (NONE, ASSIGNMENT)
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (response.protocol_type, response.protocol_name) == expected


async def sync_group_refuses_strangers(scene: Scene, version: int) -> None:
    member = await _joined(scene)
    stranger = Member(group_id=member.group_id, member_id="nobody", generation=1)
    late = Member(group_id=member.group_id, member_id=member.member_id, generation=7)
    nowhere = Member(group_id=await scene.new_group(), member_id="nobody", generation=1)
    for asking, code in (
        (stranger, ErrorCode.UNKNOWN_MEMBER_ID),
        (late, ErrorCode.ILLEGAL_GENERATION),
        (nowhere, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        response = await _sync(scene, version, asking)
        assert (response.error_code, response.assignment) == (code, b"")


async def sync_group_refuses_another_protocol(scene: Scene, version: int) -> None:
    member = await _joined(scene)
    request = SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        protocol_type="connect",
        protocol_name="range",
    )
    assert (await scene.ask(request, version)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Heartbeat


async def _heartbeat(scene: Scene, version: int, member: Member) -> int:
    request = HeartbeatRequest(
        group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
    )
    return (await scene.ask(request, version)).error_code


async def heartbeat_is_heard(scene: Scene, version: int) -> None:
    assert await _heartbeat(scene, version, await _settled(scene)) == NONE


async def heartbeat_of_strangers_is_refused(scene: Scene, version: int) -> None:
    member = await _settled(scene)
    stranger = Member(group_id=member.group_id, member_id="nobody", generation=1)
    late = Member(group_id=member.group_id, member_id=member.member_id, generation=7)
    assert await _heartbeat(scene, version, stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await _heartbeat(scene, version, late) == ErrorCode.ILLEGAL_GENERATION


async def heartbeat_of_another_instance_is_refused(scene: Scene, version: int) -> None:
    group_id = await scene.new_group()
    joined = await _join(scene, 5, group_id, instance_id="seat 1")
    request = HeartbeatRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id="another",
        group_instance_id="seat 1",
    )
    assert (await scene.ask(request, version)).error_code == ErrorCode.FENCED_INSTANCE_ID


# LeaveGroup


def _leave_request(version: int, member: Member) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    identity = MemberIdentity(member_id=member.member_id, reason="done")
    return LeaveGroupRequest(group_id=member.group_id, members=[identity])


async def leave_group_ends_a_membership(scene: Scene, version: int) -> None:
    member = await _settled(scene)
    response = await scene.ask(_leave_request(version, member), version)
    assert response.error_code == NONE
    if version >= 3:
        (left,) = response.members
        assert (left.member_id, left.group_instance_id, left.error_code) == (member.member_id, None, NONE)
    assert (await _describe(scene, 0, member.group_id)).group_state == "Empty"


async def leave_group_refuses_strangers(scene: Scene, version: int) -> None:
    member = await _settled(scene)
    stranger = Member(group_id=member.group_id, member_id="nobody", generation=1)
    response = await scene.ask(_leave_request(version, stranger), version)
    if version < 3:
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert response.error_code == NONE
        assert response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# DescribeGroups and ListGroups

NOT_FOUND_FROM = 6
"""First version of DescribeGroups that says of a group that it is not there (KIP-1043)."""


async def _describe(scene: Scene, version: int, group_id: str) -> DescribedGroup:
    (group,) = (await scene.ask(DescribeGroupsRequest(groups=[group_id]), version)).groups
    assert group.group_id == group_id
    return group


async def describe_groups_shows_members(scene: Scene, version: int) -> None:
    member = await _settled(scene)
    group = await _describe(scene, version, member.group_id)
    assert (group.error_code, group.group_state) == (NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (shown,) = group.members
    assert (shown.member_id, shown.group_instance_id) == (member.member_id, None)
    assert (shown.client_id, shown.client_host) == ("mirrormaker", "/127.0.0.1")
    assert shown.member_assignment == ASSIGNMENT
    assert shown.member_metadata


async def describe_groups_shows_the_unknown_as_dead(scene: Scene, version: int) -> None:
    group = await _describe(scene, version, await scene.new_group())
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_FROM else NONE
    assert (group.error_code, group.group_state, group.members) == (expected, "Dead", [])


async def list_groups_lists_groups(scene: Scene, version: int) -> None:
    member = await _settled(scene)
    response = await scene.ask(ListGroupsRequest(), version)
    assert response.error_code == NONE
    (group,) = (group for group in response.groups if group.group_id == member.group_id)
    assert group.protocol_type == "consumer"
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


async def list_groups_lists_what_is_asked_for(scene: Scene, version: int) -> None:
    member = await _settled(scene)
    stable = await scene.ask(ListGroupsRequest(states_filter=["Stable"]), version)
    assert member.group_id in {group.group_id for group in stable.groups}
    empty = await scene.ask(ListGroupsRequest(states_filter=["Empty"]), version)
    assert member.group_id not in {group.group_id for group in empty.groups}
    if version >= 5:
        others = await scene.ask(ListGroupsRequest(types_filter=["consumer"]), version)
        assert member.group_id not in {group.group_id for group in others.groups}


# OffsetCommit and OffsetFetch


def _commit_request(
    group_id: str,
    offsets: dict[tuple[str, int], int],
    *,
    metadata: str | None = "note",
    member: Member | None = None,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation if member else -1,
        member_id=member.member_id if member else "",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0,
                        committed_metadata=metadata,
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )


async def _commit(scene: Scene, version: int, request: OffsetCommitRequest) -> dict[tuple[str, int], int]:
    response = await scene.ask(request, version)
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A committed offset as a group reads it back."""

    offset: int
    leader_epoch: int
    metadata: str | None
    error_code: int


async def _fetch(
    scene: Scene, version: int, group_id: str, partitions: dict[str, list[int]] | None
) -> dict[tuple[str, int], Fetched]:
    """What the group committed; None asks for all."""
    response = await scene.ask(_offset_fetch_request(version, group_id, partitions), version)
    assert response.error_code == NONE
    topics: Any = response.topics
    if version >= 8:
        (group,) = response.groups
        assert (group.group_id, group.error_code) == (group_id, NONE)
        topics = group.topics
    return {
        (topic.name, partition.partition_index): Fetched(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata,
            error_code=partition.error_code,
        )
        for topic in topics
        for partition in topic.partitions
    }


def _offset_fetch_request(
    version: int, group_id: str, partitions: dict[str, list[int]] | None
) -> OffsetFetchRequest:
    if version >= 8:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in partitions.items()
            ]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
    if partitions is None:
        return OffsetFetchRequest(group_id=group_id, topics=None)
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in partitions.items()
        ],
    )


async def offset_commit_keeps_positions(scene: Scene, version: int) -> None:
    group_id, shelf = await scene.new_group(), scene.place.shelf
    codes = await _commit(scene, version, _commit_request(group_id, {(shelf, 0): 2}))
    assert codes == {(shelf, 0): NONE}
    fetch_version = 0 if version == 0 else 5
    fetched = (await _fetch(scene, fetch_version, group_id, {shelf: [0]}))[shelf, 0]
    assert (fetched.offset, fetched.error_code) == (2, NONE)
    assert fetched.leader_epoch == (0 if version >= 6 else -1)
    if version > 0:  # which Apache Kafka keeps in ZooKeeper, where metadata has no place
        assert fetched.metadata == "note"


async def offset_commit_of_a_member_is_kept(scene: Scene, version: int) -> None:
    member, shelf = await _settled(scene), scene.place.shelf
    request = _commit_request(member.group_id, {(shelf, 0): 3}, member=member)
    assert await _commit(scene, version, request) == {(shelf, 0): NONE}
    assert (await _fetch(scene, 5, member.group_id, None))[shelf, 0].offset == 3


async def offset_commit_of_strangers_is_refused(scene: Scene, version: int) -> None:
    member, shelf = await _settled(scene), scene.place.shelf
    stranger = Member(group_id=member.group_id, member_id="nobody", generation=1)
    late = Member(group_id=member.group_id, member_id=member.member_id, generation=7)
    for asking, code in (
        (stranger, ErrorCode.UNKNOWN_MEMBER_ID),
        (late, ErrorCode.ILLEGAL_GENERATION),
    ):
        request = _commit_request(member.group_id, {(shelf, 0): 3}, member=asking)
        assert await _commit(scene, version, request) == {(shelf, 0): code}


async def offset_commit_into_the_unknown_is_refused(scene: Scene, version: int) -> None:
    group_id, shelf = await scene.new_group(), scene.place.shelf
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    offsets = {(MISSING_TOPIC, 0): 1, (shelf, 0): 1}
    assert await _commit(scene, version, _commit_request(group_id, offsets)) == {
        (MISSING_TOPIC, 0): unknown,
        (shelf, 0): NONE,
    }
    codes = await _commit(scene, version, _commit_request(group_id, {(shelf, MISSING_PARTITION): 1}))
    assert codes == {(shelf, MISSING_PARTITION): unknown}


async def offset_commit_of_too_much_metadata_is_refused(scene: Scene, version: int) -> None:
    group_id, shelf = await scene.new_group(), scene.place.shelf
    request = _commit_request(group_id, {(shelf, 0): 1}, metadata="x" * 5000)
    assert await _commit(scene, version, request) == {(shelf, 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}


async def offset_fetch_reads_positions(scene: Scene, version: int) -> None:
    group_id, shelf = await scene.new_group(), scene.place.shelf
    await _commit(scene, 0 if version == 0 else 6, _commit_request(group_id, {(shelf, 0): 2}))
    fetched = await _fetch(scene, version, group_id, {shelf: [0, 1]})
    present, absent = fetched[shelf, 0], fetched[shelf, 1]
    assert (present.offset, present.error_code) == (2, NONE)
    assert present.leader_epoch == (0 if version >= 5 else -1)
    if version > 0:  # which Apache Kafka keeps in ZooKeeper, where metadata has no place
        assert present.metadata == "note"
    assert (absent.offset, absent.leader_epoch, absent.metadata) == (-1, -1, "")


async def offset_fetch_reads_all_positions(scene: Scene, version: int) -> None:
    group_id, shelf = await scene.new_group(), scene.place.shelf
    await _commit(scene, 6, _commit_request(group_id, {(shelf, 0): 2}))
    fetched = await _fetch(scene, version, group_id, None)
    assert {key: value.offset for key, value in fetched.items()} == {(shelf, 0): 2}


async def offset_fetch_of_an_unknown_group_finds_nothing(scene: Scene, version: int) -> None:
    shelf = scene.place.shelf
    fetched = (await _fetch(scene, version, await scene.new_group(), {shelf: [0]}))[shelf, 0]
    assert (fetched.offset, fetched.leader_epoch, fetched.metadata) == (-1, -1, "")


# OffsetDelete and DeleteGroups


async def offset_delete_forgets_positions(scene: Scene, version: int) -> None:
    group_id, shelf = await scene.new_group(), scene.place.shelf
    await _commit(scene, 6, _commit_request(group_id, {(shelf, 0): 2}))
    response = await scene.ask(_offset_delete_request(group_id, shelf), version)
    assert response.error_code == NONE
    assert response.topics[0].partitions[0].error_code == NONE
    assert await _fetch(scene, 5, group_id, None) == {}


async def offset_delete_spares_what_members_read(scene: Scene, version: int) -> None:
    member, shelf = await _settled(scene), scene.place.shelf
    await _commit(scene, 6, _commit_request(member.group_id, {(shelf, 0): 2}, member=member))
    response = await scene.ask(_offset_delete_request(member.group_id, shelf), version)
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert (await _fetch(scene, 5, member.group_id, None))[shelf, 0].offset == 2


async def offset_delete_of_an_unknown_group_is_refused(scene: Scene, version: int) -> None:
    request = _offset_delete_request(await scene.new_group(), scene.place.shelf)
    assert (await scene.ask(request, version)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def _offset_delete_request(group_id: str, topic: str) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    )


async def delete_groups_deletes_and_refuses(scene: Scene, version: int) -> None:
    member, shelf = await _settled(scene), scene.place.shelf
    empty, missing = await scene.new_group(), await scene.new_group()
    await _commit(scene, 6, _commit_request(empty, {(shelf, 0): 2}))
    request = DeleteGroupsRequest(groups_names=[empty, member.group_id, missing])
    response = await scene.ask(request, version)
    assert {result.group_id: result.error_code for result in response.results} == {
        empty: NONE,
        member.group_id: ErrorCode.NON_EMPTY_GROUP,
        missing: ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert await _fetch(scene, 5, empty, None) == {}


async def groups_can_be_joined_again_after_deletion(scene: Scene, version: int) -> None:
    group_id = await scene.new_group()
    await _commit(scene, 6, _commit_request(group_id, {(scene.place.shelf, 0): 2}))
    (result,) = (await scene.ask(DeleteGroupsRequest(groups_names=[group_id]), version)).results
    assert result.error_code == NONE
    joined = await until(
        lambda: _join(scene, 5, group_id), lambda response: response.error_code != ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert (joined.error_code, joined.generation_id) == (NONE, 1)
