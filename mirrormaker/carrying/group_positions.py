"""What groups have committed, also where their coordinator cannot list all of it (Kafka before 0.10.2)."""

from __future__ import annotations

from collections.abc import Collection

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, fetch_offsets
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition

TIMEOUT_MS = 10_000


async def group_positions(
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition],
    *,
    awaits_transactions: bool = True,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """In all partitions, or where those cannot be listed, in these. Raises BrokerError."""
    try:
        return await fetch_offsets(
            cluster, group, awaits_transactions=awaits_transactions, timeout_ms=TIMEOUT_MS
        )
    except ProtocolError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
    return await fetch_offsets(cluster, group, partitions, timeout_ms=TIMEOUT_MS)
