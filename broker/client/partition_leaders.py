"""Who leads partitions, for requests that only their leaders answer."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition


class Leaders(NamedTuple):
    """Node id of each partition's leader, and of the others why there is none."""

    known: dict[TopicPartition, int]
    missing: dict[TopicPartition, ProtocolError]


async def find_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition], *, refresh: bool = False
) -> dict[TopicPartition, int]:
    """Node id of each partition's leader. Metadata is asked for anew with `refresh`, as after a node said
    that it does not lead, and when any leader is unknown.

    Raises ProtocolError for a partition that is not there or has no leader, and as `Cluster.refresh` does.
    """
    leaders = await look_for_leaders(cluster, partitions, refresh=refresh)
    for error in leaders.missing.values():
        raise error
    return leaders.known


async def look_for_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition], *, refresh: bool = False
) -> Leaders:
    """As `find_leaders`, but a partition without a leader is no error. Raises as `Cluster.refresh` does."""
    if refresh or any(cluster.leader(partition) is None for partition in partitions):
        await cluster.refresh({partition.topic for partition in partitions})
    leaders = Leaders({}, {})
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is None:
            leaders.missing[partition] = _leaderless(cluster, partition)
        else:
            leaders.known[partition] = leader
    return leaders


def _leaderless(cluster: Cluster, partition: TopicPartition) -> ProtocolError:
    topic = cluster.topics.get(partition.topic)
    if topic is None or (partition.partition not in topic.partitions and not topic.error):
        return ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    code = topic.error or ErrorCode.LEADER_NOT_AVAILABLE
    return ProtocolError(code, f"{partition}: {code.meaning}")
