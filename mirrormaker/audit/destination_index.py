"""Whose the records of a destination partition are, as all lanes that lead there say. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.ranges import Range, holds, is_any_held, joined


class _Owned(NamedTuple):
    first: int
    next: int
    owner: int
    """Identity of the pass."""


class DestinationIndex:
    """See the module."""

    def __init__(self, passes: Iterable[Pass], others: Iterable[Pass] = ()) -> None:
        """`others`: of other routes and sources, which judge nothing here: they are nobody's neighbours."""
        self._own: Sequence[_Owned] = sorted(_places_of(passes))
        self._owned: Sequence[_Owned] = sorted([*self._own, *_places_of(others)])
        self._contested = joined(_overlaps(self._owned))

    def is_owned(self, offset: int) -> bool:
        """Whether the record there is known to any lane."""
        index = _before(self._owned, offset)
        return index >= 0 and offset < self._owned[index].next

    def is_contested(self, offset: int) -> bool:
        """Whether several records were written there: the destination has lost its end, or was made anew."""
        return holds(self._contested, offset)

    def is_any_contested(self, within: Range) -> bool:
        """Whether several records were written to any of these places."""
        return is_any_held(self._contested, within)

    @property
    def first(self) -> int | None:
        """Where the first record is that is known to any; None: none is."""
        return self._owned[0].first if self._owned else None

    def is_before_all(self, offset: int) -> bool:
        """Whether no lane knows of anything there or before."""
        return self.first is None or offset < self.first

    def is_neighbour(self, one: Pass, offset: int) -> bool:
        """Whether the last known record before the offset is of this pass; before all of them, the first
        counts.
        """
        return bool(self._own) and self._own[max(_before(self._own, offset), 0)].owner == id(one)

    def gaps(self, within: Range) -> Iterator[Range]:
        """Offsets of which no lane knows."""
        at = within.first
        for index in range(max(_before(self._owned, within.first), 0), len(self._owned)):
            first, end, _ = self._owned[index]
            if first >= within.next:
                break
            if first > at:
                yield Range(at, first)
            at = max(at, end)
        if at < within.next:
            yield Range(at, within.next)


def _places_of(passes: Iterable[Pass]) -> Iterator[_Owned]:
    return (_Owned(place.first, place.next, id(each)) for each in passes for place in each.places())


def _overlaps(owned: Sequence[_Owned]) -> Iterator[Range]:
    """What lies in more than one, in its order."""
    reached = 0
    for first, end, _ in owned:
        if first < reached:
            yield Range(first, min(end, reached))
        reached = max(reached, end)


def _before(owned: Sequence[_Owned], offset: int) -> int:
    """Index of the last that begins there or before; -1: there is none."""
    return bisect_right(owned, (offset, 1 << 63, 0)) - 1
