"""Files of a root that were lost while no node ran, and that nothing in their place gives away.

What the checkpoints of the root know brings them back: after a clean end, and below the recovery point of a
log after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.storage.log import Log
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk
from broker.storage.segment_check import Severity
from broker.storage.transaction_index import TransactionIndex
from broker.storage.verify import Verification
from broker.types import BrokerId, TopicId, TopicPartition
from tests.storage.samples import ManualClock, append, contents, numbered
from tests.storage.test_closed_logs import WatchedDisk
from tests.storage.test_transactions import TINY, committed_values, mark, write

ROOT = Path("/data")
ABORTS = TopicPartition("aborts", 0)
EPOCHS = TopicPartition("epochs", 0)
SIZES = ROOT / "transaction-index-checkpoint"
STARTS = ROOT / str(EPOCHS) / "leader-epoch-checkpoint"

Files = dict[Path, bytes]

both_ends = pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])


@dataclass(frozen=True, slots=True)
class Expected:
    """What the logs hold."""

    committed: list[bytes]
    aborted: list[int]
    epochs: tuple[object, ...]


def opened(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, ROOT, ManualClock(), broker_id=BrokerId(1), cluster_id="jfk")
    directory.load(lambda _: TINY)
    return directory


def end(directory: LogDirectory, *, is_clean: bool) -> None:
    if is_clean:
        directory.close()
    else:
        directory.abandon()


def state(directory: LogDirectory) -> Expected:
    log, epochs = directory.logs[ABORTS], directory.logs[EPOCHS].leader_epochs
    aborted = log.aborted_transactions(0, log.log_end_offset)
    return Expected(committed_values(log), [each.first_offset for each in aborted], epochs.entries)


def made(*, is_clean: bool) -> tuple[Files, Expected]:
    """A root with many aborts and epochs, all of it below the recovery points but the newest."""
    disk = MemoryDisk()
    directory = opened(disk)
    for number, partition in enumerate((ABORTS, EPOCHS), start=1):
        directory.create_log(partition, TopicId(UUID(int=number)), TINY)
    fill(directory.logs[ABORTS], directory.logs[EPOCHS])
    for log in directory.logs.values():
        log.flush()
    directory.checkpoints.store_offsets()
    expected = state(directory)
    end(directory, is_clean=is_clean)
    return all_files(disk), expected


def fill(aborts: Log, epochs: Log) -> None:
    for number in range(24):
        write(aborts, 7, number, b"%d" % number)
        mark(aborts, 7, commit=number % 3 == 0)
        append(epochs, *numbered(2), epoch=number // 3)


def all_files(disk: MemoryDisk) -> Files:
    found = {}
    for entry in disk.list_directory(ROOT):
        path = ROOT / entry.name
        if entry.is_directory:
            found |= {
                path / each.name: disk.read_file(path / each.name) for each in disk.list_directory(path)
            }
        else:
            found[path] = disk.read_file(path)
    return found


def disk_of(files: Files) -> WatchedDisk:
    disk = WatchedDisk()
    for partition in (ABORTS, EPOCHS):
        disk.make_directory(ROOT / str(partition))
    for path, data in files.items():
        disk.write_file(path, data)
    disk.forget()
    return disk


def without(files: Files, path: Path) -> Iterator[Files]:
    """The file gone, emptied, and cut between entries and within."""
    yield {name: data for name, data in files.items() if name != path}
    for size in range(0, len(files[path]), TransactionIndex.entry.size // 2):
        yield files | {path: files[path][:size]}


def transaction_indexes(files: Files) -> Files:
    return {path: data for path, data in files.items() if path.suffix == ".txnindex"}


@both_ends
def test_a_lost_index_of_aborted_transactions_is_made_anew(is_clean: bool) -> None:
    files, expected = made(is_clean=is_clean)
    indexes = transaction_indexes(files)
    assert len(indexes) > 3
    for path in indexes:
        for damaged in without(files, path):
            disk = disk_of(damaged)
            directory = opened(disk)
            assert state(directory) == expected
            directory.close()
            assert transaction_indexes(all_files(disk)) == indexes


@both_ends
def test_all_lost_at_once_are_made_anew_and_told(is_clean: bool) -> None:
    files, expected = made(is_clean=is_clean)
    indexes = transaction_indexes(files)
    disk = disk_of({path: data for path, data in files.items() if path not in indexes and path != STARTS})
    with capture_logs() as events:
        directory = opened(disk)
    recovered = {event["partition"]: event for event in events if event["event"] == "log_recovered"}
    assert recovered[str(ABORTS)]["transaction_indexes_rebuilt"] >= len(indexes) - 1
    assert recovered[str(EPOCHS)]["leader_epochs_rebuilt"]
    assert state(directory) == expected
    directory.close()
    again = opened(disk)
    assert not any(log.recovery_report.is_notable for log in again.logs.values())
    assert state(again) == expected


def test_a_root_that_lost_nothing_is_opened_without_a_look_into_its_logs() -> None:
    files, _ = made(is_clean=True)
    disk = disk_of(files)
    opened(disk)
    assert not [name for name in disk.opened + disk.read if name.endswith((".log", ".index", ".timeindex"))]


def test_without_a_note_of_sizes_an_index_that_is_not_there_never_was() -> None:
    files, expected = made(is_clean=True)
    lost = transaction_indexes(files).keys() | {SIZES, ROOT / "log-ends-checkpoint"}
    directory = opened(disk_of({path: data for path, data in files.items() if path not in lost}))
    assert expected.aborted
    assert state(directory).aborted == []


def test_a_note_of_what_is_no_longer_there_costs_nothing_but_a_look() -> None:
    files, expected = made(is_clean=True)
    (path, index), *_ = sorted(transaction_indexes(files).items())
    base_offset = int(path.name.split(".")[0])
    lines = files[SIZES].decode().splitlines()[2:]
    larger = [f"{ABORTS.topic} 0 {base_offset} {len(index) + 34}", "gone 3 0 34", "aborts 0 1 34", *lines]
    text = "\n".join(["0", str(len(larger)), *larger, ""]).encode()
    disk = disk_of(files | {SIZES: text})
    directory = opened(disk)
    assert state(directory) == expected
    directory.close()
    assert all_files(disk)[SIZES] == files[SIZES]


def test_an_index_that_is_lost_while_a_node_runs_is_missed_by_the_next() -> None:
    files, _ = made(is_clean=True)
    disk = disk_of(files)
    directory = opened(disk)
    log = directory.logs[ABORTS]
    directory.checkpoints.store_offsets()
    path = min(transaction_indexes(files))
    disk.remove(path)
    again = opened(disk_of(all_files(disk)))
    assert len(again.logs[ABORTS].aborted_transactions(0, log.log_end_offset)) == 16


@both_ends
def test_leader_epochs_that_were_lost_are_those_of_the_batches(is_clean: bool) -> None:
    files, expected = made(is_clean=is_clean)
    assert len(expected.epochs) == 8
    cuts = [files | {STARTS: files[STARTS][:size]} for size in range(len(files[STARTS]))]
    for damaged in (*without(files, STARTS), *cuts):
        assert state(opened(disk_of(damaged))) == expected


@both_ends
def test_leader_epochs_of_an_earlier_time_are_completed(is_clean: bool) -> None:
    files, expected = made(is_clean=is_clean)
    lines = files[STARTS].decode().splitlines()[2:]
    for count in range(len(lines)):
        text = "\n".join(["0", str(count), *lines[:count], ""]).encode()
        assert state(opened(disk_of(files | {STARTS: text}))) == expected


def test_rebuilt_epochs_begin_where_the_log_does() -> None:
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.create_log(EPOCHS, None, TINY)
    for number in range(24):
        append(log, *numbered(2), epoch=number // 3)
    log.advance_start(10)
    expected = log.leader_epochs.entries
    directory.close()
    disk.remove(STARTS)
    assert opened(disk).logs[EPOCHS].leader_epochs.entries == expected


def test_few_headers_tell_the_epochs_of_many_segments() -> None:
    disk = WatchedDisk()
    directory = opened(disk)
    log = directory.create_log(EPOCHS, None, TINY)
    for number in range(60):
        append(log, *numbered(2), epoch=int(number > 30))
    expected = log.leader_epochs.entries
    directory.close()
    disk.remove(STARTS)
    assert opened(disk).logs[EPOCHS].leader_epochs.entries == expected == ((0, 0), (1, 62))


# Segments that are gone


def without_segment(files: Files, index: int, *, with_indexes: bool) -> tuple[Files, int]:
    """A segment's log, or every file of it, deleted; and its base offset."""
    log = sorted(path for path in files if path.parent.name == str(EPOCHS) and path.suffix == ".log")[index]
    stem = log.name.split(".")[0]
    lost = [path for path in files if path.parent == log.parent and path.name.startswith(stem)]
    return {path: data for path, data in files.items() if path not in (lost if with_indexes else [log])}, int(
        stem
    )


@both_ends
@pytest.mark.parametrize("with_indexes", [True, False])
def test_a_segment_that_is_gone_is_told_where_it_can_be_known(is_clean: bool, with_indexes: bool) -> None:
    files, _ = made(is_clean=is_clean)
    left, base_offset = without_segment(files, 2, with_indexes=with_indexes)
    with capture_logs() as events:
        log = opened(disk_of(left)).logs[EPOCHS]
    told = [event for event in events if event["event"] == "log_segments_missing"]
    if not is_clean and with_indexes:  # nothing is left that could tell: `broker verify` reads the log
        assert told == []
        return
    (event,) = told
    assert event["segments"] == int(is_clean)
    (hole,) = log.recovery_report.holes
    assert hole.start == base_offset
    assert event["holes"] == [f"{hole.start}-{hole.end - 1}"]
    found = {offset for offset, _ in contents(log)}
    assert found == set(range(log.log_end_offset)) - set(range(*hole))


def test_the_first_segment_is_missed_too_after_a_clean_end() -> None:
    files, _ = made(is_clean=True)
    left, _ = without_segment(files, 0, with_indexes=True)
    report = opened(disk_of(left)).logs[EPOCHS].recovery_report
    assert (report.segments_missing, report.holes) == (1, ())


def damages(disk: MemoryDisk) -> list[str]:
    found = Verification(disk=disk, path=ROOT).problems()
    return [f"{each.path.name} {each.message}" for each in found if each.severity is Severity.DAMAGE]


@both_ends
def test_verify_finds_a_segment_that_is_gone_unless_the_log_was_compacted(is_clean: bool) -> None:
    files, _ = made(is_clean=is_clean)
    left, base_offset = without_segment(files, 2, with_indexes=True)
    (found,) = damages(disk_of(left))
    assert f"starts above offset {base_offset}, where the segment before it ends" in found
    compacted = left | {ROOT / "cleaner-offset-checkpoint": b"0\n1\nepochs 0 4\n"}
    assert damages(disk_of(compacted)) == []
