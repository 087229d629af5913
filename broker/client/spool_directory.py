"""The files of a spool: one for each parked record, named by a number that rises. Blocks.

A file is written under another name, synced, renamed, and its directory synced: a crash leaves whole records,
and unfinished files that the next start removes. The directory is one process's at a time (`lock`).
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from broker.errors import DiskFullError, StorageError

_SUFFIX = ".record"
_UNFINISHED = ".unfinished"
_DIGITS = 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class SpoolDirectory:
    """Open from its making to `close`. Every method raises StorageError, which names the path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes: dict[int, int] = {}
        """Bytes of each record's file by its number, in order."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._find()
        except OSError as error:
            os.close(self._lock)
            reason = "another process uses it" if isinstance(error, BlockingIOError) else error.strerror
            raise StorageError(f"{path}: {reason}") from error
        self._next = max(self.sizes, default=-1) + 1

    def close(self) -> None:
        """Let the directory go."""
        os.close(self._lock)

    def add(self, data: bytes) -> int:
        """Keep a record, safe from a crash; returns its number."""
        number, self._next = self._next, self._next + 1
        target = self._file(number)
        unfinished = target.with_suffix(_UNFINISHED)
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(target)
            self._sync()
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            kind = DiskFullError if error.errno in _FULL else StorageError
            raise kind(f"{target}: {error.strerror}") from error
        self.sizes[number] = len(data)
        return number

    def read(self, number: int) -> bytes:
        """What was kept under the number."""
        try:
            return self._file(number).read_bytes()
        except OSError as error:
            raise StorageError(f"{self._file(number)}: {error.strerror}") from error

    def remove(self, number: int) -> None:
        """Drop a record."""
        try:
            self._file(number).unlink(missing_ok=True)
            self._sync()
        except OSError as error:
            raise StorageError(f"{self._file(number)}: {error.strerror}") from error
        self.sizes.pop(number, None)

    def _find(self) -> None:
        for file in sorted(self.path.iterdir()):
            if file.suffix == _UNFINISHED:
                file.unlink()
            elif file.suffix == _SUFFIX and file.stem.isdecimal():
                self.sizes[int(file.stem)] = file.stat().st_size

    def _sync(self) -> None:
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _file(self, number: int) -> Path:
        return self.path / f"{number:0{_DIGITS}d}{_SUFFIX}"
