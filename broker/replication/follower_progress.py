"""What a leader knows of one follower by its fetches. Pure; times are monotonic milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from broker.types import Offset

UNKNOWN_OFFSET = Offset(-1)
NEVER_MS = -(1 << 62)
"""Before any time there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagBounds:
    """How far behind a member of the ISR may be: `replica.lag.time.max.ms`, `replica.lag.max.messages`."""

    time_ms: int = 30_000
    messages: int | None = None


@dataclass(slots=True, kw_only=True)
class FollowerProgress:
    """One follower in one leader epoch."""

    caught_up_ms: int
    """When it last had everything that the leader had at its previous fetch."""
    log_end_offset: int = UNKNOWN_OFFSET
    fetched_at_ms: int = NEVER_MS
    leader_end_at_fetch: int = 0
    broker_epoch: int = -1
    log_start_offset: int = UNKNOWN_OFFSET
    has_asked: bool = False
    """Whether it fetched since it was in the ISR, or since the epoch began."""
    is_awaited: bool = False
    """Whether it is not in sync yet and holds the high watermark back, so that it can join."""

    def fetched(self, offset: int, leader_end: int, *, log_start_offset: int, now_ms: int) -> bool:
        """It asks for `offset`; True when it keeps up: it has all that the leader had when it last asked."""
        keeps_up = True
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_at_fetch and self.fetched_at_ms > NEVER_MS:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_at_ms)
        else:
            keeps_up = False
        self.fetched_at_ms = now_ms
        self.leader_end_at_fetch = leader_end
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.has_asked = True
        return keeps_up

    def isr_changed(self, *, was_in_sync: bool, is_in_sync: bool) -> None:
        """The ISR is another one: who left it has to fetch again before it joins, who joined is awaited no
        longer.
        """
        self.has_asked = self.has_asked and not was_in_sync
        self.is_awaited = self.is_awaited and not is_in_sync

    def is_late(self, bounds: LagBounds, *, now_ms: int) -> bool:
        """Whether it was not caught up for longer than it may."""
        return now_ms - self.caught_up_ms > bounds.time_ms

    def is_within(self, bounds: LagBounds, leader_end: int) -> bool:
        """Whether it is as few records behind as it must be; one that did not fetch yet is."""
        return (
            bounds.messages is None
            or self.log_end_offset == UNKNOWN_OFFSET
            or leader_end - self.log_end_offset <= bounds.messages
        )
