"""What an offset of one cluster is at the other, where routes lead both ways between them. Pure.

What is at the other side came there by the route (`there`, its ledger), or was born there and has come here
by the route back (`back`, that one's). Whoever goes on at the other side should find everything that he has
not passed here: so of the first such record of either kind, the one that comes first counts. Where there is
none of either, he goes on behind all that is known. What was born there and has not come here yet, while a
route back is at work, he has not passed either.

Where a route goes on behind what came by the other one, as after a switch, its ledger tells nothing of that
stretch. That one's does: nothing of it is the route's.

Copies may have come here that no ledger tells of, before all that `back` knows or behind it: it was lost, or
who copied was killed before it was written. The route leaves them out, as it does with all that it finds to
have come from the other side, and its pages tell between which offsets that was. Whoever has not passed such
copies goes on at the first record there that may be one of them. So it is with copies at the other side: the
route back has left them out, and whoever stands behind all that `there` tells of may not have passed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.lane_map import NOTHING_KNOWN, Standing, Translation
from mirrormaker.ledger.page import PageRun

_ENDS = frozenset({Standing.END, Standing.BEYOND})
_NO_END = 1 << 63


@dataclass(frozen=True, slots=True)
class _Found:
    """What one ledger says."""

    candidate: Translation | None = None
    """Of the first record that has not been passed."""
    end: Translation | None = None
    """Behind all that is known; only where there is no such record."""


def translate(
    offset: int,
    there: LaneLedger | None,
    back: LaneLedger | None,
    pending: int | None = None,
    start: int = 0,
) -> Translation:
    """`offset` at the other side, whose log begins at `start`. `there`: of the lane that leads to it; `back`:
    of the lane from it; None where nothing was ever copied. `pending`: the offset at the other side from
    which on a route back, at work now, has still to bring what was born there; None where there is no such
    route.
    """
    told = _translate(offset, there, back, start)
    if there is not None and told.offset is not None and _is_ahead(offset, there, back):
        told = replace(told, standing=Standing.BEYOND, is_exact=False)
    if pending is not None and told.offset is not None:
        told = _no_further(told, pending if there is None else mirrored_until(there, pending))
    told = _heed_untold_before(offset, told, there, back, start)
    if pending is None and there is not None:
        told = _heed_untold_behind(offset, told, there, back, start)
    return told


def _no_further(told: Translation, unpassed: int) -> Translation:
    if told.standing is Standing.BEFORE or (told.offset is not None and told.offset <= unpassed):
        return told
    return Translation(offset=unpassed, standing=Standing.UNRECORDED, is_exact=False)


def _heed_untold_before(
    offset: int, told: Translation, there: LaneLedger | None, back: LaneLedger | None, start: int
) -> Translation:
    """What was told, where copies may stand here before all that `back` tells of: of records before its first
    page. As far as the route there has not come, or where it began behind, anything may be such a copy.
    """
    if back is None or back.first is None or (back.to_first is not None and offset >= back.to_first):
        return told
    unpassed = start if there is None else mirrored_until(there, start)
    if unpassed >= back.first:
        return told
    if there is None or there.first is None or there.next is None:
        is_untold = True
    elif back.to_first is None:
        is_untold = bool(there.came_back(0 if told.standing in _ENDS else offset, _NO_END))
    else:
        is_dealt_with = there.first <= offset and back.to_first <= there.next
        is_untold = not is_dealt_with or bool(there.came_back(offset, back.to_first))
    return _no_further(told, unpassed) if is_untold else told


def _heed_untold_behind(
    offset: int, told: Translation, there: LaneLedger, back: LaneLedger | None, start: int
) -> Translation:
    """What was told, where copies may stand here behind all that `back` tells of: of records from its end on.
    Whoever stands there, and not behind what has gone there since, may have passed some of them.
    """
    next_offset = start if back is None else back.next or 0
    to_next = 0 if back is None else back.to_next or 0
    is_at_end = told.standing in _ENDS and (told.offset or 0) <= next_offset
    if not there.came_back(to_next if is_at_end else max(offset, to_next), _NO_END):
        return told
    if told.standing in _ENDS:
        told = replace(told, standing=Standing.UNRECORDED, is_exact=False)
    return _no_further(told, mirrored_until(there, next_offset))


def _is_ahead(offset: int, there: LaneLedger, back: LaneLedger | None) -> bool:
    """Whether there may be records here before `offset` that still have to come to the other side."""
    known = there.next
    if known is None or offset <= known:
        return False
    return (known if back is None else mirrored_until(back, known)) < offset


def _translate(offset: int, there: LaneLedger | None, back: LaneLedger | None, start: int) -> Translation:
    if back is None or not len(back):
        return NOTHING_KNOWN if there is None else there.forward(offset)
    found = [_forward(offset, there, back, start), _backward(offset, there, back)]
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


def _forward(offset: int, there: LaneLedger | None, back: LaneLedger, start: int) -> _Found:
    if there is None or there.to_first is None:
        return _Found(candidate=_untold_there(offset, there, back, start))
    told = there.forward(offset)
    while (unsure := _unsure_from(told, back)) is not None:
        told = there.forward(unsure)
    if told.standing is Standing.BEFORE:
        return _Found(candidate=_first_there(offset, there, there.to_first, back, start))
    if told.offset is None:
        return _Found()
    if told.standing in _ENDS or told.offset == there.to_next:
        untold = _untold_there(offset, there, back, start)
        return _Found(end=told) if untold is None else _Found(candidate=untold)
    return _Found(candidate=told)


def _untold_there(offset: int, there: LaneLedger | None, back: LaneLedger, start: int) -> Translation | None:
    """Where copies may stand there behind all that `there` tells of: the route back has left some out, or
    nothing is told of where it went.
    """
    told_to = None if there is None else there.to_next
    untold = [span.first for span in back.came_back(start if told_to is None else told_to, _NO_END)]
    if there is not None and mirrored_until(back, offset) < (there.first or 0) and start < (back.first or 0):
        untold.append(start)
    if not untold:
        return None
    return Translation(offset=min(untold), standing=Standing.UNRECORDED, is_exact=False)


def _first_there(offset: int, there: LaneLedger, to_first: int, back: LaneLedger, start: int) -> Translation:
    """Where the first record is that came by the route, for whoever stands before all that its ledger tells
    of. Copies that it does not tell of may stand before that: of what has not come here by the way back, and
    where that one's ledger tells of nothing, or that records came back.
    """
    untold: list[tuple[int, int]] = []
    if mirrored_until(back, offset) < (there.first or 0):
        around = ((start, back.first or 0), (back.next or 0, to_first))
        untold = _spans([*around, *back.came_back(start, to_first)], start, to_first)
    if untold:
        return Translation(offset=untold[0][0], standing=Standing.UNRECORDED, is_exact=False)
    return Translation(offset=to_first, standing=Standing.BETWEEN)


def _backward(offset: int, there: LaneLedger | None, back: LaneLedger) -> _Found:
    told = back.back(offset)
    while (unsure := _unsure_from(told, there)) is not None:
        told = back.back(offset, unsure)
    if told.standing is Standing.BEFORE:
        return _Found(candidate=Translation(offset=back.first_copied, standing=Standing.BETWEEN))
    if told.offset is None:
        return _Found()
    return _Found(end=told) if told.standing in _ENDS else _Found(candidate=told)


def _unsure_from(told: Translation, other: LaneLedger | None) -> int | None:
    """Where what was told depends on a stretch of which nothing is known: the end of that, or of what of it
    came by the other lane, as its ledger says; None where nothing of it did.
    """
    if told.unknown is None or other is None:
        return None
    came_until = min(mirrored_until(other, told.unknown.first), told.unknown.next)
    return came_until if came_until > told.unknown.first else None


def _place(translation: Translation) -> int:
    return translation.offset or 0


def mirrored_until(ledger: LaneLedger, start: int) -> int:
    """From `start` on, a destination offset, the first that is not known to have come by this lane."""
    reached = start
    for run in ledger.placed_runs(start):
        if run.to > reached:
            break
        reached = max(reached, run.to + run.length)
    return reached


def read_again(
    offset: int, continues_at: int, there: LaneLedger | None, back: LaneLedger | None, end: int | None = None
) -> int:
    """How many records, at the most, whoever has passed all before `offset` here finds once more when he goes
    on at `continues_at` at the other side, whose log ends at `end`; `back` is None where no way leads from
    there. Of what was written to one place there,
    as its topic was made anew, or lost its end, the last at the source counts.
    """
    came = [(run.to, run.to + run.length, run.to + offset - run.source) for run in _runs(there)]
    went = ((run.source, run.source + min(run.length, offset - run.to)) for run in _runs(back))
    passed = _spans(((first, min(to, until)) for first, to, until in came), continues_at, end)
    others = _spans(((max(first, until), to) for first, to, until in came), continues_at, end)
    both = _length(_spans([*passed, *others], continues_at, end))
    own = _spans(went, continues_at, end)
    return both - _length(others) + _length(own) + _untold_again(offset, continues_at, there, back, end)


def _untold_again(
    offset: int, continues_at: int, there: LaneLedger | None, back: LaneLedger | None, end: int | None
) -> int:
    """How many of these were copied at the most, here or there, without that a ledger tells of it."""
    if back is None:
        return 0
    there = LaneLedger() if there is None else there
    first = there.first or 0
    here = _besides([(0, first), *there.came_back(0, offset)], _places(back), 0, offset)
    passed_over = _besides([(first, offset)], [*_covered(there), *_places(back)], 0, offset)
    told = [*_places(there), *_sources(back)]
    if not passed_over and there.to_first is not None:
        told.append((there.to_first, there.to_next or 0))
    left_out = _besides(back.came_back(continues_at, _NO_END), told, continues_at, end)
    untold = here + min(passed_over, left_out)
    if end is None or not untold:
        return untold
    unknown = _besides([(continues_at, end)], [*_places(there), *_covered(back)], continues_at, end)
    return min(untold, unknown + left_out)


def read_again_at_most(
    continues_at: int, end: int, there: Iterable[LaneLedger], went_back_to: int | None
) -> int:
    """The same of whoever goes on at `continues_at` at this side, which `there` lead to and which ends at
    `end`, and may have passed anything at the other one, which does not answer: all that came from there, and
    what is before `went_back_to`, which may have gone there; None: all may have.
    """
    if went_back_to is None:
        return max(end - continues_at, 0)
    came = ((run.to, run.to + run.length) for ledger in there for run in ledger.placed_runs(continues_at))
    return _length(_spans([(continues_at, went_back_to), *came], continues_at, end))


def _spans(spans: Iterable[tuple[int, int]], start: int, end: int | None) -> list[tuple[int, int]]:
    """What lies from `start` up to `end`, in its order; none of them touch."""
    whole: list[tuple[int, int]] = []
    for first, behind in sorted(spans):
        first, behind = max(first, start), behind if end is None else min(behind, end)
        if behind <= first:
            continue
        if whole and first <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], behind))
        else:
            whole.append((first, behind))
    return whole


def _length(spans: Iterable[tuple[int, int]]) -> int:
    return sum(behind - first for first, behind in spans)


def _besides(
    spans: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]], start: int, end: int | None
) -> int:
    """How much of what lies there is in none of the others."""
    return _length(_spans([*spans, *others], start, end)) - _length(_spans(others, start, end))


def _places(ledger: LaneLedger | None) -> list[tuple[int, int]]:
    return [(run.to, run.to + run.length) for run in _runs(ledger)]


def _sources(ledger: LaneLedger) -> list[tuple[int, int]]:
    return [(run.source, run.source + run.length) for run in _runs(ledger)]


def _covered(ledger: LaneLedger) -> list[tuple[int, int]]:
    return [(page.first, page.next) for page in ledger.pages()]


def _runs(ledger: LaneLedger | None) -> Iterator[PageRun]:
    return iter(()) if ledger is None else ledger.placed_runs()
