"""When a member asks for its group to share the work out anew, as it has far more than its part of it. Pure.

It knows what everyone had when the work was shared out last. If all have more to do since, all ask: nothing
moves then, and the figures are new. Each time that it asked in vain it waits twice as long.
"""

from __future__ import annotations

from collections.abc import Collection

from mirrormaker.flow.bucket_rates import GroupLoad, Rates

OVERLOAD = 1.25
"""So many times the mean is far more than one's part."""
LITTLE_BYTES_PER_SECOND = 256 << 10
"""What is above the mean must be more than this to be worth a rebalance."""
REST_MS = 60_000
REST_MAX_MS = 30 * 60_000


class LoadWatch:
    """One member's."""

    def __init__(self, now_ms: int, rest_ms: int = REST_MS) -> None:
        self._load = GroupLoad()
        self._first_rest_ms = self._rest_ms = rest_ms
        self._since_ms = now_ms
        """When there was a rebalance or a request for one."""
        self._held: frozenset[int] = frozenset()
        self._has_asked = False

    def shared_out(self, load: GroupLoad, held: Collection[int], now_ms: int) -> None:
        """A generation began in which this member has the buckets `held`."""
        moved = frozenset(held) != self._held
        if self._has_asked and not moved:
            self._rest_ms = min(self._rest_ms * 2, REST_MAX_MS)
        elif moved:
            self._rest_ms = self._first_rest_ms
        self._load, self._held, self._has_asked, self._since_ms = load, frozenset(held), False, now_ms

    def asks(self, own: Rates, now_ms: int) -> bool:
        """Whether to ask now, by what this member's buckets are; if so, that counts as asked."""
        if self._load.members < 2 or now_ms - self._since_ms < self._rest_ms or len(self._held) < 2:
            return False
        mine = sum(rate for bucket, rate in own.items() if bucket in self._held)
        others = sum(rate for bucket, rate in self._load.rates.items() if bucket not in self._held)
        mean = (mine + others) / self._load.members
        if mine <= mean * OVERLOAD or mine - mean < LITTLE_BYTES_PER_SECOND:
            return False
        self._has_asked, self._since_ms = True, now_ms
        return True
