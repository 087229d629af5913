"""A log that was closed cleanly is opened by what its end noted; whatever does not fit that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.clock import Clock
from broker.errors import StorageError
from broker.storage.closed_logs import ClosedLog, read_closed_logs, write_closed_logs
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk, MemoryFile
from broker.types import BrokerId, TopicPartition
from tests.storage.conftest import memory_place
from tests.storage.samples import PARTITION, DiskAt, ManualClock, append, contents, numbered

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=0)


class WatchedDisk(MemoryDisk):
    """Notes what is opened, read as a whole, listed and written as a whole, by name."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.opened: list[str] = []
        self.read: list[str] = []
        self.listed: list[str] = []
        self.written: list[str] = []

    def open(self, path: Path, *, create: bool = False) -> MemoryFile:
        self.opened.append(path.name)
        return super().open(path, create=create)

    def read_file(self, path: Path) -> bytes:
        self.read.append(path.name)
        return super().read_file(path)

    def list_directory(self, path: Path):  # type: ignore[no-untyped-def]
        self.listed.append(path.name)
        return super().list_directory(path)

    def write_file(self, path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
        self.written.append(path.name)
        super().write_file(path, data, durable=durable, private=private)

    def forget(self) -> None:
        for names in (self.opened, self.read, self.listed, self.written):
            names.clear()


def filled(place: DiskAt) -> Log:
    log = place.log(CONFIG)
    for number in range(9):
        append(log, *numbered(1 + number % 2), producer=(9, 0, log.log_end_offset))
    return log


def reopened(place: DiskAt, closed: ClosedLog | None) -> Log:
    return place.log(
        CONFIG, clean=True, closed=closed, recovery_point=closed.end_offset if closed is not None else 0
    )


def indexes(place: DiskAt) -> dict[str, bytes]:
    return {name: data for name, data in place.files().items() if name.endswith("index")}


def test_a_root_that_was_closed_cleanly_is_opened_without_reading_data() -> None:
    disk = WatchedDisk()
    path = Path("/data")
    directory = LogDirectory.open(disk, path, ManualClock(), broker_id=BrokerId(1), cluster_id="c")
    directory.load(lambda _: CONFIG)
    for number in range(3):
        log = directory.create_log(TopicPartition("t", number), None, CONFIG)
        for _ in range(number * 5):
            append(log, b"value")
    directory.close()
    for _ in range(2):
        disk.forget()
        directory = LogDirectory.open(disk, path, ManualClock(), broker_id=BrokerId(1), cluster_id="c")
        logs = directory.load(lambda _: CONFIG)
        assert [log.log_end_offset for log in logs.values()] == [0, 5, 10]
        assert not [name for name in disk.opened + disk.read if name.endswith(("log", "index"))]
        assert disk.listed.count("t-2") == 2  # once to see that it is a partition's, once to open it
        disk.forget()
        directory.close()
        assert not [
            name for name in disk.opened + disk.written if name.endswith(("log", "index", "snapshot"))
        ]


def test_a_log_opened_by_its_end_goes_on_as_if_never_closed() -> None:
    place, other = memory_place(), memory_place()
    closed, unclosed = filled(place), filled(other)
    again = reopened(place, closed.close())
    assert contents(again) == contents(unclosed)
    for log in (again, unclosed):
        for _ in range(8):
            append(log, *numbered(2), producer=(9, 0, log.log_end_offset))
    for log in (again, unclosed):
        log.close()
    files, snapshot = place.files(), "00000000000000000013.snapshot"
    assert files.keys() - other.files().keys() == {snapshot}  # of the first close
    assert other.files() == {name: data for name, data in files.items() if name != snapshot}


@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_log_whose_files_are_not_as_they_were_left_is_read(kind: str) -> None:
    place = memory_place()
    log = filled(place)
    expected = contents(log)
    closed = log.close()
    name = max(name for name in place.files() if name.endswith(kind))
    place.overwrite(name, place.files()[name][:-1])
    again = reopened(place, closed)
    cut = 1 if kind == ".log" else 0
    assert contents(again) == expected[: len(expected) - cut]
    assert append(again, b"next") == len(expected) - cut


def test_an_emptied_index_is_made_anew_by_the_first_lookup() -> None:
    place = memory_place()
    log = filled(place)
    closed = log.close()
    before = indexes(place)
    name = min(before)
    place.overwrite(name, b"")
    again = reopened(place, closed)
    assert again.recovery_report.indexes_rebuilt == 0
    contents(again)
    assert indexes(place) == before


def test_what_is_stored_is_read_back_and_damage_is_named(place: DiskAt) -> None:
    path = place.path / "log-ends-checkpoint"
    assert read_closed_logs(place.disk, path) == {}
    closed = {
        PARTITION: ClosedLog(9, 0, 700, 16, 24, -1, 0, 80, 1, 4),
        TopicPartition("a", 3): ClosedLog(*range(10)),
    }
    write_closed_logs(place.disk, path, closed)
    assert read_closed_logs(place.disk, path) == closed
    place.disk.write_file(path, b"0\n1\nflights 0 1 2 3\n")
    with pytest.raises(StorageError, match=":3: malformed entry"):
        read_closed_logs(place.disk, path)


def test_damage_to_the_first_batch_of_the_newest_segment_hinders_no_append() -> None:
    place = memory_place()
    log = place.log(CONFIG)
    append(log, b"lost")
    append(log, b"kept")
    closed = log.close()
    name = f"{0:020d}.log"
    data = place.files()[name]
    place.overwrite(name, bytes(40) + data[40:])
    log = reopened(place, closed)
    assert append(log, b"new") == 2
    assert log.log_end_offset == 3
