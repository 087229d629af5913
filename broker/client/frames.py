"""Frames of a connection's answers: where bytes are received, and how they are cut.

Small answers pass through one reused buffer and are copied out of it; an answer that does not fit is received
straight into a buffer of its own, a fresh one or one that nothing refers to any more. Either way a frame is a
buffer that nothing else refers to: record bytes in it may be changed in place and kept for as long as anyone
likes. An owner who is done with each answer before it asks again `keeps` the buffer of large answers instead
of asking for another one: such a frame is good until more is received.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import getrefcount

from broker.wire.framing import SIZE_PREFIX_BYTES, read_frame_size

REUSED_BYTES = 64 * 1024
SPARE_BUFFERS_MAX = 32
SPARE_SHARE = 4
"""A buffer that is larger by more than this is not used for a frame."""
SMALL_FRAMES_MAX = 100
"""After so many small answers in a row a kept buffer is given back."""


def _allocated(size: int) -> mmap:
    return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _references(buffers: list[mmap], index: int) -> int:
    return getrefcount(buffers[index])


_UNUSED = _references([_allocated(1)], 0)
"""References to a buffer to which only its list refers, as they are counted here."""


class SpareBuffers:
    """Buffers of large frames, used again once nothing refers to them: fresh memory has to be cleared by the
    kernel page by page, half as much work again as putting an answer into it.

    Frames are views; a view of a view refers to the buffer too, so a buffer that is referred to from here
    alone is nobody's. Each is memory of its own (anonymous mmap) that goes back to the system with it: on the
    heap, where malloc puts them once some have been freed, what lives long between them keeps tens of
    megabytes.
    """

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[mmap] = []

    def take(self, size: int) -> memoryview:
        """A view of `size` bytes that are nobody else's, with anything in them."""
        buffers = self._buffers
        for index in range(len(buffers)):
            fits = size <= len(buffers[index]) <= size * SPARE_SHARE
            if fits and _references(buffers, index) == _UNUSED:
                return memoryview(buffers[index])[:size]
        self._drop()
        fresh = _allocated(size + size // 8)
        self._buffers.append(fresh)
        return memoryview(fresh)[:size]

    def _drop(self) -> None:
        """Let go of all that is nobody's; the rest, as long as there are not too many."""
        buffers = self._buffers
        used = [index for index in range(len(buffers)) if _references(buffers, index) != _UNUSED]
        self._buffers = [buffers[index] for index in used[-SPARE_BUFFERS_MAX:]]

    def __len__(self) -> int:
        return len(self._buffers)

    def clear(self) -> None:
        """Give all back, as they are let go."""
        self._buffers.clear()


class FrameAssembler:
    """A `Receiver`'s buffers:

    `space`, `received`, then whole frames. Holds at most one frame and one reused buffer.
    """

    __slots__ = (
        "_frame",
        "_frame_bytes_max",
        "_frame_view",
        "_keeps",
        "_kept",
        "_received",
        "_reused",
        "_small_frames",
        "_spare",
    )

    def __init__(self, frame_bytes_max: int, *, keeps: bool = False) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._keeps = keeps
        self._spare = SpareBuffers()
        self._kept = bytearray()
        self._small_frames = 0
        self._reused = memoryview(bytearray(REUSED_BYTES))
        self._received = 0
        """Bytes of the frame under way, in its own buffer when it has one, else in the reused one."""
        self._frame: bytearray | memoryview | None = None
        self._frame_view = memoryview(b"")

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole yet, its size included."""
        return self._received

    def space(self) -> memoryview:
        """Where to receive next; never empty."""
        if self._frame is not None:
            return self._frame_view[self._received :]
        return self._reused[self._received :]

    def received(self, count: int) -> list[bytearray | memoryview]:
        """`count` bytes arrived in `space()`; returns the frames that are whole now, without their size.

        Raises WireError for a negative size and FrameTooLargeError for one over the limit; then the stream is
        of no more use.
        """
        self._received += count
        if self._frame is None:
            return self._cut()
        if self._received < len(self._frame):
            return []
        frame, self._frame, self._frame_view, self._received = self._frame, None, memoryview(b""), 0
        return [frame]

    def _cut(self) -> list[bytearray | memoryview]:
        frames: list[bytearray | memoryview] = []
        position, end, reused = 0, self._received, self._reused
        while end - position >= SIZE_PREFIX_BYTES:
            size = read_frame_size(reused, position, self._frame_bytes_max)
            start = position + SIZE_PREFIX_BYTES
            if end - start >= size:
                frames.append(bytearray(reused[start : start + size]))
                position = start + size
            elif SIZE_PREFIX_BYTES + size > REUSED_BYTES:
                self._begin(size, reused[start:end])
                return frames
            else:
                break
        if position:
            reused[: end - position] = bytes(reused[position:end])
            self._received = end - position
        if self._kept or self._spare:
            self._small_frames += len(frames)
            if self._small_frames > SMALL_FRAMES_MAX:
                self._kept = bytearray()
                self._spare.clear()
        return frames

    def _begin(self, size: int, head: memoryview) -> None:
        """Give the frame under way a buffer of its own, of which `head` has arrived."""
        self._small_frames = 0
        self._frame = self._kept_buffer(size) if self._keeps else self._spare.take(size)
        self._frame_view = memoryview(self._frame)
        self._frame_view[: len(head)] = head
        self._received = len(head)

    def _kept_buffer(self, size: int) -> memoryview:
        if len(self._kept) < size:
            self._kept = bytearray(min(size + size // 4, self._frame_bytes_max))
        return memoryview(self._kept)[:size]
