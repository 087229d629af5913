"""Membership of a group by the consumer protocol (KIP-848), decided: what to tell the coordinator, and what
the owner of the partitions is to do. Pure.

The coordinator computes who gets what. A member tells it now and then that it is alive; the answer carries
the member's epoch and, when it changed, which partitions the member is to have. The member moves there a step
at a time: it gives up what is no longer its own, takes up what is new, and tells after each step what it
owns, so that others get what was given up.

`handle` takes in what happened; what is to be done follows from what is the case then. The rules:

- At most one heartbeat is under way. One that leaves waits for no other: it takes that one's place.
- At most one duty is under way. What the owner holds counts as owned until the duty of giving it up is done.
- After a heartbeat without an answer the next tells everything: what the coordinator knows is in doubt.
- A member that is fenced loses everything before it joins again, with epoch 0 and the id that it has.
- A member that leaves gives everything up first; one whose reader stays away loses it, and leaves until the
  reader is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.errors import BrokerError
from broker.types import TopicId

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class PartitionOfId(NamedTuple):
    """A partition as the coordinator names it: a topic that is made anew under its old name is another."""

    topic_id: TopicId
    partition: int


Partitions = frozenset[PartitionOfId]
NOTHING: Partitions = frozenset()


class MemberState(Enum):
    """Where a member stands with its group."""

    JOINING = "joining"
    MEMBER = "member"
    FENCED = "fenced"
    """Thrown out; joins again when everything is lost."""
    ASIDE = "aside"
    """Its reader is away: it loses everything and leaves."""
    LEAVING = "leaving"
    FAILED = "failed"
    """For good: it loses everything, leaves where it was not refused, and is over."""
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What to tell the coordinator. None: as it was told before; `is_full` tells also what never changes."""

    member_epoch: int
    topics: frozenset[str] | None = None
    pattern: str | None = None
    """Empty: no longer."""
    owned: Partitions | None = None
    is_full: bool = False

    @property
    def leaves(self) -> bool:
        return self.member_epoch < JOIN_EPOCH


# What happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """These are the topics to read, by name and, where the coordinator resolves it, by expression."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The coordinator took the heartbeat; `assignment` is None when it is the one it told before."""

    heartbeat: Heartbeat
    member_epoch: int
    heartbeat_interval_ms: float
    assignment: Partitions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAnswered:
    """The heartbeat did not come through; another may in a while."""

    heartbeat: Heartbeat
    retry_in_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The coordinator knows the member no longer, or not at this epoch."""

    heartbeat: Heartbeat
    retry_in_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The coordinator answered what no other attempt mends."""

    heartbeat: Heartbeat
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Something else went wrong that no other attempt mends."""

    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyDone:
    """A duty is done, and this is what the owner has now; what it could not take up is for later."""

    owned: Partitions
    retry_in_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class StoodAside:
    """The reader stays away."""


@dataclass(frozen=True, slots=True)
class CameBack:
    """The reader is back."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The membership is to end."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


Event = (
    Subscribed
    | Answered
    | NotAnswered
    | Fenced
    | Refused
    | Broken
    | DutyDone
    | StoodAside
    | CameBack
    | Closed
    | Ticked
)


# What to do


@dataclass(frozen=True, slots=True)
class Revoke:
    """Give these up; their positions may still be committed."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Read these from now on."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lose:
    """These may be another's already."""

    partitions: Partitions


Duty = Revoke | TakeUp | Lose


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What to do now; `handle` wants a Ticked at `wake_at_ms` at the latest, None for never."""

    heartbeat: Heartbeat | None = None
    """To be sent, in the place of one that is under way."""
    duty: Duty | None = None
    wake_at_ms: float | None = None


_IN_TOUCH = (MemberState.JOINING, MemberState.MEMBER)
_ALIVE = (*_IN_TOUCH, MemberState.FENCED)
_GIVEN_UP = (MemberState.FENCED, MemberState.ASIDE, MemberState.FAILED)

TRANSITIONS: Mapping[tuple[MemberState, type], MemberState] = {
    (MemberState.JOINING, Answered): MemberState.MEMBER,
    **{(state, Fenced): MemberState.FENCED for state in _IN_TOUCH},
    **{(state, Refused): MemberState.FAILED for state in _IN_TOUCH},
    **{(state, Broken): MemberState.FAILED for state in (*_ALIVE, MemberState.ASIDE)},
    **{(state, StoodAside): MemberState.ASIDE for state in _ALIVE},
    **{(state, Closed): MemberState.LEAVING for state in (*_ALIVE, MemberState.ASIDE)},
}
"""Where an event leads at once; everything else leaves the state as it is. Four more steps are taken as soon
as what they wait for is the case: from FENCED and ASIDE to JOINING, from LEAVING and FAILED to OVER.
"""


class EpochMembership:
    """One member of one group; `static` ones keep their place in it while they are away."""

    def __init__(self, *, static: bool = False, leaves: bool = True) -> None:
        """Without `leaves` the end of a session is how the coordinator finds out about a member that is not
        static.
        """
        self.state = MemberState.JOINING
        self.epoch = JOIN_EPOCH
        """Above 0 while this is a member, also while it gives up what it has to leave."""
        self.owned: Partitions = NOTHING
        self.failure: BrokerError | None = None
        """Why it failed."""
        self._leave_epoch = LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH
        self._leaves = leaves or static
        self._subscription: Subscribed | None = None
        self._target: Partitions | None = None
        """What the coordinator wants it to have, None while it has not said."""
        self._told_subscription: Subscribed | None = None
        self._told_owned: Partitions | None = None
        """What the coordinator certainly knows, None for nothing."""
        self._in_flight: Heartbeat | None = None
        self._is_known = False
        """Whether the coordinator may know this member."""
        self._is_busy = False
        self._is_wanted_back = False
        self._beat_at_ms = 0.0
        self._hold_until_ms = 0.0
        """No heartbeat before, however much there is to tell."""
        self._take_up_at_ms = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether it has what the coordinator wants it to have."""
        return self.state is MemberState.MEMBER and not self._is_busy and self.owned == self._target

    def handle(self, event: Event, now_ms: float) -> Effects:
        """Take in what happened, and tell what is to be done."""
        if isinstance(event, Answered | NotAnswered | Fenced | Refused):
            if event.heartbeat is not self._in_flight:
                return self._effects(now_ms)  # another heartbeat took its place
            self._in_flight = None
            if event.heartbeat.leaves or isinstance(event, Refused):
                self._is_known = False
        self._take_in(event, now_ms)
        self.state = TRANSITIONS.get((self.state, type(event)), self.state)
        if self.state in _GIVEN_UP:
            self.epoch = JOIN_EPOCH
        self._advance()
        return self._effects(now_ms)

    def _take_in(self, event: Event, now_ms: float) -> None:
        match event:
            case Subscribed():
                self._subscription = event
            case Answered():
                self._take_answer(event, now_ms)
            case NotAnswered() | Fenced():
                self._told_subscription = self._told_owned = None
                self._beat_at_ms = self._hold_until_ms = now_ms + event.retry_in_ms
            case Refused() | Broken() if (self.state, type(event)) in TRANSITIONS:
                self.failure = event.error
            case DutyDone():
                self._is_busy = False
                self.owned = event.owned
                self._take_up_at_ms = now_ms + event.retry_in_ms
            case StoodAside():
                self._is_wanted_back = False
            case CameBack():
                self._is_wanted_back = True
            case _:
                pass

    def _take_answer(self, answer: Answered, now_ms: float) -> None:
        if self.state not in _IN_TOUCH:
            return
        self.epoch = answer.member_epoch
        self._beat_at_ms = now_ms + answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self._target = answer.assignment
            self._take_up_at_ms = now_ms
        elif self.state is MemberState.JOINING:
            self._target = NOTHING
        if answer.heartbeat.owned is not None:
            self._told_owned = answer.heartbeat.owned

    def _advance(self) -> None:
        match self.state:
            case MemberState.FENCED if self._has_let_go:
                self._begin_anew()
            case MemberState.ASIDE if self._has_let_go and not self._has_to_leave and self._is_wanted_back:
                self._begin_anew()
            case MemberState.LEAVING | MemberState.FAILED if self._has_let_go and not self._has_to_leave:
                self.state, self.epoch = MemberState.OVER, JOIN_EPOCH
            case _:
                pass

    def _begin_anew(self) -> None:
        self.state = MemberState.JOINING
        self._target = self._told_subscription = self._told_owned = None

    @property
    def _has_let_go(self) -> bool:
        return not self._is_busy and not self.owned

    @property
    def _has_to_leave(self) -> bool:
        return self._is_known and self._leaves

    # What follows

    def _effects(self, now_ms: float) -> Effects:
        duty = self._next_duty(now_ms)
        heartbeat = self._next_heartbeat(now_ms)
        return Effects(heartbeat=heartbeat, duty=duty, wake_at_ms=self._wake_at_ms(now_ms))

    def _next_duty(self, now_ms: float) -> Duty | None:
        duty = None if self._is_busy else self._duty(now_ms)
        self._is_busy = self._is_busy or duty is not None
        return duty

    def _duty(self, now_ms: float) -> Duty | None:
        match self.state:
            case MemberState.MEMBER if self._target is not None:
                if given_up := self.owned - self._target:
                    return Revoke(given_up)
                if (added := self._target - self.owned) and now_ms >= self._take_up_at_ms:
                    return TakeUp(added)
            case MemberState.LEAVING if self.owned:
                return Revoke(self.owned)
            case state if state in _GIVEN_UP and self.owned:
                return Lose(self.owned)
            case _:
                pass
        return None

    def _next_heartbeat(self, now_ms: float) -> Heartbeat | None:
        heartbeat = self._heartbeat(now_ms)
        if heartbeat is not None:
            self._in_flight = heartbeat
            self._is_known = True
        return heartbeat

    def _heartbeat(self, now_ms: float) -> Heartbeat | None:
        match self.state:
            case MemberState.JOINING if self._in_flight is None and now_ms >= self._hold_until_ms:
                return self._join()
            case MemberState.MEMBER if self._in_flight is None and now_ms >= self._hold_until_ms:
                if now_ms >= self._beat_at_ms or self._has_news:
                    return self._stay()
            case MemberState.ASIDE | MemberState.LEAVING | MemberState.FAILED if self._has_let_go:
                is_leaving = self._in_flight is not None and self._in_flight.leaves
                if self._has_to_leave and not is_leaving:
                    return Heartbeat(member_epoch=self._leave_epoch)
            case _:
                pass
        return None

    def _join(self) -> Heartbeat | None:
        if self._subscription is None:
            return None
        told = self._told_subscription = self._subscription
        return Heartbeat(
            member_epoch=JOIN_EPOCH,
            topics=told.topics,
            pattern=told.pattern,
            owned=NOTHING,
            is_full=True,
        )

    @property
    def _has_news(self) -> bool:
        return self._subscription != self._told_subscription or self.owned != self._told_owned

    def _stay(self) -> Heartbeat:
        assert self._subscription is not None, "nobody joins without one"
        before, now = self._told_subscription, self._subscription
        self._told_subscription = now
        is_full = before is None
        pattern = now.pattern
        if pattern is None and before is not None and before.pattern is not None:
            pattern = ""
        return Heartbeat(
            member_epoch=self.epoch,
            topics=now.topics if before is None or before.topics != now.topics else None,
            pattern=pattern if before is None or before.pattern != now.pattern else None,
            owned=self.owned if is_full or self.owned != self._told_owned else None,
            is_full=is_full,
        )

    def _wake_at_ms(self, now_ms: float) -> float | None:
        times = []
        if self.state in _IN_TOUCH and self._in_flight is None and self._subscription is not None:
            times.append(max(self._beat_at_ms, self._hold_until_ms))
        if self.state is MemberState.MEMBER and not self._is_busy and self._take_up_at_ms > now_ms:
            times.append(self._take_up_at_ms)
        return min(times, default=None)
