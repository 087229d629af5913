"""Who gets which bucket: as few as possible move, and only where that is worth it. Pure.

Something moves from one member to another when the one has a fifth more than the other, and then a bucket
that is at most two thirds of the difference. So what has moved does not move back while figures waver by
less, and nothing moves for the last per cent. A bucket that is more work than anything else stays where it
is, and others make room for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DIFFERENCE_MIN = 0.2
"""Share of the giver's work that the taker must have less for anything to move."""
PART_MAX = 2 / 3
"""Share of the difference that a bucket may be that moves."""


def share_out(
    weights: Mapping[int, int], owners: Mapping[int, str | None], members: Sequence[str]
) -> dict[int, str]:
    """Bucket to member: as owned, the rest to whoever has least to do, then moved while that is worth it.

    `owners` may be of buckets that there are not, or None for one that nobody rightly has.
    """
    shares = _Shares(weights, members)
    for bucket, owner in owners.items():
        if owner is not None and bucket in weights:
            shares.give(bucket, owner)
    for bucket in sorted(weights.keys() - shares.owner.keys(), key=lambda bucket: (-weights[bucket], bucket)):
        shares.give(bucket, min(members, key=lambda member: shares.load[member]))
    while (move := shares.best_move()) is not None:
        shares.give(*move)
    return shares.owner


class _Shares:
    """What everyone has while buckets are shared out."""

    def __init__(self, weights: Mapping[int, int], members: Sequence[str]) -> None:
        self.owner: dict[int, str] = {}
        self.load = dict.fromkeys(members, 0)
        self._weights = weights
        self._held: dict[str, set[int]] = {member: set() for member in members}

    def give(self, bucket: int, member: str) -> None:
        before = self.owner.get(bucket)
        if before is not None:
            self.load[before] -= self._weights[bucket]
            self._held[before].discard(bucket)
        self.owner[bucket] = member
        self.load[member] += self._weights[bucket]
        self._held[member].add(bucket)

    def best_move(self) -> tuple[int, str] | None:
        """From the busiest member that can give something to the idlest; None when nothing is worth it."""
        taker = min(self.load, key=lambda member: self.load[member])
        for giver in sorted(self.load, key=lambda member: -self.load[member]):
            if (bucket := self._best_gift(giver, taker)) is not None:
                return bucket, taker
        return None

    def _best_gift(self, giver: str, taker: str) -> int | None:
        """The bucket that leaves the two most alike."""
        difference = self.load[giver] - self.load[taker]
        if difference <= self.load[giver] * DIFFERENCE_MIN:
            return None
        movable = [
            (abs(difference - 2 * self._weights[bucket]), bucket)
            for bucket in self._held[giver]
            if self._weights[bucket] <= difference * PART_MAX
        ]
        return min(movable)[1] if movable else None
