"""The ledger of the way back, as a route forth needs it: where its own source says what came there from its
destination. Followed in the topic that the source keeps; owned by the route's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.ledger.current_lanes import lane_between
from mirrormaker.ledger.group_mark import GroupMark, GroupMarkId
from mirrormaker.ledger.lane_id import LEDGER_TOPIC, LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.route_ledger import RETRY_MS, TOPIC_CONFIGS, WRITE_TIMEOUT_MS
from mirrormaker.ledger.view import LedgerView


class ReturnLedger:
    """See the module. `source` and `destination` are those of the route forth; they come started."""

    def __init__(self, source: Cluster, destination: Cluster) -> None:
        self.problem: str | None = None
        """Why it is not read just now."""
        self._source = source
        self._destination = destination
        self._view = LedgerView(destination.cluster_id)
        self._topic: KeptTopic | None = None

    async def run(self) -> None:
        """Follow the topic until cancelled; it is made where there is none."""
        while True:
            try:
                self._view.clear()
                async with KeptTopic(
                    self._source,
                    LEDGER_TOPIC,
                    configs=TOPIC_CONFIGS,
                    timeout_ms=WRITE_TIMEOUT_MS,
                    view=self._view,
                ) as topic:
                    await topic.read_to_end()
                    self._topic, self.problem = topic, None
                    while True:
                        await topic.changed()
            except BrokerError as error:
                self.problem = str(error)
            finally:
                self._topic = None
            await asyncio.sleep(RETRY_MS / 1000)

    @property
    def is_read(self) -> bool:
        """Whether the topic is at hand."""
        return self._topic is not None

    def lane(self, source: TopicPartition, to: TopicPartition) -> LaneId:
        """The lane back, for the lane forth from `source` to `to`."""
        return lane_between(self._destination, to, source)

    def pages(self, source: TopicPartition, to: TopicPartition) -> LaneLedger | None:
        """What came back by that lane; None: nothing."""
        return self._view.lanes.get(self.lane(source, to))

    def mark(self, group: str, source: TopicPartition, to: TopicPartition) -> GroupMark | None:
        """How a group was given its position at the source by the way back."""
        return self._view.mark(GroupMarkId(group, self.lane(source, to)))

    async def put(self, records: Collection[tuple[Document, Document | None]]) -> None:
        """Write other records of the topic. Raises BrokerError."""
        if self._topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self.problem or LEDGER_TOPIC)
        await self._topic.put(records)
