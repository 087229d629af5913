"""Records of the topic of positions made up for tests."""

from __future__ import annotations

from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.positions import Place, SourceId, value_of
from mirrormaker.reconcile.kept_positions import KeptPositions, read_positions
from mirrormaker.topology.model import RouteName


def kept_of(
    route: RouteName, *positions: tuple[str | None, str, str, int], topic_id: TopicId = NO_TOPIC_ID
) -> KeptPositions:
    """Each is a source cluster, its topic, the topic that partition 0 of it goes to, and how far it came."""
    return read_positions(
        (
            SourceId(cluster_id=cluster, topic_id=topic_id, partition=TopicPartition(topic, 0), to=to).key(),
            value_of(route, Place((offset,))),
        )
        for cluster, topic, to, offset in positions
    )
