"""A disk in memory that forgets what was not synced: for tests and for the simulator.

It is harsher than real file systems, so that what survives here survives there:

- Bytes written to a file are safe only after `sync` on it; names (create, rename, remove) only after
  `sync_directory` on their directory, and syncing a file does not save its name.
- `crash()` is a loss of power. Without a random generator everything unsynced is gone. With one, each file
  keeps a prefix of its unsynced operations in which any sector of a write may be missing (it reads as what
  was there before, or zeros), and the names keep a prefix of their changes: data and names are torn
  independently.
- `kill()` is the end of the process: nothing is lost, but open files and locks are gone.

Faults can be set: `space_left` bounds the bytes that can still be written (the write that crosses it is cut
short, as ENOSPC does), `syncs_fail` makes each sync raise, `failed_roots` names directories below which
everything does. Any thread; a crash comes from the one that owns the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Lock
from typing import NamedTuple

from broker.clock import Clock
from broker.errors import DiskFailedError, DiskFullError, MissingFileError, StorageError
from broker.storage.disk import TEMPORARY_SUFFIX, DirectoryEntry, Space
from broker.types import Buffer

SECTOR_SIZE = 512
MEMORY_SIZE = 1 << 40
"""How large such a disk says that it is."""


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class _Node:
    """A file's bytes as seen now, as they would survive, and the operations in between."""

    __slots__ = ("current", "durable", "modified_ms", "pending")

    def __init__(self, modified_ms: int) -> None:
        self.current = bytearray()
        self.durable = bytearray()
        self.pending: list[_Write | _Truncate] = []
        self.modified_ms = modified_ms


class _Create(NamedTuple):
    path: Path
    node: _Node | None  # None: a directory


class _Rename(NamedTuple):
    path: Path
    new: Path


class _Remove(NamedTuple):
    path: Path


_Names = dict[Path, _Node | None]
_NameChange = _Create | _Rename | _Remove


class MemoryFile:
    """An open file of a MemoryDisk."""

    __slots__ = ("_closed", "_disk", "_generation", "_node", "_path")

    def __init__(self, disk: MemoryDisk, node: _Node, path: Path) -> None:
        self._disk = disk
        self._generation = disk.generation
        self._node = node
        self._path = path
        self._closed = False

    def fileno(self) -> int:
        raise StorageError(f"{self._path} lives in memory and has no descriptor")

    def size(self) -> int:
        return len(self._open_node().current)

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._open_node().current[position : position + size])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        view = memoryview(buffer)
        data = self.pread(len(view), position)
        view[: len(data)] = data
        return len(data)

    def pwrite(self, data: Buffer, position: int) -> None:
        node = self._open_node()
        accepted = self._disk.take_space(len(data))
        operation = _Write(position, bytes(data[:accepted]))
        _apply(node.current, operation)
        node.pending.append(operation)
        node.modified_ms = self._disk.now_ms()
        if accepted < len(data):
            raise DiskFullError(f"cannot write {self._path}: No space left on device")

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(parts), position)

    def truncate(self, size: int) -> None:
        node = self._open_node()
        operation = _Truncate(size)
        _apply(node.current, operation)
        node.pending.append(operation)
        node.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        node = self._open_node()
        self._disk.check_sync(self._path)
        operations, node.pending = node.pending, []
        for operation in operations:
            _apply(node.durable, operation)

    def close(self) -> None:
        self._closed = True

    def _open_node(self) -> _Node:
        if self._closed or self._generation != self._disk.generation:
            raise StorageError(f"{self._path} is not open")
        self._disk.check_not_failed(self._path)
        return self._node


class MemoryLock:
    """A lock on a MemoryDisk, gone with the process that held it."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: MemoryDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    @property
    def identity(self) -> str:
        return f"memory/{id(self._disk)}{self._path}"

    def release(self) -> None:
        self._disk.unlock(self._path)


class MemoryDisk:
    """A file system in memory, with the root directory present."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._names: _Names = {Path("/"): None}
        self._durable_names: _Names = {Path("/"): None}
        self._journal: list[_NameChange] = []
        self._unreachable: list[_NameChange] = []
        """Changes that are durable in a directory whose name is still another's on the disk."""
        self._locks: set[Path] = set()
        self._lock = Lock()
        self.generation = 0
        self.boots = 1
        self.space_left: int | None = None
        self.syncs_fail = False
        self.failed_roots: set[Path] = set()
        self.sync_count = 0

    @property
    def boot_id(self) -> str:
        """Another one after each `crash`."""
        return f"boot-{self.boots}"

    def open(self, path: Path, *, create: bool = False) -> MemoryFile:
        self.check_not_failed(path)
        if path not in self._names:
            if not create:
                raise MissingFileError(f"cannot open {path}: No such file or directory")
            self._need_directory(path.parent)
            self._change(_Create(path, _Node(self.now_ms())))
        return MemoryFile(self, self._node(path), path)

    def exists(self, path: Path) -> bool:
        self.check_not_failed(path)
        return path in self._names

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        self._need_directory(path)
        with self._lock:
            found = sorted(
                (child, node) for child, node in self._names.items() if child.parent == path != child
            )
        return [
            DirectoryEntry(
                child.name, node is None, len(node.current) if node else 0, node.modified_ms if node else 0
            )
            for child, node in found
        ]

    def list_names(self, path: Path) -> list[str]:
        return [entry.name for entry in self.list_directory(path)]

    def read_file(self, path: Path) -> bytes:
        return bytes(self._node(path).current)

    def write_file(self, path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        if durable:
            file.sync()
        file.close()
        self.rename(temporary, path)
        if durable:
            self.sync_directory(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        if old not in self._names:
            raise MissingFileError(f"cannot rename {old}: No such file or directory")
        self._need_directory(new.parent)
        self._change(_Rename(old, new))

    def remove(self, path: Path) -> None:
        if path in self._names:
            self._change(_Remove(path))

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def make_directory(self, path: Path) -> None:
        for directory in reversed((path, *path.parents)):
            if directory not in self._names:
                self._change(_Create(directory, None))

    def remove_directory(self, path: Path) -> None:
        if self.list_directory(path):
            raise StorageError(f"cannot remove directory {path}: Directory not empty")
        self._change(_Remove(path))

    def sync_directory(self, path: Path) -> None:
        self._need_directory(path)
        self.check_sync(path)
        with self._lock:
            synced = self._take_changes_in(path)
            if any(_frees(change, path) for change in self._journal):
                self._unreachable += synced
                return
            for change in synced:
                _apply_name(self._durable_names, change)
            self._reach(self._journal)

    def _take_changes_in(self, directory: Path) -> list[_NameChange]:
        """Take the unsaved changes in a directory out of the journal. Earlier ones below what they move or
        remove go along: those are in the directory whatever it is called.
        """
        taken: list[_NameChange] = []
        left: list[_NameChange] = []
        for change in self._journal:
            if change.path.parent != directory:
                left.append(change)
                continue
            taken.append(change)
            if not isinstance(change, _Create):
                left = [moved for each in left if (moved := _moved_along(each, change)) is not None]
        self._journal = left
        return taken

    def _reach(self, unsaved: Sequence[_NameChange]) -> None:
        """Apply what is in directories whose names none of the `unsaved` changes took from another."""
        unreachable, self._unreachable = self._unreachable, []
        for change in unreachable:
            if any(_frees(other, change.path.parent) for other in unsaved):
                self._unreachable.append(change)
            else:
                _apply_name(self._durable_names, change)

    def space(self, path: Path) -> Space:
        self.check_not_failed(path)
        return Space(MEMORY_SIZE, MEMORY_SIZE if self.space_left is None else self.space_left)

    def lock(self, path: Path) -> MemoryLock:
        self.check_not_failed(path)
        if path in self._locks:
            raise StorageError(f"{path} is locked: another process uses {path.parent}")
        self.open(path, create=True).close()
        self._locks.add(path)
        return MemoryLock(self, path)

    def unlock(self, path: Path) -> None:
        self._locks.discard(path)

    def kill(self) -> None:
        """End the process: what was written stays, open files and locks are gone."""
        self.generation += 1
        self._locks.clear()

    def crash(self, random: Random | None = None) -> None:
        """Cut the power; see the module's description for what is kept."""
        self.kill()
        self.boots += 1
        kept = 0 if random is None else random.randint(0, len(self._journal))
        for change in self._journal[:kept]:
            _apply_name(self._durable_names, change)
        self._reach(self._journal[kept:])
        self._journal, self._unreachable = [], []
        self._names = dict(self._durable_names)
        for node in self._names.values():
            if node is not None:
                _lose_unsynced(node, random)

    def take_space(self, size: int) -> int:
        """How many of `size` bytes fit on the disk; they are taken."""
        if self.space_left is None:
            return size
        accepted = min(size, self.space_left)
        self.space_left -= accepted
        return accepted

    def check_sync(self, path: Path) -> None:
        """Count a sync. Raises StorageError when syncs are set to fail."""
        self.sync_count += 1
        if self.syncs_fail:
            raise DiskFailedError(f"cannot sync {path}: Input/output error")

    def check_not_failed(self, path: Path) -> None:
        """Raises DiskFailedError below a root that is set to fail."""
        if any(root == path or root in path.parents for root in self.failed_roots):
            raise DiskFailedError(f"cannot use {path}: Input/output error")

    def now_ms(self) -> int:
        return self._clock.now_ms() if self._clock else 0

    def _change(self, change: _NameChange) -> None:
        self.check_not_failed(change.path)
        with self._lock:
            _apply_name(self._names, change)
            self._journal.append(change)

    def _node(self, path: Path) -> _Node:
        self.check_not_failed(path)
        node = self._names.get(path)
        if node is None:
            raise MissingFileError(f"cannot open {path}: No such file or directory")
        return node

    def _need_directory(self, path: Path) -> None:
        self.check_not_failed(path)
        if path not in self._names:
            raise MissingFileError(f"cannot use {path}: No such file or directory")
        if self._names[path] is not None:
            raise StorageError(f"{path} is no directory")


def _apply(data: bytearray, operation: _Write | _Truncate) -> None:
    end = operation.size if isinstance(operation, _Truncate) else operation.position + len(operation.data)
    if end > len(data):
        data.extend(bytes(end - len(data)))
    if isinstance(operation, _Truncate):
        del data[operation.size :]
    else:
        data[operation.position : end] = operation.data


def _frees(change: _NameChange, path: Path) -> bool:
    """Whether the change moves or removes what has this name, so that something else may have it."""
    return change.path == path and not isinstance(change, _Create)


def _moved_along(change: _NameChange, with_directory: _Rename | _Remove) -> _NameChange | None:
    """A change below what is renamed or removed; None when that makes it void."""
    directory = with_directory.path
    if directory not in change.path.parents:
        return change
    if isinstance(with_directory, _Remove):
        return None
    change = change._replace(path=with_directory.new / change.path.relative_to(directory))
    if isinstance(change, _Rename) and directory in change.new.parents:
        change = change._replace(new=with_directory.new / change.new.relative_to(directory))
    return change


def _apply_name(names: _Names, change: _NameChange) -> None:
    """Apply to a set of names that may lack what an unsaved earlier change would have made."""
    if isinstance(change, _Create):
        names[change.path] = change.node
        return
    if names.get(change.path) is not None:
        moved = [change.path]  # a file, with nothing below it
    else:
        moved = [path for path in names if path == change.path or change.path in path.parents]
    for path in moved:
        node = names.pop(path)
        if isinstance(change, _Rename):
            names[change.new / path.relative_to(change.path)] = node


def _lose_unsynced(node: _Node, random: Random | None) -> None:
    kept = 0 if random is None else random.randint(0, len(node.pending))
    for operation in node.pending[:kept]:
        _apply(node.durable, _torn(operation, node.durable, random) if random else operation)
    node.pending = []
    node.current = bytearray(node.durable)


def _torn(operation: _Write | _Truncate, durable: bytearray, random: Random) -> _Write | _Truncate:
    """The operation as a disk may have done it: three times in four whole, else with sectors missing."""
    if isinstance(operation, _Truncate) or random.random() < 0.75:
        return operation
    data = bytearray(operation.data)
    for start in range(0, len(data), SECTOR_SIZE):
        if random.random() < 0.5:
            size = len(data[start : start + SECTOR_SIZE])
            before = bytes(durable[operation.position + start : operation.position + start + size])
            data[start : start + size] = before.ljust(size, b"\0")
    return _Write(operation.position, bytes(data))
