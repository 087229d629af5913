"""Damage at every byte, crashes at every moment.

What was whole survives, nothing false appears, and a second start finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import pytest
import structlog
from structlog.testing import capture_logs

from broker.errors import StorageError
from broker.records.batch import iterate_batches, rebase
from broker.storage.disk import SystemDisk
from broker.storage.dump import DumpOptions, dump_file
from broker.storage.dump_line import DumpLine
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk
from broker.storage.recovery_events import tell
from broker.types import BrokerId
from tests.storage.conftest import memory_place
from tests.storage.samples import (
    NOW_MS,
    PARTITION,
    SMALL,
    DiskAt,
    ManualClock,
    append,
    build,
    contents,
    numbered,
)

STEP = 3
"""Every byte is some test's: one test in so many runs with each test run, the others with the long ones."""
THREE_SEGMENTS = LogConfig(segment_bytes=240, index_interval_bytes=0)


def filled(place: DiskAt, config: LogConfig = THREE_SEGMENTS) -> Log:
    """Eight batches of an idempotent producer over two epochs."""
    log = place.log(config)
    for number in range(8):
        append(log, *numbered(1 + number % 2), epoch=number // 4, producer=(9, 0, log.log_end_offset))
    return log


def state(log: Log) -> tuple[Any, ...]:
    """Everything that two openings of the same log must agree on."""
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.segment_count,
        log.size,
        contents(log),
        log.leader_epochs.entries,
        log.producers.snapshot(),
    )


def restored(files: dict[str, bytes]) -> DiskAt:
    """A fresh disk with these files of the log."""
    place = memory_place()
    place.disk.make_directory(place.path / str(PARTITION))
    for name, data in files.items():
        place.overwrite(name, data)
    return place


class StoredBatchAt(NamedTuple):
    """A batch by its file, where it ends there (bytes), and the offset after it."""

    file: str
    end: int
    next_offset: int


def batches_of(files: dict[str, bytes]) -> list[StoredBatchAt]:
    return [
        StoredBatchAt(name, position + header.size, header.next_offset)
        for name, data in sorted(files.items())
        if name.endswith(".log")
        for position, header in iterate_batches(data)
    ]


def surviving_end(files: dict[str, bytes], name: str, position: int) -> int:
    """The log's end when everything from a byte of a file on is unusable."""
    return max(
        (b.next_offset for b in batches_of(files) if b.file < name or (b.file == name and b.end <= position)),
        default=0,
    )


def damages(data: bytes, position: int) -> Iterator[bytes]:
    """The file cut at a byte, with a bit flipped there, with garbage from there on, with a hole of zeros."""
    yield data[:position]
    yield data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
    if position % 3 == 0:
        yield data[:position] + Random(position).randbytes(len(data) - position)
        yield data[:position] + bytes(min(40, len(data) - position)) + data[position + 40 :]


def damaged_at(files: dict[str, bytes], name: str, data: bytes) -> int | None:
    """The first byte that is missing or wrong, leader epochs aside: no checksum covers them, and they are no
    record's.
    """
    starts = [0, *(b.end for b in batches_of(files) if b.file == name)]
    original = files[name]
    for position in range(len(original)):
        if position >= len(data):
            return position
        start = max(start for start in starts if start <= position)
        if data[position] != original[position] and not 12 <= position - start < 16:
            return position
    return None


def check_recovery(place: DiskAt, expected: list[tuple[int, bytes]], end: int) -> None:
    log = place.log(THREE_SEGMENTS)
    assert contents(log) == [record for record in expected if record[0] < end]
    assert log.log_end_offset == end
    first = state(log)
    log.abandon()
    again = place.log(THREE_SEGMENTS)
    assert state(again) == first
    assert again.recovery_report.cut_size == again.recovery_report.segments_removed == 0
    assert append(again, b"next", epoch=9, producer=(9, 0, end)) == end
    assert contents(again) == [*first[4], (end, b"next")]


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(1, STEP))]
)
def test_damage_at_every_byte_of_a_log_costs_only_what_follows(first: int) -> None:
    original = memory_place()
    log = filled(original)
    expected = contents(log)
    files = original.files()
    for name in sorted(name for name in files if name.endswith(".log")):
        for position in range(first, len(files[name]), STEP):
            for data in damages(files[name], position):
                if (at := damaged_at(files, name, data)) is not None:
                    check_recovery(restored({**files, name: data}), expected, surviving_end(files, name, at))


@pytest.mark.parametrize("seed", range(40))
def test_damage_on_a_real_disk_costs_only_what_follows(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    place = DiskAt(SystemDisk(), tmp_path)
    log = filled(place)
    expected = contents(log)
    log.abandon()
    files = place.files()
    name = random.choice([name for name in files if name.endswith(".log")])
    position = random.randrange(len(files[name]))
    data = random.choice(list(damages(files[name], position - position % 3)))
    place.overwrite(name, data)
    at = damaged_at(files, name, data)
    check_recovery(place, expected, len(expected) if at is None else surviving_end(files, name, at))


@pytest.mark.parametrize("damage", ["hole", "zeros", "bit", "length"])
def test_what_lies_behind_damage_is_kept_beside_the_log_and_told(tmp_path: Path, damage: str) -> None:
    place = DiskAt(SystemDisk(), tmp_path)
    log = filled(place)
    expected = contents(log)
    log.abandon()
    files = place.files()
    name = sorted(file for file in files if file.endswith(".log"))[1]
    batches = [batch for batch in batches_of(files) if batch.file == name]
    start, end = batches[0].end, batches[1].end
    head, rest = files[name][:start], files[name][end:]
    bad = {
        "hole": rest,
        "zeros": bytes(end - start) + rest,
        "bit": files[name][start : end - 1] + bytes([files[name][end - 1] ^ 1]) + rest,
        "length": files[name][start : start + 8] + b"\x40" + files[name][start + 9 : end] + rest,
    }[damage]
    place.overwrite(name, head + bad)
    for file in files:
        if file.endswith("index"):
            place.disk.remove(place.path / str(PARTITION) / file)
    with capture_logs() as events:
        log = place.log(THREE_SEGMENTS)
        tell(structlog.get_logger(), log)
    cut_at = batches[0].next_offset
    assert contents(log) == [record for record in expected if record[0] < cut_at]
    later = sorted(file for file in files if file.endswith(".log") and file > name)
    kept = place.files()
    assert bad
    assert kept[f"{cut_at:020d}.log.cut"] == bad
    assert [kept[f"{file}.cut"] for file in later] == [files[file] for file in later]
    (told,) = (event for event in events if event["event"] == "log_damaged")
    assert (told["log_level"], told["cut_from"], told["partition"]) == ("error", cut_at, str(PARTITION))
    assert {Path(file).name for file in told["kept_in"]} == {file for file in kept if file.endswith(".cut")}
    assert told["lost_bytes"] == 0
    left = contents(log)
    log.abandon()
    again = place.log(THREE_SEGMENTS)
    assert (contents(again), again.recovery_report.kept) == (left, ())
    assert place.files().keys() >= {file for file in kept if file.endswith(".cut")}
    dumped = [
        finding
        for file in sorted(told["kept_in"])
        for finding in dump_file(place.disk, Path(file), DumpOptions())
    ]
    lines = [finding.fields for finding in dumped if isinstance(finding, DumpLine)]
    ends = [batch.next_offset for batch in batches_of(files) if batch.next_offset > batches[1].next_offset]
    assert [each["lastOffset"] for each in lines if each.get("isvalid")] == [end - 1 for end in ends]


def test_what_was_cut_at_an_offset_stays_when_the_log_is_cut_there_once_more(place: DiskAt) -> None:
    log = filled(place)
    kept: dict[str, bytes] = {}
    for suffix in (".log.cut", ".log.cut.2", ".log.cut.3"):
        log.abandon()
        files = place.files()
        first = batches_of(files)[0]
        bad = b"\xff" * 40 + files[first.file][first.end + 40 :]
        place.overwrite(first.file, files[first.file][: first.end] + bad)
        log = place.log(THREE_SEGMENTS)
        assert log.log_end_offset == first.next_offset
        kept[f"{first.next_offset:020d}{suffix}"] = bad
        assert place.files().items() >= kept.items()
        for _ in range(3):
            append(log, b"of the life that ends with %s" % suffix.encode())


def test_a_torn_end_is_kept_nowhere_and_no_damage() -> None:
    original = memory_place()
    expected = contents(filled(original))
    files = original.files()
    name = max(file for file in files if file.endswith(".log"))
    start, end = [0, *(batch.end for batch in batches_of(files) if batch.file == name)][-2:]
    for position in range(start + 1, end):
        for torn in (files[name][:position], files[name][:start] + bytes(position - start)):
            place = restored({**files, name: torn})
            log = place.log(THREE_SEGMENTS)
            assert len(contents(log)) < len(expected)
            assert not log.recovery_report.is_damaged
            assert not [file for file in place.files() if file.endswith(".cut")]


def test_a_full_disk_keeps_no_log_from_being_cut_where_it_is_damaged() -> None:
    original = memory_place()
    filled(original)
    files = original.files()
    name = min(file for file in files if file.endswith(".log"))
    place = restored({**files, name: b"\xff" * 40 + files[name][40:]})
    cast(MemoryDisk, place.disk).space_left = 30
    log = place.log(THREE_SEGMENTS)
    assert log.log_end_offset == 0
    assert log.recovery_report.is_damaged
    assert log.recovery_report.lost_size == len(files[name])
    assert f"{0:020d}.log.cut" not in place.files()


def test_a_segment_that_is_gone_costs_only_what_follows() -> None:
    original = memory_place()
    expected = contents(filled(original))
    files = original.files()
    logs = sorted(name for name in files if name.endswith(".log"))
    for missing in logs[1:]:
        kept = {name: data for name, data in files.items() if name != missing}
        check_recovery(restored(kept), expected, int(missing[:20]))


def test_a_large_log_damaged_anywhere_recovers_to_a_prefix() -> None:
    original = memory_place()
    config = LogConfig(segment_bytes=3 << 20, max_message_bytes=2 << 20)
    log = original.log(config)
    for number in range(40):
        append(log, Random(number).randbytes(200_000 if number % 7 else 1_500_000))
    expected = contents(log)
    files = original.files()
    random = Random(1)
    for _ in range(12):
        name = random.choice([name for name in files if name.endswith(".log")])
        position = random.randrange(len(files[name]))
        damaged = files[name][:position] + random.randbytes(100) + files[name][position + 100 :]
        place = restored({**files, name: damaged})
        recovered = place.log(config)
        end = surviving_end(files, name, position)
        assert contents(recovered) == [record for record in expected if record[0] < end]


@pytest.mark.parametrize("kind", ["index", "timeindex", "snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_damage_beside_the_log_costs_nothing(place: DiskAt, kind: str, damage: str) -> None:
    log = filled(place)
    expected = state(log)
    log.close()
    for name, data in place.files().items():
        if name.endswith(kind):
            if damage == "missing":
                place.disk.remove(place.path / str(PARTITION) / name)
            else:
                place.overwrite(name, b"" if damage == "empty" else bytes(byte ^ 0x5A for byte in data))
    recovered = place.log(THREE_SEGMENTS)
    assert state(recovered)[:6] == expected[:6]
    for number in range(1, 5):
        repeated = build([b"x"], producer=(9, 0, log.log_end_offset - number))
        assert recovered.append(repeated, 2, now_ms=NOW_MS).duplicate


def test_a_clean_end_reopens_to_the_same_state(place: DiskAt) -> None:
    log = filled(place)
    expected = state(log)
    log.close()
    again = place.log(THREE_SEGMENTS, clean=True, recovery_point=log.recovery_point)
    assert state(again) == expected
    assert not again.recovery_report.scanned
    assert again.recovery_report.indexes_rebuilt == 0
    again.close()
    assert state(place.log(THREE_SEGMENTS, clean=True)) == expected


def test_a_torn_tail_is_found_even_when_the_end_was_called_clean(place: DiskAt) -> None:
    log = filled(place)
    expected = contents(log)
    log.close()
    name = max(name for name in place.files() if name.endswith(".log"))
    place.overwrite(name, place.files()[name][:-1])
    again = place.log(THREE_SEGMENTS, clean=True)
    assert again.recovery_report.scanned
    assert contents(again) == expected[:-2]


def test_indexes_that_were_lost_and_made_anew_keep_nothing_of_what_is_cut(place: DiskAt) -> None:
    log = place.log(LogConfig(index_interval_bytes=0))
    for number in range(8):
        append(log, *numbered(1), epoch=number // 4)
    log.close()
    disk, directory = place.disk, place.path / str(PARTITION)
    stored = disk.read_file(directory / "00000000000000000000.log")
    size = len(stored) // 8
    stored = (
        stored[: 3 * size + 70] + b"!" + stored[3 * size + 71 : -5]
    )  # the fourth is damaged, the last torn
    place.overwrite("00000000000000000000.log", stored)
    for kind in ("index", "timeindex"):
        disk.remove(directory / f"00000000000000000000.{kind}")
    # Headers say nothing of the damage: the indexes are written for all of it before the torn tail is found.
    log = place.log(LogConfig(index_interval_bytes=0), clean=True)
    assert log.log_end_offset == 3
    assert contents(log) == [(offset, numbered(1)[0]) for offset in range(3)]
    log.close()
    assert len(place.files()["00000000000000000000.index"]) == 2 * 8


def test_only_what_lies_behind_the_recovery_point_is_scanned(place: DiskAt) -> None:
    log = filled(place)
    expected = contents(log)
    log.flush()
    last = max(int(name[:20]) for name in place.files() if name.endswith(".log"))
    assert log.recovery_point == log.log_end_offset
    log.abandon()
    again = place.log(THREE_SEGMENTS, recovery_point=log.recovery_point)
    assert contents(again) == expected
    size = len(place.files()[f"{last:020d}.log"])
    assert again.recovery_report.checked_size == size


@pytest.mark.parametrize("restart", ["snapshot", "scan", "scan of all"])
def test_the_last_five_appends_are_known_after_a_restart(place: DiskAt, restart: str) -> None:
    log = place.log(SMALL)
    for number in range(30):
        append(log, b"a", b"b", producer=(9, 0, number * 2))
    log.close() if restart == "snapshot" else log.flush()
    recovery_point = 0 if restart == "scan of all" else log.recovery_point
    again = place.log(SMALL, clean=restart == "snapshot", recovery_point=recovery_point)
    for number in range(25, 30):
        appended = again.append(build([b"a", b"b"], producer=(9, 0, number * 2)), 0, now_ms=NOW_MS)
        assert appended == (number * 2, number * 2 + 1, -1, 0, True)
    assert append(again, b"c", producer=(9, 0, 60)) == 60


def test_a_compacted_log_keeps_its_gaps(place: DiskAt) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    log = place.log(config)
    for offset in (3, 10, 20):
        records = build([b"%d" % offset])
        rebase(records, 0, offset, 0)
        log.append_as_follower(records)
        log.roll()
    expected = contents(log)
    log.abandon()
    assert contents(place.log(config)) == expected == [(3, b"3"), (10, b"10"), (20, b"20")]


def test_a_log_cut_below_its_start_begins_there_again(place: DiskAt) -> None:
    log = filled(place)
    log.abandon()
    for name in place.files():
        if name.endswith(".log"):
            place.overwrite(name, b"")
    again = place.log(THREE_SEGMENTS, log_start_offset=10)
    assert (again.log_start_offset, again.log_end_offset) == (10, 10)
    assert append(again, b"x") == 10


class Leftover(NamedTuple):
    """Files that a crash left, and what must be there after the next start."""

    added: dict[str, bytes]
    removed: tuple[str, ...]
    gone: tuple[str, ...]
    kept: tuple[str, ...] = ()


def leftovers(files: dict[str, bytes]) -> dict[str, Leftover]:
    first, second = sorted(name for name in files if name.endswith(".log"))[:2]
    stem, second_stem = first.removesuffix(".log"), second.removesuffix(".log")
    return {
        "a deletion": Leftover(
            {first + ".deleted": b"x", stem + ".index.deleted": b"x"}, (), (first + ".deleted",)
        ),
        "a compaction": Leftover(
            {first + ".cleaned": b"x", stem + ".index.cleaned": b""}, (), (first + ".cleaned",)
        ),
        "a compaction being renamed": Leftover(
            {first + ".cleaned": b"x", second + ".swap": b"x"}, (), (first + ".cleaned", second + ".swap")
        ),
        "a compaction to be committed": Leftover(
            {first + ".swap": files[first] + files[second]},
            (),
            (first + ".swap", second, second_stem + ".index"),
            (first,),
        ),
        "a committed compaction": Leftover(
            {stem + ".index.swap": b""}, (stem + ".index",), (stem + ".index.swap",)
        ),
        "a replaced file": Leftover(
            {"leader-epoch-checkpoint.tmp": b"0\n"}, (), ("leader-epoch-checkpoint.tmp",)
        ),
        "an index without a log": Leftover({f"{777:020d}.index": b"12345678"}, (), (f"{777:020d}.index",)),
    }


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", list(leftovers({"0.log": b"", "1.log": b""})))
def test_leftovers_are_finished_or_undone(place: DiskAt, kind: str, clean: bool) -> None:
    log = filled(place)
    expected = contents(log)
    log.close()
    leftover = leftovers(place.files())[kind]
    for name, data in leftover.added.items():
        place.overwrite(name, data)
    for name in leftover.removed:
        place.disk.remove(place.path / str(PARTITION) / name)
    again = place.log(THREE_SEGMENTS, clean=clean)
    assert contents(again) == expected
    names = place.files()
    assert not [name for name in leftover.gone if name in names]
    assert all(name in names for name in leftover.kept)


def test_foreign_files_are_left_alone(place: DiskAt) -> None:
    log = filled(place)
    expected = contents(log)
    log.close()
    place.overwrite("README.txt", b"mine")
    assert contents(place.log(THREE_SEGMENTS)) == expected
    assert place.files()["README.txt"] == b"mine"


class Life:
    """A log directory lived through random steps and crashes, with a model of what must be true of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.place = memory_place()
        self.disk = cast(MemoryDisk, self.place.disk)
        self.clock = ManualClock()
        self.config = LogConfig(
            segment_bytes=600, index_interval_bytes=0, retention_bytes=2500, retention_ms=-1
        )
        self.written: list[bytes] = []
        self.flushed = 0
        self.count = 0
        self.epoch = 0
        self.directory = self._open()
        self.log = self.directory.create_log(PARTITION, None, self.config)

    def _open(self) -> LogDirectory:
        directory = LogDirectory.open(
            self.disk, self.place.path, self.clock, broker_id=BrokerId(1), cluster_id="c", recovery_threads=1
        )
        directory.load(lambda _: self.config)
        return directory

    def append(self) -> None:
        """Sequence numbers are offsets, so that producer states that are behind or ahead of the log
        refuse.
        """
        values = [b"%d" % (self.count + index) for index in range(self.random.randint(1, 4))]
        self.count += len(values)
        self.epoch += self.random.random() < 0.2
        records = build(values, producer=(5, 0, len(self.written)))
        appended = self.log.append(records, self.epoch, now_ms=self.clock.now_ms())
        assert (appended.first_offset, appended.duplicate) == (len(self.written), False)
        self.written += values

    def repeat(self) -> None:
        if self.log.log_end_offset > self.log.log_start_offset:
            last = self.log.log_end_offset - 1
            appended = self.log.append(build([b"x"], producer=(5, 0, last)), self.epoch, now_ms=NOW_MS)
            assert (appended.first_offset, appended.duplicate) == (last, True)

    def flush(self) -> None:
        self.flushed = max(self.flushed, self.log.flush())
        if self.random.random() < 0.7:
            self.directory.checkpoints.store_offsets()

    def truncate(self) -> None:
        self.log.truncate_to(self.random.randint(self.log.log_start_offset, self.log.log_end_offset))
        del self.written[self.log.log_end_offset :]
        self.flushed = min(self.flushed, self.log.log_end_offset)

    def retain(self) -> None:
        self.log.delete_old_segments(self.clock.now_ms())
        if self.random.random() < 0.5:
            self.directory.remove_deleted()

    def fail_a_write(self) -> None:
        self.disk.space_left = self.random.randint(0, 50)
        before = len(self.written)
        try:
            self.append()
        except StorageError:
            assert len(self.written) == before
        self.disk.space_left = None

    def restart(self) -> None:
        self.directory.close()
        self._reopen()
        assert self.log.log_end_offset == len(self.written)
        self.flushed = len(self.written)

    def kill(self) -> None:
        self.disk.kill()
        self._reopen()
        assert self.log.log_end_offset == len(self.written)

    def lose_power(self) -> None:
        self.disk.crash(self.random if self.random.random() < 0.8 else None)
        self._reopen()
        assert self.flushed <= self.log.log_end_offset <= len(self.written)
        del self.written[self.log.log_end_offset :]

    def _reopen(self) -> None:
        self.directory = self._open()
        self.log = self.directory.logs[PARTITION]

    def check(self) -> None:
        start = self.log.log_start_offset
        assert contents(self.log) == list(enumerate(self.written))[start:]
        assert self.log.recovery_point <= self.log.log_end_offset

    def live(self, steps: int) -> None:
        weights: dict[Callable[[], None], int] = {
            self.append: 40,
            self.repeat: 3,
            self.flush: 8,
            self.truncate: 3,
            self.retain: 4,
            self.fail_a_write: 2,
            self.restart: 2,
            self.kill: 2,
            self.lose_power: 5,
        }
        for _ in range(steps):
            self.random.choices(list(weights), list(weights.values()))[0]()
            self.clock.advance(1)
            self.check()


@pytest.mark.parametrize("seed", range(60))
def test_no_sequence_of_crashes_loses_what_was_flushed_or_shows_what_was_not_written(seed: int) -> None:
    Life(seed).live(steps=120)
