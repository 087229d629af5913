"""The disk port: every touch of a file system goes through here, so that a simulator can own the disk.

`SystemDisk` is the machine's. Its methods may be called from any thread. Each failure of the operating system
is translated once, here, naming the operation and the path: to DiskFullError where there is no room, to
MissingFileError where something is not there, to plain StorageError where no descriptors or memory are left,
else to DiskFailedError. A sync that fails is a failed disk whatever the reason, as the kernel may have
dropped what it could not write.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

from broker.errors import DiskFailedError, DiskFullError, MissingFileError, StorageError
from broker.storage.page_cache import ColdReadError, may_wait, read_resident
from broker.types import Buffer


class DirectoryEntry(NamedTuple):
    """One name in a directory. `size` is in bytes, `modified_ms` in milliseconds since the epoch."""

    name: str
    is_directory: bool
    size: int
    modified_ms: int


class Space(NamedTuple):
    """Bytes of a file system, and of those the ones that this process may still write."""

    total: int
    usable: int


class File(Protocol):
    """One open file. Positions and sizes are in bytes; every method raises StorageError when the disk
    fails.
    """

    def fileno(self) -> int:
        """The descriptor, for sendfile. Raises StorageError when the file has none (it lives in memory)."""
        ...

    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file. Raises ColdReadError within `resident_only`
        when that would take the disk.
        """
        ...

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill `buffer` from `position` on and return the number of bytes read; fewer only at the end of the
        file.
        """
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data`, or raise: then any part of it may have been written."""
        ...

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        """Write all of `parts` one after another, or raise: then any part may have been written."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once the file's bytes and size would survive a loss of power."""
        ...

    def close(self) -> None: ...


class DiskLock(Protocol):
    """A lock file held by this process."""

    @property
    def identity(self) -> str | None:
        """Names this very lock among those of all machines, from one start of the machine to the next: a
        process that held a lock of the same identity holds it no longer. None where that cannot be told.
        """
        ...

    def release(self) -> None:
        """Let it go. Releasing twice is once. Raises StorageError."""
        ...


class Disk(Protocol):
    """A file system. Every method raises StorageError when the disk fails."""

    @property
    def boot_id(self) -> str | None:
        """Names this start of the machine among all starts of all machines: what was written to files since
        then is in the page cache at least. None where that cannot be told.
        """
        ...

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file when there is none."""
        ...

    def exists(self, path: Path) -> bool: ...

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """Every entry but `.` and `..`, sorted by name."""
        ...

    def list_names(self, path: Path) -> list[str]:
        """As `list_directory`, the names only, in any order: for one look in each of many directories."""
        ...

    def read_file(self, path: Path) -> bytes: ...

    def write_file(self, path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
        """Replace the file as a whole: a reader sees the old bytes or the new ones. `durable` also syncs file
        and directory; a `private` file nobody but this process's user may read.
        """
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Move a file or directory, replacing a file that has the new name."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is no error."""
        ...

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Let the file have been modified at a time (ms since the epoch) until the next write to it."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory with its parents; an existing one is no error."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Return once the names in the directory would survive a loss of power."""
        ...

    def space(self, path: Path) -> Space:
        """The size of the file system that holds `path`, and what is free on it."""
        ...

    def lock(self, path: Path) -> DiskLock:
        """Take the lock file, creating it when needed. Raises StorageError when another holder has it."""
        ...


TEMPORARY_SUFFIX = ".tmp"
"""Kafka's own suffix for a file that is being replaced."""


_PARTS_PER_CALL = 1024
"""IOV_MAX on Linux."""


_READ_BYTES = 64 << 10
_REPLACEMENT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
"""Differs from each start of each machine to every other one; containers see their machine's."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_THE_DISK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


def failure(action: str, path: Path, error: OSError) -> StorageError:
    """The one translation of an operating-system error."""
    message = f"cannot {action} {path}: {error.strerror or error}"
    if error.errno in _FULL:
        return DiskFullError(message)
    if error.errno == errno.ENOENT:
        return MissingFileError(message)
    return StorageError(message) if error.errno in _NOT_THE_DISK else DiskFailedError(message)


def _sync_failure(action: str, path: Path, error: OSError) -> DiskFailedError:
    return DiskFailedError(f"cannot {action} {path}: {error.strerror or error}")


class SystemFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise failure("stat", self._path, error) from error

    def pread(self, size: int, position: int) -> bytes:
        try:
            if not may_wait():
                resident = read_resident(self._descriptor, position, size)
                if resident is None:
                    raise ColdReadError(self._path, position, size)
                return bytes(resident)
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self._descriptor, size - got, position + got)):
                parts.append(data)
                got += len(data)
        except OSError as error:
            raise failure("read", self._path, error) from error
        return b"".join(parts)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        view = memoryview(buffer)
        done = 0
        try:
            while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], position + done)):
                done += count
        except OSError as error:
            raise failure("read", self._path, error) from error
        return done

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            done = os.pwrite(self._descriptor, data, position)
            size = len(data)
            while done < size:
                done += os.pwrite(self._descriptor, memoryview(data)[done:], position + done)
        except OSError as error:
            raise failure("write", self._path, error) from error

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        for start in range(0, len(parts), _PARTS_PER_CALL):
            some = parts[start : start + _PARTS_PER_CALL]
            size = sum(map(len, some))
            try:
                done = os.pwritev(self._descriptor, some, position)
            except OSError as error:
                raise failure("write", self._path, error) from error
            if done < size:
                self.pwrite(b"".join(some)[done:], position + done)
            position += size

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise failure("truncate", self._path, error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _sync_failure("sync", self._path, error) from error

    def close(self) -> None:
        try:
            os.close(self._descriptor)
        except OSError as error:
            raise failure("close", self._path, error) from error


class SystemLock:
    """A lock file, held until released or until the process ends."""

    __slots__ = ("_descriptor", "_path", "identity")

    def __init__(self, descriptor: int, path: Path, identity: str | None) -> None:
        self._descriptor = descriptor
        self._path = path
        self.identity = identity

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:  # given up already; the number may be another file's by now
            return
        try:
            os.close(descriptor)
        except OSError as error:
            raise failure("release", self._path, error) from error


class SystemDisk:
    """The machine's file system."""

    @property
    def boot_id(self) -> str | None:
        return _boot_id()

    def open(self, path: Path, *, create: bool = False) -> SystemFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return SystemFile(os.open(path, flags, 0o644), path)
        except OSError as error:
            raise failure("open", path, error) from error

    def exists(self, path: Path) -> bool:
        try:
            os.stat(path)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise failure("stat", path, error) from error
        return True

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        try:
            with os.scandir(path) as entries:
                return sorted(found for entry in entries if (found := _directory_entry(entry)) is not None)
        except OSError as error:
            raise failure("list", path, error) from error

    def list_names(self, path: Path) -> list[str]:
        try:
            return os.listdir(path)
        except OSError as error:
            raise failure("list", path, error) from error

    def read_file(self, path: Path) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                parts = []
                while data := os.read(descriptor, _READ_BYTES):
                    parts.append(data)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise failure("read", path, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_file(self, path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
        temporary = f"{path}{TEMPORARY_SUFFIX}"
        try:
            descriptor = os.open(temporary, _REPLACEMENT, 0o600 if private else 0o666)
            try:
                if private:  # also a temporary file that a crash left
                    os.fchmod(descriptor, 0o600)
                file = SystemFile(descriptor, path)
                file.pwrite(data, 0)
                if durable:
                    file.sync()
            except DiskFullError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)  # what there was room for is of use to others
                raise
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError as error:
            raise failure("write", path, error) from error
        if durable:
            self.sync_directory(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        try:
            old.replace(new)
        except OSError as error:
            raise failure(f"rename to {new.name}", old, error) from error

    def remove(self, path: Path) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failure("remove", path, error) from error

    def set_modified(self, path: Path, modified_ms: int) -> None:
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise failure("set the time of", path, error) from error

    def make_directory(self, path: Path) -> None:
        try:
            if not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise failure("make directory", path, error) from error

    def remove_directory(self, path: Path) -> None:
        try:
            path.rmdir()
        except OSError as error:
            raise failure("remove directory", path, error) from error

    def sync_directory(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise failure("open directory", path, error) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _sync_failure("sync directory", path, error) from error
        finally:
            os.close(descriptor)

    def space(self, path: Path) -> Space:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise failure("stat the file system of", path, error) from error
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: Path) -> SystemLock:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise failure("open lock file", path, error) from error
        try:
            # Two locks: flock refuses a second holder in this process too, the POSIX one is what Kafka takes.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise StorageError(f"{path} is locked: another process uses {path.parent}") from error
        return SystemLock(descriptor, path, _lock_identity(descriptor))


def _lock_identity(descriptor: int) -> str | None:
    """While a process has the lock file open, no other file of the machine has its device and number."""
    boot_id = _boot_id()
    if boot_id is None:
        return None
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return f"{boot_id}/{status.st_dev}/{status.st_ino}"


@lru_cache(maxsize=1)
def _boot_id() -> str | None:
    try:
        return _BOOT_ID_PATH.read_text().strip() or None
    except OSError:
        return None


def _directory_entry(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """None when the entry was removed since the directory was read, as another thread may do."""
    try:
        status = entry.stat()
    except FileNotFoundError:  # a symbolic link to nowhere: somebody else's, but it must not stop a start
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
    return DirectoryEntry(entry.name, entry.is_dir(), status.st_size, status.st_mtime_ns // 1_000_000)
