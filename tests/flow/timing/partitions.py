"""Partitions as the copy machine has them."""

from __future__ import annotations

from broker.types import TopicPartition
from mirrormaker.flow.partition import Partition

ORDERS = TopicPartition("orders", 0)


def partition_at(acknowledged: int, end: int, *, bytes_per_offset: int = 100) -> Partition:
    """One of which `acknowledged` to `end` waits, and nothing is queued."""
    partition = Partition(ORDERS, [ORDERS], 0, acknowledged, 1 << 20)
    partition.source_end = end
    partition.copied_bytes, partition.copied_offsets = 1_000 * bytes_per_offset, 1_000
    return partition
