"""What at most once has lost of a source, counted: of the offsets that it may be, some are of markers, of
aborted transactions, or of what filters let go. They are read for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from broker.types import TopicPartition
from mirrormaker.audit.expectations import Expectations
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.source_reading import SourceReading

LOST_READ_MAX = 50_000
"""Of one stretch, at most, that are read: of more the offsets count."""


class LostRecords:
    """Of one route."""

    def __init__(self, view: RouteView) -> None:
        self._view = view
        self._expectations = Expectations(view)
        self._reading = SourceReading(view)

    @property
    def bytes(self) -> int:
        """Read of the source."""
        return self._reading.bytes

    async def count(self, source: TopicPartition, lost: Sequence[Range], findings: Findings) -> None:
        """Count what is in these stretches. Raises BrokerError, CorruptRecordsError."""
        for each in lost:
            read = Range(each.first, min(each.next, each.first + LOST_READ_MAX))
            findings.outcomes.update(await self._outcomes(source, read))
            findings.outcomes[Outcome.LOST] += each.length - read.length

    async def _outcomes(self, source: TopicPartition, within: Range) -> list[Outcome]:
        """Of each offset."""
        found: dict[int, Outcome] = {}
        for number, to in self._view.data_lanes(source):
            expectation = self._expectations.of(source, to, number)
            async with aclosing(self._reading.items(source, expectation, within)) as items:
                async for item in items:
                    found[item.offset] = item.outcome or Outcome.LOST
        return [*found.values(), *[Outcome.LEFT_OUT] * (within.length - len(found))]
