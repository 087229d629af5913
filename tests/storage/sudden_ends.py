"""A process that ends at any operation on the disk, with or without the power."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker.storage.memory_disk import MemoryDisk, MemoryFile

POWERS = ("kept", "lost", "torn")
"""What the machine does when the process ends: goes on, loses what was not synced, or keeps parts of it."""
_DISK_STEPS = (
    "write_file",
    "rename",
    "remove",
    "sync_directory",
    "open",
    "make_directory",
    "remove_directory",
)
_FILE_STEPS = ("pwrite", "truncate", "sync")


class _EndedError(Exception):
    """The process ends here."""


def finishes(disk: MemoryDisk, act: Callable[[], object], step: int, power: str) -> bool:
    """Whether `act` comes to its end when the process ends at the `step`-th operation from now on. The disk
    is left as the next process finds it.
    """
    done = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done >= step:
                raise _EndedError
            done += 1
            return operation(*arguments, **options)

        return run

    is_finished = False
    with pytest.MonkeyPatch.context() as patch:
        for owner, names in ((MemoryDisk, _DISK_STEPS), (MemoryFile, _FILE_STEPS)):
            for name in names:
                patch.setattr(owner, name, counted(getattr(owner, name)))
        try:
            act()
            is_finished = True
        except _EndedError:
            pass
    if power == "kept":
        disk.kill()
    else:
        disk.crash(Random(step) if power == "torn" else None)
    return is_finished
