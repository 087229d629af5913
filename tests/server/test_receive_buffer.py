"""Frames out of the bytes that a socket delivers, however they are cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import WireError
from broker.server.receive_buffer import BUSY_CAPACITY, INITIAL_CAPACITY, ReceiveBuffer

LIMIT = 1 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(buffer: ReceiveBuffer, stream: bytes, chunk_sizes: list[int]) -> list[bytes]:
    """Deliver `stream` in chunks as a socket would, and take whole frames as a connection does."""
    frames = []
    position = turn = 0
    while position < len(stream):
        chunk_size = chunk_sizes[turn % len(chunk_sizes)]
        turn += 1
        space = buffer.space()
        count = min(chunk_size, len(space), len(stream) - position)
        space[:count] = stream[position : position + count]
        position += count
        if count:
            buffer.received(count)
        if buffer.is_due:
            while (frame := buffer.next_frame()) is not None:
                frames.append(bytes(frame))
            buffer.reclaim()
    return frames


@settings(max_examples=100)
@given(
    bodies=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    chunk_sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=5),
)
def test_every_chunking_gives_the_same_frames(bodies: list[int], chunk_sizes: list[int]) -> None:
    sent = [bytes([index % 251]) * size for index, size in enumerate(bodies)]
    assert feed(ReceiveBuffer(LIMIT), b"".join(map(framed, sent)), chunk_sizes) == sent


@pytest.mark.parametrize(
    "size", [INITIAL_CAPACITY - 4, INITIAL_CAPACITY, BUSY_CAPACITY, BUSY_CAPACITY + 1, LIMIT]
)
def test_frames_around_every_capacity_come_whole(size: int) -> None:
    sent = [bytes([index]) * length for index, length in enumerate((5, size, 7, size, 0, 9))]
    assert feed(ReceiveBuffer(LIMIT), b"".join(map(framed, sent)), [1 << 17]) == sent


def test_a_frame_stays_as_it_is_while_more_is_received() -> None:
    buffer = ReceiveBuffer(LIMIT)
    stream = framed(b"first") + framed(b"second")
    buffer.space()[: len(stream)] = stream
    buffer.received(len(stream))
    frame = buffer.next_frame()
    assert frame is not None
    more = b"x" * 1000
    buffer.space()[: len(more)] = more
    buffer.received(len(more))
    assert bytes(frame) == b"first"


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_an_impossible_size_is_refused_before_anything_is_allocated_for_it(size: int) -> None:
    buffer = ReceiveBuffer(LIMIT)
    buffer.space()[:4] = struct.pack(">i", size)
    buffer.received(4)
    assert buffer.is_due
    with pytest.raises(WireError, match=str(size)):
        buffer.next_frame()
    assert len(buffer.space()) < INITIAL_CAPACITY


def test_a_claimed_size_allocates_only_as_bytes_arrive() -> None:
    buffer = ReceiveBuffer(LIMIT)
    buffer.space()[:4] = struct.pack(">i", LIMIT)
    buffer.received(4)
    buffer.reclaim()
    assert len(buffer.space()) == INITIAL_CAPACITY - 4


def test_a_buffer_that_grew_for_one_huge_frame_is_given_back() -> None:
    huge = 5 << 20
    buffer = ReceiveBuffer(huge)
    feed(buffer, framed(bytes(huge)), [1 << 20])
    assert len(buffer.space()) <= BUSY_CAPACITY
