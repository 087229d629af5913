"""Where a route goes on in each partition of its source: what its group has stored there, and for an
exactly-once route what stands at its destination.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.client.cluster import Cluster
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.position_note import read_note
from mirrormaker.flow.positions import POSITIONS_TOPIC, SourceId, no_place, position_in
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import ClusterSpec, Delivery, RouteSpec
from mirrormaker.topology.naming import compile_naming

READ_TIMEOUT_MS = 30_000


async def read_positions(
    route: RouteSpec,
    spec: ClusterSpec,
    source: Cluster,
    destination: Cluster,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Positions in the topics that the source, described by `spec`, has now; a partition that the route has
    none in is left out. Raises BrokerError.
    """
    if route.delivery is Delivery.EXACTLY_ONCE:
        return await _at_destination(route, source, destination, partitions)
    async with route_group(route, spec, source, timeout_ms=READ_TIMEOUT_MS) as group:
        stored = await group.group_offsets(route.group, partitions)
    return {
        partition: position.offset
        for partition, position in stored.items()
        if read_note(position.metadata).is_of(_topic_id(source, partition.topic))
    }


async def _at_destination(
    route: RouteSpec, source: Cluster, destination: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    if POSITIONS_TOPIC not in (await destination.refresh()).topics:
        return {}  # looking makes no topic
    naming = compile_naming(route.source, route.topics)
    found: dict[TopicPartition, int] = {}
    async with KeptTopic(destination, POSITIONS_TOPIC, timeout_ms=READ_TIMEOUT_MS) as topic:
        await topic.read_to_end()
        for partition in partitions:
            at = SourceId(
                cluster_id=source.cluster_id,
                topic_id=_topic_id(source, partition.topic),
                partition=partition,
                to=naming.destination_of(partition.topic),
            )
            if (value := topic.get(at.key())) is not None:
                try:
                    found[partition] = position_in(value)
                except ValueError as error:
                    raise no_place(at, error) from error
    return found


def _topic_id(source: Cluster, topic: str) -> TopicId:
    known = source.topics.get(topic)
    return NO_TOPIC_ID if known is None else known.topic_id
