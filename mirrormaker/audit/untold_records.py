"""What of a source neither a page nor a note tells of: at most once may have lost it, or it is missing. Of
these offsets some are of markers, of aborted transactions, or of what filters let go. They are read for that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from broker.types import TopicPartition
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.ranges import Range, joined, total
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.source_reading import SourceReading

STRETCHES_READ_MAX = 1_000
"""Of a partition, at most."""
STRETCH_READ_MAX = 50_000
"""Offsets of one stretch, at most, that are read."""
LAST_READ_MAX = 1_000
"""Last offsets of the partitions of a route, at most, that are looked at: each is a round trip of its own."""


class Untold(NamedTuple):
    """Source offsets that nothing tells of."""

    may_be_lost: Sequence[Range]
    """At most once, of those that the route has passed."""
    holes: Sequence[Range]
    """Of those that it has passed otherwise."""
    pending: Sequence[Range]
    """It has still to come there."""


class Due(NamedTuple):
    """Of such offsets, those of records that should have a copy."""

    records: Mapping[TopicPartition, Sequence[Range]]
    """By where that should be."""
    unread: int
    """Offsets that were not looked at: they count as `unrecorded`."""


class UntoldRecords:
    """Of one route."""

    def __init__(self, view: RouteView) -> None:
        self._expectations = Expectations(view)
        self._reading = SourceReading(view)
        self._view = view
        self._last_read = 0

    @property
    def bytes(self) -> int:
        """Read of the source."""
        return self._reading.bytes

    async def count_lost(
        self, source: TopicPartition, stretches: Sequence[Range], findings: Findings
    ) -> None:
        """Count what at most once has lost. Where others may write to the destination nobody looks there for
        what was sent and not written down: then it cannot be told whether it was lost. Raises BrokerError,
        CorruptRecordsError.
        """
        due = await self.due(source, stretches, findings)
        for to, records in due.records.items():
            outcome = Outcome.LOST if self._view.is_exclusive_at(to) else Outcome.UNRECORDED
            findings.outcomes[outcome] += total(records)

    async def without_last_marker(
        self, source: TopicPartition, stretches: Sequence[Range], findings: Findings
    ) -> Sequence[Range]:
        """Stretches that nothing has come of so far. The last offset alone may be that of a marker, as behind
        the last transaction of a route that leads here: it is looked at, of so many partitions. Raises
        BrokerError, CorruptRecordsError.
        """
        if not stretches or stretches[-1].length != 1 or self._last_read >= LAST_READ_MAX:
            return stretches
        self._last_read += 1
        if await self._outcomes(source, stretches[-1]):
            return stretches
        findings.outcomes[Outcome.LEFT_OUT] += 1
        return stretches[:-1]

    async def due(self, source: TopicPartition, stretches: Sequence[Range], findings: Findings) -> Due:
        """What of the stretches should have a copy; what else is in them is counted, as is what may have one
        that cannot be read yet. Raises BrokerError, CorruptRecordsError.
        """
        due: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        unread = total(stretches[STRETCHES_READ_MAX:])
        for each in stretches[:STRETCHES_READ_MAX]:
            read = Range(each.first, min(each.next, each.first + STRETCH_READ_MAX))
            found = await self._outcomes(source, read)
            for offset, is_due in found.items():
                if isinstance(is_due, Outcome):
                    findings.outcomes[is_due] += 1
                else:
                    due[is_due].append(offset)
            findings.outcomes[Outcome.LEFT_OUT] += read.length - len(found)
            unread += each.length - read.length
        findings.outcomes[Outcome.UNRECORDED] += unread
        records = {
            to: self._without_hidden(source, to, joined(Range(each, each + 1) for each in offsets), findings)
            for to, offsets in due.items()
        }
        return Due(records, unread)

    def _without_hidden(
        self, source: TopicPartition, to: TopicPartition, records: Sequence[Range], findings: Findings
    ) -> list[Range]:
        """Those of the records whose copies do not stand behind the first record of a transaction that is
        open at the destination: the others are `pending`, for as many as have room there.
        """
        view = self._view
        unread = Range(view.to_ends.get(to, 0), view.to_reached.get(to, 0))
        room = _Room(view.indexes[to].gaps(unread) if unread.length else ())
        passes = view.passes.get((source, to), ())
        left: list[Range] = []
        for each in records:
            hidden = 0
            for where in sorted(known.places_around(each.first) for known in passes) or [unread]:
                hidden += room.take(where, each.length - hidden)
            findings.outcomes[Outcome.PENDING] += hidden
            left.append(Range(each.first + hidden, each.next))
        return [each for each in left if each.length]

    async def _outcomes(self, source: TopicPartition, within: Range) -> dict[int, Outcome | TopicPartition]:
        """Of each record, by offset; or where its copy should be."""
        found: dict[int, Outcome | TopicPartition] = {}
        for number, to in self._view.data_lanes(source):
            expectation = self._expectations.of(source, to, number)
            async with aclosing(self._reading.items(source, expectation, within)) as items:
                async for item in items:
                    # whatever a function made of it, it was not copied
                    outcome = None if item.outcome is Outcome.BY_FUNCTION else item.outcome
                    found[item.offset] = outcome or to
        return found


class _Room:
    """Destination offsets where copies may stand that no page knows of."""

    def __init__(self, gaps: Iterable[Range]) -> None:
        self._gaps = list(gaps)

    def take(self, where: Range, count: int) -> int:
        """How many of the first so many there are free; they are not any more."""
        gaps, left = self._gaps, count
        index = max(bisect_right(gaps, (where.first, where.first)) - 1, 0)
        while left and index < len(gaps) and gaps[index].first < where.next:
            gap = gaps[index]
            free = gap.within(where)
            taken = min(free.length, left)
            if not taken:
                index += 1
                continue
            rest = Range(gap.first, free.first), Range(free.first + taken, gap.next)
            gaps[index : index + 1] = [each for each in rest if each.length]
            left -= taken
            index += rest[0].length > 0
        return count - left
