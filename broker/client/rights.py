"""What a client may do, as a cluster tells it in metadata (KIP-430)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

_NOT_TOLD = -(1 << 31)
_FIRST_VERSION = 8
_LAST_VERSION_WITH_CLUSTER = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Codes of the operations that are allowed; None, or no entry, where the cluster does not tell."""

    cluster: frozenset[int] | None = None
    topics: dict[str, frozenset[int]] = field(default_factory=dict)


async def read_rights(cluster: Cluster, topics: Collection[str]) -> Rights:
    """What this client may do with the cluster and these topics. Raises BrokerError."""
    connection = await cluster.any_connection()
    version = connection.version_of(MetadataRequest)
    if version < _FIRST_VERSION:
        return Rights()
    version = min(version, _LAST_VERSION_WITH_CLUSTER)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = await connection.request(request, version)
    told = {
        topic.name or "": _operations(topic.topic_authorized_operations)
        for topic in response.topics
        if not topic.error_code
    }
    return Rights(
        cluster=_operations(response.cluster_authorized_operations),
        topics={name: operations for name, operations in told.items() if operations is not None},
    )


def _operations(bits: int) -> frozenset[int] | None:
    if bits == _NOT_TOLD:
        return None
    return frozenset(code for code in range(31) if bits >> code & 1)
