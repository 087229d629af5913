"""Frames come out the same however the stream is cut."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import WireError
from broker.wire.framing import FrameReader, FrameTooLargeError


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(pack(">i", len(frame)) + frame for frame in frames)


frame_lists = st.lists(st.binary(max_size=30), max_size=6)


def test_every_cut_of_a_stream_in_two_gives_the_same_frames() -> None:
    frames = [b"", b"a", b"bc" * 10, b"", b"\0\0\0\1"]
    stream = stream_of(frames)
    for cut in range(len(stream) + 1):
        reader = FrameReader(1000)
        assert [bytes(f) for f in reader.feed(stream[:cut]) + reader.feed(stream[cut:])] == frames
        assert reader.pending_bytes == 0


@given(frames=frame_lists, sizes=st.lists(st.integers(1, 40), min_size=1), mutable=st.booleans())
def test_any_chunking_of_a_stream_gives_the_same_frames(
    frames: list[bytes], sizes: list[int], mutable: bool
) -> None:
    stream, reader, seen, position, turn = stream_of(frames), FrameReader(1000), [], 0, 0
    while position < len(stream):
        chunk = stream[position : position + sizes[turn % len(sizes)]]
        held = bytearray(chunk) if mutable else chunk
        seen += reader.feed(held)
        if mutable:
            held[:] = bytes(len(held))  # type: ignore[index]
        position += len(chunk)
        turn += 1
    assert [bytes(frame) for frame in seen] == frames


def test_whole_frames_of_immutable_bytes_are_not_copied() -> None:
    stream = stream_of([b"x" * 100])
    (frame,) = FrameReader(1000).feed(stream)
    assert frame.obj is stream


def test_a_frame_over_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(FrameTooLargeError) as caught:
        FrameReader(10).feed(pack(">i", 11))
    assert (caught.value.size, caught.value.size_max) == (11, 10)
    assert FrameReader(10).feed(pack(">i", 10) + bytes(10)) == [bytes(10)]


@pytest.mark.parametrize("cut", range(4))
def test_a_negative_size_is_refused(cut: int) -> None:
    reader = FrameReader(10)
    prefix = pack(">i", -1)
    with pytest.raises(WireError, match="negative"):
        reader.feed(prefix[:cut]), reader.feed(prefix[cut:])


def test_pending_bytes_count_the_unfinished_frame() -> None:
    reader = FrameReader(1000)
    reader.feed(b"\0\0")
    assert reader.pending_bytes == 2
    reader.feed(b"\0\5abc")
    assert reader.pending_bytes == 3
