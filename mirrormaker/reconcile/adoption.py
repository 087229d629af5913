"""Topics of a destination that were there before the route, for a route at work: it writes none without a
ground (`plan/grounds`). What is dear to ask is asked where nothing else tells; what this process has found
once holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.errors import ConfigurationError, ProtocolError
from broker.types import TopicPartition
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.lost_ends import log_ends
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.ledger.reading import find_ledger
from mirrormaker.missing_rights import UNAUTHORIZED_CODES
from mirrormaker.plan.grounds import Grounds, Written, may_append, refusal, undecided
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.grounds import copied_before, grounds_of
from mirrormaker.reconcile.kept_positions import KeptPosition, begun_topics, moved_topics, read_positions
from mirrormaker.reconcile.moved_copies import moved_copies
from mirrormaker.reconcile.take_overs import settled_records
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import ClusterSpec, Delivery, RouteSpec
from mirrormaker.topology.naming import compile_naming

QUERY_TIMEOUT_MS = 20_000


class Adoption:
    """Of one route, whose source `spec` says how to reach."""

    def __init__(self, spec: ClusterSpec, source: Cluster, destination: Cluster, board: ControlBoard) -> None:
        """`board`: of the destination."""
        self._spec = spec
        self._source = source
        self._destination = destination
        self._board = board
        self._settled: set[str] = set()
        """Topics of the source that the route may copy."""

    async def find_refused(
        self, route: RouteSpec, written: Written, there: Mapping[str, ObservedTopic]
    ) -> dict[str, str]:
        """Topics of the source that must not be copied, each with the reason; `there`: what the destination
        had before anything was made for the route. Raises BrokerError.
        """
        if may_append(route):
            return {}
        await self._end_decisions(route, written)
        names = frozenset().union(*written.values())
        absent = {name for name in names if name not in there or not there[name].exists}
        left = undecided(route, written, Grounds(empty=absent, settled=self._settled))
        left = undecided(route, left, grounds_of(self._board.known_wishes(route.name), there))
        looks = (self._look_at_positions, self._look_at_ends, self._look_at_ledger, self._await_positions)
        for look in looks:
            if left:
                left = undecided(route, left, await look(route, left))
        self._settled |= written.keys() - left.keys()
        return {topic: refusal(names) for topic, names in left.items()}

    async def find_begun(
        self, route: RouteSpec, topics: Collection[str], *, awaits_transactions: bool = False
    ) -> set[str]:
        """Those of these topics of the source that the route has a position in, as of records that go where
        they go now. A process that was killed leaves transactions open, until the route goes on or they time
        out: what lies behind them is found where it `awaits_transactions`. Raises BrokerError.
        """
        partitions = self._source.metadata.topic_partitions(sorted(topics))
        async with route_group(route, self._spec, self._source, timeout_ms=QUERY_TIMEOUT_MS) as group:
            committed = await group.group_offsets(route.group, partitions)
        found = {source.topic for source in committed}
        texts = {source: at.metadata for source, at in committed.items()}
        moved = moved_copies(texts, route, self._destination.cluster_id)
        if route.delivery is Delivery.EXACTLY_ONCE:
            kept = await self._kept(route, awaits_transactions=awaits_transactions)
            naming = compile_naming(route.source, route.topics)
            cluster_id = self._source.cluster_id
            moved = moved_topics(kept, cluster_id, naming, moved)
            found |= begun_topics(kept, cluster_id, naming)
        return found.intersection(topics) - moved.keys()

    async def find_gone(self, names: Collection[str]) -> set[str]:
        """Those of these topics of the destination that end before where something had come from the source,
        by the ledger, where it may be read, as far as that is before transactions that a killed process left
        open. One that does not tell where it ends is new, and empty. Raises BrokerError.
        """
        try:
            ledger = await find_ledger(self._destination, self._source.cluster_id, awaits_transactions=False)
        except ConfigurationError:
            return set()
        except ProtocolError as error:
            if error.code not in UNAUTHORIZED_CODES:
                raise
            return set()
        reached: dict[TopicPartition, int] = {}
        for lane, pages in ledger.lanes.items():
            if lane.to in names and pages.to_next is not None:
                reached[lane.destination] = max(reached.get(lane.destination, 0), pages.to_next)
        ends = await log_ends(self._destination, reached)
        return {to.topic for to, next_offset in reached.items() if ends.get(to, 0) < next_offset}

    async def _end_decisions(self, route: RouteSpec, written: Written) -> None:
        """Those that a position has come of have done what they were for."""
        decisions = self._board.known_wishes(route.name).take_overs
        decided = {topic: names for topic in written if (names := decisions.keys() & written[topic])}
        begun = await self.find_begun(route, decided) if decided else ()
        if begun:
            settled = set().union(*(decided[topic] for topic in begun))
            await self._board.put(settled_records(route.name, settled))

    async def _look_at_positions(self, route: RouteSpec, written: Written) -> Grounds:
        return Grounds(positioned=await self.find_begun(route, written))

    async def _await_positions(self, route: RouteSpec, written: Written) -> Grounds:
        if route.delivery is not Delivery.EXACTLY_ONCE:
            return Grounds()
        return Grounds(positioned=await self.find_begun(route, written, awaits_transactions=True))

    async def _kept(self, route: RouteSpec, *, awaits_transactions: bool) -> tuple[KeptPosition, ...]:
        metadata = await self._destination.refresh([POSITIONS_TOPIC])
        if not metadata.partitions(POSITIONS_TOPIC):
            return ()  # looking makes no topic
        async with KeptTopic(self._destination, POSITIONS_TOPIC, timeout_ms=QUERY_TIMEOUT_MS) as kept:
            await kept.read_to_end(awaits_transactions=awaits_transactions)
            return tuple(read_positions(kept.entries()).get(route.name, ()))

    async def _look_at_ends(self, route: RouteSpec, written: Written) -> Grounds:
        names = set().union(*written.values())
        await self._destination.refresh(names)
        partitions = self._destination.metadata.topic_partitions(sorted(names))
        ends = await latest_offsets(self._destination, partitions)
        return Grounds(empty=names - {partition.topic for partition, end in ends.items() if end > 0})

    async def _look_at_ledger(self, route: RouteSpec, written: Written) -> Grounds:
        return Grounds(copied=await copied_before(self._source, self._destination, written))
