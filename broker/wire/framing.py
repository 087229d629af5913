"""Frames of the protocol: a big-endian int32 size, then that many bytes. Bytes in, whole frames out.

The reader holds what has arrived of one unfinished frame, whatever size its prefix announces, so never more
than `max_frame_bytes`. After an error the stream has no known boundary any more: the connection is to be
closed.
"""

from __future__ import annotations

from struct import Struct

from broker.errors import WireError
from broker.types import Buffer

_SIZE = Struct(">i")
SIZE_PREFIX_BYTES = 4


class FrameTooLargeError(WireError):
    """A peer announced a frame over the limit; none of it has been allocated."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"a frame of {size} bytes is over the limit of {size_max}")
        self.size = size
        self.size_max = size_max


def read_frame_size(buffer: Buffer, position: int, max_frame_bytes: int) -> int:
    """The size prefix at `position`. Raises WireError when negative, FrameTooLargeError over the limit."""
    (size,) = _SIZE.unpack_from(buffer, position)
    if size < 0:
        raise WireError(f"a frame has the negative size {size}")
    if size > max_frame_bytes:
        raise FrameTooLargeError(size, max_frame_bytes)
    return int(size)


class FrameReader:
    """Cuts a byte stream, fed in any pieces, into frames without their size prefix."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._prefix = bytearray()
        self._frame = bytearray()
        self._missing = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of the unfinished frame held back, its prefix not counted once that is complete."""
        return len(self._frame) if self._missing else len(self._prefix)

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take the next piece of the stream; return the frames it completed, in order.

        A frame that lies whole within immutable `data` is a view of it; what is fed in a mutable buffer is
        copied, so that the buffer can be filled again. Raises WireError and FrameTooLargeError; after that
        the reader is of no more use.
        """
        view = memoryview(data)
        if not view.readonly:
            view = memoryview(bytes(view))
        frames: list[memoryview] = []
        position, end = 0, len(view)
        while position < end:
            if self._missing:
                position = self._take_more(view, position, frames)
            elif self._prefix or end - position < SIZE_PREFIX_BYTES:
                position = self._take_prefix(view, position, frames)
            else:
                size = read_frame_size(view, position, self._max_frame_bytes)
                position += SIZE_PREFIX_BYTES
                if end - position >= size:
                    frames.append(view[position : position + size])
                    position += size
                else:
                    self._missing = size
        return frames

    def _take_prefix(self, view: memoryview, position: int, frames: list[memoryview]) -> int:
        taken = view[position : position + SIZE_PREFIX_BYTES - len(self._prefix)]
        self._prefix += taken
        if len(self._prefix) == SIZE_PREFIX_BYTES:
            self._missing = read_frame_size(self._prefix, 0, self._max_frame_bytes)
            self._prefix.clear()
            if not self._missing:
                frames.append(memoryview(b""))
        return position + len(taken)

    def _take_more(self, view: memoryview, position: int, frames: list[memoryview]) -> int:
        taken = view[position : position + self._missing]
        self._frame += taken
        self._missing -= len(taken)
        if not self._missing:
            frames.append(memoryview(self._frame))
            self._frame = bytearray()
        return position + len(taken)
