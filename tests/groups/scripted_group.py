"""A group machine with everything around it played by hand: time, the log, and the members' requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.events import (
    CancelTimer,
    Effects,
    Event,
    GroupMetadata,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeavingMember,
    Loaded,
    ReplyValue,
    SetTimer,
    Store,
    Stored,
    Sync,
    SyncReply,
    Timer,
    TimerFired,
    Waiter,
)
from broker.groups.membership import Membership
from broker.groups.state import State
from broker.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONFIG = GroupConfig(initial_rebalance_delay_ms=3_000)
NO_DELAY = replace(CONFIG, initial_rebalance_delay_ms=0)
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """Metadata of a consumer that subscribed to `topics`."""
    return ConsumerProtocolSubscription(topics=list(topics)).encode_with_version(0)


class ScriptedGroup:
    """Stores are written at once unless `writes_at_once` is off; then `write` and `fail_write` decide."""

    def __init__(self, config: GroupConfig = NO_DELAY) -> None:
        self.config = config
        self.machine = Membership(config)
        self.now_ms = 1_000_000
        self.timers: dict[Timer, int] = {}
        self.answers: dict[Waiter, ReplyValue] = {}
        self.asked: list[Waiter] = []
        self.waiting_stores: deque[Store] = deque()
        self.log: list[GroupMetadata] = []
        self.facts: list[str] = []
        self.writes_at_once = True
        self._ids = 0

    # What members send

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        requires_known_member_id: bool = False,
        supports_skip_assignment: bool = False,
    ) -> Waiter:
        self._ids += 1
        waiter = self._waiter()
        self.tell(
            Join(
                waiter=waiter,
                member_id=member_id,
                instance_id=instance_id,
                new_member_id=f"m{self._ids}",
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols={"range": subscription("flights")} if protocols is None else protocols,
                requires_known_member_id=requires_known_member_id,
                supports_skip_assignment=supports_skip_assignment,
            )
        )
        return waiter

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Waiter:
        waiter = self._waiter()
        self.tell(
            Sync(
                waiter=waiter,
                generation=self.machine.standing.generation if generation is None else generation,
                member_id=member_id,
                instance_id=instance_id,
                protocol_type=protocol_type,
                protocol=protocol,
                assignments=assignments or {},
            )
        )
        return waiter

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        waiter = self._waiter()
        self.tell(
            Heartbeat(
                waiter=waiter,
                generation=self.machine.standing.generation if generation is None else generation,
                member_id=member_id,
                instance_id=instance_id,
            )
        )
        reply = self.answers[waiter]
        assert isinstance(reply, HeartbeatReply)
        return reply.error

    def leave(self, *members: str | LeavingMember) -> list[ErrorCode]:
        waiter = self._waiter()
        leaving = tuple(
            LeavingMember(member_id=member, instance_id=None) if isinstance(member, str) else member
            for member in members
        )
        self.tell(Leave(waiter=waiter, members=leaving))
        reply = self.answers[waiter]
        assert isinstance(reply, LeaveReply)
        return [error for _, error in reply.members] if reply.error is ErrorCode.NONE else [reply.error]

    def _waiter(self) -> Waiter:
        self.asked.append(Waiter(len(self.asked) + 1))
        return self.asked[-1]

    # What was answered

    def joined(self, waiter: Waiter) -> JoinReply:
        reply = self.answers[waiter]
        assert isinstance(reply, JoinReply)
        return reply

    def synced(self, waiter: Waiter) -> SyncReply:
        reply = self.answers[waiter]
        assert isinstance(reply, SyncReply)
        return reply

    def waits(self, *waiters: Waiter) -> bool:
        """None of these was answered."""
        return not any(waiter in self.answers for waiter in waiters)

    # The world around

    def tell(self, event: Event) -> Effects:
        effects = self.machine.handle(event, self.now_ms)
        for timer_effect in effects.timers:
            match timer_effect:
                case SetTimer():
                    self.timers[timer_effect.timer] = self.now_ms + timer_effect.delay_ms
                case CancelTimer():
                    self.timers.pop(timer_effect.timer, None)
        for reply in effects.replies:
            assert reply.waiter in self.asked, "an answer that nobody waits for"
            assert reply.waiter not in self.answers, "a second answer"
            self.answers[reply.waiter] = reply.value
        self.facts += [fact.name for fact in effects.facts]
        self.waiting_stores += effects.stores
        while self.writes_at_once and self.waiting_stores:
            self.write()
        return effects

    def tell_loaded(self) -> None:
        """The log was read to its end."""
        self.tell(Loaded())

    def write(self) -> None:
        """The log takes the oldest store that waits."""
        store = self.waiting_stores.popleft()
        self.log.append(store.metadata)
        self.tell(Stored(store=store, error=ErrorCode.NONE))

    def fail_write(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """The log refuses the oldest store that waits."""
        self.tell(Stored(store=self.waiting_stores.popleft(), error=error))

    def advance(self, milliseconds: int) -> None:
        """Let time pass, timers firing when they are due."""
        end_ms = self.now_ms + milliseconds
        while self.timers and (due := min(self.timers.items(), key=lambda item: item[1]))[1] <= end_ms:
            timer, due_ms = due
            del self.timers[timer]
            self.now_ms = max(due_ms, self.now_ms)
            self.tell(TimerFired(timer=timer))
        self.now_ms = end_ms

    # Shorthands

    @property
    def state(self) -> State:
        return self.machine.standing.state

    @property
    def members(self) -> list[str]:
        return list(self.machine.standing.roster.members)

    @property
    def leader(self) -> str | None:
        return self.machine.standing.roster.leader

    def stable(self, count: int, *, instance_ids: Sequence[str | None] = ()) -> list[str]:
        """Have `count` members join and share the work; returns their ids, the leader's first."""
        static = [*instance_ids, *[None] * (count - len(instance_ids))]
        waiters = [self.join(instance_id=instance_id) for instance_id in static]
        # Without an initial delay the first member has a generation for itself, then joins again.
        while any(waiter not in self.answers for waiter in waiters):
            leader = self.joined(waiters[0]).member_id
            waiters[0] = self.join(leader, instance_id=static[0])
        members = [self.joined(waiter).member_id for waiter in waiters]
        self.share(members, static)
        return members

    def share(self, members: Sequence[str], static: Sequence[str | None] = ()) -> None:
        """All of `members` ask for their assignment; the leader, first, brings them."""
        instance_ids = [*static, *[None] * (len(members) - len(static))]
        for member, instance_id in zip(members, instance_ids, strict=True):
            assignments = {each: f"for {each}".encode() for each in members} if member == self.leader else {}
            self.sync(member, assignments, instance_id=instance_id)
        assert self.state is State.STABLE
