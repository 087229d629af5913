"""Records and their checksums by window of time, as they are read on both sides of a route. Pure.

A record is of the window of its own time, wherever it stands. Its checksum is one of key, value, headers and
time, and those of a window are added up: so they are the same however records are put into batches, and along
a chain of routes that change none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.errors import ConfigurationError
from broker.records.reader import Columns
from broker.records.record import Header, name_bytes
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.windows import WINDOWS_MAX, TimeWindow
from mirrormaker.ledger.page import CRC_MODULUS

_NOTHING = -1
"""Length of what is null."""
_FIELDS = Struct(">qiii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCount:
    """One window of a partition of the source."""

    window: TimeWindow
    records: int
    """That the route should have made of the source."""
    checksum: int
    to_records: int
    """At the destination."""
    to_checksum: int


class _Sums(NamedTuple):
    records: int = 0
    checksum: int = 0

    def more(self, checksum: int) -> _Sums:
        return _Sums(self.records + 1, (self.checksum + checksum) % CRC_MODULUS)


class WindowTally:
    """Of one partition of the source."""

    def __init__(self, window: TimeWindow, span_ms: int | None) -> None:
        """`span_ms`: None counts all as one, which is `window`."""
        self._window = window
        self._span_ms = span_ms
        self._source: dict[int | None, _Sums] = {}
        self._destination: dict[int | None, _Sums] = {}

    def add(self, item: Item, *, source: bool = False, destination: bool = False) -> None:
        """A record that stands there. Raises ConfigurationError where there are too many windows."""
        start = None if self._span_ms is None else item.timestamp - item.timestamp % self._span_ms
        for is_meant, sums in ((source, self._source), (destination, self._destination)):
            if is_meant:
                sums[start] = sums.get(start, _Sums()).more(item.checksum)
        if len(self._source) + len(self._destination) > 2 * WINDOWS_MAX:
            raise ConfigurationError([f"more than {WINDOWS_MAX} windows: take longer ones"])

    def counts(self) -> tuple[ReadCount, ...]:
        """In the order of time."""
        starts = self._source.keys() | self._destination.keys()
        return tuple(self._count(start) for start in sorted(starts, key=lambda each: each or 0))

    def _count(self, start: int | None) -> ReadCount:
        source, there = self._source.get(start, _Sums()), self._destination.get(start, _Sums())
        window = self._window
        if start is not None and self._span_ms is not None:
            window = TimeWindow(from_ms=start, to_ms=start + self._span_ms)
        return ReadCount(
            window=window,
            records=source.records,
            checksum=source.checksum,
            to_records=there.records,
            to_checksum=there.checksum,
        )


def checksums_of(columns: Columns, *, with_time: bool) -> Iterable[int]:
    """Of each record."""
    times = columns.timestamps if with_time else [0] * len(columns.timestamps)
    return map(_checksum, columns.keys, columns.values, columns.headers, times)


def _checksum(key: bytes | None, value: bytes | None, headers: Iterable[Header], timestamp: int) -> int:
    pairs = list(headers)
    crc = crc32c(_FIELDS.pack(timestamp, _length(key), _length(value), len(pairs)))
    crc = crc32c(value or b"", crc32c(key or b"", crc))
    for name, content in pairs:
        told = name_bytes(name)
        crc = crc32c(
            content or b"", crc32c(told, crc32c(_FIELDS.pack(0, len(told), _length(content), 0), crc))
        )
    return int(crc)


def _length(content: bytes | None) -> int:
    return _NOTHING if content is None else len(content)
