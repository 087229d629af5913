"""Whether a data root may have lost records that were acknowledged.

The end of a process loses nothing, as what it wrote is in the machine's page cache; the end of the machine
loses what was not flushed. So a root notes the machine's boot id: after an unclean end, another boot id, or
none, means that the newest records may be gone although others count on them. So does a root that was just
made: whoever had this broker's id before may have had records. Blocks.
"""

from __future__ import annotations

from pathlib import Path

from broker.storage.disk import Disk


class BootNote:
    """The note in one root."""

    def __init__(self, disk: Disk, path: Path, *, was_clean: bool) -> None:
        self._disk = disk
        self._path = path
        self._was_clean = was_clean

    def may_have_lost(self) -> bool:
        """Whether records may be gone, as of the start. Raises StorageError."""
        if self._was_clean:
            return False
        boot_id = self._disk.boot_id
        if boot_id is None or not self._disk.exists(self._path):
            return True
        return self._disk.read_file(self._path) != boot_id.encode()

    def write(self) -> None:
        """From now on an unclean end under this boot id has lost nothing: nobody counts any more on what the
        root may have lost before. Raises StorageError.
        """
        boot_id = self._disk.boot_id
        if boot_id is not None:
            self._disk.write_file(self._path, boot_id.encode())
