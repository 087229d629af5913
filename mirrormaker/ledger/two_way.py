"""What an offset of one cluster is at the other, where routes lead both ways between them. Pure.

What is at the other side came there by the route (`there`, its ledger), or was born there and has come here
by the route back (`back`, that one's). Whoever goes on at the other side should find everything that he has
not passed here: so of the first such record of either kind, the one that comes first counts. Where there is
none of either, he goes on behind all that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.lane_map import NOTHING_KNOWN, Standing, Translation
from mirrormaker.ledger.page import NOWHERE_KNOWN, PageRun

_ENDS = frozenset({Standing.END, Standing.BEYOND})


@dataclass(frozen=True, slots=True)
class _Found:
    """What one ledger says."""

    candidate: Translation | None = None
    """Of the first record that has not been passed."""
    end: Translation | None = None
    """Behind all that is known; only where there is no such record."""


def translate(offset: int, there: LaneLedger | None, back: LaneLedger | None) -> Translation:
    """`offset` at the other side. `there`: of the lane that leads to it; `back`: of the lane from it; None
    where nothing was ever copied.
    """
    if back is None or not len(back):
        return NOTHING_KNOWN if there is None else there.forward(offset)
    found = [_forward(offset, there), _backward(offset, back)]
    candidates = [each.candidate for each in found if each.candidate is not None]
    if candidates:
        return min(candidates, key=_place)
    ends = [each.end for each in found if each.end is not None]
    if not ends:
        return NOTHING_KNOWN
    is_known = any(each.standing is not Standing.BEYOND for each in ends)
    return Translation(
        offset=max(_place(each) for each in ends),
        standing=Standing.END if is_known else Standing.BEYOND,
        is_exact=is_known,
    )


def _forward(offset: int, there: LaneLedger | None) -> _Found:
    if there is None or there.to_first is None:
        return _Found()
    told = there.forward(offset)
    if told.standing is Standing.BEFORE:
        return _Found(candidate=Translation(offset=there.to_first, standing=Standing.BETWEEN))
    if told.offset is None:
        return _Found()
    if told.standing in _ENDS or told.offset == there.to_next:
        return _Found(end=told)
    return _Found(candidate=told)


def _backward(offset: int, back: LaneLedger) -> _Found:
    told = back.back(offset)
    if told.standing is Standing.BEFORE:
        return _Found(candidate=Translation(offset=back.first_copied, standing=Standing.BETWEEN))
    if told.offset is None:
        return _Found()
    return _Found(end=told) if told.standing in _ENDS else _Found(candidate=told)


def _place(translation: Translation) -> int:
    return translation.offset or 0


def mirrored_until(ledgers: Iterable[LaneLedger], start: int | None) -> int | None:
    """From `start` on, a destination offset, the first that is not known to have come by these lanes, all of
    which lead to one partition. None: from the first that is known to have come; None is the answer where
    nothing is.
    """
    reached = start
    for first, end in sorted(_runs(ledgers)):
        if reached is None:
            reached = first
        if first > reached:
            break
        reached = max(reached, end)
    return reached


def read_again(offset: int, continues_at: int, there: LaneLedger | None, back: LaneLedger | None) -> int:
    """How many records, at the most, whoever has passed all before `offset` here finds once more when he goes
    on at `continues_at` at the other side.
    """
    passed = [
        *((run.to, min(run.length, offset - run.source)) for run in _page_runs(there)),
        *((run.source, min(run.length, offset - run.to)) for run in _page_runs(back)),
    ]
    return sum(
        first + length - max(first, continues_at)
        for first, length in passed
        if length > 0 and first + length > continues_at
    )


def _page_runs(ledger: LaneLedger | None) -> Iterator[PageRun]:
    for page in () if ledger is None else ledger.pages():
        yield from (run for run in page.runs() if run.to != NOWHERE_KNOWN)


def _runs(ledgers: Iterable[LaneLedger]) -> Iterator[tuple[int, int]]:
    for ledger in ledgers:
        yield from ((run.to, run.to + run.length) for run in _page_runs(ledger))
