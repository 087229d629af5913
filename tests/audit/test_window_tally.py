"""Records and checksums by window, as they are read."""

from __future__ import annotations

import pytest

from broker.errors import ConfigurationError
from broker.records.reader import Columns
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.window_tally import WindowTally, checksums_of
from mirrormaker.audit.windows import WINDOWS_MAX, TimeWindow


def item(at_ms: int, checksum: int) -> Item:
    return Item(0, 0, 0, at_ms, checksum=checksum)


def test_a_record_counts_in_the_window_of_its_time_on_the_sides_where_it_is() -> None:
    tally = WindowTally(TimeWindow(), 100)
    tally.add(item(250, 5), source=True, destination=True)
    tally.add(item(199, 7), source=True)
    tally.add(item(200, 9), destination=True)
    told = [
        (each.window.from_ms, each.records, each.checksum, each.to_records, each.to_checksum)
        for each in tally.counts()
    ]
    assert told == [(100, 1, 7, 0, 0), (200, 1, 5, 2, 14)]


def test_without_a_span_all_is_one_window() -> None:
    window = TimeWindow(from_ms=7)
    tally = WindowTally(window, None)
    tally.add(item(250, 5), source=True)
    (count,) = tally.counts()
    assert (count.window, count.records) == (window, 1)


def test_there_are_not_endlessly_many_windows() -> None:
    tally = WindowTally(TimeWindow(), 1)
    for at in range(WINDOWS_MAX):
        tally.add(item(at, 1), source=True, destination=True)
    with pytest.raises(ConfigurationError, match="take longer ones"):
        tally.add(item(WINDOWS_MAX, 1), source=True)


def test_a_checksum_is_of_everything_that_a_record_says() -> None:
    records = [
        (b"k", b"v", (), 1),
        (b"", b"v", (), 1),
        (None, b"v", (), 1),
        (b"k", None, (), 1),
        (b"kv", b"", (), 1),
        (b"k", b"v", (), 2),
        (b"k", b"v", (("a", b"b"),), 1),
        (b"k", b"v", (("a", None),), 1),
        (b"k", b"v", (("ab", b""),), 1),
    ]
    keys, values, headers, times = map(list, zip(*records, strict=True))
    columns = Columns(keys, values, list(range(len(records))), times, headers)
    sums = list(checksums_of(columns, with_time=True))
    assert len(set(sums)) == len(records)
    timeless = list(checksums_of(columns, with_time=False))
    assert timeless[0] == timeless[5]
