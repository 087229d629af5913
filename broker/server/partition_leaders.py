"""Who leads partitions, and the way there, for the markers of transactions."""

from __future__ import annotations

from broker.cluster.image import BrokerInfo
from broker.server.cluster_view import ClusterView
from broker.server.node_link import NodeLink
from broker.server.topics import Topics
from broker.types import TopicPartition
from broker.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class PartitionLeaders:
    """Implements the transaction coordinator's Leaders port."""

    def __init__(self, view: ClusterView, topics: Topics, link: NodeLink) -> None:
        self._view = view
        self._topics = topics
        self._link = link

    def leader(self, partition: TopicPartition) -> BrokerInfo | None:
        """Who leads it, None while nobody does or that is not known here."""
        image = self._view.image
        found = image.partition(partition)
        return None if found is None else image.brokers.get(found.leader)

    async def is_gone(self, partition: TopicPartition) -> bool:
        """Whether the partition was deleted, for certain. Raises CoordinationError."""
        if self._view.image.partition(partition) is not None:
            return False
        return await self._topics.is_gone(partition)

    async def write_markers(
        self, broker: BrokerInfo, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """As `NodeLink.send`."""
        return await self._link.send(broker, request)
