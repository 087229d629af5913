"""Members of a group in a simulated cluster, of either protocol, and what must hold of them.

A member commits offsets of the partitions that it has, each larger than all that were sent before it by
anybody. What the coordinator acknowledged stays: whoever reads an offset when all is well finds the largest
that anybody was told is stored, wherever the coordinator is by then, or more. So a commit of one who is no
member any more, a zombie, must not get through once another has the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import TopicPartition
from broker.wire.message import Request, ResponseType
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from broker.wire.messages.consumer_protocol import TopicPartition as NamedPartitions
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.sim.checks import ViolationError
from tests.sim.clients import Client

if TYPE_CHECKING:
    from tests.sim.world import World

GROUP = "g"
TOPIC = "t"
SESSION_MS = 3_000
BEAT_SECONDS = 0.3
_LOST = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""The member is none any more and has nothing."""
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""To be tried again, perhaps elsewhere."""


class LostError(BrokerError):
    """The coordinator does not know the member as what it says it is."""


class Ledger:
    """What members sent, and what of it the group was told is stored, by partition."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, int] = {}
        self._sent = 0

    def next(self) -> int:
        """An offset larger than all before it."""
        self._sent += 1
        return self._sent

    def stored(self, partition: int, offset: int) -> None:
        """The coordinator said so."""
        self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, -1))


class Member(Client):
    """One member; `has` are its partitions by number."""

    def __init__(self, world: World, name: str, ledger: Ledger) -> None:
        super().__init__(world, name)
        self.ledger = ledger
        self.member_id = ""
        self.epoch = 0
        self.has: frozenset[int] = frozenset()
        self.is_leaving = False
        self._coordinator: int | None = None

    def start(self, partitions: Sequence[TopicPartition]) -> None:
        """Be a member from now on."""
        self.begin([self._live()])

    def die(self) -> None:
        """End without a word."""
        self.world.loop.end(self.process)

    async def _live(self) -> None:
        while not self.world.is_over and not self.is_leaving:
            try:
                await self._join()
                while not self.world.is_over and not self.is_leaving:
                    reached = self.ledger.next()
                    await self._pause()
                    await self._commit(reached)
                    await self._beat()
            except LostError:
                self.has = frozenset()
                self.epoch = 0
            except (ConnectionFailedError, RequestTimedOutError, ProtocolError):
                self._coordinator = None
            await self._pause()
        if self.is_leaving:
            await self._leave()

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(BEAT_SECONDS / 2, BEAT_SECONDS))

    async def _join(self) -> None:
        raise NotImplementedError

    async def _beat(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        self.has = frozenset()

    # Towards the coordinator

    async def tell(self, request: Request[ResponseType]) -> ResponseType:
        """The coordinator's answer. Raises as `ask`, and ProtocolError while there is none."""
        if self._coordinator is None:
            node = self.random.randint(1, self.world.scenario.nodes)
            found = (await self.ask(node, FindCoordinatorRequest(coordinator_keys=[GROUP]))).coordinators[0]
            if found.error_code:
                raise ProtocolError(ErrorCode.of(found.error_code))
            self._coordinator = found.node_id
        return await self.ask(self._coordinator, request)

    def check(self, code: int) -> None:
        """Raises LostError, ProtocolError to be tried again, ViolationError for what must not be."""
        error = ErrorCode.of(code)
        if error is ErrorCode.NONE:
            return
        if error in _LOST:
            raise LostError(error.name)
        if error in _ELSEWHERE:
            raise ProtocolError(error)
        raise ViolationError(f"{self.name} was told {error.name}")

    # Offsets

    async def _commit(self, offset: int) -> None:
        if not self.has:
            return
        known = dict(self.ledger.acknowledged)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata=""
                        )
                        for number in sorted(self.has)
                    ],
                )
            ],
        )
        sent = sorted(self.has)
        answer = await self.tell(request)
        for each in answer.topics[0].partitions:
            if each.error_code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS):
                return
            self.check(each.error_code)
        for number in sent:
            if offset < known.get(number, -1):
                raise ViolationError(
                    f"{self.name} was let commit {offset} of partition {number} after {known[number]}"
                )
            self.ledger.stored(number, offset)


class ConsumerMember(Member):
    """Of the consumer protocol (KIP-848)."""

    def __init__(self, world: World, name: str, ledger: Ledger) -> None:
        super().__init__(world, name, ledger)
        self.member_id = name
        self._topic_id: UUID | None = None

    async def _join(self) -> None:
        if self._topic_id is None:
            node = self.random.randint(1, self.world.scenario.nodes)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            self._topic_id = (await self.ask(node, asked)).topics[0].topic_id
        if self.epoch > 0:
            return  # only the way to the coordinator was lost
        self.has = frozenset()
        await self._follow(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=5_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            )
        )

    async def _beat(self) -> None:
        assert self._topic_id is not None, "it has joined"
        await self._follow(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=5_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.has))],
            )
        )

    async def _follow(self, request: ConsumerGroupHeartbeatRequest) -> None:
        answer: ConsumerGroupHeartbeatResponse = await self.tell(request)
        self.check(answer.error_code)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            told = [number for topic in answer.assignment.topic_partitions for number in topic.partitions]
            self.has = frozenset(told)

    async def _leave(self) -> None:
        self.has = frozenset()
        for _ in range(3):
            try:
                await self.tell(
                    ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=-1)
                )
            except (ConnectionFailedError, RequestTimedOutError, ProtocolError):
                self._coordinator = None
            else:
                return


class ClassicMember(Member):
    """Of the classic protocol; gives everything up before it joins again."""

    async def _join(self) -> None:
        self.has = frozenset()
        joined: JoinGroupResponse | None = None
        while joined is None or joined.error_code:
            joined = await self.tell(
                JoinGroupRequest(
                    group_id=GROUP,
                    member_id=self.member_id,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=5_000,
                    protocol_type="consumer",
                    protocols=[
                        JoinGroupRequestProtocol(
                            name="range",
                            metadata=ConsumerProtocolSubscription(topics=[TOPIC]).encode_with_version(0),
                        )
                    ],
                )
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
                if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                await self._pause()
            else:
                self.check(joined.error_code)
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        await self._sync(joined)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        members = sorted(member.member_id for member in joined.members)
        assignments = []
        for index, member_id in enumerate(members if joined.leader == joined.member_id else []):
            given = list(range(index, self.world.scenario.partitions, len(members)))
            assignment = ConsumerProtocolAssignment(
                assigned_partitions=[NamedPartitions(topic=TOPIC, partitions=given)]
            )
            assignments.append(
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment.encode_with_version(0))
            )
        answer = await self.tell(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.epoch,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise LostError("another rebalance")
        self.check(answer.error_code)
        _, told = ConsumerProtocolAssignment.decode_with_version(answer.assignment)
        self.has = frozenset(number for each in told.assigned_partitions for number in each.partitions)

    async def _beat(self) -> None:
        answer = await self.tell(
            HeartbeatRequest(group_id=GROUP, generation_id=self.epoch, member_id=self.member_id)
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise LostError("a rebalance")
        self.check(answer.error_code)


class Auditor(Member):
    """Reads, when all is well, what the group has stored."""

    def start(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing, before it is asked."""

    def audit(self) -> None:
        """Look; a failure is one of the run."""
        self.begin([self._audit()])

    async def _audit(self) -> None:
        numbers = range(self.world.scenario.partitions)
        while True:
            known = dict(self.ledger.acknowledged)
            try:
                found = await self._fetch(numbers)
            except (ConnectionFailedError, RequestTimedOutError, ProtocolError):
                self._coordinator = None
                await self._pause()
                continue
            break
        for number in numbers:
            if found[number] < known.get(number, -1):
                raise ViolationError(
                    f"partition {number}: offset {found[number]} is stored, {known[number]} was acknowledged"
                )

    async def _fetch(self, numbers: Sequence[int]) -> dict[int, int]:
        topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=numbers)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
        (group,) = (await self.tell(request)).groups
        self.check(group.error_code)
        return {each.partition_index: each.committed_offset for each in group.topics[0].partitions}
