"""The group coordinator of a node: requests in, responses out, for the partitions of `__consumer_offsets`
that it leads.

`async with` it: the writers of its partitions and the retention check are tasks of its own, and end with it.
Its methods belong to one event loop. They never raise for what a client did or the log refused: that is in
the responses. A caller that is cancelled (its connection went away) leaves nothing behind; a member that goes
that way is found out by its session timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

from broker.clock import Clock
from broker.coordinators.led_partitions import LedPartitions
from broker.coordinators.partition_writer import CoordinatorLog
from broker.coordinators.placement import partition_of
from broker.errors import ErrorCode, ProtocolError
from broker.groups.config import GroupConfig
from broker.groups.events import HeartbeatReply, JoinReply, LeaveReply, SyncReply
from broker.groups.live_group import LiveGroup, Waiters
from broker.groups.offsets import NOT_COMMITTED
from broker.groups.partition import OffsetsPartition
from broker.groups.requests import (
    COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND,
    Client,
    FetchedOffset,
    OffsetAnswer,
    OffsetQuery,
    commit_of,
    commit_response,
    delete_response,
    described,
    heartbeat_event,
    join_event,
    join_response,
    leave_event,
    leave_response,
    offset_queries,
    offset_response,
    partitions_to_delete,
    sync_event,
    sync_response,
)
from broker.groups.state import State
from broker.groups.transactional_requests import (
    producer_of,
    transactional_commit_of,
    transactional_commit_response,
)
from broker.groups.view import view_of
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
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from broker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

GROUP_TYPE = "classic"
"""What ListGroups calls groups of this protocol (KIP-848)."""


class GroupCoordinator:
    """Coordinates the groups whose partition this node leads."""

    def __init__(
        self, log: CoordinatorLog, clock: Clock, config: GroupConfig, *, new_uuid: Callable[[], UUID] = uuid4
    ) -> None:
        self._log = log
        self._clock = clock
        self._config = config
        self._new_uuid = new_uuid
        self._waiters = Waiters()
        self._partitions = LedPartitions(
            "__consumer_offsets",
            lambda partition, leader_epoch: OffsetsPartition(
                partition, leader_epoch, log=log, clock=clock, config=config, waiters=self._waiters
            ),
        )
        self._tasks = asyncio.TaskGroup()
        self._retention: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._retention = self._tasks.create_task(self._check_retention())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._partitions.resign_all()
        if self._retention is not None:
            self._retention.cancel()
        await self._tasks.__aexit__(kind, error, traceback)

    # Partitions come and go

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group lives on. Raises ProtocolError while the topic
        does not exist.
        """
        count = self._log.partition_count
        if count <= 0:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "__consumer_offsets does not exist yet")
        return partition_of(group_id, count)

    async def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node leads `partition` since `leader_epoch`: read it, then serve its groups. Older epochs
        change nothing. Where the log cannot be read, or is led by another before it was, the partition is not
        served.
        """
        await self._partitions.elect(partition, leader_epoch, self._tasks)

    def on_resigned(self, partition: int) -> None:
        """This node does not lead `partition` (any more): whoever waits for its groups is told to look
        elsewhere.
        """
        self._partitions.resign(partition)

    async def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Forget what groups committed for `topics`; returns once the log has taken it in, or refused."""
        written = [
            group.delete_offsets(partitions)
            for group in self._live_groups()
            if (partitions := group.offsets.of_topics(topics))
        ]
        await asyncio.gather(*written)

    def expire_offsets(self) -> None:
        """Have everything removed that has outlived its retention; runs by itself every check interval."""
        now_ms = self._clock.now_ms()
        for group in self._live_groups():
            group.expire(now_ms)

    async def _check_retention(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            self.expire_offsets()

    def _live_groups(self) -> Iterator[LiveGroup]:
        for partition in self._partitions:
            if partition.is_live:
                yield from partition

    def _partition_for(self, group_id: str) -> OffsetsPartition:
        number = self.partition_of(group_id)
        if not self._log.is_leader(number):
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        return self._partitions.live(number)

    def _group(self, group_id: str) -> LiveGroup:
        """The group that members ask for. Raises ProtocolError when it is not here or its id is empty."""
        if not group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
        return self._partition_for(group_id).group(group_id)

    # Membership

    async def join(self, request: JoinGroupRequest, *, version: int, client: Client) -> JoinGroupResponse:
        """JoinGroup: answered when the rebalance has gathered its members."""
        try:
            group = self._group(request.group_id)
        except ProtocolError as error:
            return join_response(JoinReply(error=error.code, member_id=request.member_id), version=version)
        waiter, answer = self._waiters.open(JoinReply)
        group.tell(
            join_event(request, version=version, client=client, waiter=waiter, unique=self._new_uuid())
        )
        return join_response(await answer, version=version)

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """SyncGroup: answered when the leader's assignment is stored."""
        try:
            group = self._group(request.group_id)
        except ProtocolError as error:
            # Members that know this group go on, where a rebalance was under way they start over.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code)
        waiter, answer = self._waiters.open(SyncReply)
        group.tell(sync_event(request, waiter=waiter))
        return sync_response(await answer)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat."""
        try:
            group = self._group(request.group_id)
        except ProtocolError as error:
            # While the group is being read nobody's session runs: the member is as good as heard.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
        waiter, answer = self._waiters.open(HeartbeatReply)
        group.tell(heartbeat_event(request, waiter=waiter))
        return HeartbeatResponse(error_code=(await answer).error)

    async def leave(self, request: LeaveGroupRequest, *, version: int) -> LeaveGroupResponse:
        """LeaveGroup."""
        try:
            group = self._group(request.group_id)
        except ProtocolError as error:
            return leave_response(LeaveReply(error=error.code), version=version)
        waiter, answer = self._waiters.open(LeaveReply)
        group.tell(leave_event(request, version=version, waiter=waiter))
        return leave_response(await answer, version=version)

    # Offsets

    async def commit_offsets(self, request: OffsetCommitRequest, *, version: int) -> OffsetCommitResponse:
        """OffsetCommit: answered when the offsets are in the log."""
        try:
            group = self._group_for_commit(request, version)
        except ProtocolError as error:
            return commit_response(request.topics, {}, error.code)
        commit = commit_of(request, now_ms=self._clock.now_ms())
        errors = group.offsets.errors(commit)
        accepted = {partition: offset for partition, offset in commit.items() if partition not in errors}
        if not accepted:
            return commit_response(request.topics, errors, ErrorCode.NONE)
        return commit_response(request.topics, errors, await group.commit(request.member_id, accepted))

    def _group_for_commit(self, request: OffsetCommitRequest, version: int) -> LiveGroup:
        """The group that the request may commit to. Raises ProtocolError when it may not."""
        generation = request.generation_id_or_member_epoch
        partition = self._partition_for(request.group_id)
        if partition.writer.is_full:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many commits are waiting")
        group = partition.find(request.group_id)
        if group is None and generation >= 0:
            knows_code = version >= COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND if knows_code else ErrorCode.ILLEGAL_GENERATION)
        if group is not None:
            error = group.standing.commit_error(generation, request.member_id, request.group_instance_id)
            if error is not ErrorCode.NONE:
                raise ProtocolError(error)
        return group or partition.group(request.group_id)

    async def commit_in_transaction(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        """TxnOffsetCommit: answered when the offsets are in the log, where they wait for the transaction's
        end. Whether it is the producer's turn is for the caller to know.
        """
        try:
            group = self._group_for_transaction(request)
        except ProtocolError as error:
            return transactional_commit_response(request.topics, {}, error.code)
        commit = transactional_commit_of(request, now_ms=self._clock.now_ms())
        errors = group.offsets.errors(commit)
        accepted = {partition: offset for partition, offset in commit.items() if partition not in errors}
        written = ErrorCode.NONE
        if accepted:
            written = await group.commit_in_transaction(producer_of(request), accepted)
        return transactional_commit_response(request.topics, errors, written)

    def _group_for_transaction(self, request: TxnOffsetCommitRequest) -> LiveGroup:
        """As `_group_for_commit`."""
        partition = self._partition_for(request.group_id)
        if partition.writer.is_full:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many commits are waiting")
        group = partition.find(request.group_id)
        if group is None and request.generation_id >= 0:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        if group is not None:
            error = group.standing.commit_error(
                request.generation_id, request.member_id, request.group_instance_id, transactional=True
            )
            if error is not ErrorCode.NONE:
                raise ProtocolError(error)
        return group or partition.group(request.group_id)

    def serves(self, partition: int) -> bool:
        """Whether this node leads `partition` of `__consumer_offsets` and has read it."""
        held = self._partitions.get(partition)
        return held is not None and held.is_live

    async def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """A transaction's marker is in the log of `partition`: what it committed to groups there counts now,
        or never.
        """
        held = self._partitions.get(partition)
        if held is not None:
            await held.transaction_ended(producer_id, committed=committed)

    async def fetch_offsets(self, request: OffsetFetchRequest, *, version: int) -> OffsetFetchResponse:
        """OffsetFetch, of one or several groups; a group that is not known has committed nothing."""
        answers = [
            self._answer(query, require_stable=request.require_stable)
            for query in offset_queries(request, version=version)
        ]
        return offset_response(answers, version=version)

    def _answer(self, query: OffsetQuery, *, require_stable: bool) -> OffsetAnswer:
        try:
            group = self._partition_for(query.group_id).find(query.group_id)
        except ProtocolError as error:
            return OffsetAnswer(query=query, error=error.code)
        if group is None:
            nothing = tuple(
                FetchedOffset(partition=each, committed=NOT_COMMITTED) for each in query.partitions or ()
            )
            return OffsetAnswer(query=query, offsets=nothing)
        fetched = group.offsets.fetch(query.partitions)
        return OffsetAnswer(
            query=query,
            offsets=tuple(
                FetchedOffset(partition=partition, committed=committed)
                if group.offsets.is_stable(partition) or not require_stable
                else FetchedOffset(
                    partition=partition, committed=NOT_COMMITTED, error=ErrorCode.UNSTABLE_OFFSET_COMMIT
                )
                for partition, committed in sorted(fetched.items())
            ),
        )

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """OffsetDelete: of topics that no member uses."""
        try:
            group = self._group_to_delete_from(request.group_id)
        except ProtocolError as error:
            return OffsetDeleteResponse(error_code=error.code)
        in_use = group.standing.state is not State.EMPTY
        partitions = partitions_to_delete(request)
        errors = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            for partition in partitions
            if in_use and group.standing.is_subscribed_to(partition.topic)
        }
        allowed = {each for each in partitions if each not in errors} & group.offsets.partitions
        error_code = await group.delete_offsets(allowed) if allowed else ErrorCode.NONE
        return delete_response(request, errors, error_code)

    def _group_to_delete_from(self, group_id: str) -> LiveGroup:
        group = self._partition_for(group_id).find(group_id)
        if group is None or group.standing.state is State.DEAD:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.standing.state is not State.EMPTY and not group.standing.is_consumer_group:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
        return group

    # Groups as a whole

    async def describe(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """DescribeGroups: a group that is not known is shown as Dead."""
        return DescribeGroupsResponse(groups=[self._describe(group_id) for group_id in request.groups])

    def _describe(self, group_id: str) -> DescribedGroup:
        try:
            group = self._partition_for(group_id).find(group_id)
        except ProtocolError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        if group is None:
            return DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        return described(group_id, view_of(group.standing))

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
                    protocol_type=group.standing.protocol_type or "",
                    group_state=group.standing.state.value,
                    group_type=GROUP_TYPE,
                )
                for group in self._live_groups()
                if (not states or group.standing.state.value.lower() in states)
                and (not types or GROUP_TYPE in types)
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
        if group is None or group.standing.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.standing.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return await group.delete()
