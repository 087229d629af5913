"""Batches that the cleaner does not open for what they would unpack to: they stay, and the pass goes on."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from broker.errors import ExpansionError
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.storage.compaction.unpacking import RECORDS_MAX, unpacked_max
from broker.storage.log import Log
from tests.storage.compaction_samples import BOUNDS, COMPACTED, compact, headers, put, seen
from tests.storage.samples import NOW_MS, DiskAt

UNPACKED_MAX = 10_000
BOUNDED = replace(BOUNDS, unpacked_max=UNPACKED_MAX)
BOMB_SIZE = 8 << 20
LARGE_SEGMENTS = replace(COMPACTED, segment_bytes=1 << 20)


def put_bomb(log: Log, codec: Codec, key: bytes = b"key") -> int:
    """Append a small batch of one large record; its offset."""
    builder = BatchBuilder(codec, size_max=2 * BOMB_SIZE)
    assert builder.append(NOW_MS, key, bytes(BOMB_SIZE))
    return log.append(builder.build(), 0, now_ms=NOW_MS).first_offset


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_unpacks_to_too_much_stays_and_the_rest_is_compacted(
    place: DiskAt, codec: Codec
) -> None:
    log = place.log(LARGE_SEGMENTS)
    put(log, (b"key", b"first"), (b"other", b"first"))
    bomb = put_bomb(log, codec)
    put(log, (b"key", b"last"), (b"other", b"last"))
    log.roll()
    before = {header.base_offset: header for header in headers(log)}[bomb]
    tracemalloc.start()
    try:
        report = compact(log, bounds=BOUNDED)
        assert tracemalloc.get_traced_memory()[1] < BOMB_SIZE
    finally:
        tracemalloc.stop()
    assert (report.unopened, report.first_unopened_offset) == (1, bomb)
    assert log.compacted_end == log.segments[-1].base_offset
    assert before in headers(log)
    assert [(r.key, len(r.value or b"")) for r in seen(log)] == [
        (b"key", BOMB_SIZE),
        (b"key", 4),
        (b"other", 4),
    ]


def test_tombstones_behind_an_unopened_batch_stay_so_that_nothing_of_it_comes_back(place: DiskAt) -> None:
    log = place.log(LARGE_SEGMENTS)
    put(log, (b"before", b"value"))
    put(log, (b"before", None))
    put_bomb(log, Codec.GZIP, b"gone")
    put(log, (b"gone", None))
    for later_ms in (0, 1_000, 2_000):
        put(log, (b"other", b"%d" % later_ms))
        log.roll()
        compact(log, now_ms=NOW_MS + later_ms, bounds=BOUNDED)
    assert [(r.key, r.value is None) for r in seen(log)] == [
        (b"gone", False),
        (b"gone", True),
        (b"other", False),
    ]


def test_a_batch_that_is_stored_uncompressed_is_looked_into_whatever_its_size(place: DiskAt) -> None:
    log = place.log(LARGE_SEGMENTS)
    put(log, (b"key", bytes(2 * UNPACKED_MAX)))
    put(log, (b"key", b"last"))
    log.roll()
    assert compact(log, bounds=BOUNDED).unopened == 0
    assert [r.value for r in seen(log)] == [b"last"]


def test_a_batch_of_very_many_records_is_not_opened(place: DiskAt) -> None:
    log = place.log(LARGE_SEGMENTS)
    put(log, (b"key", b"value"))
    (header,) = headers(log)
    assert unpacked_max(header, UNPACKED_MAX) == UNPACKED_MAX
    assert unpacked_max(header._replace(magic=1), UNPACKED_MAX) < UNPACKED_MAX
    with pytest.raises(ExpansionError, match="1048577 records"):
        unpacked_max(header._replace(record_count=RECORDS_MAX + 1), UNPACKED_MAX)
