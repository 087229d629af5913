"""A folder that one process at a time works in: its file `lock` is held by flock, so until that one ends.

Who waits for it holds the file `waiting`, shared: so one that has no end of its own can make room.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.errors import ConfigurationError

LOOK_SECONDS = 0.01
LOOKS = 20
"""Attempts to have the lock before it counts as held by another: who only looks has it for a moment, too."""
WAIT_SECONDS = 0.1
"""Between the attempts of one that waits."""
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


def at_once() -> bool:
    """Nothing is waited for."""
    return False


class FolderLock:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "lock"
        self._waiting = folder / "waiting"

    @contextmanager
    def held(self, busy: ConfigurationError, may_wait: Callable[[], bool] = at_once) -> Iterator[None]:
        """Be the one that works there; the folder is made. Raises `busy` when another does, after waiting for
        it as long as `may_wait` says, and ConfigurationError when nothing can be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._file, _OPEN, 0o644)
        except OSError as error:
            raise ConfigurationError([f"{self._folder}: cannot be written: {error.strerror}"]) from error
        try:
            if not _take(descriptor) and not self._wait_for(descriptor, may_wait):
                raise busy
            yield
        finally:
            os.close(descriptor)

    def _wait_for(self, descriptor: int, may_wait: Callable[[], bool]) -> bool:
        """Whether the lock could be had in time."""
        if not may_wait():
            return False
        waiting = os.open(self._waiting, _OPEN, 0o644)
        try:
            fcntl.flock(waiting, fcntl.LOCK_SH)
            while may_wait():
                if _take(descriptor):
                    return True
                time.sleep(WAIT_SECONDS)
        finally:
            os.close(waiting)
        return False

    def is_wanted(self) -> bool:
        """Whether somebody waits for it; for the one that works there."""
        try:
            descriptor = os.open(self._waiting, _OPEN, 0o644)
        except OSError:
            return False
        try:
            return not _has(descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether a process of this machine works there; who may read the folder can tell."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _has(descriptor, fcntl.LOCK_SH)  # shared: several may look at once
        finally:
            os.close(descriptor)


def _take(descriptor: int) -> bool:
    """Whether the lock could be had."""
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_SECONDS)
        if _has(descriptor, fcntl.LOCK_EX):
            return True
    return False


def _has(descriptor: int, kind: int) -> bool:
    """Whether a file is locked by this descriptor now."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
