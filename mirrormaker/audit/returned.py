"""What a source has from the destination itself, by the ledger of the route that leads back: its positions
may have been moved over that, as a failover does, without the route having seen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.client.cluster import Cluster
from broker.types import TopicPartition
from mirrormaker.audit.lane_runs import passes_of
from mirrormaker.audit.ranges import Range, joined
from mirrormaker.flow.ways import LaneMap
from mirrormaker.ledger.reading import find_ledger, lanes_now


async def read_returned(
    source: Cluster, destination: Cluster, lanes: Mapping[TopicPartition, LaneMap], *, has_markers: bool
) -> dict[TopicPartition, list[Range]]:
    """Source offsets by partition. `has_markers`: one alone between records of transactions ends one of
    these. Raises BrokerError.
    """
    view = await find_ledger(source, destination.cluster_id)
    returned: dict[TopicPartition, list[Range]] = {}
    for partition, ways in lanes.items():
        found = [
            place
            for to in set(ways.destinations)
            for lane in lanes_now(view, destination, to, partition.topic)
            if lane.to_partition == partition.partition
            for each in passes_of(view.lanes[lane].pages())
            for place in each.places()
        ]
        if found:
            merged = joined(found)
            returned[partition] = list(over_markers(merged)) if has_markers else list(merged)
    return returned


def over_markers(ranges: Iterable[Range]) -> Iterator[Range]:
    """Ranges, in their order, with what lies between two of them where that is a single offset. Pure."""
    at: Range | None = None
    for each in ranges:
        if at is None:
            at = each
        elif each.first - at.next <= 1:
            at = Range(at.first, each.next)
        else:
            yield at
            at = each
    if at is not None:
        yield at
