"""The one place that opens segment files: descriptors are bounded, and those in use stay open.

A `PooledFile` is a path that is opened when it is first needed. While it is pinned its descriptor stays,
whatever happens to the file: a segment that retention removes can still be sent to the end. When more than
`files_max` files are open, those not used for longest (second chance: an approximation that costs a flag on
each use) and not pinned are closed; if all are pinned the bound is exceeded rather than anybody refused. Any
thread.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from threading import Lock

from broker.errors import StorageError
from broker.storage.disk import Disk, File

FILES_MAX = 10_000
"""Bound of a pool, unless the process may not open twice as many descriptors: then half of those."""


class FilePool:
    """All open segment files of a process, or of a data directory."""

    def __init__(self, disk: Disk, *, files_max: int | None = None) -> None:
        descriptors_max, _ = getrlimit(RLIMIT_NOFILE)
        self.disk = disk
        self.lock = Lock()
        self._files_max = min(FILES_MAX, descriptors_max // 2) if files_max is None else files_max
        self._open: OrderedDict[PooledFile, None] = OrderedDict()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def file(self, directory: Path, name: str, *, create: bool = False) -> PooledFile:
        """A file by its directory, which its files share, and name; opened at first use, when `create` makes
        an empty one if there is none.
        """
        return PooledFile(self, directory, name, create=create)

    def admit(self, opened: PooledFile) -> None:
        """Count a file that was just opened, closing others above the bound. The caller holds the lock."""
        self._open[opened] = None
        chances = 2 * len(self._open)
        while len(self._open) > self._files_max and chances:
            chances -= 1
            candidate, _ = self._open.popitem(last=False)
            if not candidate.close_if_idle():
                self._open[candidate] = None

    def forget(self, closed: PooledFile) -> None:
        """A file was closed for good. The caller holds the lock."""
        self._open.pop(closed, None)


class PooledFile:
    """One file by its path; see the module's description."""

    __slots__ = ("_create", "_directory", "_file", "_name", "_pins", "_pool", "_retired", "_used")

    def __init__(self, pool: FilePool, directory: Path, name: str, *, create: bool) -> None:
        self._directory = directory
        self._name = name
        self._pool = pool
        self._create = create
        self._file: File | None = None
        self._pins = 0
        self._used = False
        self._retired = False

    @property
    def path(self) -> Path:
        return self._directory / self._name

    @property
    def pinned(self) -> bool:
        return self._pins > 0

    def pin(self) -> File:
        """The open file, kept open until as many releases. Raises StorageError when it cannot be opened or
        was retired.
        """
        with self._pool.lock:
            file = self._file
            if file is None:
                file = self._opened()
            self._used = True
            self._pins += 1
            return file

    def __enter__(self) -> File:
        return self.pin()

    def __exit__(self, *_: object) -> None:
        self.release()

    def open_apart(self) -> File:
        """The file opened for one pass of the caller, who closes it: in the pool nothing gives way to what
        nobody may want again. Raises StorageError.
        """
        return self._pool.disk.open(self.path)

    def release(self) -> None:
        """Undo one `pin`."""
        with self._pool.lock:
            self._pins -= 1
            if self._retired and not self._pins:
                self._close()

    def retire(self) -> None:
        """Close the file for good, once nobody pins it any more."""
        with self._pool.lock:
            if self._file is not None and not self._retired:
                self._pool.forget(self)
            self._retired = True
            if not self._pins:
                self._close()

    def close_if_idle(self) -> bool:
        """Close the file unless it is pinned or was used since the last call. The caller holds the lock."""
        if self._pins or self._used:
            self._used = False
            return False
        self._close()
        return True

    def _opened(self) -> File:
        if self._retired:
            raise StorageError(f"{self.path} was closed")
        self._file = self._pool.disk.open(self.path, create=self._create)
        self._pins += 1  # not to be the one that makes room for itself
        self._pool.admit(self)
        self._pins -= 1
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
