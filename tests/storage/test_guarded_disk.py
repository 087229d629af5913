"""A disk that fails below one root: what it takes with it, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.errors import DiskFailedError, DiskFullError, MissingFileError
from broker.storage.guarded_disk import GuardedDisk
from broker.storage.memory_disk import MemoryDisk

BAD, GOOD = Path("/bad"), Path("/good")


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    for root in (BAD, GOOD, Path("/badly-named")):
        disk.make_directory(root)
    return disk


@pytest.fixture
def told() -> list[Path]:
    return []


@pytest.fixture
def guarded(disk: MemoryDisk, told: list[Path]) -> GuardedDisk:
    guarded = GuardedDisk(disk, lambda root, error: told.append(root))
    guarded.guard(BAD)
    guarded.guard(GOOD)
    return guarded


def test_a_failure_below_a_root_is_told_once_and_ends_the_root(
    disk: MemoryDisk, guarded: GuardedDisk, told: list[Path]
) -> None:
    file = guarded.open(BAD / "a", create=True)
    file.pwrite(b"x", 0)
    disk.syncs_fail = True
    with pytest.raises(DiskFailedError, match="cannot sync"):
        file.sync()
    disk.syncs_fail = False
    syncs = disk.sync_count
    for action in (
        file.sync,
        file.size,
        lambda: file.pwrite(b"y", 1),
        lambda: file.pread(1, 0),
        lambda: file.truncate(0),
        lambda: guarded.open(BAD / "b", create=True),
        lambda: guarded.write_file(BAD / "c", b""),
        lambda: guarded.rename(BAD / "a", BAD / "d"),
        lambda: guarded.remove(BAD / "a"),
        lambda: guarded.list_directory(BAD),
        lambda: guarded.list_names(BAD),
        lambda: guarded.sync_directory(BAD),
        lambda: guarded.space(BAD),
    ):
        with pytest.raises(DiskFailedError, match="is offline"):
            action()
    file.close()
    assert told == [BAD]
    assert disk.sync_count == syncs
    assert [entry.name for entry in disk.list_directory(BAD)] == ["a"]
    assert disk.read_file(BAD / "a") == b"x"


def test_other_roots_go_on(disk: MemoryDisk, guarded: GuardedDisk, told: list[Path]) -> None:
    disk.failed_roots.add(BAD)
    with pytest.raises(DiskFailedError):
        guarded.exists(BAD / "a")
    guarded.write_file(GOOD / "a", b"fine")
    guarded.write_file(Path("/badly-named/a"), b"fine")
    assert guarded.read_file(GOOD / "a") == b"fine"
    assert told == [BAD]


def test_a_root_that_is_gone_is_a_failure(disk: MemoryDisk, guarded: GuardedDisk, told: list[Path]) -> None:
    with pytest.raises(DiskFailedError, match="is gone"):
        guarded.write_file(BAD / "t-0" / "file", b"")
    assert told == [BAD]


def test_a_full_disk_and_a_missing_file_are_no_failures(
    disk: MemoryDisk, guarded: GuardedDisk, told: list[Path]
) -> None:
    guarded.write_file(BAD / "meta.properties", b"")
    file = guarded.open(BAD / "a", create=True)
    disk.space_left = 3
    with pytest.raises(DiskFullError):
        file.pwrite(b"too much", 0)
    for missing in (
        lambda: guarded.open(BAD / "missing"),
        lambda: guarded.open(BAD / "t-0" / "missing", create=True),
        lambda: guarded.rename(BAD / "t-0", BAD / "t-1"),
        lambda: guarded.sync_directory(BAD / "t-0"),
    ):
        with pytest.raises(MissingFileError):
            missing()
    disk.space_left = None
    file.pwrite(b"fits", 0)
    assert told == []
