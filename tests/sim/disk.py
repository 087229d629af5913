"""The disk of a machine, as one process on it has it: closed to the process once that has died."""

from __future__ import annotations

from typing import Any

from broker.errors import StorageError
from broker.storage.memory_disk import MemoryDisk
from tests.sim.loop import Process


class ProcessDisk:
    """Implements the disk port on a machine's `MemoryDisk`. Files that were open are closed by the disk."""

    def __init__(self, disk: MemoryDisk, process: Process) -> None:
        self._disk = disk
        self._process = process

    def __getattr__(self, name: str) -> Any:
        if self._process.is_dead:
            raise StorageError(f"cannot {name}: the process has ended")
        return getattr(self._disk, name)
