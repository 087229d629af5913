"""The parts of compaction that decide: the map, what is worth a pass, groups, batches with fewer records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.batch import Codec, read_header, verify_crc
from broker.records.builder import BatchBuilder
from broker.records.excerpt import emptied, excerpt, open_batch
from broker.records.legacy import from_batches
from broker.records.reader import read_all, read_records
from broker.records.record import TIMESTAMP_MAX
from broker.storage.compaction.cleanable import (
    SEGMENTS_PER_GROUP_MAX,
    DirtySegment,
    SegmentSize,
    cleanable_range,
    grouped,
)
from broker.storage.compaction.offset_map import ENTRY_BYTES, NO_OFFSET, OffsetMap
from broker.storage.log_config import LogConfig
from broker.storage.throttle import Throttle
from tests.storage.compaction_samples import COMPACTED, compact, keyed, put, seen
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, SIZE_MAX

LONG = b"a key that is longer than a digest"


# The map


def test_the_newest_offset_of_short_and_long_keys_is_known() -> None:
    newest = OffsetMap(bytes_max=1 << 20)
    newest.add([b"", b"a", LONG, b"a"], [0, 1, 2, 3])
    newest.add([LONG], [7])
    assert list(newest.newest([b"a", LONG, b"", b"?", LONG + b"?"])) == [3, 7, 0, NO_OFFSET, NO_OFFSET]


def test_a_map_is_bounded_but_for_the_first_batch() -> None:
    newest = OffsetMap(bytes_max=10 * ENTRY_BYTES, load_factor=0.5)
    assert newest.has_room(1_000)
    newest.add([b"a", b"b", b"c"], [0, 1, 2])
    assert newest.has_room(2)
    assert not newest.has_room(3)


@pytest.mark.parametrize("size", [15, 16, 100])
def test_a_key_costs_no_more_memory_than_is_said(size: int) -> None:
    count = 43_700  # the table has just grown: the worst moment
    newest = OffsetMap(bytes_max=1 << 30)
    for number in range(count):
        newest.add([b"%0*d" % (size, number)], [number + (1 << 40)])
    kept = newest._offsets
    total = sys.getsizeof(kept) + sum(sys.getsizeof(k) + sys.getsizeof(v) for k, v in kept.items())
    assert total <= count * ENTRY_BYTES


# What is worth a pass


def dirty(*sizes: int, timestamps: Sequence[int] = ()) -> list[DirtySegment]:
    """Segments of ten offsets each."""
    times = [*timestamps, *[0] * len(sizes)]
    return [
        DirtySegment(10 * at, 10 * at + 10, size, lambda at=at: times[at], lambda at=at: times[at])  # type: ignore[misc]
        for at, size in enumerate(sizes)
    ]


def test_the_ratio_is_the_dirty_part_of_what_a_pass_reads() -> None:
    found = cleanable_range(
        dirty(100, 200, 300, 400), LogConfig(), first_dirty_offset=20, end_offset_max=99, now_ms=0
    )
    assert (found.start_offset, found.end_offset) == (20, 40)
    assert (found.clean_size, found.dirty_size, found.dirty_ratio) == (300, 700, 0.7)
    assert found.is_due(LogConfig(min_cleanable_dirty_ratio=0.69))
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=0.7))


def test_nothing_above_the_stable_end_is_in_the_range() -> None:
    found = cleanable_range(dirty(1, 2, 4), LogConfig(), first_dirty_offset=0, end_offset_max=15, now_ms=0)
    assert (found.end_offset, found.dirty_size) == (15, 3)
    nothing = cleanable_range(dirty(1), LogConfig(), first_dirty_offset=0, end_offset_max=0, now_ms=0)
    assert not nothing.is_due(LogConfig(min_cleanable_dirty_ratio=0.0))
    assert not cleanable_range([], LogConfig(), first_dirty_offset=5, end_offset_max=9, now_ms=0).is_due(
        LogConfig(min_cleanable_dirty_ratio=0.0)
    )


def test_young_segments_and_what_follows_them_wait() -> None:
    config = LogConfig(min_compaction_lag_ms=100)
    segments = dirty(1, 1, 1, timestamps=[0, 950, 0])
    found = cleanable_range(segments, config, first_dirty_offset=0, end_offset_max=30, now_ms=1_000)
    assert found.end_offset == 10
    found = cleanable_range(segments, config, first_dirty_offset=0, end_offset_max=30, now_ms=1_051)
    assert found.end_offset == 30


def test_old_dirty_records_make_a_log_due_however_few_they_are() -> None:
    config = LogConfig(max_compaction_lag_ms=100)
    segments = dirty(1_000, 1, timestamps=[0, 900])
    for now_ms, is_due in ((1_000, False), (1_001, True)):
        found = cleanable_range(segments, config, first_dirty_offset=10, end_offset_max=20, now_ms=now_ms)
        assert found.is_due(config) is is_due


def test_segments_roll_in_time_to_be_compacted() -> None:
    assert COMPACTED.overridden({"max.compaction.lag.ms": "100"}).roll_ms == 100
    assert LogConfig(max_compaction_lag_ms=100).roll_ms == LogConfig().segment_ms


# Groups

sizes = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60), st.integers(1, 50)), max_size=80)


@given(sizes=sizes)
def test_groups_are_neighbours_that_fit_one_segment(sizes: list[tuple[int, int, int]]) -> None:
    segments, base = [], 0
    for size, index_size, span in sizes:
        segments.append(SegmentSize(base, base + span, size, index_size, index_size // 2))
        base += span
    config = LogConfig(segment_bytes=500, segment_index_bytes_max=100)
    groups = list(grouped(segments, config, relative_offset_max=99))
    assert [segment for group in groups for segment in segments[group]] == segments
    for group in groups:
        members = segments[group]
        assert members
        if len(members) > 1:
            assert len(members) <= SEGMENTS_PER_GROUP_MAX
            assert sum(member.size for member in members) <= 500
            assert sum(member.offset_index_size for member in members) <= 100
            assert members[-1].next_offset - members[0].base_offset <= 100


# The throttle


def test_what_was_spent_is_waited_for_by_all_threads_together() -> None:
    now = 0.0
    throttle = Throttle(1_000, monotonic=lambda: now)
    assert throttle.spend(500) == 0.5
    assert throttle.spend(500) == 1.0
    now = 0.75
    assert throttle.spend(250) == 0.5
    now = 10.0
    assert throttle.spend(0) == 0.0  # nothing is saved up


def test_who_may_spend_nothing_waits_for_ever() -> None:
    assert Throttle(0, monotonic=lambda: 0.0).spend(1) == inf


# Batches with fewer records


@given(
    kept=st.lists(st.booleans(), min_size=1, max_size=30).filter(any),
    sizes=st.lists(st.sampled_from([0, 1, 40, 60, 70, 5_000, 9_000]), min_size=30, max_size=30),
    codec=st.sampled_from(list(Codec)),
    horizon_ms=st.one_of(st.none(), st.integers(0, 1 << 60)),
)
def test_what_is_kept_of_a_batch_is_what_it_was(
    kept: list[bool], sizes: list[int], codec: Codec, horizon_ms: int | None
) -> None:
    pairs = [(b"k%d" % at, b"v" * sizes[at]) for at in range(len(kept))]
    batch = keyed(pairs, codec=codec, producer=(5, 1, 7))
    header = read_header(batch)
    left = excerpt(open_batch(batch, header, size_max=SIZE_MAX), kept, delete_horizon_ms=horizon_ms)
    found = read_header(left)
    verify_crc(left, 0, found)
    records = read_records(batch, header, size_max=SIZE_MAX)
    assert read_records(left, found, size_max=SIZE_MAX) == list(compress(records, kept))
    assert (found.base_offset, found.last_offset, found.last_sequence) == (
        header.base_offset,
        header.last_offset,
        header.last_sequence,
    )
    assert found.codec is codec
    assert found.max_timestamp == max(record.timestamp for record in compress(records, kept))
    assert found.has_delete_horizon is (horizon_ms is not None)
    assert found.base_timestamp == (header.base_timestamp if horizon_ms is None else horizon_ms)


def test_a_horizon_far_from_the_times_of_records_leaves_them_as_they_are() -> None:
    times = [-1, TIMESTAMP_MAX, 5]
    builder = BatchBuilder(size_max=SIZE_MAX)
    for timestamp in times:
        builder.append(timestamp, b"key", None)
    batch = builder.build()
    opened = open_batch(batch, read_header(batch), size_max=SIZE_MAX)
    for horizon_ms in (0, 1_700_000_000_000):
        left = excerpt(opened, [True] * 3, delete_horizon_ms=horizon_ms)
        assert [each.timestamp for each in read_records(left, read_header(left), size_max=SIZE_MAX)] == times


def test_an_emptied_batch_keeps_its_place_and_its_producer() -> None:
    batch = keyed([(b"a", b"1"), (b"b", b"2")], codec=Codec.ZSTD, producer=(5, 1, 7))
    left = emptied(read_header(batch))
    header = read_header(left)
    verify_crc(left, 0, header)
    assert read_records(left, header, size_max=0) == []
    assert (header.record_count, header.last_offset, header.last_sequence) == (0, 1, 8)
    assert (header.producer_id, header.producer_epoch) == (5, 1)


# Messages of the older formats


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_compacted_in_their_own_format(magic: int, codec: Codec) -> None:
    source = memory_place().log(LogConfig())
    for number in range(6):
        put(
            source,
            (b"k%d" % (number % 2), b"%d" % number),
            (b"own%d" % number, b"x"),
            (b"t", None),
            codec=codec,
        )
    data = from_batches(source.read(0, max_bytes=1 << 20, up_to=18).read(), magic, size_max=SIZE_MAX)
    place = memory_place()
    place.disk.make_directory(place.path / str(PARTITION))
    place.overwrite(f"{0:020d}.log", data)
    log = place.log(COMPACTED)
    log.roll()
    before = seen(log)
    compact(log)
    left = seen(log)
    assert left == sorted({record.key: record for record in before}.values())
    assert {entry[16] for entry in entries(log.read(0, max_bytes=1 << 20, up_to=18).read())} == {magic}
    log.abandon()
    assert seen(place.log(COMPACTED, compacted_end=0)) == left


def entries(data: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        found.append(data[position : position + size])
        position += size
    return found


def test_old_tombstones_go_once_their_segment_is_old() -> None:
    source = memory_place().log(LogConfig())
    put(source, (b"a", b"1"), (b"a", None))
    data = from_batches(source.read(0, max_bytes=1 << 20, up_to=2).read(), 1, size_max=SIZE_MAX)
    place = memory_place()
    place.disk.make_directory(place.path / str(PARTITION))
    place.overwrite(f"{0:020d}.log", data)
    log = place.log(replace(COMPACTED, segment_bytes=100))  # no two go together
    log.roll()
    compact(log)
    assert [record.value for record in seen(log)] == [None]
    put(log, (b"b", b"2"))
    log.roll()
    log.segments[0].modified_ms = NOW_MS - 5_000
    log.segments[1].modified_ms = NOW_MS
    compact(log)
    assert [record.key for record in seen(log)] == [b"a", b"b"]
    put(log, (b"c", b"3"))
    log.roll()
    compact(log)
    assert [record.key for record in seen(log)] == [b"b", b"c"]


def test_reading_goes_on_from_any_offset_of_a_compacted_log() -> None:
    log = memory_place().log(COMPACTED)
    for number in range(50):
        put(log, (b"k%d" % (number % 3), b"%d" % number), (b"own%d" % number, b"x"))
    compact(log)
    whole = seen(log)
    for start in range(log.log_end_offset):
        assert seen(log, start, max_bytes=100) == [record for record in whole if record.offset >= start]
    assert all(before < after for before, after in pairwise(whole))
    for record in whole:
        found = log.offset_for_timestamp(record.timestamp)
        assert found is not None
        assert found.timestamp >= record.timestamp
    assert list(read_all(log.read(0, max_bytes=1 << 20, up_to=1 << 20).read(), size_max=SIZE_MAX))
