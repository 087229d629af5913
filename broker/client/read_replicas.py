"""From which replicas a consumer reads: leaders, and the followers that leaders sent it to (KIP-392).

A follower is read from until it refuses, its node goes, or `LEASE_MS` are over; then the leader is asked
again, which knows where to read by then. Pure; times are monotonic milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.client.metadata import ClusterMetadata
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition

LEASE_MS = 300_000
"""As long as Kafka's own clients stay with a follower."""


class _Lease(NamedTuple):
    node_id: int
    until_ms: float


class ReadReplicas:
    """Where each partition is read from."""

    def __init__(self) -> None:
        self._leases: dict[TopicPartition, _Lease] = {}

    def source(self, partition: TopicPartition, metadata: ClusterMetadata, now_ms: float) -> int | None:
        """The node to fetch the partition from, None while it has no leader that is known."""
        lease = self._leases.get(partition)
        if lease is not None:
            known = metadata.partition(partition)
            is_replica = known is not None and lease.node_id in known.replicas
            if now_ms < lease.until_ms and is_replica and lease.node_id in metadata.nodes:
                return lease.node_id
            del self._leases[partition]
        return metadata.leader(partition)

    def send(self, partition: TopicPartition, node_id: int, metadata: ClusterMetadata, now_ms: float) -> None:
        """The leader said to read it there.

        Raises ProtocolError REPLICA_NOT_AVAILABLE when no such replica is known: metadata is to be refreshed.
        """
        self._leases[partition] = _Lease(node_id, now_ms + LEASE_MS)
        if self.source(partition, metadata, now_ms) != node_id:
            raise ProtocolError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"node {node_id} is not known to have {partition}"
            )

    def recall(self, partition: TopicPartition) -> bool:
        """Read it from its leader again; whether that is news."""
        return self._leases.pop(partition, None) is not None
