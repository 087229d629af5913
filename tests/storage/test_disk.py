"""Both disks keep the same promises; the one in memory also forgets as a machine without power does."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import StorageError
from broker.storage.disk import SystemDisk
from broker.storage.memory_disk import SECTOR_SIZE, MemoryDisk
from tests.storage.samples import DiskAt


def test_what_is_written_is_read(place: DiskAt) -> None:
    file = place.disk.open(place.path / "a", create=True)
    file.pwrite(b"hello world", 0)
    file.pwritev([b"--", memoryview(b"=="), bytearray(b"!")], 5)
    assert file.pread(100, 0) == b"hello--==!d"
    assert file.pread(2, 3) == b"lo"
    assert file.pread(5, 50) == b""
    buffer = bytearray(20)
    assert file.pread_into(buffer, 4) == 7
    assert buffer[:7] == b"o--==!d"
    file.truncate(3)
    assert file.size() == 3
    file.sync()
    file.close()
    assert place.disk.read_file(place.path / "a") == b"hel"


def test_many_parts_are_written_as_one(place: DiskAt) -> None:
    parts = [b"%d," % index for index in range(3000)]
    file = place.disk.open(place.path / "a", create=True)
    file.pwritev(parts, 1)
    assert file.pread(1 << 20, 1) == b"".join(parts)
    file.close()


def test_a_small_file_is_replaced_as_a_whole(place: DiskAt) -> None:
    path = place.path / "checkpoint"
    place.disk.write_file(path, b"a long first content")
    place.disk.write_file(path, b"second", durable=False)
    assert place.disk.read_file(path) == b"second"
    assert [entry.name for entry in place.disk.list_directory(place.path)] == ["checkpoint"]


def test_directories_are_listed_renamed_and_removed(place: DiskAt) -> None:
    disk, root = place.disk, place.path
    disk.make_directory(root / "a" / "b")
    disk.make_directory(root / "a" / "b")
    disk.write_file(root / "a" / "b" / "file", b"123")
    disk.rename(root / "a", root / "c")
    assert [(e.name, e.is_directory) for e in disk.list_directory(root)] == [("c", True)]
    assert [(e.name, e.is_directory, e.size) for e in disk.list_directory(root / "c" / "b")] == [
        ("file", False, 3)
    ]
    assert disk.list_names(root / "c" / "b") == ["file"]
    with pytest.raises(StorageError, match="not empty"):
        disk.remove_directory(root / "c")
    disk.remove(root / "c" / "b" / "file")
    disk.remove(root / "c" / "b" / "file")
    disk.remove_directory(root / "c" / "b")
    disk.remove_directory(root / "c")
    assert not disk.exists(root / "c")


@pytest.mark.parametrize("action", ["open", "read_file", "list_directory", "list_names", "rename"])
def test_failures_name_the_operation_and_the_path(place: DiskAt, action: str) -> None:
    missing = place.path / "missing"
    arguments = (missing, place.path / "new") if action == "rename" else (missing,)
    with pytest.raises(StorageError, match="missing"):
        getattr(place.disk, action)(*arguments)


def test_a_lock_is_refused_while_it_is_held(place: DiskAt) -> None:
    held = place.disk.lock(place.path / ".lock")
    with pytest.raises(StorageError, match="another process"):
        place.disk.lock(place.path / ".lock")
    held.release()
    place.disk.lock(place.path / ".lock").release()


def test_a_lock_held_by_another_process_is_refused(tmp_path: Path) -> None:
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"  # the lock that a JVM takes
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StorageError, match="another process"):
            SystemDisk().lock(tmp_path / ".lock")
        holder.communicate()
    SystemDisk().lock(tmp_path / ".lock").release()


def test_a_lock_is_known_again_and_a_copy_is_another(tmp_path: Path) -> None:
    disk = SystemDisk()
    lock = disk.lock(tmp_path / ".lock")
    copy = disk.lock(tmp_path / "copy")
    assert lock.identity is not None
    assert copy.identity != lock.identity
    lock.release()
    again = disk.lock(tmp_path / ".lock")
    assert again.identity == lock.identity
    for held in (copy, again):
        held.release()


def test_a_private_file_is_its_users_alone_whatever_a_crash_left(tmp_path: Path) -> None:
    path, temporary = tmp_path / "file", tmp_path / "file.tmp"
    temporary.write_bytes(b"left, and longer than what is written")
    temporary.chmod(0o666)
    SystemDisk().write_file(path, b"secret", private=True)
    assert path.read_bytes() == b"secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_to_nowhere_does_not_stop_a_listing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert [entry.name for entry in SystemDisk().list_directory(tmp_path)] == ["link"]


def test_what_is_removed_while_a_directory_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    @contextmanager
    def scan_then_lose(path: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scan(path) as entries:
            found = list(entries)
        (path / "lost").unlink()
        yield found

    for name in ("kept", "lost"):
        (tmp_path / name).touch()
    monkeypatch.setattr(os, "scandir", scan_then_lose)
    assert [entry.name for entry in SystemDisk().list_directory(tmp_path)] == ["kept"]


def test_a_loss_of_power_takes_what_was_not_synced() -> None:
    disk = MemoryDisk()
    synced = disk.open(Path("/synced"), create=True)
    synced.pwrite(b"kept", 0)
    synced.sync()
    disk.sync_directory(Path("/"))
    synced.pwrite(b"lost", 4)
    nameless = disk.open(Path("/nameless"), create=True)
    nameless.pwrite(b"data", 0)
    nameless.sync()
    disk.crash()
    assert disk.read_file(Path("/synced")) == b"kept"
    assert not disk.exists(Path("/nameless"))
    with pytest.raises(StorageError, match="not open"):
        synced.pread(1, 0)


def test_the_end_of_a_process_loses_no_bytes() -> None:
    disk = MemoryDisk()
    file = disk.open(Path("/a"), create=True)
    file.pwrite(b"data", 0)
    disk.lock(Path("/.lock"))
    disk.kill()
    assert disk.read_file(Path("/a")) == b"data"
    disk.lock(Path("/.lock"))


def test_a_full_disk_takes_a_part_of_a_write() -> None:
    disk = MemoryDisk()
    file = disk.open(Path("/a"), create=True)
    disk.space_left = 3
    with pytest.raises(StorageError, match="No space"):
        file.pwrite(b"12345", 0)
    assert file.pread(10, 0) == b"123"


@given(st.integers(), st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 1500)), min_size=1, max_size=8))
def test_a_torn_loss_keeps_only_bytes_that_were_written_there(
    seed: int, writes: list[tuple[int, int]]
) -> None:
    disk = MemoryDisk()
    file = disk.open(Path("/a"), create=True)
    disk.sync_directory(Path("/"))
    candidates: dict[int, set[int]] = {}
    for index, (position, size) in enumerate(writes):
        file.pwrite(bytes([index + 1]) * size, position)
        for at in range(position, position + size):
            candidates.setdefault(at, {0}).add(index + 1)
    disk.crash(Random(seed))
    for at, byte in enumerate(disk.read_file(Path("/a"))):
        assert byte in candidates.get(at, {0})


def test_a_torn_loss_goes_by_sectors() -> None:
    outcomes = set()
    for seed in range(200):
        disk = MemoryDisk()
        file = disk.open(Path("/a"), create=True)
        disk.sync_directory(Path("/"))
        file.pwrite(b"x" * (2 * SECTOR_SIZE), 0)
        disk.crash(Random(seed))
        data = disk.read_file(Path("/a"))
        outcomes.add((data[:1], data[SECTOR_SIZE : SECTOR_SIZE + 1]))
    assert outcomes == {(b"", b""), (b"x", b"x"), (b"\0", b"x"), (b"x", b"\0"), (b"\0", b"\0")}


def test_what_is_synced_in_a_new_directory_is_not_taken_along_by_the_renaming_of_the_former_one() -> None:
    disk = MemoryDisk()
    data, log = Path("/data"), Path("/data/t-0")
    disk.make_directory(log)
    disk.write_file(log / "former", b"1")
    for path in (Path("/"), data):
        disk.sync_directory(path)
    disk.rename(log, data / "t-0.delete")
    disk.make_directory(log)
    disk.write_file(log / "new", b"2")
    disk.sync_directory(data)
    disk.crash()
    assert disk.list_names(log) == ["new"]
    assert disk.list_names(data / "t-0.delete") == ["former"]


def test_what_was_made_in_a_directory_goes_along_when_that_is_renamed_for_good() -> None:
    for seed in range(20):
        disk = MemoryDisk()
        disk.make_directory(Path("/data/t"))
        disk.sync_directory(Path("/data"))
        disk.open(Path("/data/t/log"), create=True).close()
        disk.rename(Path("/data/t"), Path("/data/t-delete"))
        disk.sync_directory(Path("/data"))
        disk.crash(Random(seed))
        disk.make_directory(Path("/data/t"))
        assert disk.list_directory(Path("/data/t")) == []
