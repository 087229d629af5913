"""Responses of the coordinator fit every version of their API."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.groups.events import JoinedMember, JoinReply, LeaveReply, LeavingMember, SyncReply
from broker.groups.offsets import NOT_COMMITTED, CommittedOffset
from broker.groups.requests import (
    FetchedOffset,
    OffsetAnswer,
    OffsetQuery,
    join_response,
    leave_response,
    offset_response,
    sync_response,
)
from broker.types import TopicPartition
from broker.wire.messages.join_group import JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupResponse
from broker.wire.messages.offset_fetch import OffsetFetchResponse
from broker.wire.messages.sync_group import SyncGroupResponse

GOOD_JOIN = JoinReply(
    error=ErrorCode.NONE,
    member_id="m",
    generation=3,
    protocol_type="consumer",
    protocol="range",
    leader="m",
    members=(JoinedMember(member_id="m", instance_id="i", metadata=b"x"),),
)
BAD_JOIN = JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id="")


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("reply", [GOOD_JOIN, BAD_JOIN])
def test_answers_to_joins(version: int, reply: JoinReply) -> None:
    response = join_response(reply, version=version)
    read = JoinGroupResponse.decode(response.encode(version), version)
    assert (read.error_code, read.member_id, len(read.members)) == (
        reply.error,
        reply.member_id,
        len(reply.members),
    )
    assert read.protocol_name == (reply.protocol or (None if version >= 7 else ""))


@pytest.mark.parametrize("version", range(6))
def test_answers_to_syncs(version: int) -> None:
    reply = SyncReply(error=ErrorCode.NONE, protocol_type="consumer", protocol="range", assignment=b"a")
    read = SyncGroupResponse.decode(sync_response(reply).encode(version), version)
    assert read.assignment == b"a"
    assert read.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", range(6))
def test_answers_to_leaves(version: int) -> None:
    member = LeavingMember(member_id="m", instance_id=None)
    reply = LeaveReply(error=ErrorCode.NONE, members=((member, ErrorCode.UNKNOWN_MEMBER_ID),))
    read = LeaveGroupResponse.decode(leave_response(reply, version=version).encode(version), version)
    if version < 3:
        assert read.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert read.error_code == ErrorCode.NONE
        assert [each.error_code for each in read.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(10))
def test_answers_to_offset_fetches(version: int) -> None:
    partitions = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
    query = OffsetQuery(group_id="g", partitions=partitions)
    offsets = (
        FetchedOffset(
            partition=partitions[0], committed=CommittedOffset(offset=5, leader_epoch=2, metadata="n")
        ),
        FetchedOffset(partition=partitions[1], committed=NOT_COMMITTED),
        FetchedOffset(partition=partitions[2], committed=NOT_COMMITTED),
    )
    response = offset_response([OffsetAnswer(query=query, offsets=offsets)], version=version)
    read = OffsetFetchResponse.decode(response.encode(version), version)
    topics = read.groups[0].topics if version >= 8 else read.topics
    assert [(topic.name, len(topic.partitions)) for topic in topics] == [("a", 2), ("b", 1)]
    first = topics[0].partitions[0]
    assert (first.committed_offset, first.metadata) == (5, "n")
    assert first.committed_leader_epoch == (2 if version >= 5 else -1)


@pytest.mark.parametrize("version", range(10))
def test_refused_offset_fetches(version: int) -> None:
    query = OffsetQuery(group_id="g", partitions=(TopicPartition("a", 0),))
    refused = OffsetAnswer(query=query, error=ErrorCode.NOT_COORDINATOR)
    response = offset_response([refused], version=version)
    read = OffsetFetchResponse.decode(response.encode(version), version)
    if version >= 8:
        assert read.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    elif version >= 2:
        assert read.error_code == ErrorCode.NOT_COORDINATOR
    else:
        assert read.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
