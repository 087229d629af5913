"""Positions that a route left at its destination while it was exactly once are withdrawn once it has another
delivery: it would go on there, and copy once more all that came since, when it is exactly once again.

What is copied does not wait for that; where the destination does not answer, it is tried again. A delivery
that must not repeat anything asks for them before (`find`). Those of heartbeats stay: every route between the
same clusters brings them, and what is there is mostly another's. Owned by the copier's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.position_moves import FoundPlaces, find_positions, withdraw_positions
from mirrormaker.flow.positions import SourceId
from mirrormaker.topology.model import RouteSpec
from mirrormaker.topology.shared_positions import PositionOwners

RETRY_MS = 30_000

_log = logger("withdrawal")


class Withdrawal:
    """See the module; of one copier."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        destination: Cluster,
        find_owners: Callable[[], PositionOwners],
    ) -> None:
        self._route = route
        self._find_owners = find_owners
        self._source = source
        self._destination = destination
        self._left: set[SourceId] = set()
        self._task: asyncio.Task[None] | None = None
        self._machine: FlowMachine
        self._tasks: asyncio.TaskGroup
        self._topic_id: Callable[[TopicPartition], TopicId]

    def begin(
        self,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        topic_id: Callable[[TopicPartition], TopicId],
    ) -> None:
        """See `DeliveryMode`; so for the other."""
        self._machine, self._tasks, self._topic_id = machine, tasks, topic_id

    async def find(self, partitions: Collection[Assignment]) -> FoundPlaces:
        """Where these stand as the destination says. Raises BrokerError; without the right to read it, the
        route was never exactly once.
        """
        topics = self._source.topics
        wanted = {
            self._id_of(
                each.source,
                topics[each.source.topic].topic_id if each.source.topic in topics else NO_TOPIC_ID,
                each.destinations[0].topic,
            ): each
            for each in partitions
        }
        try:
            return await find_positions(self._destination, self._find_owners(), wanted)
        except ProtocolError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return FoundPlaces({}, {})

    def joined(self, sources: Collection[TopicPartition]) -> None:
        partitions = self._machine.partitions
        self._left |= {
            self._id_of(source, self._topic_id(source), partitions[source].lanes[0].destination.topic)
            for source in sources
            if source in partitions and source.topic != HEARTBEATS_TOPIC
        }
        if self._left and (self._task is None or self._task.done()):
            self._task = self._tasks.create_task(self._run(), name="withdraw positions")

    def _id_of(self, source: TopicPartition, topic_id: TopicId, to: str) -> SourceId:
        return SourceId(cluster_id=self._source.cluster_id, topic_id=topic_id, partition=source, to=to)

    async def _run(self) -> None:
        """Until nothing is left."""
        while self._left:
            sources = frozenset(self._left)
            try:
                withdrawn = await withdraw_positions(
                    self._destination, self._route, sources, self._find_owners()
                )
            except BrokerError as error:
                _log.warning("positions_not_withdrawn", partitions=len(sources), error=str(error))
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._left -= sources
            if withdrawn:
                _log.info("positions_withdrawn", partitions=len(withdrawn))
