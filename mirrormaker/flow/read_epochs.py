"""Of which leader epochs the records are that were read of a partition: where they part from a log. Pure.

A log that parts from what was read tells its newest epoch that is not above ours, and where that ends. What
was read of epochs above that one is not there: the log is the same up to where the first of those begins, at
most up to that end. So followers cut their logs (KIP-101), which know where their epochs begin; so does this.
What other processes read before this one it learns by what they wrote down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
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

    __slots__ = ("_starts", "latest")

    def __init__(self, position: int, epoch: int) -> None:
        """`epoch` of the record before `position`, -1 when it is not known."""
        self.latest = epoch
        """Of the last record read, or of one that was before it once; -1: not known, or of no account."""
        self._starts: list[EpochStart] = []
        self._begin(epoch, max(position - 1, 0))

    @classmethod
    def of(cls, starts: Iterable[EpochStart]) -> ReadEpochs:
        """What several have written down of one log, in any order."""
        found = cls(0, -1)
        found._starts = _ascending(starts)
        return found

    def learn(self, starts: Iterable[EpochStart]) -> None:
        """These were read before all that is known, or along with the first of that."""
        if self._starts:
            oldest = self._starts[0]
            older = [each for each in starts if each.epoch <= oldest.epoch and each.offset <= oldest.offset]
            self._starts = _ascending([*older, *self._starts])

    def between(self, first: int, end: int) -> Sequence[EpochStart]:
        """Those that begin there; `end` is exclusive."""
        return [start for start in self._starts if first <= start.offset < end]

    def read(self, position: int, end: int, epoch: int, records: memoryview) -> None:
        """From `position` to `end` there were these records, of which what comes before and behind is passed
        over; `epoch` of the last one, which may not be among them.
        """
        if epoch == self.latest:
            return
        self.latest = epoch
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

    def since(self, first: int, end: int) -> Sequence[EpochStart]:
        """Those of the record before `first`, and of all from there up to `end`."""
        epoch = self.before(first)
        held = [] if epoch < 0 else [EpochStart(epoch, first - 1)]
        return [*held, *self.between(first, end)]

    def end_of(self, epoch: int) -> int | None:
        """Where what was read of it, or of older ones, ends; None: it goes on to the position."""
        after = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        return self._starts[after].offset if after < len(self._starts) else None

    def told_before(self, offset: int) -> int:
        """The epoch of the record before, as is told to others: -1 where `latest` is."""
        return -1 if self.latest < 0 else self.before(offset)

    def before(self, offset: int) -> int:
        """The epoch of the record before, -1 when it is not known."""
        after = bisect_left(self._starts, offset, key=lambda start: start.offset)
        return self._starts[after - 1].epoch if after else -1

    def cut(self, offset: int) -> None:
        """What was read from `offset` on is not there any more; what lies before that is."""
        self._starts = [start for start in self._starts if start.offset < offset]
        self.latest = self.told_before(offset)

    def _begin(self, epoch: int, offset: int) -> None:
        """An epoch begins, unless it has; what was read from there on is read again, and what contradicts it
        was of another log.
        """
        if epoch < 0:
            return
        starts = [start for start in self._starts if start.offset < offset]
        if not starts or starts[-1].epoch != epoch:
            starts = [*(start for start in starts if start.epoch < epoch), EpochStart(epoch, offset)]
        self._starts = starts[-KNOWN_MAX:]


def _ascending(starts: Iterable[EpochStart]) -> list[EpochStart]:
    """Each epoch once, from the first that is known to be of it; what contradicts a newer one is of another
    log.
    """
    firsts: dict[int, int] = {}
    for each in starts:
        firsts[each.epoch] = min(each.offset, firsts.get(each.epoch, each.offset))
    found: list[EpochStart] = []
    for epoch in sorted(firsts, reverse=True)[:KNOWN_MAX]:
        if not found or firsts[epoch] < found[-1].offset:
            found.append(EpochStart(epoch, firsts[epoch]))
    return found[::-1]
