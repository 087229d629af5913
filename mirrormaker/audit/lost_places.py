"""Records that were written to a destination and are not where they were: it has lost its end, or its topic
was made anew, and others may stand there since. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from mirrormaker.audit.ranges import Range, common, joined, outside
from mirrormaker.ledger.page import PageRun


class Placed(NamedTuple):
    """Source offsets, and where their records were written, side by side."""

    source: Range
    to: int

    @property
    def to_next(self) -> int:
        """The destination offset behind them."""
        return self.to + self.source.length

    def at(self, places: Range) -> Placed:
        """Those of these destination offsets, which it has."""
        shift = self.source.first - self.to
        return Placed(Range(places.first + shift, places.next + shift), places.first)


class _Stretch(NamedTuple):
    places: Range
    written: Sequence[Placed]

    @property
    def last(self) -> Placed | None:
        """What stands there now: the last at the source."""
        return max(self.written, key=attrgetter("source"), default=None)


def lost_places(runs: Sequence[PageRun], end: int) -> list[Placed]:
    """Of records that were written as `runs` say, those that are at no place any more, by source offset; each
    with where it was. `end`: of the destination now. Of several at one place the last at the source counts.
    """
    if _are_there(runs, end):
        return []
    placed = _joined(runs)
    stretches = list(_stretches(placed, end))
    lost = [*_behind(placed, end), *_overwritten(stretches), *_under_markers(stretches)]
    gone: defaultdict[int, list[Range]] = defaultdict(list)
    for each in lost:
        gone[each.to - each.source.first].append(each.source)
    gone_by_shift = {shift: joined(parts) for shift, parts in gone.items()}
    there = joined(
        part
        for each in placed
        for part in outside(gone_by_shift.get(each.to - each.source.first, ()), each.source)
    )
    return sorted(
        Placed(part, each.to + part.first - each.source.first)
        for each in _without_repeats(lost)
        for part in outside(there, each.source)
    )


def uncertain_offsets(runs: Iterable[PageRun], others: Iterable[Range]) -> list[Range]:
    """Source offsets of the records that were written nowhere but to places of others; `others`: where those
    of other lanes were written. Which stand there the ledger does not tell.
    """
    placed = _joined(runs)
    shared = list(common(joined(Range(each.to, each.to_next) for each in placed), joined(others)))
    if not shared:
        return []
    certain: list[Range] = []
    for each in placed:
        places = Range(each.to, each.to_next)
        index = max(bisect_right(shared, (places.first, places.next)) - 1, 0)
        end = bisect_left(shared, (places.next, 0))
        certain += [each.at(part).source for part in outside(shared[index:end], places)]
    known = joined(certain)
    return [part for each in joined(each.source for each in placed) for part in outside(known, each)]


def _joined(runs: Iterable[PageRun]) -> list[Placed]:
    """What is told twice is one."""
    by_shift: defaultdict[int, list[Range]] = defaultdict(list)
    for run in runs:
        by_shift[run.to - run.source].append(Range(run.source, run.source + run.length))
    return sorted(
        (Placed(part, part.first + shift) for shift, parts in by_shift.items() for part in joined(parts)),
        key=attrgetter("to"),
    )


def _are_there(runs: Sequence[PageRun], end: int) -> bool:
    """Whether each lies behind the one before, as it is where a destination has lost nothing."""
    ascend = all(run.to + run.length <= following.to for run, following in pairwise(runs))
    return ascend and (not runs or runs[-1].to + runs[-1].length <= end)


def _behind(placed: Iterable[Placed], end: int) -> Iterator[Placed]:
    for each in placed:
        places = Range(max(each.to, end), each.to_next)
        if places.length:
            yield each.at(places)


def _stretches(placed: Sequence[Placed], end: int) -> Iterator[_Stretch]:
    """Places before `end` in their order, each with all that was written there, and an empty one behind them;
    `placed` in the order of the destination.
    """
    borders = sorted({border for each in placed for border in (each.to, each.to_next)} | {end})
    here: list[Placed] = []
    index = 0
    for places in map(Range._make, pairwise(borders)):
        if places.first >= end:
            break
        here = [each for each in here if each.to_next > places.first]
        while index < len(placed) and placed[index].to <= places.first:
            here.append(placed[index])
            index += 1
        yield _Stretch(places, [each.at(places) for each in here])
    yield _Stretch(Range(end, end), [])


def _overwritten(stretches: Iterable[_Stretch]) -> Iterator[Placed]:
    """Where others stand since."""
    for each in stretches:
        yield from (written for written in each.written if written is not each.last)


def _under_markers(stretches: Sequence[_Stretch]) -> Iterator[Placed]:
    """Single ones at whose places markers of transactions stand since: what is there on both sides comes
    later at the source, in its order; or the log ends there, and others stand before that.
    """
    for before, at, behind in zip(stretches, stretches[1:], stretches[2:], strict=False):
        if at.places.length != 1 or len(at.written) != 1 or before.last is None:
            continue
        (written,), reached = at.written, before.last.source.next
        if reached <= written.source.next:
            continue
        if behind.last is not None:
            is_later = reached <= behind.last.source.first
        else:
            is_later = not behind.places.length and len(before.written) > 1
        if is_later:
            yield written


def _without_repeats(lost: Iterable[Placed]) -> Iterator[Placed]:
    """What was lost at several places once, where it was last."""
    told: list[Range] = []
    for each in sorted(lost, key=attrgetter("to"), reverse=True):
        begun = max(bisect_right(told, (each.source.first, each.source.first)) - 1, 0)
        end = bisect_left(told, (each.source.next, 0))
        for part in outside(told[begun:end], each.source):
            yield Placed(part, each.to + part.first - each.source.first)
        told[begun:end] = joined([*told[begun:end], each.source])
