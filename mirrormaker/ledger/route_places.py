"""Where the partitions of a route stand by what its ledger has of them.

Positions are the group's, or the delivery's. Where they are gone, or older than what arrived, the ledger
tells where to go on (`places`), as far as the destination has what it tells of: one that was made anew, or
lost its end, has to be copied to again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from broker.client.cluster import Cluster
from broker.errors import RequestTimedOutError
from broker.types import TopicPartition
from mirrormaker.flow.books import Reached, Written
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.lost_ends import log_ends
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.positions import Place
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.places import Reach, lanes_at, last_reach, reach_from
from mirrormaker.ledger.view import LedgerView
from mirrormaker.topology.model import RouteName

_Pages = Mapping[TopicPartition, Sequence[Page]]
"""Of a source partition, by where they lead."""
_Reaches = Mapping[TopicPartition, Reach | None]
"""The same; None: nothing is written."""
_Ahead = dict[TopicPartition, Mapping[TopicPartition, Reach]]


class RoutePlaces:
    """Of one route. `view` has been read when it is asked."""

    def __init__(
        self,
        route: RouteName,
        view: LedgerView,
        destination: Cluster,
        lane_of: Callable[[TopicPartition, TopicPartition], LaneId],
        *,
        may_repeat: bool,
    ) -> None:
        """`lane_of`: between a source and a destination, of the source's topic as it is now. Without
        `may_repeat` nothing is to be sent twice.
        """
        self._route = route
        self._view = view
        self._destination = destination
        self._lane_of = lane_of
        self._may_repeat = may_repeat

    async def written(
        self, assignments: Collection[Assignment], kept: Mapping[TopicPartition, Place]
    ) -> Written:
        """See `Books`. Raises BrokerError."""
        former: dict[TopicPartition, int] = {}
        forgotten: dict[TopicPartition, int] = {}
        stood: dict[TopicPartition, dict[TopicPartition, Reach | None]] = {}
        for each in assignments:
            own = self._own_pages(each)
            if not own:
                continue
            current = {self._lane_of(each.source, to).topic_id for to in each.destinations}
            copied_to = max(page.next for pages in own.values() for page in pages)
            if not any(lane.topic_id in (None, *current) for lane in own):
                former[each.source] = copied_to
                continue
            forgotten[each.source] = copied_to
            reaches = {to: last_reach(pages) for to, pages in self._pages(each).items()}
            if any(reaches.values()):
                stood[each.source] = reaches
        lacking = await self._lacking(stood)
        there = {source: reaches for source, reaches in stood.items() if lacking.isdisjoint(reaches)}
        known = {source: at for source, at in kept.items() if min(at.lanes) >= forgotten.get(source, 0)}
        farther = frozenset[TopicPartition]()
        if not self._may_repeat:
            unsure = {source: reaches for source, reaches in there.items() if source not in known}
            farther = await self._sent_farther(unsure)
        places = {
            source: known.get(source) or _place_of(reaches)
            for source, reaches in there.items()
            if source not in farther
        }
        elsewhere = {source: copied_to for source, copied_to in forgotten.items() if source not in places}
        return Written(former, places, elsewhere, farther)

    async def gone_on(
        self, assignments: Collection[Assignment], read_on: Callable[[], Awaitable[None]]
    ) -> Mapping[TopicPartition, LanePositions]:
        """See `Books`. `read_on`: has the view know all that is written by now. Raises BrokerError."""
        if not self._ahead(assignments):
            return {}
        await read_on()
        ahead = self._ahead(assignments)
        lacking = await self._lacking(ahead)
        return {
            source: _place_of(reaches).lanes
            for source, reaches in ahead.items()
            if lacking.isdisjoint(reaches)
        }

    def _ahead(self, assignments: Collection[Assignment]) -> _Ahead:
        """Those of which more is written than they begin at."""
        found: _Ahead = {}
        for each in assignments:
            begun = dict(zip(each.destinations, lane_positions(each), strict=True))
            reaches = {to: reach_from(pages, begun[to]) for to, pages in self._pages(each).items()}
            if any(reach.next > begun[to] for to, reach in reaches.items()):
                found[each.source] = reaches
        return found

    def reached(self, assignments: Collection[Assignment]) -> Mapping[TopicPartition, Reached]:
        """See `Books`."""
        found: dict[TopicPartition, Reached] = {}
        for each in assignments:
            lanes = [self._lane_of(each.source, to) for to in each.destinations]
            known = [self._view.lanes[lane] for lane in lanes if lane in self._view.lanes]
            reached = [at for lane in known if (at := lane.reached(self._route)) is not None]
            if reached:
                marks = [at.mark for at in reached if at.mark is not None]
                found[each.source] = Reached(
                    max(at.next for at in reached),
                    max(marks, default=None),
                    tuple(start for at in reached for start in at.starts),
                )
        return found

    def _pages(self, assignment: Assignment) -> _Pages:
        """What is written of the lanes of now; of those to the notes of what is left out nothing, as all
        routes share them, and pages name none.
        """
        found: dict[TopicPartition, Sequence[Page]] = {}
        for to in assignment.destinations:
            ledger = self._view.lanes.get(self._lane_of(assignment.source, to))
            is_shared = ledger is None or to.topic == SKIPPED_TOPIC
            found[to] = () if ledger is None or is_shared else ledger.of_route(self._route)
        return found

    def _own_pages(self, assignment: Assignment) -> dict[LaneId, Sequence[Page]]:
        """The same of all lanes, also from former topics."""
        return {
            lane: pages
            for to in assignment.destinations
            if to.topic != SKIPPED_TOPIC
            for lane in self._view.of_source(assignment.source, to.topic)
            if (pages := self._view.lanes[lane].of_route(self._route))
        }

    async def _lacking(self, reaches: Mapping[TopicPartition, _Reaches]) -> frozenset[TopicPartition]:
        """Partitions of the destination that end before what is told to be there. Raises RequestTimedOutError
        where one does not say where it ends.
        """
        wanted: dict[TopicPartition, int] = {}
        for to, reach in _items(reaches.values()):
            if reach is not None and reach.to_next:
                wanted[to] = max(wanted.get(to, 0), reach.to_next)
        ends = await self._ends(wanted)
        return frozenset(to for to, end in ends.items() if end < wanted[to])

    async def _sent_farther(self, reaches: Mapping[TopicPartition, _Reaches]) -> frozenset[TopicPartition]:
        """Sources of which the destination may have more than is written: what a process sent before it was
        killed is not written yet. What others write there counts as such. Raises as `_lacking`.
        """
        told: dict[TopicPartition, int] = {}
        for to, reach in _items(reaches.values()):
            told[to] = max(told.get(to, 0), 0 if reach is None else reach.to_next)
        ends = await self._ends(told)
        return frozenset(
            source for source, lanes in reaches.items() if any(ends[to] > told[to] for to in lanes)
        )

    async def _ends(self, reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """See `log_ends`. Raises RequestTimedOutError where one does not say where it ends."""
        ends = await log_ends(self._destination, reached)
        if unknown := reached.keys() - ends.keys():
            raise RequestTimedOutError(f"destination: it is not told where {min(unknown)} ends")
        return ends


def lane_positions(assignment: Assignment) -> LanePositions:
    """Where each lane begins."""
    return assignment.lane_positions or (assignment.position,) * len(assignment.destinations)


def _place_of(reaches: _Reaches) -> Place:
    lanes = lanes_at({to: None if reach is None else reach.next for to, reach in reaches.items()})
    return Place(lanes, destinations=tuple(reaches))


def _items(
    mappings: Iterable[_Reaches],
) -> Iterable[tuple[TopicPartition, Reach | None]]:
    return (item for mapping in mappings for item in mapping.items())
