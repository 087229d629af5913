"""A disk that remembers which log directories failed, and touches nothing below those any more.

A log directory is a failure domain: one file of it that cannot be written, read or synced says that nothing
there can be relied on. The first DiskFailedError below a guarded root makes the root offline for the rest of
the process; from then on everything below it fails at once, except that open files and locks can be let go.
A disk that is full is no failed one. Nor is a file that is not there, as logs are deleted while others work
on them; only when the root has lost its own `meta.properties`, it is gone as a whole. Any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar

from broker.errors import DiskFailedError, MissingFileError, StorageError
from broker.storage.disk import DirectoryEntry, Disk, DiskLock, File, Space
from broker.storage.filenames import META_PROPERTIES_FILE
from broker.types import Buffer

P = ParamSpec("P")
T = TypeVar("T")

FailureObserver = Callable[[Path, StorageError], None]
"""Told once of each root that failed, in the thread that met the failure."""


class _Root:
    """One guarded directory."""

    __slots__ = ("_disk", "_lock", "_observer", "failure", "path", "prefix")

    def __init__(self, disk: Disk, path: Path, observer: FailureObserver) -> None:
        self._disk = disk
        self.path = path
        self.prefix = f"{path}{os.sep}"
        self.failure: StorageError | None = None
        self._observer = observer
        self._lock = Lock()

    def run(self, operation: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Do it unless the root has failed; a failure of the disk makes the root offline and goes on."""
        if self.failure is not None:
            raise DiskFailedError(f"{self.path} is offline: {self.failure}") from self.failure
        try:
            return operation(*arguments, **options)
        except DiskFailedError as error:
            self.fail(error)
            raise
        except MissingFileError as error:
            self._look_for_root(error)
            raise

    def _look_for_root(self, error: MissingFileError) -> None:
        """Raises DiskFailedError when it is the whole root that is missing."""
        try:
            if self._disk.exists(self.path / META_PROPERTIES_FILE):
                return
        except DiskFailedError as failure:
            self.fail(failure)
            raise
        gone = DiskFailedError(f"{self.path} is gone: {error}")
        self.fail(gone)
        raise gone from error

    def fail(self, error: StorageError) -> None:
        """Touch nothing below any more; without effect on a root that failed before."""
        with self._lock:
            is_first, self.failure = self.failure is None, self.failure or error
        if is_first:
            self._observer(self.path, error)


class _Unguarded(_Root):
    """Where no root is: every failure is the caller's only."""

    __slots__ = ()

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk, Path(), lambda path, error: None)

    def run(self, operation: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return operation(*arguments, **options)


class GuardedFile:
    """An open file below a guarded root."""

    __slots__ = ("_file", "_run")

    def __init__(self, file: File, root: _Root) -> None:
        self._file = file
        self._run = root.run

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._run(self._file.size)

    def pread(self, size: int, position: int) -> bytes:
        return self._run(self._file.pread, size, position)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        return self._run(self._file.pread_into, buffer, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._run(self._file.pwrite, data, position)

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        self._run(self._file.pwritev, parts, position)

    def truncate(self, size: int) -> None:
        self._run(self._file.truncate, size)

    def sync(self) -> None:
        self._run(self._file.sync)

    def close(self) -> None:
        self._file.close()


class GuardedDisk:
    """Implements the disk port on another one; paths below no guarded root go straight through."""

    def __init__(self, disk: Disk, on_failure: FailureObserver) -> None:
        self._disk = disk
        self._on_failure = on_failure
        self._roots: tuple[_Root, ...] = ()
        self._free = _Unguarded(disk)

    def guard(self, root: Path) -> None:
        """Watch everything below `root` from now on."""
        self._roots = (*self._roots, _Root(self._disk, root, self._on_failure))

    def give_up(self, root: Path, error: StorageError) -> None:
        """Take a guarded root offline, for a reason that need not be a failure of its disk."""
        self._root_of(root).fail(error)

    @property
    def boot_id(self) -> str | None:
        return self._disk.boot_id

    def open(self, path: Path, *, create: bool = False) -> File:
        root = self._root_of(path)
        file = root.run(self._disk.open, path, create=create)
        return file if root is self._free else GuardedFile(file, root)

    def exists(self, path: Path) -> bool:
        return self._root_of(path).run(self._disk.exists, path)

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        return self._root_of(path).run(self._disk.list_directory, path)

    def list_names(self, path: Path) -> list[str]:
        return self._root_of(path).run(self._disk.list_names, path)

    def read_file(self, path: Path) -> bytes:
        return self._root_of(path).run(self._disk.read_file, path)

    def write_file(self, path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
        self._root_of(path).run(self._disk.write_file, path, data, durable=durable, private=private)

    def rename(self, old: Path, new: Path) -> None:
        self._root_of(old).run(self._disk.rename, old, new)

    def remove(self, path: Path) -> None:
        self._root_of(path).run(self._disk.remove, path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        self._root_of(path).run(self._disk.set_modified, path, modified_ms)

    def make_directory(self, path: Path) -> None:
        self._root_of(path).run(self._disk.make_directory, path)

    def remove_directory(self, path: Path) -> None:
        self._root_of(path).run(self._disk.remove_directory, path)

    def sync_directory(self, path: Path) -> None:
        self._root_of(path).run(self._disk.sync_directory, path)

    def lock(self, path: Path) -> DiskLock:
        return self._root_of(path).run(self._disk.lock, path)

    def space(self, path: Path) -> Space:
        return self._root_of(path).run(self._disk.space, path)

    def _root_of(self, path: Path) -> _Root:
        text = os.fspath(path)
        for root in self._roots:
            if text.startswith(root.prefix) or path == root.path:
                return root
        return self._free
