"""Files of this machine that are there, with all that is in them, also after it has lost its power."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

SYNCED_ONE_BY_ONE_MAX = 256
"""Files and folders: for more of them, all of their filesystem is quicker."""
_NOT_OF_FOLDERS = frozenset({errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOTSUP})


def write_whole(file: Path, text: str) -> None:
    """Have the file hold this: whatever happens, it holds what it held before, or all of this. Raises
    OSError, and has changed nothing then.
    """
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync(file.parent)


def make_folder(folder: Path) -> None:
    """Have the folder, and those around it. Raises OSError."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def sync(path: Path) -> None:
    """Have what is in a file, or which names a folder has, on the disk. Raises OSError, but for folders that
    may not be read, or of which their filesystem does not do that.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OF_FOLDERS or not path.is_dir():
            raise


def sync_all(top: Path) -> None:
    """Have a folder on the disk with all that is in it; what goes meanwhile is left out. Raises OSError."""
    paths = list(_all_below(top))
    if len(paths) < SYNCED_ONE_BY_ONE_MAX or not _sync_filesystem(top):
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                sync(path)
    sync(top.parent)


def _all_below(top: Path) -> Iterator[Path]:
    """Files before the folder that they are in."""
    for folder, _, names in os.walk(top, topdown=False):
        yield from (Path(folder, name) for name in names)
        yield Path(folder)


def _sync_filesystem(top: Path) -> bool:
    """Have all of the filesystem on the disk; returns whether the system does that. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        return False
    descriptor = os.open(top, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(top))
    finally:
        os.close(descriptor)
    return True
