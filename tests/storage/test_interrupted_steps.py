"""A process or a machine that ends at any operation on the disk, and files beside a log cut at any byte."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from broker.storage.filenames import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, TopicPartition
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, DiskAt, ManualClock, append, build, contents, numbered
from tests.storage.sudden_ends import POWERS, finishes

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=0)
TWO_SEGMENTS = LogConfig(segment_bytes=600, index_interval_bytes=0)
RETAINED = LogConfig(segment_bytes=300, index_interval_bytes=0, retention_bytes=500)
ROOT = Path("/data/root")
PARTITION = TopicPartition("flights", 0)
VALUES = numbered(12, size=10)


def opened(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, ROOT, ManualClock(), broker_id=BrokerId(1), cluster_id="jfk")
    directory.load(lambda _: CONFIG)
    return directory


def filled(directory: LogDirectory) -> Log:
    """A durable log of several segments."""
    log = directory.create_log(PARTITION, None, CONFIG)
    for number, value in enumerate(VALUES):
        log.append(build([value], producer=(7, 0, number)), number // 5, now_ms=NOW_MS)
    log.flush()
    directory.checkpoints.store_offsets()
    return log


def roll(directory: LogDirectory, log: Log) -> None:
    log.roll()
    append(log, b"after the roll", epoch=5)
    log.flush()
    directory.checkpoints.store_offsets()


def retain(directory: LogDirectory, log: Log) -> None:
    log.update_config(RETAINED)
    assert log.delete_old_segments(NOW_MS)
    directory.remove_deleted()
    directory.checkpoints.store_offsets()


def cut(directory: LogDirectory, log: Log) -> None:
    log.truncate_to(5)
    log.flush()
    directory.checkpoints.store_offsets()


def close(directory: LogDirectory, log: Log) -> None:
    append(log, b"last", epoch=5)
    directory.close()


def delete(directory: LogDirectory, log: Log) -> None:
    directory.delete_log(PARTITION)
    directory.remove_deleted()


def is_prefix(found: list[tuple[int, bytes]]) -> bool:
    return found[: len(VALUES)] == list(enumerate(VALUES)) and len(found) <= len(VALUES) + 1


def is_suffix(found: list[tuple[int, bytes]]) -> bool:
    return bool(found) and found == list(enumerate(VALUES))[found[0][0] :]


def is_cut(found: list[tuple[int, bytes]]) -> bool:
    return len(found) >= 5 and found == list(enumerate(VALUES))[: len(found)]


ACTIONS: dict[str, tuple[Callable[[LogDirectory, Log], None], Callable[[list[tuple[int, bytes]]], bool]]] = {
    "a roll": (roll, is_prefix),
    "retention": (retain, is_suffix),
    "a cut": (cut, is_cut),
    "a close": (close, is_prefix),
    "a deletion": (delete, is_prefix),
}


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("kind", list(ACTIONS))
def test_an_end_at_any_operation_leaves_a_sound_log(kind: str, power: str) -> None:
    act, is_sound = ACTIONS[kind]
    step, is_finished = 0, False
    while not is_finished:
        disk = cast(MemoryDisk, memory_place().disk)
        directory = opened(disk)
        log = filled(directory)
        is_finished = finishes(disk, partial(act, directory, log), step, power)
        again = opened(disk)
        recovered = again.logs.get(PARTITION)
        if recovered is None:
            assert kind == "a deletion", step
        else:
            found = contents(recovered)
            assert is_sound(found), step
            again.abandon()
            again = opened(disk)
            report = again.logs[PARTITION].recovery_report
            assert contents(again.logs[PARTITION]) == found
            assert report.cut_size == report.segments_removed == len(report.files_removed) == 0
        again.close()
        step += 1
    assert step > 3


def lookups(log: Log) -> list[object]:
    """Every record found by its offset and by its time."""
    found: list[object] = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        part = log.read(offset, max_bytes=1, up_to=log.log_end_offset)
        found.append((part.first_offset, part.next_offset, part.read()))
    found += [log.offset_for_timestamp(NOW_MS + time) for time in range(-1, 14)]
    return [*found, log.log_end_offset, log.leader_epochs.entries]


def timed(place: DiskAt) -> Log:
    log = place.log(TWO_SEGMENTS)
    for number, value in enumerate(VALUES):
        append(log, value, epoch=number // 5, timestamps=[NOW_MS + number], producer=(7, 0, number))
    return log


def restored(files: dict[str, bytes]) -> DiskAt:
    place = memory_place()
    directory = place.path / str(PARTITION)
    place.disk.make_directory(directory)
    for name, data in files.items():
        place.disk.write_file(directory / name, data, durable=False)
    return place


@pytest.mark.parametrize("is_flushed", [True, False])
def test_files_beside_a_log_may_be_cut_or_longer_at_any_byte(is_flushed: bool) -> None:
    place = memory_place()
    log = timed(place)
    expected, recovery_point = lookups(log), log.log_end_offset if is_flushed else 0
    log.close()
    files = place.files()
    beside = [name for name in files if not name.endswith((".log", ".metadata"))]
    assert {name.rpartition(".")[2] for name in beside} >= {"index", "timeindex", "snapshot"}
    for name in beside:
        data = files[name]
        damaged = [data[:position] for position in range(0, len(data), 1 if is_flushed else 11)]
        damaged += [data + data, data + bytes(8), data + b"\x7f" * 12, data + b"x"]
        for text in damaged:
            if is_flushed and name.endswith(".timeindex") and len(text) % 12 == 0:
                continue  # whole entries of a file that was synced: nothing tells
            again = restored({**files, name: text}).log(TWO_SEGMENTS, recovery_point=recovery_point)
            assert lookups(again) == expected, (name, len(text))
            repeated = build([VALUES[-1]], producer=(7, 0, len(VALUES) - 1), timestamps=[NOW_MS + 11])
            assert again.append(repeated, 2, now_ms=NOW_MS).duplicate


@pytest.mark.parametrize("name", [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE])
def test_a_checkpoint_cut_at_any_byte_loses_no_record(name: str) -> None:
    disk = cast(MemoryDisk, memory_place().disk)
    directory = opened(disk)
    log = filled(directory)
    log.advance_start(2)
    directory.checkpoints.store_offsets()
    append(log, b"not flushed", epoch=5)
    disk.kill()
    data = disk.read_file(ROOT / name)
    for size in range(len(data)):
        disk.write_file(ROOT / name, data[:size])
        again = opened(disk)
        found = contents(again.logs[PARTITION])
        assert found[-len(VALUES) + 1 :] == [*list(enumerate(VALUES))[2:], (len(VALUES), b"not flushed")]
        disk.kill()
