"""Topics beside those that are copied, for notes and heartbeats; and how large a batch a topic takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.topic_admin import NewTopic
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.topic_making import make_topic

REPLICAS_MAX = 3
_SIZE_MAX = "max.message.bytes"


async def make_skipped_topic(cluster: Cluster) -> None:
    """Make the topic for notes where it is missing. Raises BrokerError."""
    await _make(cluster, SKIPPED_TOPIC, {"cleanup.policy": "compact"})


async def make_heartbeats_topic(cluster: Cluster) -> None:
    """Make the topic for heartbeats where it is missing. Raises BrokerError."""
    configs = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}
    await _make(cluster, HEARTBEATS_TOPIC, configs)


async def _make(cluster: Cluster, name: str, configs: Mapping[str, str]) -> None:
    metadata = await cluster.refresh([name])
    known = metadata.topics.get(name)
    if known is not None and known.error is ErrorCode.NONE:
        return
    topic = NewTopic(
        name=name,
        partitions=1,
        replication_factor=min(REPLICAS_MAX, max(len(metadata.nodes), 1)),
        configs=configs,
    )
    await make_topic(cluster, topic, essential=["cleanup.policy", "retention.ms"])


async def read_batch_sizes_max(cluster: Cluster, topics: Collection[str]) -> dict[str, int | None]:
    """How large a batch each topic takes, None where the cluster does not tell; without those that could not
    be asked for just now. Raises BrokerError.
    """
    try:
        described = await Admin(cluster).describe_topics_configs(topics, [_SIZE_MAX])
    except ProtocolError as error:
        if error.code.retriable:
            raise
        return dict.fromkeys(topics)  # of no topic: hosted clusters leave the request out
    found: dict[str, int | None] = {}
    for topic, told in described.items():
        if not isinstance(told, ProtocolError):
            entry = told.get(_SIZE_MAX)
            found[topic] = int(entry.value) if entry is not None and entry.value is not None else None
        elif not told.code.retriable:
            found[topic] = None
    return found
