"""Where a group says that partitions begin, held against what the books of the route have of them.

A source that lost the end of its log may have lost positions along with it, or give one of a log that is gone
(`lost_ends`, `trailing_positions`). Books that cannot be read yet hold nothing up: partitions that begin
meanwhile are compared as soon as they can be. Owned by the event loop of the copier.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from broker.client.cluster import Cluster
from broker.types import TopicPartition
from mirrormaker.flow.books import Books
from mirrormaker.flow.engine import Engine
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.lost_ends import with_lost_ends
from mirrormaker.flow.membership import Points
from mirrormaker.flow.trailing_positions import gone_on, of_gone_logs
from mirrormaker.flow.trouble import went_back


class BookedPoints:
    """See the module; of one copier that has books."""

    def __init__(self, source: Cluster, engine: Engine, books: Books, on_event: Callable[..., None]) -> None:
        """`on_event` is told what a person should know."""
        self._source = source
        self._engine = engine
        self._books = books
        self._on_event = on_event
        self._uncompared: set[TopicPartition] = set()
        """Those of which the books could not tell when they were asked last."""

    async def compared(
        self,
        wanted: Collection[Assignment],
        points: dict[TopicPartition, StartingPoint],
        tell: Callable[[Mapping[TopicPartition, StartingPoint]], Awaitable[None]],
    ) -> dict[TopicPartition, StartingPoint]:
        """The points, those of `wanted` where copying is to go on by the books; the group is told (`tell`) of
        those that are farther than it has them. Raises BrokerError.
        """
        asked = [each for each in wanted if each.source in points]
        if not asked:
            return points
        reached = await self._books.reached(asked)
        sources = {each.source for each in asked}
        self._uncompared = self._uncompared - sources if self._books.is_known else self._uncompared | sources
        points = points | await of_gone_logs(self._books, asked, points, reached, self._on_event)
        points = await with_lost_ends(self._source, points, reached)
        farther = await gone_on(self._books, asked, points, reached)
        await tell(farther)
        return points | farther

    def begin(self, points: Points) -> None:
        """Copying begins there: what the source has lost is told, now or once it can be."""
        arbiter = self._engine.arbiter
        late: dict[TopicPartition, StartingPoint] = {}
        for source, point in points.items():
            position, is_late = min(point.lanes), source in self._uncompared
            if (point.lost is None and not is_late) or arbiter.goes_on_behind(source, position):
                continue
            if point.lost is not None:
                arbiter.meet(went_back(source, position, point.lost, begun_at=point.stored))
            if is_late:
                late[source] = point
        if late:
            self._engine.tasks.create_task(self._compare(late), name="find what was lost")

    async def _compare(self, begun: Points) -> None:
        """The books were not read yet as these were begun; copying may have come past what was lost."""
        partitions, books = self._engine.machine.partitions, self._books
        while not books.is_known and begun.keys() & partitions.keys():
            await books.reached(())  # which waits for that
        held = {source: partitions[source] for source in begun.keys() & partitions.keys()}
        reached = await books.reached([self._engine.crossing.assignment(source) for source in held])
        points = await with_lost_ends(self._source, begun, reached)
        for source, partition in held.items():
            lost, begun_at = points[source].lost, min(begun[source].lanes)
            if lost is not None and partitions.get(source) is partition:
                trouble = went_back(source, partition.position, lost, begun_at=begun_at)
                self._engine.arbiter.meet(trouble)
