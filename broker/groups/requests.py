"""Requests as events of the machine, and its replies as responses: pure translation, one pair of functions
per API.

What depends on the version of a request is decided here, so that neither the machine nor the driver knows
versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from broker.errors import ErrorCode, ProtocolError
from broker.groups.events import (
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeavingMember,
    Sync,
    SyncReply,
    Waiter,
)
from broker.groups.offsets import NO_TIMESTAMP_MS, CommittedOffset
from broker.groups.view import GroupView
from broker.types import TopicPartition
from broker.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

JOIN_VERSION_WITH_MEMBER_ID_REQUIRED = 4
JOIN_VERSION_WITH_NULL_PROTOCOL = 7
JOIN_VERSION_WITH_SKIP_ASSIGNMENT = 9
SYNC_VERSION_WITH_PROTOCOL = 5
LEAVE_VERSION_WITH_MEMBERS = 3
COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
COMMIT_VERSION_WITH_MEMBER_EPOCHS = 9
DESCRIBE_VERSION_WITH_MESSAGE = 6
FETCH_VERSION_WITH_GROUP_ERROR = 2
FETCH_VERSION_WITH_GROUPS = 8

TIMESTAMP_MS_MAX = (1 << 63) - 1
"""What a stored timestamp can hold; a retention may ask for more."""

MEMBER_ID_PREFIX_LENGTH_MAX = 249
"""Characters of a client or instance id that a member id begins with: the longest name Kafka allows, far
below a string's limit.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who is at the other end of the connection; `host` as DescribeGroups will show it."""

    client_id: str
    host: str


def new_member_id(request: JoinGroupRequest, client: Client, unique: UUID) -> str:
    """A name for a new member: its instance id if it has one, else its client id, and something unique."""
    prefix = request.group_instance_id if request.group_instance_id is not None else client.client_id
    return f"{prefix[:MEMBER_ID_PREFIX_LENGTH_MAX]}-{unique}"


def join_event(
    request: JoinGroupRequest, *, version: int, client: Client, waiter: Waiter, unique: UUID
) -> Join:
    """JoinGroup; version 0 has no rebalance timeout, its session timeout stands in."""
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return Join(
        waiter=waiter,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        new_member_id=new_member_id(request, client, unique),
        client_id=client.client_id,
        client_host=client.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms
        if rebalance_timeout_ms >= 0
        else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols={protocol.name: protocol.metadata for protocol in request.protocols},
        requires_known_member_id=version >= JOIN_VERSION_WITH_MEMBER_ID_REQUIRED,
        supports_skip_assignment=version >= JOIN_VERSION_WITH_SKIP_ASSIGNMENT,
    )


def join_response(reply: JoinReply, *, version: int) -> JoinGroupResponse:
    """Answer to JoinGroup; a protocol that there is none of is null where the version knows null."""
    no_protocol = None if version >= JOIN_VERSION_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if reply.protocol is not None else no_protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )


def check_sync(request: SyncGroupRequest, *, version: int) -> None:
    """Raises ProtocolError INCONSISTENT_GROUP_PROTOCOL where a member does not say what it was told that the
    group speaks, though its version asks for it (KIP-559).
    """
    if version >= SYNC_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        raise ProtocolError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup without protocol type and protocol name"
        )


def sync_event(request: SyncGroupRequest, *, waiter: Waiter) -> Sync:
    """SyncGroup."""
    return Sync(
        waiter=waiter,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )


def sync_response(reply: SyncReply) -> SyncGroupResponse:
    """Answer to SyncGroup."""
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def heartbeat_event(request: HeartbeatRequest, *, waiter: Waiter) -> Heartbeat:
    """Heartbeat."""
    return Heartbeat(
        waiter=waiter,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
    )


def leave_event(request: LeaveGroupRequest, *, version: int, waiter: Waiter) -> Leave:
    """LeaveGroup: of one member before version 3."""
    if version < LEAVE_VERSION_WITH_MEMBERS:
        members = [LeavingMember(member_id=request.member_id, instance_id=None)]
    else:
        members = [
            LeavingMember(member_id=member.member_id, instance_id=member.group_instance_id)
            for member in request.members
        ]
    return Leave(waiter=waiter, members=tuple(members))


def leave_response(reply: LeaveReply, *, version: int) -> LeaveGroupResponse:
    """Answer to LeaveGroup: before version 3 the one member's error is that of the whole."""
    if version < LEAVE_VERSION_WITH_MEMBERS:
        errors = [reply.error, *(error for _, error in reply.members)]
        return LeaveGroupResponse(error_code=max(errors))
    return LeaveGroupResponse(
        error_code=reply.error,
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=error)
            for member, error in reply.members
        ],
    )


def commit_of(request: OffsetCommitRequest, *, now_ms: int) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of an OffsetCommit; version 1 brings its own timestamps, versions 2 to 4 may bring a
    retention.
    """
    retention_ms = request.retention_time_ms
    commit = {}
    for topic in request.topics:
        for partition in topic.partitions:
            timestamp_ms = partition.commit_timestamp
            commit[TopicPartition(topic.name, partition.partition_index)] = CommittedOffset(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                commit_timestamp_ms=timestamp_ms if timestamp_ms != NO_TIMESTAMP_MS else now_ms,
                expire_timestamp_ms=min(now_ms + retention_ms, TIMESTAMP_MS_MAX)
                if retention_ms >= 0
                else NO_TIMESTAMP_MS,
            )
    return commit


def commit_response(
    asked: Iterable[OffsetCommitRequestTopic],
    errors: Mapping[TopicPartition, ErrorCode],
    otherwise: ErrorCode,
) -> OffsetCommitResponse:
    """Answer to OffsetCommit, partition by partition as asked: each its own error, or `otherwise`."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, partition.partition_index), otherwise
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuery:
    """One group's part of an OffsetFetch; no partitions asks for all that it has."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None
    member_id: str | None = None
    """Who asks, where it says so (KIP-848)."""
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """One partition of the answer to a query."""

    partition: TopicPartition
    committed: CommittedOffset
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    """The answer to a query: `error` where none of it can be answered."""

    query: OffsetQuery
    error: ErrorCode = ErrorCode.NONE
    offsets: tuple[FetchedOffset, ...] = ()


def offset_queries(request: OffsetFetchRequest, *, version: int) -> list[OffsetQuery]:
    """OffsetFetch: of one group before version 8."""
    if version < FETCH_VERSION_WITH_GROUPS:
        return [OffsetQuery(group_id=request.group_id, partitions=_partitions_of(request.topics))]
    return [
        OffsetQuery(
            group_id=group.group_id,
            partitions=_partitions_of(group.topics),
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
        for group in request.groups
    ]


def _partitions_of(
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> tuple[TopicPartition, ...] | None:
    if topics is None:
        return None
    return tuple(TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes)


def offset_response(answers: Sequence[OffsetAnswer], *, version: int) -> OffsetFetchResponse:
    """Answer to OffsetFetch; before version 2 an error of the group is shown on every partition."""
    if version >= FETCH_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=[_offset_group(answer) for answer in answers])
    (answer,) = answers
    if version >= FETCH_VERSION_WITH_GROUP_ERROR or answer.error is ErrorCode.NONE:
        return OffsetFetchResponse(error_code=answer.error, topics=_offset_topics(answer.offsets))
    nothing = CommittedOffset(offset=-1)
    return OffsetFetchResponse(
        topics=_offset_topics(
            FetchedOffset(partition=partition, committed=nothing, error=answer.error)
            for partition in answer.query.partitions or ()
        )
    )


def _offset_topics(offsets: Iterable[FetchedOffset]) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each.partition.partition,
                    committed_offset=each.committed.offset,
                    committed_leader_epoch=each.committed.leader_epoch,
                    metadata=each.committed.metadata,
                    error_code=each.error,
                )
                for each in partitions
            ],
        )
        for topic, partitions in groupby(offsets, key=attrgetter("partition.topic"))
    ]


def _offset_group(answer: OffsetAnswer) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=answer.query.group_id,
        error_code=answer.error,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=each.partition.partition,
                        committed_offset=each.committed.offset,
                        committed_leader_epoch=each.committed.leader_epoch,
                        metadata=each.committed.metadata,
                        error_code=each.error,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in groupby(answer.offsets, key=attrgetter("partition.topic"))
        ],
    )


def partitions_to_delete(request: OffsetDeleteRequest) -> list[TopicPartition]:
    """The partitions of an OffsetDelete."""
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]


def delete_response(
    request: OffsetDeleteRequest, errors: Mapping[TopicPartition, ErrorCode], otherwise: ErrorCode
) -> OffsetDeleteResponse:
    """Answer to OffsetDelete, partition by partition as asked: its own error, or `otherwise`."""
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, partition.partition_index), otherwise
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def described(group_id: str, view: GroupView) -> DescribedGroup:
    """A group of the answer to DescribeGroups."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=view.state.value,
        protocol_type=view.protocol_type,
        protocol_data=view.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in view.members
        ],
    )
