"""A page of the ledger: a stretch of a source partition, and where its records are at the destination. Pure.

A page covers the source offsets from `first` to `next` wholly: its runs say where records went; what lies
between them has no record at the destination (it was filtered, dropped, a marker, of an aborted transaction,
or gone before it could be copied). Within a page both source and destination offsets ascend. A page that
grows keeps its key, so that a partition copied as it is, without gaps, has one page with one run.

As JSON, for anyone who reads the topic:
    key    {"cluster": of the source, "topic", "topic_id", "partition", "to": topic, "to_partition",
            "at": first, "to_at": first offset at the destination, null as long as nothing was copied that is
            known to be anywhere, and then "by": who wrote it, as several may have copied from there}
    value  {"from": [first, next], "to": [partition, first, next], "count", "crc",
            "source_crc"}, where it holds
            "runs": [[offsets skipped at the source, records, offsets skipped at the destination], ...]
            (the last null: where they are is not known), "times": [first, last] (ms, of the youngest record
            when the page began and when it ended), "anew": true, "behind": destination offset before which
            all is that pages before it tell of, "part": true, "more": further records at the destination that
            a function made of these, of which only the first has a place in the runs, "route": whose it is,
            where others may write the same topic from the same source, "epoch": [offset, leader epoch that no
            record of the source before that is above], "epochs": [[offset, leader epoch of the record there],
            ...]: of the one before the page, and of those that begin one in it, "returned": [first, next] of
            the source offsets between which records are that came from the destination itself
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mirrormaker.flow.books import EpochMark
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.flow.read_epochs import EpochStart, ReadEpochs
from mirrormaker.flow.returned import Span, around
from mirrormaker.ledger.packed_runs import PackedRuns
from mirrormaker.ledger.page_windows import NO_TIME

RUNS_MAX = 256
"""A page with so many runs is followed by another."""
PART_RUNS_MAX = 4096
"""What arrived as one and has more runs than this takes several pages."""
CRC_MODULUS = 1 << 64
NOWHERE_KNOWN = -1
"""In place of a destination offset: the destination has the records, and did not say where."""
_FIELDS = 3


class PageRun(NamedTuple):
    """Records without a gap at either side."""

    source: int
    to: int
    """Destination offset of the first, or `NOWHERE_KNOWN`."""
    length: int


@dataclass(frozen=True, slots=True)
class PageMark:
    """What a page was at some moment; see `Page.mark`."""

    runs: int
    last_length: int
    next: int
    to_first: int | None
    to_next: int | None
    count: int
    more: int
    crc: int | None
    source_crc: int | None
    first_ms: int
    last_ms: int
    epoch: EpochMark | None


class Page:
    """See the module; it only grows."""

    __slots__ = (
        "_packed",
        "_runs",
        "behind",
        "by",
        "count",
        "crc",
        "epoch",
        "epochs",
        "first",
        "first_ms",
        "is_anew",
        "is_part",
        "last_ms",
        "more",
        "next",
        "returned",
        "route",
        "source_crc",
        "to_first",
        "to_next",
    )

    def __init__(
        self,
        first: int,
        *,
        is_anew: bool = False,
        by: str | None = None,
        behind: int | None = None,
        route: str | None = None,
    ) -> None:
        """`by`: who began it."""
        self.first = first
        self.by = by
        self.route = route
        """Of whose copies it tells; None: of those of any."""
        self.next = first
        """Source offset after the last that is dealt with."""
        self.to_first: int | None = None
        """Destination offset of the first record whose place is known."""
        self.to_next: int | None = None
        """Destination offset after the last record whose place is known."""
        self.count = 0
        """Records of the source."""
        self.more = 0
        """Further records at the destination, made of these: they are right behind the first, in no run."""
        self.crc: int | None = 0
        """Sum, modulo 2**64, of the checksums (CRC-32C) in the headers of the batches that hold its records
        at the destination: all batches there from `to_first` to `to_next` but those of others, and markers.
        None: not known, as the destination gave the batches times of its own.
        """
        self.source_crc: int | None = 0
        """The same of the batches that hold its records at the source: the checksums that they were read
        with. None: not all were copied as they are. So the `crc` of one hop is the `source_crc` of the next,
        and headers tell without a look at records whether either side still holds what was copied.
        """
        self.epoch: EpochMark | None = None
        """What is known of leader epochs at the source, so that it shows when that has others instead."""
        self.epochs: tuple[EpochStart, ...] = ()
        """Those of the record before it, as pages before may go, and those that begin in what it tells of."""
        self.returned: Span | None = None
        """From the first to the last of the source's records in it that came straight from the destination:
        of what lies between them only what is in no run. The ledger at the source tells of those, or there
        are copies of which none tells.
        """
        self.first_ms = self.last_ms = NO_TIME
        """Of its records, as `page_windows` tells time."""
        self.is_anew = is_anew
        """The source is another log from here on, offsets that earlier pages have from here on are of one
        that is gone.
        """
        self.behind = behind
        """Of a page that begins anew: the destination offset before which all is that pages before it tell
        of, where that is known. It orders the page as long as nothing of it was copied.
        """
        self.is_part = False
        """The last batch at the destination goes on in the next page, which has the whole `crc` of both."""
        self._runs = array("q")
        self._packed: PackedRuns | None = None
        """In place of `_runs`."""

    def __len__(self) -> int:
        """Runs."""
        return len(self._runs) // _FIELDS if self._packed is None else self._packed.count

    @property
    def order(self) -> tuple[int, int, int]:
        """By this pages are in the order in which they were begun, as far as the destination shows. Of those
        that begin anew before anything more was copied the last reaches least far.
        """
        if self.to_first is not None:
            return self.to_first, 1, self.first
        return (self.behind or 0, 0, -self.next) if self.is_anew else (-1, 0, self.first)

    def pack(self) -> None:
        """Take less memory from now on. It may not grow any more."""
        if self._packed is None:
            self._packed, self._runs = PackedRuns(self._runs), array("q")

    def runs(self) -> Iterator[PageRun]:
        """In the order of either side."""
        packed = self._runs if self._packed is None else self._packed.unpacked()
        for at in range(0, len(packed), _FIELDS):
            yield PageRun(packed[at], packed[at + 1], packed[at + 2])

    # ---- growing

    def continues(self, source: int, to: int) -> bool:
        """Whether a record at `source` with its copy at `to` prolongs the last run."""
        packed = self._runs
        return (
            bool(packed)
            and source == self.next == packed[-3] + packed[-1]
            and to == self.to_next == packed[-2] + packed[-1]
            and packed[-2] != NOWHERE_KNOWN
        )

    def prolong(self, length: int) -> None:
        """So many more records right behind the last run."""
        assert self.to_next is not None
        self._runs[-1] += length
        self.count += length
        self.next += length
        self.to_next += length

    def add_runs(self, runs: Sequence[tuple[SourceRun, int | None]], end: int | None = None) -> None:
        """Records that came as one, each run with where it is. `end`: where they end at the destination; what
        they do not fill are further records that were made of them.
        """
        for run, to in runs:
            if to is not None and self.continues(run.first, to):
                self.prolong(run.length)
            else:
                self.add_run(run.first, to, run.length)
        if end is not None and runs[0][1] is not None:
            more = end - runs[0][1] - sum(run.length for run, _ in runs)
            if more:
                self.more, self.to_next = self.more + more, end

    def add_run(self, source: int, to: int | None, length: int) -> None:
        """Records that do not prolong the last run, or whose place is not known."""
        assert source >= self.next
        assert self._packed is None
        self.next = source + length
        self.count += length
        if to is None:
            self._runs.extend((source, NOWHERE_KNOWN, length))
            return
        assert self.to_next is None or to >= self.to_next
        self._place_unknown(to)
        if self.to_first is None:
            self.to_first = to
        self._runs.extend((source, to, length))
        self.to_next = to + length

    def _place_unknown(self, to: int) -> None:
        """Where runs of unknown place fill exactly what lies between known ones, they are there."""
        packed, at, unknown = self._runs, len(self._runs), 0
        while at and packed[at - 2] == NOWHERE_KNOWN:
            unknown += packed[at - 1]
            at -= _FIELDS
        if not unknown or self.to_next is None or self.to_next + unknown != to:
            return
        place = self.to_next
        for index in range(at, len(packed), _FIELDS):
            packed[index + 1] = place
            place += packed[index + 2]

    def cover(self, offset: int) -> None:
        """Everything of the source before `offset` is dealt with."""
        self.next = max(self.next, offset)

    def add_sums(self, crc: int | None, source_crc: int | None) -> None:
        """Checksums of what came in, at the destination and at the source."""
        self.crc = _sum(self.crc, crc)
        self.source_crc = _sum(self.source_crc, source_crc)

    def tell_time(self, at_ms: int) -> None:
        """Records up to this time came in."""
        if at_ms != NO_TIME:
            self.last_ms = at_ms
            if self.first_ms == NO_TIME:
                self.first_ms = at_ms

    def absorb(self, other: Page) -> None:
        """Take in what follows directly at either side (see `adjoins`)."""
        self.add_runs(
            [
                (SourceRun(run.source, run.length), None if run.to == NOWHERE_KNOWN else run.to)
                for run in other.runs()
            ]
        )
        self.more += other.more
        self.to_next = self.to_next if other.to_next is None else other.to_next
        self.cover(other.next)
        self.epoch = other.epoch or self.epoch
        self.epochs = tuple(ReadEpochs.of(self.epochs + other.epochs).between(0, self.next))
        returned = [span for span in (self.returned, other.returned) if span is not None]
        self.returned = around(*returned) if returned else None
        self.add_sums(other.crc, other.source_crc)
        self.tell_time(other.first_ms)
        self.tell_time(other.last_ms)
        self.is_part = other.is_part

    def adjoins(self, other: Page) -> bool:
        """Whether `other` goes on where this ends, at either side, and both fit one page."""
        return (
            other.first == self.next
            and self.to_next is not None
            and other.to_first in (None, self.to_next)
            and other.route == self.route
            and not (other.is_anew or self.is_part)
            and len(self) + len(other) <= RUNS_MAX
        )

    def holds(self, other: Page) -> bool:
        """Whether this begins before `other`, and tells all that it tells: of the same records, at the same
        places, that they are there.
        """
        is_within = self.first < other.first and other.next <= self.next
        if not is_within or other.is_anew or other.route != self.route:
            return False
        runs = list(self.runs())
        return all(_is_in(runs, run) for run in other.runs())

    def came_back(self, first: int, end: int) -> Iterator[Span]:
        """The source offsets between these that may be of records which came from the destination."""
        span = None if self.returned is None else self.returned.within(first, end)
        if span is None:
            return
        at = span.first
        for run in self.runs():
            if run.source >= span.next:
                break
            if run.source > at:
                yield Span(at, run.source)
            at = max(at, run.source + run.length)
        if at < span.next:
            yield Span(at, span.next)

    def part(self, first: int, end: int) -> Page:
        """What a page that does not grow any more tells of these source offsets. The sums of its checksums
        are of all that it has, not of a part.
        """
        if first <= self.first and self.next <= end:
            return self
        part = Page(
            max(self.first, first),
            is_anew=self.is_anew and first <= self.first,
            by=self.by,
            behind=self.behind,
            route=self.route,
        )
        to_end = self.to_next
        for source, to, length in self.runs():
            skipped, kept = max(first - source, 0), min(end - source, length)
            if kept > skipped:
                part.add_run(source + skipped, None if to == NOWHERE_KNOWN else to + skipped, kept - skipped)
            if kept < length and to != NOWHERE_KNOWN:
                to_end = to + max(kept, 0)
                break
        part.cover(min(self.next, end))
        if self.more and part.to_next is not None:
            part.more, part.to_next = self.more, to_end
        part.add_sums(None, None)
        part.returned = None if self.returned is None else self.returned.within(part.first, part.next)
        part.first_ms, part.last_ms = self.first_ms, self.last_ms
        return part

    def mark(self) -> PageMark:
        """What it is now."""
        last_length = self._runs[-1] if self._runs else 0
        return PageMark(
            len(self),
            last_length,
            self.next,
            self.to_first,
            self.to_next,
            self.count,
            self.more,
            self.crc,
            self.source_crc,
            self.first_ms,
            self.last_ms,
            self.epoch,
        )

    # ---- as JSON

    def value(self, to_partition: int) -> dict[str, Any]:
        """See the module."""
        value: dict[str, Any] = {
            "from": [self.first, self.next],
            "to": [to_partition, self.to_first, self.to_next],
            "count": self.count,
            "crc": self.crc,
            "source_crc": self.source_crc,
        }
        if not self._is_plain():
            value["runs"] = list(self._relative_runs())
        if self.more:
            value["more"] = self.more
        if self.first_ms != NO_TIME:
            value["times"] = [self.first_ms, self.last_ms]
        if self.epoch is not None:
            value["epoch"] = list(self.epoch)
        if self.epochs:
            value["epochs"] = [[start.offset, start.epoch] for start in self.epochs]
        if self.returned is not None:
            value["returned"] = list(self.returned)
        if self.is_anew:
            value["anew"] = True
        if self.behind is not None:
            value["behind"] = self.behind
        if self.is_part:
            value["part"] = True
        if self.route is not None:
            value["route"] = self.route
        return value

    def _is_plain(self) -> bool:
        """Whether all of both sides is one run."""
        packed = self._runs
        if self._packed is not None:
            return False
        if not packed:
            return self.next == self.first
        return len(packed) == _FIELDS and packed[0] == self.first and packed[0] + packed[2] == self.next

    def _relative_runs(self) -> Iterator[list[int | None]]:
        source, to = self.first, self.to_first
        for run in self.runs():
            is_known = run.to != NOWHERE_KNOWN
            yield [run.source - source, run.length, run.to - to if is_known and to is not None else None]
            source = run.source + run.length
            to = run.to + run.length if is_known else to

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Page:
        """The page that `value` describes. Raises ValueError where it describes none."""
        try:
            return cls._of(value)
        except (KeyError, TypeError, OverflowError, AssertionError) as error:
            raise ValueError(f"no page of a ledger: {error!r}") from error

    @classmethod
    def _of(cls, value: Mapping[str, Any]) -> Page:
        (first, end), (_, to_first, to_next) = value["from"], value["to"]
        page = cls(
            first,
            is_anew=bool(value.get("anew", False)),
            behind=value.get("behind"),
            route=value.get("route"),
        )
        page.is_part = bool(value.get("part", False))
        runs = value.get("runs", [[0, end - first, 0]] if end > first else [])
        source, to = first, to_first
        for skipped, length, skipped_to in runs:
            if skipped < 0 or length < 1 or (skipped_to is not None and skipped_to < 0):
                raise ValueError(f"no run of a page: {[skipped, length, skipped_to]}")
            source += skipped
            place = None if skipped_to is None or to is None else to + skipped_to
            page.add_run(source, place, length)
            source += length
            to = to if place is None else place + length
        page.cover(end)
        page.more = value.get("more", 0)
        if page.more and page.to_next is not None and page.to_next <= to_next <= page.to_next + page.more:
            page.to_next = to_next
        if (page.next, page.to_first, page.to_next) != (end, to_first, to_next):
            raise ValueError("the runs of the page do not fill it")
        page.add_sums(value["crc"], value["source_crc"])
        page.first_ms, page.last_ms = value.get("times", (NO_TIME, NO_TIME))
        if "epoch" in value:
            page.epoch = EpochMark(*value["epoch"])
        page.epochs = tuple(EpochStart(epoch, offset) for offset, epoch in value.get("epochs", ()))
        if "returned" in value:
            page.returned = Span(*value["returned"])
        return page


def _is_in(runs: Sequence[PageRun], run: PageRun) -> bool:
    """Whether one of these, which ascend, has all of it, at the same place."""
    index = bisect_right(runs, run.source, key=lambda each: each.source) - 1
    if index < 0:
        return False
    source, to, length = runs[index]
    if NOWHERE_KNOWN in (to, run.to):
        return (source, to, length) == run
    return run.source + run.length <= source + length and run.to - run.source == to - source


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else (one + other) % CRC_MODULUS
