"""Whether the logs of both sides still have the batches that were copied: the checksums in their headers
beside the sums that pages of the ledger have of them. Pure.

That is no comparison of records: it tells which side has changed since, where records differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.records.batch import BatchHeader
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.page_sums import PageSum
from mirrormaker.audit.ranges import Range
from mirrormaker.ledger.page import CRC_MODULUS


@dataclass(slots=True, kw_only=True)
class HeaderFindings:
    """Of one partition of a source."""

    pages: int = 0
    """Of which at least one side was checked."""
    changed_source: list[Range] = field(default_factory=list)
    """Source offsets of pages whose batches are others there now."""
    changed_destination: list[Range] = field(default_factory=list)
    """Source offsets of pages whose batches are others at the destination now."""


class HeaderCheck:
    """Of one pass, or a part of it."""

    def __init__(
        self,
        known: Pass,
        source: Range,
        to: Range,
        *,
        here: bool,
        there: bool,
        is_overwritten: Callable[[Range], bool] = lambda _: False,
    ) -> None:
        """`source`, `to`: what is read of it. `here`, `there`: whether the log at the source, and that at the
        destination, has its batches as they were written, and not compacted. `is_overwritten`: whether others
        stand at any of these places since.
        """
        self._known = known
        self._pages = [page for page in known.sums if page.source.within(source) == page.source]
        self._firsts = [page.source.first for page in self._pages]
        self._to = to
        self._here, self._there = here, there
        self._is_overwritten = is_overwritten
        self._source = [0] * len(self._pages)
        self._destination = [0] * len(self._pages)

    def take_source(self, header: BatchHeader | None) -> None:
        """A batch of the source."""
        if header is None:
            return
        for offset in (header.base_offset, header.next_offset - 1):
            if self._known.has_copy_of(offset):
                self._add(self._source, offset, header.crc)
                return

    def take_destination(self, header: BatchHeader | None) -> None:
        """A batch of the destination."""
        if header is None:
            self._there = False  # written in the format of before there were batches
            return
        for to in (header.base_offset, header.next_offset - 1):
            offset = self._known.source_of(to)
            if offset is not None:
                self._add(self._destination, offset, header.crc)
                return

    def _add(self, sums: list[int], offset: int, crc: int) -> None:
        index = bisect_right(self._firsts, offset) - 1
        if index >= 0:
            sums[index] = (sums[index] + crc) % CRC_MODULUS

    def end(self, findings: HeaderFindings) -> None:
        """All has been read."""
        for page, source, to in zip(self._pages, self._source, self._destination, strict=True):
            judges_source = self._here and page.source_crc is not None
            judges_there = self._there and page.crc is not None and self._is_read(page)
            findings.pages += judges_source or judges_there
            if judges_source and source != page.source_crc:
                findings.changed_source.append(page.source)
            if judges_there and to != page.crc:
                findings.changed_destination.append(page.source)

    def _is_read(self, page: PageSum) -> bool:
        if page.to is None or page.to.within(self._to) != page.to:
            return False
        return not self._is_overwritten(page.to)


def told_ranges(ranges: Sequence[Range], shown: int = 3) -> str:
    """For people."""
    more = "" if len(ranges) <= shown else ", and more"
    return ", ".join(map(str, ranges[:shown])) + more
