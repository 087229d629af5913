"""Whether a data root may have lost records that were acknowledged.

The end of a process loses nothing, as what it wrote is in the machine's page cache; the end of the machine
loses what was not flushed. So a root notes the machine's boot id: after an unclean end, another boot id, or
none, means that the newest records may be gone although others count on them. So does a root that was just
made: whoever had this broker's id before may have had records.

A start that may have lost records and ends before nobody counts on them any more does not end cleanly, or the
next one would take them for there. Where the cluster still counts on records that a root lacks, the note says
so (`incomplete`), over clean ends too, until nobody does any more. Recovery that cuts logs notes that before
(`cut`): that start alone knows which of them; one that comes after it has to take all of them for short.
Blocks.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock

from broker.errors import DiskFullError
from broker.storage.disk import Disk

_INCOMPLETE = b"incomplete"
_CUT = b"cut"


class BootNote:
    """The note in one root."""

    def __init__(self, disk: Disk, path: Path, *, was_clean: bool) -> None:
        self._disk = disk
        self._path = path
        self._was_clean = was_clean
        self._is_written = False
        self._is_cut = False
        self._lock = Lock()

    def may_have_lost(self) -> bool:
        """Whether records of any log may be gone, as of the start. Raises StorageError."""
        if self._is_cut:
            return False
        if self.may_be_empty() or self._is_noted_as_cut():
            return True
        if self._was_clean:
            return False
        boot_id = self._disk.boot_id
        return boot_id is None or self._disk.read_file(self._path) != boot_id.encode()

    def may_be_empty(self) -> bool:
        """Whether the root may be in the place of another that had everything. Raises StorageError."""
        if not self._disk.exists(self._path):
            return not self._was_clean
        return self._disk.read_file(self._path) == _INCOMPLETE

    def _is_noted_as_cut(self) -> bool:
        return self._disk.exists(self._path) and self._disk.read_file(self._path) == _CUT

    def note_cut(self) -> None:
        """Logs are about to be cut. A full disk takes no note: then only this start knows. Any thread.
        Raises StorageError.
        """
        with self._lock:
            if not self.may_have_lost() and not self._is_cut:
                with suppress(DiskFullError):
                    self._disk.write_file(self._path, _CUT)
                self._is_cut = True

    def allows_clean_end(self) -> bool:
        """Whether the next start may take this one's end for clean. Raises StorageError."""
        return self._is_written or not (self._is_cut or self.may_have_lost())

    def write(self) -> None:
        """From now on an unclean end under this boot id has lost nothing: nobody counts any more on what the
        root may have lost before. Raises StorageError.
        """
        boot_id = self._disk.boot_id
        if boot_id is not None:
            self._disk.write_file(self._path, boot_id.encode())
        elif self._disk.exists(self._path):
            self._disk.remove(self._path)
        self._is_written = True

    def write_incomplete(self) -> None:
        """Some partition counts on records that the root lacks. Raises StorageError."""
        self._disk.write_file(self._path, _INCOMPLETE)
        self._is_written = True
