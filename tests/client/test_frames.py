from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.frames import REUSED_BYTES, SMALL_FRAMES_MAX, FrameAssembler, SpareBuffers
from broker.errors import WireError
from broker.wire.framing import FrameTooLargeError

FRAME_MAX = 4 * REUSED_BYTES


def feed(assembler: FrameAssembler, stream: bytes, piece_sizes: list[int]) -> list[bytearray | memoryview]:
    """Receive the stream in pieces of at most the given sizes, over and over."""
    frames: list[bytearray | memoryview] = []
    position, turn = 0, 0
    while position < len(stream):
        space = assembler.space()
        assert len(space) > 0
        piece = stream[position : position + min(len(space), piece_sizes[turn % len(piece_sizes)])]
        space[: len(piece)] = piece
        frames += assembler.received(len(piece))
        position, turn = position + len(piece), turn + 1
    return frames


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


SIZES = st.one_of(
    st.integers(0, 40),
    st.integers(REUSED_BYTES - 8, REUSED_BYTES + 8),
    st.integers(0, FRAME_MAX),
)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(SIZES, max_size=5),
    pieces=st.lists(st.integers(1, 2 * REUSED_BYTES), min_size=1, max_size=4),
)
def test_every_chunking_of_a_stream_gives_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    contents = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    assembler = FrameAssembler(FRAME_MAX)
    pieces = [max(piece, 512) for piece in pieces] if sum(sizes) > 10_000 else pieces
    assert feed(assembler, b"".join(map(framed, contents)), pieces) == contents
    assert assembler.pending_bytes == 0


def test_frames_are_buffers_of_their_own_that_may_be_changed() -> None:
    assembler = FrameAssembler(FRAME_MAX)
    first = feed(assembler, framed(b"first"), [3])[0]
    large = feed(assembler, framed(b"l" * 3 * REUSED_BYTES), [REUSED_BYTES])[0]
    feed(assembler, framed(b"again"), [100])
    memoryview(large)[0] = 7
    assert first == b"first"
    assert large[0] == 7
    assert large[1:] == b"l" * (3 * REUSED_BYTES - 1)


def test_a_kept_buffer_holds_one_large_frame_after_the_other() -> None:
    assembler = FrameAssembler(FRAME_MAX, keeps=True)
    buffers = []
    for size in (2 * REUSED_BYTES, 3 * REUSED_BYTES, 10, 2 * REUSED_BYTES + 1):
        (frame,) = feed(assembler, framed(bytes([size % 251]) * size), [REUSED_BYTES])
        assert frame == bytes([size % 251]) * size
        if isinstance(frame, memoryview):
            buffers.append(frame.obj)
    assert buffers[0] is not buffers[1]  # it had to grow
    assert buffers[1] is buffers[2]
    for _ in range(SMALL_FRAMES_MAX + 1):
        feed(assembler, framed(b"small"), [100])
    (frame,) = feed(assembler, framed(bytes(2 * REUSED_BYTES)), [REUSED_BYTES])
    assert isinstance(frame, memoryview)
    assert frame.obj is not buffers[2]  # it was given back meanwhile


def test_a_frame_over_the_limit_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(FrameTooLargeError, match="limit"):
        feed(FrameAssembler(1000), (1001).to_bytes(4, "big"), [4])


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(WireError, match="negative"):
        feed(FrameAssembler(1000), b"\xff\xff\xff\xff", [4])


def test_a_large_buffer_is_used_again_once_nothing_refers_to_it() -> None:
    spare = SpareBuffers()
    first, second = spare.take(1_000), spare.take(1_000)
    part = first[10:20]
    del first
    third = spare.take(1_000)
    assert len({id(each.obj) for each in (part, second, third)}) == 3
    place = id(part.obj)
    del part
    assert id(spare.take(900).obj) == place
    assert id(spare.take(100).obj) != place  # far too large for that
    assert len(spare) <= 4


def test_frames_of_any_sizes_keep_their_bytes_while_they_are_held() -> None:
    assembler = FrameAssembler(FRAME_MAX)
    held: list[tuple[int, bytearray | memoryview]] = []
    for number in range(40):
        size = REUSED_BYTES + number * 1_000
        held += [(number, frame) for frame in feed(assembler, framed(bytes([number]) * size), [REUSED_BYTES])]
        del held[: len(held) // 3]
        for each, frame in held:
            assert frame == bytes([each]) * (REUSED_BYTES + each * 1_000)
