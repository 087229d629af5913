"""Offsets that no segment of a log has, because a file of it is gone.

Only compaction leaves such gaps rightly. Each segment would have to be read at its end to find them, so that
they are looked for only when something hints at one: files of a segment whose log is not there, or fewer
segments than a clean end left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from broker.storage.segment import Segment
from broker.storage.segment_end import last_header


class Hole(NamedTuple):
    """Offsets without records: from `start` up to, not including, `end`."""

    start: int
    end: int


def hinted(segments: Sequence[Segment], left_over: Iterable[int]) -> bool:
    """Whether any offset that files are named by which no log goes with lies between two segments."""
    bases = {segment.base_offset for segment in segments}
    first, last = min(bases, default=0), max(bases, default=0)
    return any(first < offset < last and offset not in bases for offset in left_over)


def holes(segments: Sequence[Segment]) -> list[Hole]:
    """Those between neighbouring segments; one that is damaged tells of none. Raises StorageError."""
    found = []
    for segment, following in pairwise(segments):
        last = last_header(segment)
        if last is not None and last.next_offset < following.base_offset:
            found.append(Hole(last.next_offset, following.base_offset))
    return found
