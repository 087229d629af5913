"""The bytes of one connection between its socket and its frames, in one buffer that is used again and again.

Frames are handed out as views of the buffer, so that record bytes go from the socket to the disk without a
copy. Bytes only move in `reclaim`, which the owner calls when no frame is in use; reading on into free space
is safe at any time. A frame is its size (int32, not counting itself) and as many bytes. Capacity grows by
doubling as bytes really arrive: a size that a peer merely claims allocates nothing.
"""

from __future__ import annotations

from struct import Struct

from broker.errors import WireError

SIZE_PREFIX = 4
INITIAL_CAPACITY = 64 * 1024
BUSY_CAPACITY = 256 * 1024
"""A buffer that was filled to the brim grows to this, so that a busy peer is read in fewer steps."""
KEPT_CAPACITY_MAX = 2 * 1024 * 1024
"""A buffer that grew beyond this for one frame is given back once it is empty."""

_SIZE = Struct(">i")


class ReceiveBuffer:
    """Frames of at most `frame_size_max` bytes out of a stream; owned by one connection."""

    __slots__ = (
        "_capacity",
        "_end",
        "_frame_end",
        "_frame_size_max",
        "_kept_capacity_max",
        "_start",
        "_view",
        "_was_full",
    )

    def __init__(self, frame_size_max: int, *, kept_capacity_max: int = KEPT_CAPACITY_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._kept_capacity_max = kept_capacity_max
        self._capacity = INITIAL_CAPACITY
        self._view = memoryview(bytearray(INITIAL_CAPACITY))
        self._start = 0
        self._end = 0
        self._frame_end = 0
        """Where the frame under way ends, once its size is known; else not above `_start`."""
        self._was_full = False

    @property
    def holds_frame(self) -> bool:
        """Whether `next_frame` returns one, or raises."""
        return self._start < self._frame_end <= self._end or self._size_is_wrong()

    @property
    def is_due(self) -> bool:
        """Whether the owner has something to do: a frame is whole, or the buffer has to grow."""
        return self.holds_frame or self._end >= self._capacity

    @property
    def large_frame_size(self) -> int:
        """Size of the frame under way when it is larger than `BUSY_CAPACITY`, else 0."""
        size = self._frame_end - self._start
        return size if size > BUSY_CAPACITY else 0

    def space(self) -> memoryview:
        """Where to receive next; empty when full.

        Reading of a frame larger than `BUSY_CAPACITY` stops at its end, so that nothing has to move.
        """
        if self._frame_end - self._start > BUSY_CAPACITY:
            return self._view[self._end : self._frame_end]
        return self._view[self._end : self._start + BUSY_CAPACITY]

    def received(self, count: int) -> None:
        """`count` bytes arrived in `space()`."""
        self._end += count
        self._was_full |= self._end == self._capacity
        if self._frame_end <= self._start:
            self._look_at_size()

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None.

        Raises WireError for a size that is negative or too large.
        """
        end = self._frame_end
        if end <= self._start or end > self._end:
            if self._size_is_wrong():
                raise WireError(f"a frame of {self._size()} bytes; the limit is {self._frame_size_max}")
            return None
        frame = self._view[self._start + SIZE_PREFIX : end]
        self._start = end
        self._look_at_size()
        return frame

    def reclaim(self) -> None:
        """Make room for the rest of the frame under way.

        No frame handed out before may be in use any more.
        """
        start, end, view = self._start, self._end, self._view
        left = end - start
        capacity = self._wanted_capacity(left)
        if capacity != self._capacity:
            self._view = memoryview(bytearray(capacity))
            self._view[:left] = view[start:end]
            self._capacity = capacity
        elif start and left:
            view[:left] = view[start:end]
        self._start, self._end, self._frame_end = 0, left, self._frame_end - start
        self._was_full = False

    def _wanted_capacity(self, left: int) -> int:
        """Capacity from now on, with `left` bytes of a frame under way to keep."""
        capacity = self._capacity
        if left == capacity:
            return max(min(self._frame_end - self._start, 2 * capacity), BUSY_CAPACITY)
        if not left and capacity > self._kept_capacity_max:
            return INITIAL_CAPACITY
        if self._was_full and capacity < BUSY_CAPACITY:
            return BUSY_CAPACITY
        return capacity

    def _look_at_size(self) -> None:
        """Note where the next frame ends, if its size is here and not wrong."""
        if self._end - self._start >= SIZE_PREFIX:
            size = self._size()
            if 0 <= size <= self._frame_size_max:
                self._frame_end = self._start + SIZE_PREFIX + size

    def _size_is_wrong(self) -> bool:
        return (
            self._frame_end <= self._start
            and self._end - self._start >= SIZE_PREFIX
            and not 0 <= self._size() <= self._frame_size_max
        )

    def _size(self) -> int:
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return size
