"""The parts of a lane that are compared as one each, by what the ledger knows of it. Pure.

Each pass is one, with all that surrounds its records at the destination up to the next known place. Passes
may lie between the records of others there: a process that stood still while another took over writes what it
had in its hands behind what that one has written, and counts it to the page that it was at. What a pass has
that lies before all of the passes before it, as after a seek to before the start, is a part of its own, which
repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.ranges import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a lane that is compared as one."""

    source: Range
    to: Range
    known: Pass | None
    repeated_to: int
    """Source offsets before this have been compared already."""


def stretches_of(passes: Sequence[Pass], begun: int, window: Range, kept: Range) -> Iterator[Stretch]:
    """In the order of the destination. `passes`: all that is known of the lane, in that order. `begun`: see
    `RouteView.begun_at`. `window`: source offsets that are judged. `kept`: what the destination has.
    """
    placed = [each for each in passes if each.to is not None] or list(passes[-1:])
    farthest = max(reversed(placed), key=lambda each: each.source.next)
    earliest = min(placed, key=lambda each: each.source.first)
    lowest = begun if placed[0] is earliest else placed[0].source.first
    reached = 0
    for index, each in enumerate(placed):
        until = window.next if each is farthest else each.source.next
        begin = begun if each is earliest else each.source.first
        first = min(begin, reached) if index else begin
        bounds = _bounds(each, placed, kept, is_whole=index > 0 or first == each.source.first)
        for whole, repeated_to in ((Range(first, lowest), 0), (Range(max(first, lowest), until), reached)):
            part = whole.within(window)
            if part.length:
                yield Stretch(
                    source=part, to=_places(each, part, bounds), known=each, repeated_to=repeated_to
                )
        lowest, reached = min(lowest, first), max(reached, lowest, min(until, window.next))


def _bounds(one: Pass, placed: Sequence[Pass], kept: Range, *, is_whole: bool) -> Range:
    """From its first place up to the next that is known behind its last, or the end of what is read."""
    if one.to is None:
        return kept
    behind = one.to.next
    nexts = (at for each in placed if (at := each.place_behind(behind)) is not None)
    return Range(one.to.first if is_whole else 0, min(nexts, default=kept.next)).within(kept)


def _places(one: Pass, part: Range, bounds: Range) -> Range:
    """Where a part of a pass is at the destination; what surrounds it there belongs to it unless it begins
    or ends within the pass.
    """
    first, end = bounds
    if part.first > one.source.first:
        first = max(_place_from(one, part.first, bounds), bounds.first)
    if part.next < one.source.next:
        end = min(_place_from(one, part.next, bounds), bounds.next)
    return Range(first, end)


def _place_from(one: Pass, offset: int, bounds: Range) -> int:
    """Where the first record at a source offset or after it is, the end where there is none."""
    place = one.place_from(offset)
    return bounds.next if place is None else place
