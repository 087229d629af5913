"""Lanes of topics as they are now: one that was deleted and made again has others."""

from __future__ import annotations

from broker.client.cluster import Cluster
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.ledger.lane_id import LaneId


def lane_between(source: Cluster, partition: TopicPartition, to: TopicPartition) -> LaneId:
    """The lane from a partition of `source`."""
    known = source.topics.get(partition.topic)
    return LaneId(
        cluster=source.cluster_id,
        topic=partition.topic,
        topic_id=None if known is None or known.topic_id == NO_TOPIC_ID else str(known.topic_id),
        partition=partition.partition,
        to=to.topic,
        to_partition=to.partition,
    )


def is_current(lane: LaneId, source: Cluster) -> bool:
    """Whether a lane is of such a topic of `source`."""
    return lane == lane_between(source, lane.source, lane.destination)
