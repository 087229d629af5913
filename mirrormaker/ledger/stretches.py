"""Disjoint stretches of source offsets, in their order, each with where it is at the destination. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Stretch(NamedTuple):
    """Source offsets side by side, and so are their records at the destination, where they are known."""

    first: int
    next: int
    to: int
    """Destination offset of the first; the least possible, where it is not known."""
    to_next: int
    """Destination offset after the last, and after what else may have been made of it; the greatest possible,
    where it is not known.
    """
    is_known: bool = True

    def part(self, first: int, end: int) -> Stretch:
        """Of it what lies between the two source offsets."""
        if not self.is_known:
            return self._replace(first=first, next=end)
        to = self.to + first - self.first
        return Stretch(first, end, to, self.to_next if end == self.next else to + end - first)


class Stretches:
    """See the module. Adding behind the last one is cheap, elsewhere what follows is moved."""

    def __init__(self) -> None:
        self._all: list[Stretch] = []

    def __iter__(self) -> Iterator[Stretch]:
        return iter(self._all)

    def put(self, stretch: Stretch) -> None:
        """Add it; what was there before gives way."""
        if not self._all or self._all[-1].next <= stretch.first:
            self._all.append(stretch)
            return
        low, high = self._touched(stretch)
        kept = [
            each.part(each.first, stretch.first) for each in self._all[low:high] if each.first < stretch.first
        ]
        kept.append(stretch)
        kept += [
            each.part(stretch.next, each.next) for each in self._all[low:high] if each.next > stretch.next
        ]
        self._all[low:high] = kept

    def put_where_free(self, stretch: Stretch) -> None:
        """Add what of it does not lie where there is something already."""
        if not self._all or self._all[-1].next <= stretch.first:
            self._all.append(stretch)
            return
        low, high = self._touched(stretch)
        filled: list[Stretch] = []
        at = stretch.first
        for each in self._all[low:high]:
            if at < each.first:
                filled.append(stretch.part(at, each.first))
            filled.append(each)
            at = each.next
        if at < stretch.next:
            filled.append(stretch.part(at, stretch.next))
        self._all[low:high] = filled

    def cut_from(self, offset: int) -> None:
        """Forget whatever lies from `offset` on."""
        del self._all[bisect_left(self._all, (offset,)) :]
        if self._all and self._all[-1].next > offset:
            self._all[-1] = self._all[-1].part(self._all[-1].first, offset)

    def _touched(self, stretch: Stretch) -> tuple[int, int]:
        """Which of them it overlaps, from one index up to another."""
        low = bisect_right(self._all, stretch.first, key=lambda each: each.next)
        return low, max(bisect_left(self._all, stretch.next, key=lambda each: each.first), low)
