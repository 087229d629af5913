"""Passes over whole logs: what is left of them, crashes at every step, and logs that change meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import Codec
from broker.storage.compaction.cleaning import CleaningEndedError
from broker.storage.disk import SystemDisk
from broker.storage.log import Log
from broker.storage.memory_disk import MemoryDisk
from broker.storage.partition_check import PartitionToCheck, check_partition
from broker.storage.segment_check import Severity
from tests.storage.compaction_samples import (
    BOUNDS,
    COMPACTED,
    Pair,
    Seen,
    compact,
    keyed,
    put,
    seen,
    table,
)
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, DiskAt, ManualClock

PRODUCER_ID = 7


def pairs_of(number: int) -> list[Pair]:
    """Records of the batch of a number: keys that come again and again, and tombstones."""
    pairs: list[Pair] = [(b"k%d" % (number % 5), b"v%d" % number), (b"own%d" % (number % 17), b"x")]
    if number % 7 == 3:
        pairs.append((b"k%d" % (number % 3), None))
    return pairs


def overwritten(log: Log, *, codec: Codec = Codec.NONE) -> list[Seen]:
    """Forty batches of an idempotent producer; what was written."""
    for number in range(40):
        put(log, *pairs_of(number), producer=(PRODUCER_ID, 0, log.log_end_offset), codec=codec)
    return seen(log)


def newest(records: list[Seen]) -> list[Seen]:
    """The newest record of each key, in order."""
    return sorted({record.key: record for record in records}.values())


def check_view(written: list[Seen], log: Log) -> None:
    """The log shows records as they were written, in order, the newest value of each key among them."""
    for start in sorted({0, *(record.offset for record in written[::5])}):
        left = seen(log, start, max_bytes=150)
        assert left == sorted(left)
        assert set(left) <= set(written)
        wanted = {record for record in newest(written) if record.value is not None and record.offset >= start}
        assert wanted <= set(left)
    assert table(seen(log)) == table(written)


@pytest.mark.parametrize("codec", Codec)
def test_of_each_key_the_newest_record_stays_in_its_place(place: DiskAt, codec: Codec) -> None:
    log = place.log(COMPACTED)
    written = overwritten(log, codec=codec)
    active = log.segments[-1].base_offset
    report = compact(log)
    assert report.end_offset == log.compacted_end == active
    assert report.size_after < report.size_before
    check_view(written, log)
    below = [record for record in written if record.offset < active]
    assert [record for record in seen(log) if record.offset < active] == newest(below)
    log.close()
    again = place.log(COMPACTED, clean=True, compacted_end=active)
    check_view(written, again)


def test_a_pass_that_finds_nothing_new_changes_nothing(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    overwritten(log)
    compact(log)
    first = seen(log)
    segments = log.segments
    log.compacted_to(0)
    compact(log)
    assert seen(log) == first
    log.compacted_to(0)
    compact(log)
    assert log.segments[-3:] == segments[-3:]


def test_a_compacted_log_is_sound_to_verify(tmp_path: Path) -> None:
    place = DiskAt(SystemDisk(), tmp_path)
    log = place.log(COMPACTED)
    overwritten(log)
    compact(log)
    log.close()
    partition = PartitionToCheck(disk=place.disk, path=tmp_path / str(PARTITION))
    assert [problem for problem in check_partition(partition) if problem.severity is Severity.DAMAGE] == []


def test_segments_that_shrank_become_one(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    for number in range(60):
        put(log, (b"same", b"%d" % number))
    compact(log)
    log.compacted_to(0)
    count = log.segment_count
    compact(log)
    assert log.segment_count < count
    log.compacted_to(0)
    compact(log)
    assert log.segment_count <= 3
    assert table(seen(log)) == {b"same": b"59"}


def test_a_map_that_is_full_ends_the_pass_and_the_next_goes_on_there(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    written = overwritten(log)
    small = replace(BOUNDS, map_bytes=2_000)
    ends = []
    while not ends or ends[-1] < log.segments[-1].base_offset:
        report = compact(log, bounds=small)
        assert report.keys <= 9
        assert report.end_offset > report.start_offset
        ends.append(report.end_offset)
        check_view(written, log)
    assert len(ends) > 3


def test_tombstones_stay_for_their_time_and_go_then(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"gone", b"value"), (b"kept", b"value"))
    put(log, (b"gone", None))
    log.roll()
    compact(log)
    assert [(r.key, r.value, r.timestamp) for r in seen(log)] == [
        (b"kept", b"value", NOW_MS + 1),
        (b"gone", None, NOW_MS),
    ]
    for later_ms, tombstones in ((999, 1), (1_000, 0)):
        put(log, (b"other", b"%d" % later_ms))
        log.roll()
        compact(log, now_ms=NOW_MS + later_ms)
        assert [r.key for r in seen(log)].count(b"gone") == tombstones


def test_records_above_the_stable_end_are_not_touched(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    for number in range(20):
        put(log, (b"k", b"%d" % number))
    log.roll()
    report = compact(log, end_offset_max=13)
    assert report.end_offset == 13
    assert [record.offset for record in seen(log)] == list(range(12, 20))


def test_batches_above_the_end_of_a_pass_are_copied_as_they_are(place: DiskAt) -> None:
    log = place.log(replace(COMPACTED, segment_bytes=4_000))
    for number in range(3):
        put(log, (b"k", b"%d" % number))
    put(log, (None, b"no key"), (b"k", None), (b"l", b"1"), (b"l", b"2"))
    log.roll()
    before = log.read(3, max_bytes=1 << 20, up_to=7).read()
    assert compact(log, end_offset_max=3).end_offset == 3
    assert [record.offset for record in seen(log)] == [2, 3, 4, 5, 6]
    assert log.read(3, max_bytes=1 << 20, up_to=7).read() == before


def test_records_without_a_key_go(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (None, b"from before the topic was compacted"), (b"k", b"v"))
    put(log, (None, b"another"))
    put(log, (b"l", b"w"))
    log.roll()
    compact(log)
    assert [record.key for record in seen(log)] == [b"k", b"l"]


def test_sequence_numbers_survive_though_all_records_of_a_producer_went(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"k", b"0"), producer=(PRODUCER_ID, 3, 0))
    put(log, (b"k", b"1"), producer=(PRODUCER_ID, 3, 1))
    for number in range(20):
        put(log, (b"k", b"other%d" % number))
    log.roll()
    compact(log)
    assert [record.offset for record in seen(log)] == [21]
    log.abandon()
    for name in place.files():
        if name.endswith(".snapshot"):
            place.disk.remove(place.path / str(PARTITION) / name)
    again = place.log(COMPACTED, compacted_end=22)
    assert again.append(keyed([(b"k", b"1")], producer=(PRODUCER_ID, 3, 1)), 0, now_ms=NOW_MS).duplicate
    with pytest.raises(ProtocolError) as caught:
        put(again, (b"k", b"9"), producer=(PRODUCER_ID, 3, 9))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(again, (b"k", b"2"), producer=(PRODUCER_ID, 3, 2)) == again.log_end_offset - 1


def test_a_reader_gets_across_what_went_at_the_end(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"k", b"v"))
    put(log, (b"k", None))
    log.roll()
    compact(log)
    log.compacted_to(0)
    compact(log, now_ms=NOW_MS + 10_000)
    assert seen(log) == []
    assert log.read(0, max_bytes=1000, up_to=log.log_end_offset).next_offset == log.log_end_offset


# Crashes


class PowerLostError(Exception):
    """Ends the process at a disk operation."""


class CountingDisk(MemoryDisk):
    """Counts what is done to it, and ends the process at operation `fails_at`."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.fails_at = -1

    def _count(self) -> None:
        self.operations += 1
        if self.operations == self.fails_at:
            raise PowerLostError

    def take_space(self, size: int) -> int:
        self._count()
        return super().take_space(size)

    def check_sync(self, path: Path) -> None:
        self._count()
        super().check_sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)


def half_compacted() -> tuple[list[Seen], dict[str, bytes]]:
    """A log that has more to compact after a first pass: what was written, and its files after a flush."""
    place = memory_place()
    log = place.log(COMPACTED)
    for number in range(16):
        put(log, *pairs_of(number), producer=(PRODUCER_ID, 0, log.log_end_offset))
    compact(log)
    for number in range(5, 9):
        put(log, *pairs_of(number), producer=(PRODUCER_ID, 0, log.log_end_offset))
    log.roll()
    log.flush()
    log.files.remove_deleted()
    return seen(log), place.files()


def crashed_pass(
    files: dict[str, bytes], fails_at: int, crash: Callable[[MemoryDisk], None]
) -> tuple[bool, DiskAt]:
    """The log after a pass that ends at an operation; whether it came so far."""
    disk = CountingDisk()
    place = DiskAt(disk, Path("/data"))
    disk.make_directory(place.path / str(PARTITION))
    for name, data in files.items():
        place.overwrite(name, data)
    for directory in (Path("/"), place.path):
        disk.sync_directory(directory)
    log = place.log(COMPACTED, compacted_end=0, recovery_point=1 << 40)
    log.flush()
    disk.operations, disk.fails_at = 0, fails_at
    try:
        compact(log, now_ms=NOW_MS + 5_000)
        log.files.remove_deleted()
    except PowerLostError:
        disk.fails_at = -1
        crash(disk)
        return True, place
    return False, place


@pytest.mark.parametrize("kind", ["kill", "crash", "torn"])
def test_a_crash_at_every_step_loses_nothing(kind: str) -> None:
    written, files = half_compacted()
    for fails_at in itertools.count(1):

        def crash(disk: MemoryDisk, seed: int = fails_at) -> None:
            if kind == "kill":
                disk.kill()
            else:
                disk.crash(Random(seed) if kind == "torn" else None)

        came_there, place = crashed_pass(files, fails_at, crash)
        if not came_there:
            assert fails_at > 50
            return
        recovered = place.log(COMPACTED, compacted_end=0)
        check_recovered(written, recovered)
        names = sorted(place.files())
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
        first = seen(recovered)
        recovered.abandon()
        again = place.log(COMPACTED, compacted_end=0)
        assert seen(again) == first
        assert again.recovery_report.cut_size == again.recovery_report.segments_removed == 0
        compact(again, now_ms=NOW_MS + 10_000)
        check_recovered(written, again)


def check_recovered(written: list[Seen], log: Log) -> None:
    left = seen(log)
    assert left == sorted(left)
    assert set(left) <= set(written)
    assert table(left) == table(written)
    assert log.log_end_offset == written[-1].offset + 1
    entry = log.producers.get(PRODUCER_ID)
    assert entry is not None
    assert entry.last_sequence == written[-1].offset


# Logs that change under a pass


def test_a_log_that_was_cut_meanwhile_ends_the_pass(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    overwritten(log)
    cut_at = log.segments[4].base_offset
    with pytest.raises(CleaningEndedError):
        compact(log, checkpoint=lambda: log.truncate_to(cut_at))
    assert log.log_end_offset == cut_at
    assert [record.offset for record in seen(log)] == list(range(cut_at))
    assert not [name for name in place.files() if name.endswith((".cleaned", ".swap"))]


def test_a_log_that_was_deleted_meanwhile_ends_the_pass(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    overwritten(log)
    with pytest.raises(CleaningEndedError):
        compact(log, checkpoint=log.abandon)


def test_appends_and_rolls_meanwhile_are_no_trouble(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    written = overwritten(log)

    def more() -> None:
        for number in range(9):
            put(log, (b"k1", b"meanwhile%d" % number), (b"own1", None))

    compact(log, checkpoint=more)
    check_view([*written, *[r for r in seen(log) if r.offset > written[-1].offset]], log)


def test_a_damaged_segment_is_told_of_and_left_as_it_is(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    overwritten(log)
    log.flush()
    name = sorted(name for name in place.files() if name.endswith(".log"))[2]
    data = bytearray(place.files()[name])
    data[70] ^= 1
    with log.segments[2].log as file:
        file.pwrite(data, 0)
    before = place.files()
    with pytest.raises(CorruptRecordsError, match=r"log at position \d+: checksum"):
        compact(log)
    assert place.files() == before


def test_an_answer_under_way_is_sent_to_its_end(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    overwritten(log)
    answer = log.read(0, max_bytes=300, up_to=log.log_end_offset).pin()
    data = answer.read()
    compact(log)
    log.files.remove_deleted()
    assert answer.file.pread(answer.size, answer.position) == data
    answer.release()


# Random histories

keyed_values = st.tuples(
    st.integers(0, 6).map(lambda n: b"key-%d" % n if n % 2 else b"a longer key than a digest %d" % n),
    st.one_of(st.none(), st.binary(max_size=40)),
)
batches = st.tuples(
    st.lists(keyed_values, min_size=1, max_size=6), st.sampled_from(list(Codec)), st.booleans()
)
events = st.lists(st.one_of(batches, st.integers(0, 1_500), st.none()), max_size=60)


@settings(max_examples=60, deadline=None)
@given(events=events, map_bytes=st.sampled_from([1_000, 3_000, 1 << 20]))
def test_whatever_was_written_the_newest_value_of_each_key_is_there(
    events: list[tuple[list[tuple[bytes, bytes | None]], Codec, bool] | int | None], map_bytes: int
) -> None:
    place, clock = memory_place(), ManualClock()
    log = place.log(COMPACTED, clock=clock)
    bounds = replace(BOUNDS, map_bytes=map_bytes)
    written: list[Seen] = []
    sequence = 0
    for event in events:
        match event:
            case None:
                log.roll()
            case int():
                clock.advance(event)
                compact(log, now_ms=clock.now_ms(), bounds=bounds)
                check_view(written, log)
            case (records, codec, is_idempotent):
                producer = (PRODUCER_ID, 0, sequence) if is_idempotent else (-1, -1, -1)
                sequence += len(records) if is_idempotent else 0
                first = put(log, *records, producer=producer, codec=codec)
                written += seen(log, first)
    log.roll()
    for _ in range(30):
        compact(log, now_ms=clock.now_ms() + 10_000, bounds=bounds)
    check_view(written, log)
    entry = log.producers.get(PRODUCER_ID)
    log.abandon()
    recovered = place.log(COMPACTED, compacted_end=0)
    check_view(written, recovered)
    again = recovered.producers.get(PRODUCER_ID)
    assert (entry is None) == (again is None)
    if entry is not None and again is not None:
        assert again.last_sequence == entry.last_sequence
