"""One round of a consumer group in the making: events are handled together, and stored together.

The image that the round works on is a copy from the first change on, so that a round whose records the log
refuses never was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.errors import ErrorCode
from broker.groups.consumer_groups.events import (
    ConsumerEvent,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerReply,
    ConsumerReplyValue,
    MemberSyncTimer,
    MemberTimer,
    RejoinTimer,
    Retirement,
    RevocationTimer,
    RoundEffects,
    TimerChange,
)
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.consumer_groups.members import Partitions
from broker.groups.consumer_groups.records import (
    Change,
    MemberAssignment,
    MemberSubscription,
    MemberTarget,
    key_of,
)
from broker.groups.consumer_groups.topics import Topics
from broker.groups.events import Fact, GroupMetadata, Join, SessionTimer, Waiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A member that is to be told where it stands when the round has decided; `owned` as it said itself."""

    event: ConsumerHeartbeat | Join
    member_id: str
    owned: Partitions | None


class Round:
    """Collects what comes of the events; `take` ends it."""

    def __init__(self, image: GroupImage, topics: Topics, now_ms: int) -> None:
        self.image = image
        self.topics = topics
        self.now_ms = now_ms
        self.bumps = False
        """Whether the group's epoch has to grow."""
        self.lost_consumer = False
        """Whether a member of the consumer protocol has gone."""
        self.asked: list[Asked] = []
        self.hears_of_topics = False
        """Whether a member asked that would be told of other topics."""
        self.retirement: Retirement | None = None
        self._before = image
        self._records: dict[tuple[type[Change], str], Change] = {}
        self._metadata: list[GroupMetadata | None] = []
        self._timers: list[TimerChange] = []
        self._replies: list[ConsumerReply] = []
        self._facts: list[Fact] = []

    @property
    def last_view(self) -> Callable[[str], bool] | None:
        """Which topics the last member of the consumer protocol that asked may see; None where none did."""
        for asked in reversed(self.asked):
            if isinstance(asked.event, ConsumerHeartbeat):
                return asked.event.may_see
        return None

    def write(self, change: Change) -> None:
        """Have the log keep a change; earlier ones of the same thing need not be kept."""
        if self.image is self._before:
            self.image = self._before.copy()
        self.image.apply(change)
        key = key_of(change)
        self._records.pop(key, None)
        self._records[key] = change

    def write_classic(self, metadata: GroupMetadata | None) -> None:
        """Have the log keep what the classic group is, None: that there is none."""
        self._metadata.append(metadata)

    def reply(self, waiter: Waiter, value: ConsumerReplyValue) -> None:
        self._replies.append(ConsumerReply(waiter=waiter, value=value))

    def refuse(self, event: ConsumerHeartbeat, error: ErrorCode, message: str) -> None:
        """Answer a heartbeat with an error."""
        self.reply(event.waiter, ConsumerHeartbeatReply(error=error, message=message))

    def set_timer(self, timer: MemberTimer, delay_ms: int) -> None:
        self._timers.append(TimerChange(timer=timer, delay_ms=delay_ms))

    def cancel_timer(self, timer: MemberTimer) -> None:
        self._timers.append(TimerChange(timer=timer, delay_ms=None))

    def note(self, name: str, **details: object) -> None:
        self._facts.append(Fact(name, details))

    def forget_member(self, member_id: str) -> None:
        """Have the log forget a member, and its timers with it."""
        self.lost_consumer |= not self.image.subscriptions[member_id].is_classic
        self.write(MemberAssignment(member_id=member_id, assignment=None))
        self.write(MemberTarget(member_id=member_id, partitions=None))
        self.write(MemberSubscription(member_id=member_id, subscription=None))
        for timer in (SessionTimer, RevocationTimer, RejoinTimer, MemberSyncTimer):
            self.cancel_timer(timer(member_id))

    def remove(self, member_id: str, reason: str) -> None:
        """Let a member go for good: its partitions are others' from the next epoch on."""
        self.forget_member(member_id)
        self.bumps = True
        self.note("member_removed", member_id=member_id, reason=reason)

    def take(self, unhandled: Sequence[ConsumerEvent]) -> RoundEffects:
        """All that came of it."""
        return RoundEffects(
            records=tuple(self._records.values()),
            metadata=tuple(self._metadata),
            timers=tuple(self._timers),
            replies=tuple(self._replies),
            facts=tuple(self._facts),
            retirement=self.retirement,
            unhandled=tuple(unhandled),
        )
