"""Retention, the log's start, and truncation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import MAGIC_POSITION
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, SMALL, DiskAt, append, build, contents, numbered


def filled(place: DiskAt, config: LogConfig, count: int = 40) -> Log:
    log = place.log(config)
    for index, value in enumerate(numbered(count)):
        append(log, value, timestamps=[NOW_MS + index], producer=(9, 0, index))
    return log


def test_old_segments_go_and_the_log_starts_later(place: DiskAt) -> None:
    log = filled(place, LogConfig(segment_bytes=1000, retention_bytes=1500))
    before = log.size
    deleted = log.delete_old_segments(NOW_MS)
    assert deleted[0].base_offset == 0
    assert log.log_start_offset == deleted[-1].next_offset
    assert log.size == before - sum(segment.size for segment in deleted)
    assert log.size >= 1500
    assert contents(log) == list(enumerate(numbered(40)))[log.log_start_offset :]
    with pytest.raises(ProtocolError) as caught:
        log.read(0, max_bytes=100, up_to=40)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [name for name in place.files() if name.endswith(".deleted")]
    assert log.files.remove_deleted() == 3 * len(deleted)
    assert not [name for name in place.files() if name.endswith(".deleted")]
    assert not log.delete_old_segments(NOW_MS)


def test_segments_go_by_age_and_an_old_active_one_too(place: DiskAt) -> None:
    log = filled(place, LogConfig(segment_bytes=1000, retention_ms=1000))
    assert not log.delete_old_segments(NOW_MS + 1000)
    assert log.delete_old_segments(NOW_MS + 10_000)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (40, 40, 1)
    assert contents(log) == []
    assert append(log, b"x", producer=(9, 0, 40)) == 40
    log.close()
    assert contents(place.log(SMALL, clean=True)) == [(40, b"x")]


@pytest.mark.parametrize("no_time", [-1, 0])
def test_records_without_a_time_are_as_old_as_the_last_write_to_their_file(
    place: DiskAt, no_time: int
) -> None:
    """Batches of librdkafka tell 0 as the latest time of records that have none."""
    log = place.log(LogConfig(segment_bytes=1000, retention_ms=1000, segment_ms=100_000))
    append(log, b"first", timestamps=[no_time], now_ms=NOW_MS)
    append(log, b"second", timestamps=[no_time], now_ms=NOW_MS + 5000)
    assert not log.delete_old_segments(NOW_MS + 6000)
    assert contents(log) == [(0, b"first"), (1, b"second")]
    assert log.delete_old_segments(NOW_MS + 6001)
    assert contents(log) == []


def test_nothing_above_the_high_watermark_goes(place: DiskAt) -> None:
    log = filled(place, LogConfig(segment_bytes=1000, retention_bytes=0))
    deleted = log.delete_old_segments(NOW_MS, end_offset_max=25)
    assert deleted[-1].next_offset <= 25
    assert log.log_start_offset <= 25


def test_a_log_that_is_compacted_keeps_its_segments(place: DiskAt) -> None:
    log = filled(
        place, LogConfig(segment_bytes=1000, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    )
    assert not log.delete_old_segments(NOW_MS + 10**12)


def test_the_start_moves_forward_only_and_not_beyond_the_end(place: DiskAt) -> None:
    log = filled(place, LogConfig(segment_bytes=1000, retention_ms=-1))
    log.advance_start(17)
    log.advance_start(5)
    assert log.log_start_offset == 17
    assert contents(log)[0] == (17, b"017")
    deleted = log.delete_old_segments(NOW_MS)
    assert deleted[-1].next_offset <= 17 == log.log_start_offset
    with pytest.raises(ProtocolError):
        log.advance_start(41)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=25),
    st.data(),
    st.sampled_from([0, 4096]),
)
def test_a_cut_leaves_the_batches_below_it(sizes: list[int], data: st.DataObject, interval: int) -> None:
    place = memory_place()
    config = LogConfig(segment_bytes=500, index_interval_bytes=interval)
    log = place.log(config)
    boundaries, sequence = [0], 0
    for epoch, size in enumerate(sizes):
        append(
            log,
            *numbered(size),
            epoch=epoch // 3,
            producer=(9, 0, sequence),
            timestamps=[NOW_MS + epoch] * size,
        )
        sequence += size
        boundaries.append(log.log_end_offset)
    expected, end = contents(log), log.log_end_offset
    for _ in range(2):
        target = data.draw(st.integers(0, log.log_end_offset + 2))
        end = max(boundary for boundary in boundaries if boundary <= min(target, log.log_end_offset))
        log.truncate_to(target)
        assert log.log_end_offset == end
        assert contents(log) == [record for record in expected if record[0] < end]
        entries = log.leader_epochs.entries
        assert all(entry.start_offset < end for entry in entries)
        if end:
            last_batch = boundaries.index(end) - 1
            assert log.leader_epochs.latest == last_batch // 3
            assert log.offset_for_timestamp(NOW_MS + last_batch) == (
                boundaries[last_batch],
                NOW_MS + last_batch,
            )
            repeated = build([b"x"], producer=(9, 0, end - 1))
            assert log.append(repeated, 9, now_ms=NOW_MS).duplicate
        assert log.offset_for_timestamp(NOW_MS + len(sizes)) is None
    assert append(log, b"next", epoch=50, producer=(9, 0, end)) == end
    log.abandon()
    assert contents(place.log(config)) == [
        *[record for record in expected if record[0] < end],
        (end, b"next"),
    ]


def test_a_log_can_start_over_anywhere(place: DiskAt) -> None:
    log = filled(place, SMALL)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert append(log, b"x", producer=(9, 0, 77)) == 1000
    assert contents(log) == [(1000, b"x")]
    log.truncate_fully_and_start_at(3)
    assert append(log, b"y") == 3
    log.close()
    assert contents(place.log(SMALL, clean=True)) == [(3, b"y")]


def test_a_deleted_log_leaves_nothing(place: DiskAt) -> None:
    log = filled(place, SMALL)
    log.delete()
    assert place.disk.list_directory(place.path) == []


def damage_first_batch(log: Log, segment: int) -> None:
    with log.segments[segment].log as file:
        file.pwrite(b"\x7f", MAGIC_POSITION)
    log.segments[segment]._positions.clear()


def test_a_cut_within_a_damaged_file_removes_nothing(place: DiskAt) -> None:
    log = filled(place, LogConfig(segment_bytes=1000))
    base_offset = log.segments[1].base_offset
    damage_first_batch(log, 1)
    count, size = log.segment_count, log.size
    with pytest.raises(CorruptRecordsError):
        log.truncate_to(base_offset + 1)
    assert (log.log_end_offset, log.segment_count, log.size) == (40, count, size)
    assert append(log, b"next", producer=(9, 0, 40)) == 40


def test_a_cut_behind_damage_leaves_a_log_in_use(place: DiskAt) -> None:
    log = filled(place, LogConfig(index_interval_bytes=0))
    damage_first_batch(log, 0)
    log.truncate_to(30)
    assert log.log_end_offset == 30
    assert append(log, b"next") == 30
