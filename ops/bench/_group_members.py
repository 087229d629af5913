"""Many members of one group in one process, of either protocol, that only follow the coordinator."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from broker.client.connection import Connection, ConnectionSettings
from broker.errors import ErrorCode
from broker.types import HostPort
from broker.wire.message import Message, Request
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

HEARTBEAT_SECONDS = 0.1
SESSION_MS = 45_000
REBALANCE_MS = 300_000

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a group shares."""

    address: HostPort
    group: str
    topic: str
    topic_id: UUID
    partitions: int


class GroupMember(ABC):
    """One member on a connection of its own; `has` are its partitions, `calls` the requests that it sent."""

    def __init__(self, work: Work, number: int) -> None:
        self.work = work
        self.number = number
        self.has: tuple[int, ...] = ()
        self.epoch = -1
        """Generation, or member epoch: of the last assignment."""
        self.calls = 0
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, changed: Callable[[], None]) -> None:
        """Join, and be a member until `stop`; `changed` is called with every new assignment."""
        self._task = asyncio.create_task(self._live(changed))
        self._task.add_done_callback(lambda _: changed())

    async def stop(self) -> None:
        """Leave the group."""
        assert self._task is not None, "it was started"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._leave()
        self.has = ()
        if self._connection is not None:
            await self._connection.close()

    def check(self) -> None:
        """Raise what ended the member, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _ask(self, request: Request[Answer]) -> Answer:
        self.calls += 1
        if self._connection is None:
            settings = ConnectionSettings(client_id=f"member-{self.number}", request_timeout_ms=REBALANCE_MS)
            self._connection = await Connection.open(self.work.address, settings)
        return await self._connection.request(request)

    @abstractmethod
    async def _live(self, changed: Callable[[], None]) -> None:
        """Be a member until cancelled, and call `changed` whenever the partitions are others."""

    @abstractmethod
    async def _leave(self) -> None:
        """Tell the coordinator, if it knows of the member."""


class ClassicMember(GroupMember):
    """JoinGroup, SyncGroup, Heartbeat; the leader hands out ranges."""

    def __init__(self, work: Work, number: int) -> None:
        super().__init__(work, number)
        self._member_id = ""

    async def _live(self, changed: Callable[[], None]) -> None:
        while True:
            joined = await self._join()
            if not await self._sync(joined):
                continue
            changed()
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                if not await self._heartbeat():
                    break

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=[self.work.topic]).encode_with_version(0)
        while True:
            joined = await self._ask(
                JoinGroupRequest(
                    group_id=self.work.group,
                    member_id=self._member_id,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
                )
            )
            self._member_id = joined.member_id
            if joined.error_code == ErrorCode.NONE:
                return joined
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif joined.error_code not in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
                raise RuntimeError(f"JoinGroup: {ErrorCode.of(joined.error_code).name}")

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        answer = await self._ask(
            SyncGroupRequest(
                group_id=self.work.group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=self._assignments(joined),
            )
        )
        if answer.error_code:
            return False
        _, told = ConsumerProtocolAssignment.decode_with_version(answer.assignment)
        self.has = tuple(number for each in told.assigned_partitions for number in each.partitions)
        self.epoch = joined.generation_id
        return True

    def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        if joined.leader != self._member_id:
            return []
        members = sorted(member.member_id for member in joined.members)
        share, larger = divmod(self.work.partitions, len(members))
        assignments, begin = [], 0
        for index, member_id in enumerate(members):
            end = begin + share + (index < larger)
            given = [TopicPartition(topic=self.work.topic, partitions=list(range(begin, end)))]
            assignment = ConsumerProtocolAssignment(assigned_partitions=given).encode_with_version(0)
            assignments.append(SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
            begin = end
        return assignments

    async def _heartbeat(self) -> bool:
        answer = await self._ask(
            HeartbeatRequest(group_id=self.work.group, generation_id=self.epoch, member_id=self._member_id)
        )
        return answer.error_code == ErrorCode.NONE

    async def _leave(self) -> None:
        leaving = MemberIdentity(member_id=self._member_id)
        await self._ask(LeaveGroupRequest(group_id=self.work.group, members=[leaving]))


class ConsumerMember(GroupMember):
    """ConsumerGroupHeartbeat; the coordinator hands out."""

    async def _live(self, changed: Callable[[], None]) -> None:
        await self._beat(0, changed)
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self._beat(self.epoch, changed)

    async def _beat(self, epoch: int, changed: Callable[[], None]) -> None:
        joins = epoch == 0
        owned = [TopicPartitions(topic_id=self.work.topic_id, partitions=self.has)] if self.has else []
        answer: ConsumerGroupHeartbeatResponse = await self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.work.group,
                member_id=f"member-{self.number}",
                member_epoch=epoch,
                rebalance_timeout_ms=REBALANCE_MS if joins else -1,
                subscribed_topic_names=[self.work.topic] if joins else None,
                topic_partitions=owned,
            )
        )
        if answer.error_code:
            raise RuntimeError(f"ConsumerGroupHeartbeat: {answer.error_message}")
        if answer.assignment is not None:
            self.has = tuple(each for told in answer.assignment.topic_partitions for each in told.partitions)
        if answer.assignment is not None or answer.member_epoch != self.epoch:
            self.epoch = answer.member_epoch
            changed()

    async def _leave(self) -> None:
        await self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.work.group, member_id=f"member-{self.number}", member_epoch=-1
            )
        )


def are_stable(members: Sequence[GroupMember], partitions: int) -> bool:
    """Whether all are of one epoch and have every partition once."""
    held = sorted(number for member in members for number in member.has)
    return held == list(range(partitions)) and len({member.epoch for member in members}) == 1
