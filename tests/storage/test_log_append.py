"""Appends: what is stored, what is refused, and that a failure leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError, StorageError
from broker.records.batch import CONTROL_FLAG, Codec, iterate_batches, read_header, rebase, write_header
from broker.records.control import Marker, MarkerType, build_marker
from broker.storage.appends import APART
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_opening import open_log
from broker.storage.memory_disk import MemoryDisk
from broker.types import TopicPartition
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, SMALL, DiskAt, ManualClock, append, build, contents, numbered


def refusal(log: Log, records: bytearray) -> ErrorCode:
    before = (log.log_end_offset, log.size)
    with pytest.raises(ProtocolError) as caught:
        log.append(records, 0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size) == before
    return caught.value.code


def test_offsets_and_epoch_are_filled_in_and_nothing_else(place: DiskAt) -> None:
    log = place.log()
    sent = build([b"a", b"b"], codec=Codec.ZSTD)
    as_sent = bytes(sent)
    append(log, b"first")
    appended = log.append(memoryview(sent), 7, now_ms=NOW_MS)
    assert appended == (1, 2, -1, 0, False)
    stored = log.read(1, max_bytes=1 << 20, up_to=3).read()
    header = read_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 7)
    assert stored[16:] == as_sent[16:]
    assert contents(log) == [(0, b"first"), (1, b"a"), (2, b"b")]


def test_several_batches_are_one_append(place: DiskAt) -> None:
    log = place.log()
    append(log, b"0")
    appended = log.append(build([b"1", b"2"]) + build([b"3"]) + build([b"4", b"5"]), 0, now_ms=NOW_MS)
    assert (appended.first_offset, appended.last_offset) == (1, 5)
    assert contents(log) == list(enumerate([b"0", b"1", b"2", b"3", b"4", b"5"]))


@pytest.mark.parametrize("position", [21, 40, 61, -1])
def test_a_damaged_batch_is_refused(place: DiskAt, position: int) -> None:
    log = place.log()
    damaged = build([b"value"])
    damaged[position] ^= 1
    assert refusal(log, damaged) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, build([b"whole"]) + damaged) is ErrorCode.CORRUPT_MESSAGE


def test_torn_records_are_refused(place: DiskAt) -> None:
    log = place.log()
    records = build([b"one"]) + build([b"two"])
    for size in range(len(records)):
        if size != len(records) // 2:
            assert refusal(log, records[:size]) is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_over_the_limit_is_refused(place: DiskAt) -> None:
    log = place.log(LogConfig(max_message_bytes=100))
    assert refusal(log, build([b"x" * 100])) is ErrorCode.MESSAGE_TOO_LARGE
    append(log, b"x")


def test_records_larger_than_a_segment_are_refused(place: DiskAt) -> None:
    log = place.log(LogConfig(segment_bytes=200))
    assert refusal(log, build([b"x" * 60]) + build([b"x" * 60])) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_count_that_does_not_fit_the_offsets_is_refused(place: DiskAt) -> None:
    log = place.log()
    records = build([b"a", b"b"])
    write_header(records, 0, read_header(records)._replace(last_offset_delta=5))
    assert refusal(log, records) is ErrorCode.INVALID_RECORD


def test_a_control_batch_of_a_producer_is_refused(place: DiskAt) -> None:
    log = place.log()
    records = build([b"a"])
    write_header(records, 0, read_header(records)._replace(attributes=CONTROL_FLAG))
    assert refusal(log, records) is ErrorCode.INVALID_RECORD


def test_a_producer_without_sequence_is_refused(place: DiskAt) -> None:
    assert refusal(place.log(), build([b"a"], producer=(1, 0, -1))) is ErrorCode.INVALID_RECORD


def test_append_time_is_stamped_in_place(place: DiskAt) -> None:
    log = place.log(LogConfig(message_timestamp_type="LogAppendTime"))
    appended = log.append(build([b"a"], timestamps=[5]), 0, now_ms=1234)
    assert appended.log_append_time_ms == 1234
    several = log.append(build([b"b"]) + build([b"c"]), 0, now_ms=1235)
    assert several.log_append_time_ms == 1235
    stored = log.read(0, max_bytes=1 << 20, up_to=3).read()
    headers = [header for _, header in iterate_batches(stored)]
    assert [header.max_timestamp for header in headers] == [1234, 1235, 1235]
    assert all(header.is_log_append_time for header in headers)
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c")]  # checksums hold


def test_a_repeated_append_is_answered_with_its_first_offset(place: DiskAt) -> None:
    log = place.log()
    append(log, b"other")
    for number in range(5):
        append(log, b"a", b"b", producer=(9, 0, number * 2))
    for number in range(5):
        appended = log.append(build([b"a", b"b"], producer=(9, 0, number * 2)), 0, now_ms=NOW_MS)
        assert appended == (1 + number * 2, 2 + number * 2, -1, 0, True)
    assert log.log_end_offset == 11
    assert refusal(log, build([b"x"], producer=(9, 0, 11))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, build([b"x"], producer=(9, -1, 10))) is ErrorCode.INVALID_RECORD


def test_a_repeated_append_of_several_batches_counts_as_one(place: DiskAt) -> None:
    log = place.log(LogConfig())

    def request(number: int) -> bytearray:
        parts = [build([b"%d" % number], producer=(9, 0, number * 8 + part)) for part in range(8)]
        return bytearray(b"".join(parts))

    for number in range(5):
        log.append(request(number), 0, now_ms=NOW_MS)
    for number in range(5):
        appended = log.append(request(number), 0, now_ms=NOW_MS)
        assert appended == (number * 8, number * 8 + 7, -1, 0, True)
    assert log.log_end_offset == 40


def test_what_a_crash_kept_of_a_repeated_append_is_not_stored_twice(place: DiskAt) -> None:
    log = place.log()
    append(log, b"a", producer=(9, 0, 0))
    repeated = build([b"a"], producer=(9, 0, 0)) + build([b"b"], producer=(9, 0, 1))
    appended = log.append(repeated, 0, now_ms=NOW_MS)
    assert (appended.first_offset, appended.last_offset, appended.duplicate) == (0, 1, False)
    assert contents(log) == [(0, b"a"), (1, b"b")]


def test_a_repeated_append_says_no_place_where_others_wrote_between_its_batches(place: DiskAt) -> None:
    old_leader, log = place.log(), DiskAt(place.disk, place.path / "new").log()

    def request() -> bytearray:
        return build([b"a"], producer=(9, 0, 0)) + build([b"b", b"c"], producer=(9, 0, 1))

    old_leader.append(request(), 0, now_ms=NOW_MS)
    log.append_as_follower(old_leader.read(0, max_bytes=1, up_to=1).read())
    append(log, b"other", producer=(10, 0, 0))
    assert log.append(request(), 1, now_ms=NOW_MS) == (APART, 3, -1, 0, False)
    assert log.append(request(), 1, now_ms=NOW_MS) == (APART, 3, -1, 0, True)
    assert contents(log) == list(enumerate([b"a", b"other", b"b", b"c"]))
    backwards = build([b"b", b"c"], producer=(9, 0, 1)) + build([b"other"], producer=(10, 0, 0))
    assert log.append(backwards, 1, now_ms=NOW_MS) == (APART, 3, -1, 0, True)


def test_the_last_five_requests_are_known_again_also_where_one_lies_in_two_parts(place: DiskAt) -> None:
    log = place.log(LogConfig())

    def request(number: int) -> bytearray:
        parts = [build([b"%d" % part], producer=(9, 0, number * 3 + part)) for part in range(3)]
        return bytearray(b"".join(parts))

    append(log, b"0", producer=(9, 0, 0))  # all that a leader before had given on
    for number in range(5):
        append(log, b"other")
        log.append(request(number), 0, now_ms=NOW_MS)
    end = log.log_end_offset
    for number in range(5):
        assert log.append(request(number), 0, now_ms=NOW_MS).duplicate
    assert log.log_end_offset == end


def test_a_refused_batch_among_several_leaves_nothing(place: DiskAt) -> None:
    log = place.log()
    append(log, b"a", producer=(9, 0, 0))
    records = build([b"b"], producer=(9, 0, 1)) + build([b"d"], producer=(9, 0, 3))
    assert refusal(log, records) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, b"b", producer=(9, 0, 1))


def test_a_write_that_fails_leaves_nothing() -> None:
    place = memory_place()
    disk = cast(MemoryDisk, place.disk)
    log = place.log(LogConfig())
    append(log, b"kept", producer=(9, 0, 0))
    size = log.size
    for space in range(0, 70, 7):
        disk.space_left = space
        with pytest.raises(StorageError, match="No space"):
            append(log, b"lost", producer=(9, 0, 1))
        assert place.files()["00000000000000000000.log"][size:] == b""
    disk.space_left = None
    assert append(log, b"stored", producer=(9, 0, 1)) == 1
    assert contents(log) == [(0, b"kept"), (1, b"stored")]


def test_a_follower_keeps_offsets_and_epochs(place: DiskAt) -> None:
    leader, follower_place = place.log(), DiskAt(place.disk, place.path / "follower")
    follower = follower_place.log()
    for index, value in enumerate(numbered(40)):
        append(leader, value, epoch=index // 10, producer=(9, 0, index))
    while follower.log_end_offset < leader.log_end_offset:
        part = leader.read(follower.log_end_offset, max_bytes=300, up_to=leader.log_end_offset)
        torn = part.read() + bytes(30)
        follower.append_as_follower(torn[: len(part) + 30 if len(part) > 150 else len(part)])
    assert contents(follower) == contents(leader)
    assert (
        follower.leader_epochs.entries == leader.leader_epochs.entries == ((0, 0), (1, 10), (2, 20), (3, 30))
    )
    assert follower.append(build([b"x"], producer=(9, 0, 39)), 3, now_ms=NOW_MS).duplicate


def test_a_follower_refuses_offsets_that_do_not_ascend(place: DiskAt) -> None:
    log = place.log()
    append(log, b"a", b"b")
    records = build([b"c"])
    rebase(records, 0, 1, 0)
    with pytest.raises(CorruptRecordsError, match="offset 1 after 1"):
        log.append_as_follower(records)
    assert log.append_as_follower(b"").last_offset == 1


def test_a_follower_takes_more_than_a_segment_at_once(place: DiskAt) -> None:
    leader, follower = place.log(LogConfig()), DiskAt(place.disk, place.path / "follower").log()
    for value in numbered(100):
        append(leader, value)
    follower.append_as_follower(leader.read(0, max_bytes=1 << 20, up_to=100).read())
    assert follower.segment_count > 5
    assert contents(follower) == contents(leader)


def test_a_follower_takes_offsets_far_beyond_its_end(place: DiskAt) -> None:
    log = place.log()
    records = build([b"far"])
    rebase(records, 0, 1 << 40, 0)
    log.append_as_follower(records)
    log.append_as_follower(_rebased(build([b"farther"]), (1 << 40) + 5))
    assert contents(log) == [(1 << 40, b"far"), ((1 << 40) + 5, b"farther")]


def test_a_marker_ends_a_transaction_on_a_follower(place: DiskAt) -> None:
    log = place.log()
    append(log, b"a", producer=(9, 0, 0), transactional=True)
    entry = log.producers.get(9)
    assert entry is not None
    assert entry.transaction_first_offset == 0
    marker = Marker(type=MarkerType.COMMIT, coordinator_epoch=3)
    batch = build_marker(marker, producer_id=9, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append_as_follower(_rebased(batch, 1))
    assert entry.transaction_first_offset == -1


def test_segments_roll_by_size(place: DiskAt) -> None:
    log = place.log()
    for value in numbered(50):
        append(log, value)
    assert log.segment_count > 3
    sizes = [len(data) for name, data in sorted(place.files().items()) if name.endswith(".log")]
    assert all(0 < size <= SMALL.segment_bytes for size in sizes)
    assert contents(log) == list(enumerate(numbered(50)))


def test_segments_roll_by_the_age_of_their_records(place: DiskAt) -> None:
    log = place.log(LogConfig(segment_ms=1000))
    for timestamp in (0, 500, 1000, 1001, 2001, 2002):
        append(log, b"x", timestamps=[timestamp])
    assert [name for name in sorted(place.files()) if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000003.log",
        "00000000000000000005.log",
    ]


def test_segments_roll_by_full_indexes(place: DiskAt) -> None:
    log = place.log(LogConfig(index_interval_bytes=0, segment_index_bytes_max=120))
    for index, value in enumerate(numbered(40)):
        append(log, value, timestamps=[index])
    log.close()
    files = place.files()
    assert log.segment_count == 4
    assert all(len(data) <= 120 for name, data in files.items() if name.endswith("index"))


def test_segments_roll_when_asked_unless_empty(place: DiskAt) -> None:
    log = place.log()
    log.roll()
    assert log.segment_count == 1
    append(log, b"a")
    log.roll()
    log.roll()
    assert log.segment_count == 2
    assert append(log, b"b") == 1


@pytest.mark.parametrize("jitter_ms", [0, 1, 400, 1000, 10_000])
def test_jitter_spreads_rolls_but_never_delays_them(place: DiskAt, jitter_ms: int) -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=jitter_ms)
    log = place.log(config)
    append(log, b"x", timestamps=[0])
    age = 0
    while log.segment_count == 1:
        age += 1
        append(log, b"x", timestamps=[age])
    assert 1000 - min(jitter_ms, 1000) < age <= 1001


def test_jitter_differs_between_partitions() -> None:
    disk = MemoryDisk()
    ages = set()
    for partition in range(8):
        log = open_log(
            disk,
            Path(f"/data/flights-{partition}"),
            LogConfig(segment_ms=1000, segment_jitter_ms=1000),
            ManualClock(),
            topic_partition=TopicPartition("flights", partition),
            clean=True,
        )
        append(log, b"x", timestamps=[0])
        age = 0
        while log.segment_count == 1:
            age += 1
            append(log, b"x", timestamps=[age])
        ages.add(age)
    assert len(ages) > 4


def test_segments_of_records_without_timestamps_roll_by_the_clock(place: DiskAt) -> None:
    clock = ManualClock()
    log = place.log(LogConfig(segment_ms=1000), clock=clock)
    append(log, b"x", timestamps=[-1], now_ms=clock.now_ms())
    clock.advance(1000)
    append(log, b"x", timestamps=[-1], now_ms=clock.now_ms())
    assert log.segment_count == 1
    clock.advance(1)
    append(log, b"x", timestamps=[-1], now_ms=clock.now_ms())
    assert log.segment_count == 2


def test_segments_roll_at_the_reach_of_relative_offsets(place: DiskAt) -> None:
    reach = (1 << 31) - 1
    log = place.log(LogConfig())
    for offset, segments in ((0, 1), (reach, 1), (reach + 1, 2), (3 * reach, 3)):
        log.append_as_follower(_rebased(build([b"x"]), offset))
        assert log.segment_count == segments
    assert [offset for offset, _ in contents(log)] == [0, reach, reach + 1, 3 * reach]


def test_settings_of_rolling_hold_as_soon_as_they_change(place: DiskAt) -> None:
    log = place.log(LogConfig())
    append(log, b"x" * 500, timestamps=[0])
    log.update_config(LogConfig(segment_bytes=700))
    append(log, b"x" * 500, timestamps=[0])
    assert log.segment_count == 2
    log.update_config(LogConfig(segment_ms=10))
    append(log, b"x", timestamps=[11])
    assert log.segment_count == 3


def _rebased(records: bytearray, offset: int) -> bytearray:
    rebase(records, 0, offset, 0)
    return records
