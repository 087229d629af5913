"""Reads at every offset and size, and lookups by time, against models."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.records.batch import Codec, iterate_batches, rebase
from broker.records.control import MarkerType
from broker.storage.disk import SystemDisk
from broker.storage.file_range import EMPTY
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.segment import POSITIONS_MAX
from tests.storage.compaction_samples import COMPACTED, compact, end_transaction, put
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, DiskAt, append, build, contents, numbered


def sparse(interval: int) -> LogConfig:
    return LogConfig(segment_bytes=900, index_interval_bytes=interval)


def filled(place: DiskAt, sizes: list[int], config: LogConfig) -> Log:
    log = place.log(config)
    for count in sizes:
        append(log, *numbered(count))
    return log


def batches_of(log: Log) -> list[tuple[int, int, int]]:
    """First offset, next offset and size of every batch."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 30, up_to=log.log_end_offset)
        found += [(h.base_offset, h.next_offset, h.size) for _, h in iterate_batches(part.read())]
        offset = part.next_offset
    return found


def expected_batches(
    batches: list[tuple[int, int, int]], bases: list[int], offset: int, max_bytes: int, up_to: int
) -> list[int]:
    """First offsets of the batches that a read must give."""
    base = max(base for base in bases if base <= offset)
    after = min((other for other in bases if other > base), default=1 << 62)
    given_out: list[int] = []
    size = 0
    for first, following, batch_size in batches:
        if following <= offset or first >= after:
            continue
        if following > up_to or (given_out and size + batch_size > max_bytes):
            break
        given_out.append(first)
        size += batch_size
    return given_out


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=25),
    st.sampled_from([0, 150, 4096]),
    st.integers(0, 1000),
    st.data(),
)
def test_every_read_agrees_with_a_model(
    sizes: list[int], interval: int, max_bytes: int, data: st.DataObject
) -> None:
    place = memory_place()
    log = filled(place, sizes, sparse(interval))
    if data.draw(st.booleans()):
        log.close()
        log = place.log(sparse(interval), clean=True)
    batches = batches_of(log)
    bases = [int(name[:20]) for name in place.files() if name.endswith(".log")]
    boundaries = [0, *(following for _, following, _ in batches)]
    up_to = data.draw(st.sampled_from(boundaries))
    for offset in range(up_to):
        part = log.read(offset, max_bytes=max_bytes, up_to=up_to)
        found = [header.base_offset for _, header in iterate_batches(part.read())]
        assert found == expected_batches(batches, bases, offset, max_bytes, up_to)
        assert part.next_offset == max(following for first, following, _ in batches if first in found)
        assert len(part) == part.size == sum(size for first, _, size in batches if first in found)


def test_the_end_of_the_log_is_empty(place: DiskAt) -> None:
    log = filled(place, [3, 3], sparse(0))
    assert log.read(6, max_bytes=100, up_to=6) is EMPTY
    assert log.read(3, max_bytes=100, up_to=3) is EMPTY
    assert log.read(4, max_bytes=100, up_to=5) is EMPTY
    assert len(EMPTY) == 0
    assert EMPTY.read() == b""


@pytest.mark.parametrize("offset", [-1, 2, 7, 1 << 40])
def test_offsets_outside_the_log_are_out_of_range(place: DiskAt, offset: int) -> None:
    log = filled(place, [3, 3], sparse(0))
    log.advance_start(3)
    with pytest.raises(ProtocolError) as caught:
        log.read(offset, max_bytes=100, up_to=6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_larger_than_the_limit_comes_only_when_asked_for(place: DiskAt) -> None:
    log = filled(place, [3, 3], sparse(0))
    assert log.read(0, max_bytes=1, up_to=6).next_offset == 3
    assert log.read(0, max_bytes=1, up_to=6, min_one_batch=False) is EMPTY


def test_a_range_is_sent_though_its_segment_is_removed(tmp_path: Path) -> None:
    place = DiskAt(SystemDisk(), tmp_path)
    log = filled(place, [5] * 20, LogConfig(segment_bytes=500, retention_bytes=0))
    before = log.read(0, max_bytes=1 << 20, up_to=10)
    expected = before.read()
    before.pin()
    assert log.delete_old_segments(0)
    log.files.remove_deleted()
    assert before.file.pread(before.size, before.position) == expected
    assert before.file.fileno() > 0
    before.release()
    before.release()
    with pytest.raises(StorageError, match="without being pinned"):
        _ = before.file


def test_remembered_positions_are_bounded(place: DiskAt) -> None:
    log = filled(place, [1] * 200, LogConfig())
    for offset in range(200):
        log.read(offset, max_bytes=100, up_to=200)
    segment = log.segments[0]
    assert len(segment._positions) <= POSITIONS_MAX


def test_gaps_that_compaction_leaves_are_read_over(place: DiskAt) -> None:
    log = place.log(sparse(0))
    for offset in (0, 10, 20, 40):
        records = build([b"%d" % offset])
        rebase(records, 0, offset, 0)
        log.append_as_follower(records)
        log.roll()
    for offset in range(41):
        part = log.read(offset, max_bytes=100, up_to=41)
        found = [header.base_offset for _, header in iterate_batches(part.read())]
        assert found == [next(kept for kept in (0, 10, 20, 40) if kept >= offset)]
    assert contents(log) == [(0, b"0"), (10, b"10"), (20, b"20"), (40, b"40")]


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "too long", "garbage"])
@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_a_damaged_index_is_rebuilt(place: DiskAt, damage: str, kind: str) -> None:
    log = filled(place, [2] * 30, sparse(0))
    expected = contents(log)
    log.close()
    for name, data in place.files().items():
        if not name.endswith("." + kind) or not data:
            continue
        if damage == "missing":
            place.disk.remove(place.path / "flights-0" / name)
        else:
            replaced = {
                "empty": b"",
                "torn": data[:-3],
                "too long": data + (0x7FFFFFF0).to_bytes(4, "big") * (len(data) // 4),
                "garbage": bytes((byte + 0x11) % 128 for byte in data),
            }
            place.overwrite(name, replaced[damage])
    log = place.log(sparse(0), clean=True)
    for offset, value in reversed(expected):
        part = log.read(offset, max_bytes=1, up_to=log.log_end_offset)
        assert value in part.read()
    assert contents(log) == expected


timed_batches = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=20)


@settings(max_examples=80, deadline=None)
@given(timed_batches, st.sampled_from([0, 150, 4096]), st.integers(0, 80), st.booleans(), st.data())
def test_offsets_by_time_agree_with_a_model(
    history: list[list[int]], interval: int, start: int, reopened: bool, data: st.DataObject
) -> None:
    place = memory_place()
    log = place.log(sparse(interval))
    times: list[int] = []
    for timestamps in history:
        codec = data.draw(st.sampled_from([Codec.NONE, Codec.ZSTD]))
        append(log, *numbered(len(timestamps)), timestamps=timestamps, codec=codec)
        times += timestamps
    if reopened:
        log.close()
        log = place.log(sparse(interval), clean=True)
    log.advance_start(min(start, log.log_end_offset))
    records = list(enumerate(times))[log.log_start_offset :]
    for target in range(42):
        expected = next(((offset, time) for offset, time in records if time >= target), None)
        assert log.offset_for_timestamp(target) == expected
    if not log.log_start_offset:
        largest = max(times)
        assert log.offset_of_largest_timestamp() == (times.index(largest), largest)


def test_an_empty_log_knows_no_times(place: DiskAt) -> None:
    log = place.log()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_largest_timestamp() is None


def test_a_marker_has_a_time_like_any_record(place: DiskAt) -> None:
    log = place.log()
    append(log, b"data", producer=(1, 0, 0), transactional=True)
    ended = end_transaction(log, 1, MarkerType.COMMIT, now_ms=NOW_MS + 5)
    assert log.offset_for_timestamp(NOW_MS + 1) == (ended, NOW_MS + 5)
    assert log.offset_of_largest_timestamp() == (ended, NOW_MS + 5)


def test_a_batch_that_compaction_emptied_is_nobodys_time(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"k", b"young"), producer=(7, 0, 0), timestamp=NOW_MS + 9)
    for _ in range(8):
        put(log, (b"k", b"newer" * 10))
    compact(log)
    assert log.segments[0].largest_timestamp() == NOW_MS + 9
    assert log.offset_of_largest_timestamp() is None
    assert log.offset_for_timestamp(NOW_MS) is not None
