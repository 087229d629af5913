"""Memory that received bytes hold until they are acknowledged, counted as it is freed: by frames. Pure."""

from __future__ import annotations

from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.partition import Partition


class Buffer:
    """Counts; the chunks themselves are in the queues of their partitions."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of all frames of which a chunk is held."""

    def hold(self, partition: Partition, chunk: Chunk) -> None:
        """A chunk of the partition came."""
        if not chunk.frame.holders:
            self.size += chunk.frame.size
        chunk.frame.holders += 1
        partition.buffered_bytes += chunk.size

    def let_go(self, partition: Partition, chunk: Chunk) -> None:
        """A chunk of the partition is needed no more."""
        chunk.frame.holders -= 1
        if not chunk.frame.holders:
            self.size -= chunk.frame.size
        partition.buffered_bytes -= chunk.size

    def drop_queue(self, partition: Partition) -> None:
        """Let all chunks go; those in flight keep their memory until their request ends."""
        for chunk in partition.queue:
            if not chunk.in_flight:
                self.let_go(partition, chunk)
        partition.queue.clear()
        partition.sent = 0
