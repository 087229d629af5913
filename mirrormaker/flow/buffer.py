"""Memory that received bytes hold until they are acknowledged, counted as it is freed: by frames. Pure."""

from __future__ import annotations

from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.lane import Lane


class Buffer:
    """Counts; the chunks themselves are in the queues of their lanes."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all frames of which a chunk is held."""

    def hold(self, lane: Lane, chunk: Chunk) -> None:
        """A chunk of the lane came."""
        if not chunk.frame.holders:
            self.size += chunk.frame.size
        chunk.frame.holders += 1
        lane.partition.buffered_bytes += chunk.size

    def let_go(self, lane: Lane, chunk: Chunk) -> None:
        """A chunk of the lane is needed no more."""
        chunk.frame.holders -= 1
        if not chunk.frame.holders:
            self.size -= chunk.frame.size
        lane.partition.buffered_bytes -= chunk.size

    def drop_unsent(self, lane: Lane) -> None:
        """Let go what has not been sent yet, for it to be fetched once more."""
        keep = max(lane.sent, sum(chunk.base_sequence >= 0 for chunk in lane.queue))
        if not keep or keep >= len(lane.queue):
            return
        while len(lane.queue) > keep:
            self.let_go(lane, lane.queue.pop())
        lane.go_back_to(lane.queue[-1].next_offset)

    def drop_queue(self, lane: Lane) -> None:
        """Let all chunks go; those in flight keep their memory until their request ends."""
        for chunk in lane.queue:
            if not chunk.in_flight:
                self.let_go(lane, chunk)
        lane.queue.clear()
        lane.sent = 0
