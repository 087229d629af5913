"""The group coordinator of a node: requests in, responses out, for the partitions of `__consumer_offsets`
that it leads.

`async with` it: the writers of its partitions and the retention check are tasks of its own, and end with it.
Its methods belong to one event loop. They never raise for what a client did or the log refused: that is in
the responses. A caller that is cancelled (its connection went away) leaves nothing behind; a member that goes
that way is found out by its session timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

from broker.clock import Clock
from broker.coordinators.partition_writer import CoordinatorLog
from broker.errors import ErrorCode, ProtocolError
from broker.groups import consumer_requests
from broker.groups.config import GroupConfig
from broker.groups.consumer_groups.config import ConsumerConfigOf
from broker.groups.consumer_groups.events import ConsumerHeartbeatReply
from broker.groups.consumer_groups.topics import TopicDirectory
from broker.groups.events import HeartbeatReply, JoinReply, LeaveReply, SyncReply
from broker.groups.group_administration import GroupAdministration
from broker.groups.offset_requests import OffsetRequests
from broker.groups.requests import (
    Client,
    check_sync,
    heartbeat_event,
    join_event,
    join_response,
    leave_event,
    leave_response,
    sync_event,
    sync_response,
)
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class GroupCoordinator(OffsetRequests, GroupAdministration):
    """Coordinates the groups whose partition this node leads."""

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        config: GroupConfig,
        topics: TopicDirectory,
        *,
        consumer_config_of: ConsumerConfigOf | None = None,
        new_uuid: Callable[[], UUID] = uuid4,
    ) -> None:
        super().__init__(log, clock, config, topics, consumer_config_of=consumer_config_of)
        self._new_uuid = new_uuid
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

    async def sync(self, request: SyncGroupRequest, *, version: int) -> SyncGroupResponse:
        """SyncGroup: answered when the leader's assignment is stored."""
        try:
            check_sync(request, version=version)
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

    async def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int,
        client: Client,
        may_see: Callable[[str], bool] = lambda _: True,
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat: joins, stays and leaves, answered once the log knows what it changed. A
        regular expression finds the topics that the member `may_see`.
        """
        try:
            if not self._config.consumer.is_enabled:
                raise ProtocolError(
                    ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols: classic alone"
                )
            consumer_requests.check_heartbeat(request, version=version)
            group = self._group(request.group_id)
        except ProtocolError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        waiter, answer = self._waiters.open(ConsumerHeartbeatReply)
        group.tell(
            consumer_requests.heartbeat_event(
                request,
                client=client,
                waiter=waiter,
                new_member_id=str(self._new_uuid()),
                may_see=may_see,
            )
        )
        return consumer_requests.heartbeat_response(await answer)
