"""The machine's file system for tools that look at a data directory and must not change it.

Files are opened without the right to write, so that directories of other users, on read-only mounts and of
running nodes can be looked at; everything that would change the disk is refused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NoReturn

from broker.errors import StorageError
from broker.storage.disk import SystemDisk, SystemFile, SystemLock, failure


class ReadOnlyDisk(SystemDisk):
    """See the module's description."""

    def open(self, path: Path, *, create: bool = False) -> SystemFile:
        if create:
            _refuse(path)
        try:
            return SystemFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        except OSError as error:
            raise failure("open", path, error) from error

    def is_locked(self, path: Path) -> bool:
        """Whether a process holds the lock file; a missing one is held by nobody. Raises StorageError."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise failure("open lock file", path, error) from error
        try:
            # Shared locks need no right to write, and go with the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            raise failure("probe lock file", path, error) from error
        finally:
            os.close(descriptor)
        return False

    def write_file(self, path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
        _refuse(path)

    def rename(self, old: Path, new: Path) -> None:
        _refuse(old)

    def remove(self, path: Path) -> None:
        _refuse(path)

    def set_modified(self, path: Path, modified_ms: int) -> None:
        _refuse(path)

    def make_directory(self, path: Path) -> None:
        _refuse(path)

    def remove_directory(self, path: Path) -> None:
        _refuse(path)

    def sync_directory(self, path: Path) -> None:
        _refuse(path)

    def lock(self, path: Path) -> SystemLock:
        _refuse(path)


def _refuse(path: Path) -> NoReturn:
    raise StorageError(f"{path} is only looked at, not changed")
