"""A disk for each test: the machine's, and one in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.storage.disk import SystemDisk
from broker.storage.memory_disk import MemoryDisk
from tests.storage.samples import DiskAt


def memory_place() -> DiskAt:
    disk = MemoryDisk()
    path = Path("/data")
    disk.make_directory(path)
    disk.sync_directory(path.parent)
    return DiskAt(disk, path)


@pytest.fixture(params=["system", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DiskAt:
    """An empty directory on either disk."""
    return DiskAt(SystemDisk(), tmp_path) if request.param == "system" else memory_place()


@pytest.fixture
def system_place(tmp_path: Path) -> DiskAt:
    return DiskAt(SystemDisk(), tmp_path)
