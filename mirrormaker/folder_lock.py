"""A folder that one process at a time works in: its file `lock` is held by flock, so until that one ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.errors import ConfigurationError


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
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise busy from error
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether a process of this machine works there."""
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False
