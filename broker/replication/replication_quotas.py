"""How fast replicas are copied that are told to be copied slowly (KIP-73).

A rate for what this node sends as a leader (`leader.replication.throttled.rate`), and one for what it
fetches as a follower (`follower.replication.throttled.rate`). They hold for the replicas that topics name in
`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`, as long as these are
not in sync: what keeps up is never slowed, nor counted. Owned by the event loop; other threads may look at
the properties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.rates import RateWindows, WindowedRate
from broker.settings import LONG_MAX


class ReplicationQuota:
    """One of the two rates, in bytes per second, and what was copied lately under it."""

    def __init__(self, bound: int, windows: RateWindows, now_ms: Callable[[], int]) -> None:
        self.bound = bound
        """Bytes per second; LONG_MAX: as many as there are."""
        self.copied_bytes = 0
        """Bytes copied under it so far."""
        self._windows = windows
        self._exhausted_ms: int | None = None
        self._rate = WindowedRate(windows)
        self._now_ms = now_ms

    @property
    def in_force(self) -> bool:
        return self.bound != LONG_MAX

    @property
    def is_exhausted(self) -> bool:
        """Whether something was to be copied a moment ago, and nothing could be."""
        if self._exhausted_ms is None:
            return False
        return self.in_force and self._now_ms() - self._exhausted_ms < self._windows.size_ms

    def record(self, size: int) -> None:
        """So many bytes were copied."""
        if size:
            self.copied_bytes += size
            self._rate.record(size, self._now_ms())

    def room(self) -> int:
        """Bytes that may be copied now."""
        now_ms = self._now_ms()
        room = int(self._rate.room(self.bound, now_ms))
        if not room:
            self._exhausted_ms = now_ms
        return room

    def rest_ms(self) -> int:
        """How long to copy nothing before it is worth another look; 0: not at all."""
        return 0 if self.room() else self._windows.size_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationQuotas:
    """Both rates of one node."""

    leader: ReplicationQuota
    follower: ReplicationQuota

    def reconfigure(self, leader: int, follower: int) -> None:
        """Other rates from now on."""
        self.leader.bound, self.follower.bound = leader, follower
