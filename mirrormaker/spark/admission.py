"""How much one trigger of a streaming query takes of what there is. Pure."""

from __future__ import annotations

from broker.types import TopicPartition
from mirrormaker.spark.offsets import Offsets


def count_new(start: Offsets, latest: Offsets) -> int:
    """Offsets that there are after `start`."""
    return sum(max(0, end - start.get(partition, end)) for partition, end in latest.items())


def limit_offsets(start: Offsets, latest: Offsets, count_max: int) -> dict[TopicPartition, int]:
    """Where a trigger ends that takes about `count_max` offsets after `start`.

    Each partition gives in proportion to what it has, one that has little rounded up so that it is not left
    behind for ever.
    """
    sizes = {partition: max(0, end - start.get(partition, end)) for partition, end in latest.items()}
    total = sum(sizes.values())
    if total <= count_max:
        return dict(latest)
    ends = {}
    for partition, size in sizes.items():
        share = size * count_max / total
        taken = min(size, int(share) if share >= 1 else 1)
        ends[partition] = min(latest[partition], start.get(partition, latest[partition]) + taken)
    return ends
