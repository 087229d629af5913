"""Fetches of one partition that begin where the one before is expected to end. Pure.

A partition that is fetched by one request after the other leaves a long way empty for a round trip each time,
as only an answer tells where the next begins. So others are sent ahead of it, to begin a little before that,
by how many offsets the last answer had for its bytes. An answer that was sent for ahead counts from where
the one before it ended: what overlaps is passed over, and a gap is fetched for itself meanwhile. It counts
only if it goes on with the log that was read: at the very position, with a batch of the leader epoch of the
record before. Whatever does not fit, or is damaged, is thrown away, and fetched again in turn: what begins at
the position is handed on as it came, whoever takes it in tells what is wrong with it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from broker.errors import CorruptRecordsError
from broker.records.batch import MAGIC_POSITION, BatchHeader, read_header
from broker.records.reader import iterate_entries
from mirrormaker.flow.exchange import FetchedPartition

STRETCHES_MAX = 3
"""Asked for or waiting for those before them."""
OVERLAP = 0.01
"""Part of a stretch by which the next begins before its expected end."""
FILLER_BYTES_MIN = 64 << 10


@dataclass(slots=True, eq=False, kw_only=True)
class Stretch:
    """One fetch of the partition."""

    start: int
    size: int
    """Bytes asked for."""
    is_ahead: bool
    """It does not begin at the position that is reached."""
    answer: FetchedPartition | None = None
    end: int = -1
    """Of the answer."""


class ReadAhead:
    """The stretches of one partition, in the order of their offsets."""

    def __init__(self) -> None:
        self._stretches: deque[Stretch] = deque()
        self._offsets_per_byte: float | None = None
        self._position = -1
        """When it was last asked; one that went back begins anew."""
        self.is_taken_on = False
        """Whether part of an answer is still being taken in: nothing else is, before it."""

    def clear(self) -> None:
        """Forget everything; answers that come are thrown away."""
        self._stretches.clear()

    def begin(self, position: int, size: int, source_end: int) -> Stretch | None:
        """What to ask for next, in at most `size` bytes; None: nothing, before another answer came."""
        if position < self._position:
            self.clear()
        self._position = position
        stretch = self._next(position, size, source_end)
        if stretch is not None and stretch.start == position:
            self._stretches.appendleft(stretch)
        elif stretch is not None:
            self._stretches.append(stretch)
        return stretch

    def _next(self, position: int, size: int, source_end: int) -> Stretch | None:
        density = self._offsets_per_byte
        if self.is_taken_on:
            return None
        if not self._stretches:
            return Stretch(start=position, size=size, is_ahead=False)
        if density is None:
            return None
        first, last = self._stretches[0], self._stretches[-1]
        if first.answer is not None and first.start > position:
            gap = int((first.start - position) / density)
            filler = max(gap + gap // 8, FILLER_BYTES_MIN)
            return Stretch(start=position, size=min(filler, size), is_ahead=False)
        if len(self._stretches) >= STRETCHES_MAX:
            return None
        start = last.end if last.answer is not None else last.start + int(last.size * density * (1 - OVERLAP))
        if start <= position or start + size * density > source_end:
            return None  # what is left is not worth it
        return Stretch(start=start, size=size, is_ahead=True)

    def failed(self, stretch: Stretch) -> None:
        """There will be no answer. What was to follow it is found anew."""
        if stretch in self._stretches:
            self.clear()

    def arrived(self, stretch: Stretch, answer: FetchedPartition) -> None:
        """The answer came."""
        if stretch not in self._stretches:
            return
        last = _last_batch(answer.records)
        if last is None:
            if stretch.is_ahead:
                self.clear()
                return
            stretch.end = stretch.start
        else:
            stretch.end = last.next_offset
            self._offsets_per_byte = (stretch.end - stretch.start) / len(answer.records)
        stretch.answer = answer

    def take(self, position: int, leader_epoch: int) -> FetchedPartition | None:
        """What goes on at the position now; `leader_epoch` is that of the record before it."""
        self._position = position
        while self._stretches and not self.is_taken_on:
            head = self._stretches[0]
            if head.answer is None or (head.start > position and head.is_ahead):
                return None
            self._stretches.popleft()
            if not head.is_ahead and head.start == position:
                return head.answer
            if head.end <= position:
                continue
            if not _goes_on(head.answer, position, leader_epoch):
                self.clear()
                return None
            return replace(head.answer, offset=position)
        return None


def _last_batch(records: bytearray | memoryview) -> BatchHeader | None:
    """The header of the last whole batch; None where there is none, or it is damaged, or of an old format."""
    view = memoryview(records)
    last = None
    try:
        for start, _ in iterate_entries(view):
            last = start
        if last is None or view[last + MAGIC_POSITION] < 2:
            return None
        return read_header(view, last)
    except CorruptRecordsError:
        return None


def _goes_on(answer: FetchedPartition, position: int, leader_epoch: int) -> bool:
    """Whether the batch at the position begins there and is of the log that was read so far."""
    view = memoryview(answer.records)
    try:
        for start, _ in iterate_entries(view):
            if view[start + MAGIC_POSITION] < 2:
                return False
            header = read_header(view, start)
            if header.next_offset > position:
                return header.base_offset == position and header.leader_epoch == leader_epoch >= 0
    except CorruptRecordsError:
        pass
    return False
