"""A consumer group machine with everything around it played by hand: time, the log, topics, and members that
do what they are told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from broker.errors import ErrorCode
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.groups.consumer_groups.events import (
    ConsumerEvent,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerReplyValue,
    MemberTimer,
    MemberTimerFired,
    RoundEffects,
    refusal,
)
from broker.groups.consumer_groups.group import ConsumerGroup
from broker.groups.consumer_groups.image import GroupImage, GroupState
from broker.groups.consumer_groups.members import NOTHING, Partitions, TopicIdPartition
from broker.groups.consumer_groups.records import Change
from broker.groups.events import (
    GroupMetadata,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeavingMember,
    Sync,
    SyncReply,
    Waiter,
)
from broker.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from broker.wire.messages.consumer_protocol import TopicPartition as NamedPartitions
from tests.groups.fixed_topics import FixedTopics

CONFIG = ConsumerGroupConfig()
REBALANCE_MS = 60_000
CLASSIC_SESSION_MS = 10_000


def cooperative(topics: Iterable[str], owned: Mapping[str, list[int]] | None = None) -> bytes:
    """Metadata of a classic consumer that keeps what it has while it joins again."""
    return ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[NamedPartitions(topic=name, partitions=has) for name, has in (owned or {}).items()],
    ).encode_with_version(1)


WANTS_FLIGHTS = {"cooperative-sticky": cooperative(["flights"])}


@dataclass(slots=True)
class Told:
    """What a member knows of itself."""

    epoch: int = 0
    assigned: Partitions = NOTHING
    owned: Partitions = NOTHING
    errors: list[ErrorCode] = field(default_factory=list)


class ScriptedConsumers:
    """Rounds are stored at once unless `stores_at_once` is off; then `store` and `fail_store` decide."""

    def __init__(self, topics: Mapping[str, int] | None = None, config: ConsumerGroupConfig = CONFIG) -> None:
        self.config = config
        self.topics = FixedTopics({"flights": 4} if topics is None else topics)
        self.machine = ConsumerGroup(config, self.topics)
        self.now_ms = 1_000_000
        self.log: list[Change] = []
        self.classic_log: list[GroupMetadata | None] = []
        self.timers: dict[MemberTimer, int] = {}
        self.answers: dict[Waiter, ConsumerReplyValue] = {}
        self.members: dict[str, Told] = {}
        self.facts: list[str] = []
        self.unhandled: list[ConsumerEvent] = []
        self.retired = False
        self.stores_at_once = True
        self.storing: RoundEffects | None = None
        self._waiting: deque[ConsumerEvent] = deque()
        self.asked: set[Waiter] = set()

    # What can be looked at

    @property
    def image(self) -> GroupImage:
        return self.machine.image

    @property
    def state(self) -> GroupState:
        return self.image.state

    def numbers(self, member_id: str) -> list[int]:
        """The partitions that a member was told are its own, by number."""
        return sorted(partition.partition for partition in self.members[member_id].assigned)

    def partition(self, number: int, topic: str = "flights") -> TopicIdPartition:
        found = self.topics.current().named(topic)
        assert found is not None
        return TopicIdPartition(found.topic_id, number)

    # What members of the consumer protocol send

    def join(
        self,
        member_id: str,
        *topics: str,
        instance_id: str | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
        may_see: Callable[[str], bool] = lambda _: True,
    ) -> ErrorCode | None:
        self.members[member_id] = Told()
        return self.heartbeat(
            member_id,
            epoch=0,
            instance_id=instance_id,
            topics=frozenset(topics or ("flights",)) if pattern is None else None,
            pattern=pattern,
            assignor=assignor,
            rebalance_timeout_ms=REBALANCE_MS,
            owned=NOTHING,
            may_see=may_see,
        )

    def heartbeat(
        self,
        member_id: str,
        *,
        epoch: int | None = None,
        owned: Partitions | None = None,
        topics: frozenset[str] | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int | None = None,
        may_see: Callable[[str], bool] = lambda _: True,
    ) -> ErrorCode | None:
        """The error that the member is told, None while it waits."""
        told = self.members.setdefault(member_id, Told())
        waiter = self.waiter()
        self.tell(
            ConsumerHeartbeat(
                waiter=waiter,
                member_id=member_id,
                member_epoch=told.epoch if epoch is None else epoch,
                client_id="client",
                client_host="/127.0.0.1",
                instance_id=instance_id,
                topics=topics,
                pattern=pattern,
                assignor=assignor,
                rebalance_timeout_ms=rebalance_timeout_ms,
                owned=owned,
                may_see=may_see,
            )
        )
        return self.hear(member_id, waiter)

    def hear(self, member_id: str, waiter: Waiter) -> ErrorCode | None:
        """The member reads its answer."""
        answer = self.answers.get(waiter)
        if answer is None:
            return None
        assert isinstance(answer, ConsumerHeartbeatReply)
        told = self.members[member_id]
        if answer.error is ErrorCode.NONE:
            told.epoch = answer.member_epoch
            if answer.assignment is not None:
                told.assigned = answer.assignment
        return answer.error

    def reply_to(self, waiter: Waiter) -> ConsumerHeartbeatReply:
        answer = self.answers[waiter]
        assert isinstance(answer, ConsumerHeartbeatReply)
        return answer

    def follow(self, member_id: str) -> ErrorCode | None:
        """A heartbeat of a member that has done all that it was told, and says so."""
        told = self.members.setdefault(member_id, Told())
        told.owned = told.assigned
        return self.heartbeat(member_id, owned=told.owned)

    def settle(self, *member_ids: str) -> None:
        """Heartbeats of all until nothing changes."""
        members = member_ids or tuple(each for each in self.members if each in self.image)
        for _ in range(3 * len(members) + 3):
            for member_id in members:
                self.follow(member_id)

    def leave(
        self, member_id: str, *, instance_id: str | None = None, static: bool = False
    ) -> ErrorCode | None:
        return self.heartbeat(member_id, epoch=-2 if static else -1, instance_id=instance_id)

    # What members of the classic protocol send

    def classic_join(
        self,
        member_id: str = "",
        *,
        new_member_id: str = "classic-1",
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        instance_id: str | None = None,
        session_timeout_ms: int = CLASSIC_SESSION_MS,
        requires_known_member_id: bool = False,
    ) -> JoinReply | None:
        waiter = self.waiter()
        self.tell(
            Join(
                waiter=waiter,
                member_id=member_id,
                instance_id=instance_id,
                new_member_id=new_member_id,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type=protocol_type,
                protocols={"cooperative-sticky": cooperative(["flights"])}
                if protocols is None
                else protocols,
                requires_known_member_id=requires_known_member_id,
                supports_skip_assignment=True,
            )
        )
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, JoinReply)
        return answer

    def classic_sync(
        self, member_id: str, generation: int, *, protocol: str | None = None, instance_id: str | None = None
    ) -> SyncReply:
        waiter = self.waiter()
        self.tell(
            Sync(
                waiter=waiter,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                protocol_type=None,
                protocol=protocol,
                assignments={},
            )
        )
        answer = self.answers[waiter]
        assert isinstance(answer, SyncReply)
        return answer

    def classic_heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> ErrorCode | None:
        waiter = self.waiter()
        self.tell(
            Heartbeat(waiter=waiter, generation=generation, member_id=member_id, instance_id=instance_id)
        )
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, HeartbeatReply)
        return answer.error if answer is not None else None

    def classic_leave(self, member_id: str, *, instance_id: str | None = None) -> ErrorCode | None:
        waiter = self.waiter()
        self.tell(
            Leave(waiter=waiter, members=(LeavingMember(member_id=member_id, instance_id=instance_id),))
        )
        answer = self.answers.get(waiter)
        assert answer is None or isinstance(answer, LeaveReply)
        return answer.members[0][1] if answer is not None else None

    # The driver

    def waiter(self) -> Waiter:
        waiter = Waiter(len(self.asked) + 1)
        self.asked.add(waiter)
        return waiter

    def tell(self, *events: ConsumerEvent) -> None:
        """Events of one round, or of the next while one is being stored."""
        self._waiting += events
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self.storing is None and not self.retired:
            events = tuple(self._waiting)
            self._waiting.clear()
            self._perform(self.machine.handle(events, self.now_ms))

    def _perform(self, effects: RoundEffects) -> None:
        for change in effects.timers:
            if change.delay_ms is None:
                self.timers.pop(change.timer, None)
            else:
                self.timers[change.timer] = self.now_ms + change.delay_ms
        self.facts += [fact.name for fact in effects.facts]
        self.storing = effects
        if self.stores_at_once or not (effects.records or effects.metadata):
            self._settle(stored=True)

    def store(self) -> None:
        """The log takes the round."""
        self._settle(stored=True)
        self._go_on()

    def fail_store(self) -> None:
        """The log refuses the round."""
        self._settle(stored=False)
        self._go_on()

    def _settle(self, *, stored: bool) -> None:
        effects = self.storing
        assert effects is not None, "no round is under way"
        self.storing = None
        self.machine.settle(stored=stored)
        if stored:
            self.log += effects.records
            self.classic_log += effects.metadata
            self.unhandled += effects.unhandled
            self.retired = effects.retirement is not None
        for reply in effects.replies:
            told = reply if stored else reply.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert told.waiter not in self.answers, "every waiter is answered once"
            self.answers[told.waiter] = told.value
        if not stored:
            for event in effects.unhandled:
                refused = refusal(event, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                if refused is not None:
                    self.answers[refused.waiter] = refused.value

    def wait(self, milliseconds: int) -> None:
        """Time passes; timers that run out fire."""
        self.now_ms += milliseconds
        for timer, due_ms in sorted(self.timers.items(), key=lambda item: item[1]):
            if due_ms <= self.now_ms and self.timers.get(timer) == due_ms:
                del self.timers[timer]
                self.tell(MemberTimerFired(timer=timer))

    def replayed(self) -> GroupImage:
        """The group as another node would read it from the log."""
        image = GroupImage()
        for change in self.log:
            image.apply(change)
        return image
