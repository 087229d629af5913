"""Of which leader epochs the records are that were read of a partition: where they part from a log. Pure.

A log that parts from what was read tells its newest epoch that is not above ours, and where that ends. What
was read of epochs above that one is not there: the log is the same up to where the first of those begins, at
most up to that end. So followers cut their logs (KIP-101), which know where their epochs begin; so does this,
as far as records were read by this process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from broker.records.batch import MAGIC_POSITION, peek_size, read_header
from broker.records.message_set import message_place

KNOWN_MAX = 64
"""Epochs that are known of a partition: the newest."""


class EpochStart(NamedTuple):
    epoch: int
    offset: int
    """The first that is known to be of it; no record that was read lies between it and the epoch before."""


class ReadEpochs:
    """See the module's description. Epochs ascend, as do their offsets."""

    __slots__ = ("_starts",)

    def __init__(self, position: int, epoch: int) -> None:
        """`epoch` of the record before `position`, -1 when it is not known."""
        self._starts: list[EpochStart] = []
        self._begin(epoch, max(position - 1, 0))

    def read(self, position: int, end: int, epoch: int, records: memoryview) -> None:
        """From `position` to `end` there were these records, of which what comes before and behind is passed
        over; `epoch` of the last one, which may not be among them.
        """
        at = 0
        while position < end:
            size = peek_size(records, at)
            if size is None or size > len(records) - at:
                break
            if records[at + MAGIC_POSITION] < 2:
                of_batch, next_offset = -1, message_place(records[at : at + size])[0] + 1
            else:
                header = read_header(records, at)
                of_batch, next_offset = header.leader_epoch, header.next_offset
            if next_offset > position:
                self._begin(of_batch, position)
                position = next_offset
            at += size
        if position < end:
            self._begin(epoch, position)

    def end_of(self, epoch: int) -> int | None:
        """Where what was read of it, or of older ones, ends; None: it goes on to the position."""
        after = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        return self._starts[after].offset if after < len(self._starts) else None

    def before(self, offset: int) -> int:
        """The epoch of the record before, -1 when it is not known."""
        after = bisect_left(self._starts, offset, key=lambda start: start.offset)
        return self._starts[after - 1].epoch if after else -1

    def cut(self, offset: int) -> None:
        """What was read from `offset` on is not there any more."""
        self._starts = [start for start in self._starts if start.offset < offset]

    def _begin(self, epoch: int, offset: int) -> None:
        """An epoch begins, unless it has; what contradicts it was of another log."""
        starts = self._starts
        if epoch < 0 or (starts and starts[-1].epoch == epoch):
            return
        kept = [start for start in starts if start.epoch < epoch and start.offset < offset]
        self._starts = [*kept, EpochStart(epoch, offset)][-KNOWN_MAX:]
