"""What of a source neither a page nor a note tells of: at most once may have lost it, or it is missing. Of
these offsets some are of markers, of aborted transactions, or of what filters let go. They are read for that.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Untold(NamedTuple):
    """Source offsets that the route has passed and that nothing tells of."""

    may_be_lost: Sequence[Range]
    """At most once."""
    holes: Sequence[Range]


class Due(NamedTuple):
    """Of such offsets, those of records that should have a copy."""

    records: Sequence[Range]
    unread: int
    """Offsets that were not looked at: they count as `unrecorded`."""


class UntoldRecords:
    """Of one route."""

    def __init__(self, view: RouteView) -> None:
        self._expectations = Expectations(view)
        self._reading = SourceReading(view)
        self._view = view

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
        outcome = Outcome.LOST if self._view.is_exclusive else Outcome.UNRECORDED
        due = await self.due(source, stretches, findings)
        findings.outcomes[outcome] += total(due.records)

    async def due(self, source: TopicPartition, stretches: Sequence[Range], findings: Findings) -> Due:
        """What of the stretches should have a copy; what else is in them is counted. Raises BrokerError,
        CorruptRecordsError.
        """
        due: list[int] = []
        unread = total(stretches[STRETCHES_READ_MAX:])
        for each in stretches[:STRETCHES_READ_MAX]:
            read = Range(each.first, min(each.next, each.first + STRETCH_READ_MAX))
            found = await self._outcomes(source, read)
            due += [offset for offset, outcome in found.items() if outcome is None]
            findings.outcomes.update(outcome for outcome in found.values() if outcome is not None)
            findings.outcomes[Outcome.LEFT_OUT] += read.length - len(found)
            unread += each.length - read.length
        findings.outcomes[Outcome.UNRECORDED] += unread
        return Due(joined(Range(each, each + 1) for each in due), unread)

    async def _outcomes(self, source: TopicPartition, within: Range) -> dict[int, Outcome | None]:
        """Of each record, by offset; None: it should have a copy."""
        found: dict[int, Outcome | None] = {}
        for number, to in self._view.data_lanes(source):
            expectation = self._expectations.of(source, to, number)
            async with aclosing(self._reading.items(source, expectation, within)) as items:
                async for item in items:
                    is_made = (
                        item.outcome is Outcome.BY_FUNCTION
                    )  # whatever was made of it, it was not copied
                    found[item.offset] = None if is_made else item.outcome
        return found
