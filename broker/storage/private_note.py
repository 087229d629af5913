"""A small file of a data root that only the broker's own user may read. Blocks."""

from __future__ import annotations

from pathlib import Path

from broker.storage.disk import Disk


class PrivateNote:
    """One file, replaced as a whole. It outlives the process but need not outlive the machine, so nothing is
    synced. Every method raises StorageError.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def read(self) -> bytes | None:
        """The content, None when there is no file."""
        return self._disk.read_file(self.path) if self._disk.exists(self.path) else None

    def write(self, data: bytes) -> None:
        self._disk.write_file(self.path, data, durable=False, private=True)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self._disk.remove(self.path)
