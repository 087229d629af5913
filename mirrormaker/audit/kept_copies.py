"""Copies of records that the source lost after they were copied, as by an election of a leader that was not
in sync: where they stand at the destination, and the note that was written of it. Pure.

There is nothing to compare them with. They are told, and are no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from broker.types import TopicPartition
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.notes import Truncation
from mirrormaker.audit.ranges import Range, joined, outside, total
from mirrormaker.audit.windows import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCopies:
    """Of what a source lost at once, those at one partition of the destination."""

    source: TopicPartition
    offsets: Range
    """That the first to the last had at the source, where these are of other records since, or of none."""
    destination: TopicPartition
    places: Range
    """Where the first is, up to after the last."""
    count: int
    note: Truncation | None = None
    """None: none is kept."""

    def line(self) -> str:
        """For people."""
        noted = ""
        if self.note is not None:
            noted = f" ({self.note.reason}, noted at {format_time(self.note.at_ms)})"
        return (
            f"{self.source} offsets {self.offsets}: the source lost them after they were copied{noted}; "
            f"{self.destination} keeps {self.count:,} records of them at offsets {self.places}"
        )

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "offsets": list(self.offsets),
            "to_topic": self.destination.topic,
            "to_partition": self.destination.partition,
            "to_offsets": list(self.places),
            "count": self.count,
            "reason": None if self.note is None else self.note.reason,
            "problem": None if self.note is None else self.note.problem,
            "noted_at_ms": None if self.note is None else self.note.at_ms,
        }


def kept_copies(
    source: TopicPartition,
    to: TopicPartition,
    severed: Iterable[Pass],
    passes: Iterable[Pass],
    kept: Range,
    notes: Sequence[Truncation],
) -> list[KeptCopies]:
    """Those of one lane. `severed`: what it had copied from logs that are gone. `passes`: of all lanes there:
    where others stand since, these are there no more. `kept`: what the destination has, of the time that is
    audited.
    """
    taken = joined(place for each in passes for place in each.places())
    found: list[KeptCopies] = []
    for each in severed:
        there = [part for place in each.places() for part in outside(taken, place.within(kept))]
        if not there:
            continue
        places = Range(there[0].first, there[-1].next)
        first, last = each.source_of(places.first), each.source_of(places.next - 1)
        assert first is not None
        assert last is not None
        offsets = Range(first, last + 1)
        found.append(
            KeptCopies(
                source=source,
                offsets=offsets,
                destination=to,
                places=places,
                count=total(there),
                note=_note_of(offsets, notes),
            )
        )
    return found


def _note_of(offsets: Range, notes: Iterable[Truncation]) -> Truncation | None:
    """The last of those that tell of most of the offsets; None: none tells of any."""
    telling = [each for each in notes if each.lost.within(offsets).length]
    return max(telling, key=lambda each: (each.lost.within(offsets).length, each.at_ms), default=None)
