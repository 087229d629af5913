"""Where the fields of many records are, found for all of them at once: numpy over uncompressed batches. Pure.

A record is: length | attributes int8 | timestamp delta | offset delta | key length | key | value length |
value | header count | headers, all numbers zigzag-encoded. Only by its length is it known where the next one
begins, which makes a chain of each batch: all chains are followed side by side, one record of each at a time.
Whatever does not fit together, even in what no honest writer writes, is None here, and left to the parser
that goes record by record and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.records.batch import BatchHeader
from mirrormaker.spark.offsets import ANY_TIME, TimeRange
from mirrormaker.spark.varints import SPANS, NumberBuffer, Numbers, Positions

_RECORD_SIZE_MIN = 7
_LENGTH_SIZE_MAX = 5
_OVERLONG = 0x80
"""Attributes from here on: no writer has them, and parsers take them for one byte or the first of several."""
_CHAINS_MIN = 16
"""Fewer are followed one after the other."""
_SPARSENESS_MAX = 3
"""How much room may stay unused where batches differ in size, as a multiple of what is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The uncompressed records of one batch: where they are in the buffer."""

    header: BatchHeader
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Index i of each is record i. Sizes are -1 for what is null."""

    offsets: Numbers
    timestamps: Numbers
    """Milliseconds."""
    timestamp_types: NDArray[np.int32]
    key_starts: Positions
    key_sizes: Numbers
    value_starts: Positions
    value_sizes: Numbers
    header_starts: Positions
    header_counts: Numbers
    ends: Positions

    def between(self, start_offset: int, end_offset: int) -> Fields:
        """The records from one offset on and before another."""
        low, high = np.searchsorted(self.offsets, (start_offset, end_offset)).tolist()
        if (low, high) == (0, len(self.offsets)):
            return self
        return self._taken(slice(low, high))

    def at_times(self, times: TimeRange) -> Fields:
        """The records of these times."""
        if times == ANY_TIME:
            return self
        wanted = np.full(len(self.timestamps), True)
        if times.start is not None:
            wanted &= self.timestamps >= times.start
        if times.end is not None:
            wanted &= self.timestamps < times.end
        return self if wanted.all() else self._taken(wanted)

    def _taken(self, which: slice | NDArray[np.bool_]) -> Fields:
        return Fields(**{name: getattr(self, name)[which] for name in Fields.__slots__})


def find_fields(data: bytes | memoryview, sections: Sequence[Section]) -> Fields | None:
    """The records of the sections, which follow each other in the log and have some each; None if anything
    is odd.
    """
    for section in sections:
        if section.header.record_count > (section.end - section.start) // _RECORD_SIZE_MIN:
            return None
    buffer = NumberBuffer(data)
    try:
        starts = _find_starts(buffer, data, sections)
        return None if starts is None else _find(buffer, sections, starts)
    except IndexError:
        return None


def _find(buffer: NumberBuffer, sections: Sequence[Section], starts: Positions) -> Fields | None:
    counts = np.array([section.header.record_count for section in sections], np.int64)
    lengths, positions = buffer.read(starts)
    ends = positions + lengths
    if (buffer.bytes[positions] >= _OVERLONG).any():
        return None
    timestamp_deltas, positions = buffer.read(positions + 1)
    offset_deltas, positions = buffer.read(positions)
    key_sizes, key_starts = buffer.read(positions)
    value_sizes, value_starts = buffer.read(key_starts + np.maximum(key_sizes, 0))
    header_counts, header_starts = buffer.read_last(value_starts + np.maximum(value_sizes, 0))
    has_none = header_counts == 0
    if (
        (header_starts > ends).any()
        or (header_starts[has_none] != ends[has_none]).any()
        or min(key_sizes.min(), value_sizes.min()) < -1
        or header_counts.min() < 0
    ):
        return None
    headers = [section.header for section in sections]
    offsets = np.repeat(np.array([header.base_offset for header in headers]), counts) + offset_deltas
    lasts = np.repeat(np.array([header.last_offset for header in headers]), counts)
    if offset_deltas.min() < 0 or (offsets > lasts).any() or (np.diff(offsets) <= 0).any():
        return None
    appended = np.array([header.is_log_append_time for header in headers])
    bases = [
        header.max_timestamp if header.is_log_append_time else header.base_timestamp for header in headers
    ]
    if appended.any():
        timestamp_deltas[np.repeat(appended, counts)] = 0
    return Fields(
        offsets=offsets,
        timestamps=np.repeat(np.array(bases), counts) + timestamp_deltas,
        timestamp_types=np.repeat(appended.astype(np.int32), counts),
        key_starts=key_starts,
        key_sizes=key_sizes,
        value_starts=value_starts,
        value_sizes=value_sizes,
        header_starts=header_starts,
        header_counts=header_counts,
        ends=ends,
    )


def _find_starts(
    buffer: NumberBuffer, data: bytes | memoryview, sections: Sequence[Section]
) -> Positions | None:
    """Where each record begins, in order."""
    counts = [section.header.record_count for section in sections]
    room = max(counts) * len(sections)
    if len(sections) >= _CHAINS_MIN and room <= _SPARSENESS_MAX * sum(counts):
        found = _follow_together(buffer, sections)
        if found is not None:
            return found
    starts: list[int] = []
    for section in sections:
        if not _follow(data, section, starts):
            return None
    return np.array(starts, np.int64)


def _follow_together(buffer: NumberBuffer, sections: Sequence[Section]) -> Positions | None:
    """One record of each section at a time, longest sections first; None where one has a length of three
    bytes or its records do not end with it.
    """
    counts = np.array([section.header.record_count for section in sections])
    order = np.argsort(-counts, kind="stable")
    places = np.argsort(order)
    positions = np.array([section.start for section in sections])[order]
    ends = np.array([section.end for section in sections])[order]
    steps = int(counts.max())
    going_on = len(counts) - np.searchsorted(np.sort(counts), np.arange(steps), side="right")
    pairs = buffer.pairs
    found = np.empty((steps, len(counts)), np.int64)
    for step, count in enumerate(going_on.tolist()):
        current = positions[:count]
        found[step, :count] = current
        current += SPANS[pairs[current]]
    if (positions != ends).any():
        return None
    return found.T[places][np.arange(steps) < counts[:, np.newaxis]]


def _follow(data: bytes | memoryview, section: Section, starts: list[int]) -> bool:
    """Add where the records of a section begin; False if they do not end with it."""
    position, add = section.start, starts.append
    for _ in range(section.header.record_count):
        add(position)
        length, shift = data[position], 7
        size = 1
        if length >= 0x80:
            length &= 0x7F
            while True:
                byte = data[position + size]
                length |= (byte & 0x7F) << shift
                size += 1
                if byte < 0x80:
                    break
                if size == _LENGTH_SIZE_MAX:
                    return False
                shift += 7
        position += size + (length >> 1)
    return position == section.end
