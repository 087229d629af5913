"""Runs of a page in little memory, for pages that grow no more: as a ledger gets older, most are such. Pure.

What a run skips and how long it is repeats from run to run, the places themselves never do. So columns of
differences are kept, compressed: two to five bytes a run where three numbers take 24. Transactions end a run
each, so that is what a commit costs of a partition that is busy.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from itertools import chain

_UNKNOWN = -1
"""As the place of a run that is not known; its difference is as negative."""


class PackedRuns:
    """An array of source offset, place, and length of each run; `unpacked` is that array."""

    __slots__ = ("_columns", "count")

    def __init__(self, runs: array[int]) -> None:
        self.count = len(runs) // 3
        columns = array("q", chain(*zip(*_differences(runs), strict=True)))
        self._columns = zlib.compress(columns.tobytes())

    def unpacked(self) -> array[int]:
        """As they were."""
        columns, count = array("q", zlib.decompress(self._columns)), self.count
        runs, source, to = array("q"), 0, 0
        for index in range(count):
            skipped, skipped_to, length = columns[index::count]
            source += skipped
            if skipped_to == _UNKNOWN:
                runs.extend((source, _UNKNOWN, length))
            else:
                to += skipped_to
                runs.extend((source, to, length))
                to += length
            source += length
        return runs

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self._columns)


def _differences(runs: array[int]) -> Iterator[tuple[int, int, int]]:
    source = to = 0
    for at in range(0, len(runs), 3):
        place, length = runs[at + 1], runs[at + 2]
        yield runs[at] - source, _UNKNOWN if place == _UNKNOWN else place - to, length
        source = runs[at] + length
        to = to if place == _UNKNOWN else place + length
