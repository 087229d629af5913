"""Records of a source, read as one of its lanes should have them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.expectation import Expectation
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView, committed_only

LANE = "audit-source"
"""Of the connections over which all of it is read, one after the other; they are kept from audit to audit."""


class SourceReading:
    """Of one route."""

    def __init__(self, view: RouteView) -> None:
        self.bytes = 0
        """Read so far."""
        self._view = view

    async def items(
        self, source: TopicPartition, expectation: Expectation, within: Range
    ) -> AsyncGenerator[Item]:
        """Those of these offsets, which are closed by whoever wants no more. Raises BrokerError,
        CorruptRecordsError.
        """
        view = self._view
        reader = LogReader(view.source, source, within, committed_only=committed_only(view.route), lane=LANE)
        try:
            async with aclosing(reader.entries()) as entries:
                async for entry in entries:
                    for item in expectation.items(entry, within):
                        yield item
        finally:
            self.bytes += reader.bytes
