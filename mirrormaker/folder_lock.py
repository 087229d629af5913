"""A folder that one process at a time works in: its file `lock` is held by flock, so until that one ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.errors import ConfigurationError

LOOK_SECONDS = 0.01
LOOKS = 20
"""Attempts to have the lock before it counts as held by another: who only looks has it for a moment, too."""


class FolderLock:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "lock"

    @contextmanager
    def held(self, busy: ConfigurationError) -> Iterator[None]:
        """Be the one that works there; the folder is made. Raises `busy` when another does, and
        ConfigurationError when nothing can be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError([f"{self._folder}: cannot be written: {error.strerror}"]) from error
        try:
            if not _take(descriptor):
                raise busy
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether a process of this machine works there; who may read the folder can tell."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several may look at once
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def _take(descriptor: int) -> bool:
    """Whether the lock could be had."""
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_SECONDS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False
