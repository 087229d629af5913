"""What copying asks of the topics at the destination: the one for notes, and how large a batch each takes."""

from __future__ import annotations

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.topic_admin import NewTopic
from broker.errors import ErrorCode, ProtocolError
from broker.telemetry import logger
from mirrormaker.flow.obstacles import SKIPPED_TOPIC

REPLICAS_MAX = 3

_log = logger("side_topics")


async def make_skipped_topic(cluster: Cluster) -> None:
    """Make the topic for notes where it is missing. Raises BrokerError."""
    metadata = await cluster.refresh([SKIPPED_TOPIC])
    known = metadata.topics.get(SKIPPED_TOPIC)
    if known is not None and known.error is ErrorCode.NONE:
        return
    topic = NewTopic(
        name=SKIPPED_TOPIC,
        partitions=1,
        replication_factor=min(REPLICAS_MAX, max(len(metadata.nodes), 1)),
        configs={"cleanup.policy": "compact"},
    )
    try:
        await Admin(cluster).create_topic(topic)
        _log.info("topic_created", topic=SKIPPED_TOPIC)
    except ProtocolError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def read_batch_size_max(cluster: Cluster, topic: str) -> int | None:
    """How large a batch the topic takes; None where the cluster does not tell. Raises BrokerError."""
    try:
        configs = await Admin(cluster).describe_topic_configs(topic, ["max.message.bytes"])
    except ProtocolError as error:
        if error.code.retriable:
            raise
        return None
    entry = configs.get("max.message.bytes")
    return int(entry.value) if entry is not None and entry.value is not None else None
