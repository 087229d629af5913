"""A stretch of one segment file: what a fetch is answered with, without touching the bytes. Owned by the
event loop's thread.
"""

from __future__ import annotations

from typing import Final

from broker.errors import StorageError
from broker.storage.disk import File
from broker.storage.open_files import PooledFile


class FileRange:
    """Whole batches in one file, `size` bytes from `position`; `len()` is the size.

    `first_offset` is what was asked for (the first batch may begin before it), `next_offset` where to read
    on. Pin the range as soon as it is to outlive the current step of the event loop, and release it when it
    was sent: in between the file stays open, even when retention removes it.
    """

    __slots__ = ("_file", "_pooled", "first_offset", "next_offset", "position", "size")

    def __init__(
        self, pooled: PooledFile | None, position: int, size: int, first_offset: int, next_offset: int
    ) -> None:
        self._pooled = pooled
        self._file: File | None = None
        self.position = position
        self.size = size
        self.first_offset = first_offset
        self.next_offset = next_offset

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileRange(position={self.position}, size={self.size}, first_offset={self.first_offset})"

    @property
    def file(self) -> File:
        """The file, for sendfile. Raises StorageError unless the range is pinned."""
        if self._file is None:
            raise StorageError("a file range was used without being pinned")
        return self._file

    def pin(self) -> FileRange:
        """Keep the file open until `release`. Pinning twice is once. Raises StorageError when the file cannot
        be opened.
        """
        if self._pooled is not None and self._file is None:
            self._file = self._pooled.pin()
        return self

    def release(self) -> None:
        """Let the file go; harmless when the range is not pinned."""
        if self._pooled is not None and self._file is not None:
            self._file = None
            self._pooled.release()

    def read(self) -> bytes:
        """The bytes, for answers too small for sendfile and for TLS. Raises StorageError."""
        if self._pooled is None or not self.size:
            return b""
        file = self._pooled.pin()
        try:
            return file.pread(self.size, self.position)
        finally:
            self._pooled.release()


EMPTY: Final = FileRange(None, 0, 0, -1, -1)
"""No batches: the answer at the end of a log."""
