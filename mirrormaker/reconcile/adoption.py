"""Topics of a destination that were there before the route: it writes none that holds records unless somebody
has decided that it may.

That a route writes a topic is known by its positions, which are stored before the first record is copied, by
partitions of its that stand, or by this process having seen the topic without records. Positions go with
their topic: that it was copied before it was deleted and made anew is known by the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.ledger.reading import find_ledger
from mirrormaker.plan.adoption import REFUSED, may_append
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.cluster_visit import read_positions
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import ClusterSpec, Delivery, RouteSpec

QUERY_TIMEOUT_MS = 20_000


class Adoption:
    """Of one route, whose source `spec` says how to reach."""

    def __init__(self, spec: ClusterSpec, source: Cluster, destination: Cluster, halts: RouteHalts) -> None:
        self._spec = spec
        self._source = source
        self._destination = destination
        self._halts = halts
        self._settled: set[str] = set()
        """Topics of the source that the route may copy."""

    async def find_refused(
        self, route: RouteSpec, destinations: Mapping[str, str], there: Mapping[str, ObservedTopic]
    ) -> dict[str, str]:
        """Topics of the source that must not be copied, each with the reason; `there`: what the destination
        had before anything was made for the route. Raises BrokerError.
        """
        if may_append(route):
            return {}
        asked: dict[str, str] = {}
        for topic, name in destinations.items():
            if topic in self._settled:
                continue
            known = there.get(name)
            if known is None or not known.exists:
                self._settled.add(topic)
            else:
                asked[topic] = name
        asked = {topic: name for topic, name in asked.items() if not self._stands(topic)}
        if asked:
            self._settled |= await self._positioned(route, asked)
        if asked := {topic: name for topic, name in asked.items() if topic not in self._settled}:
            occupied = await self._occupied(frozenset(asked.values()))
            self._settled |= {topic for topic, name in asked.items() if name not in occupied}
        if asked := {topic: name for topic, name in asked.items() if topic not in self._settled}:
            self._settled |= await self._copied_before(asked)
        return {
            topic: REFUSED.format(name=name) for topic, name in asked.items() if topic not in self._settled
        }

    def _stands(self, topic: str) -> bool:
        return any(source.topic == topic for source in self._halts.known())

    async def _positioned(self, route: RouteSpec, topics: Mapping[str, str]) -> set[str]:
        """Those that the route has a position in."""
        partitions = self._source.metadata.topic_partitions(sorted(topics))
        async with route_group(
            route, self._spec, self._source, timeout_ms=QUERY_TIMEOUT_MS, reads_only=True
        ) as group:
            found = {source.topic for source in await group.group_offsets(route.group, partitions)}
        if route.delivery is Delivery.EXACTLY_ONCE and topics.keys() - found:
            found |= await self._kept(route)
        return found

    async def _kept(self, route: RouteSpec) -> set[str]:
        metadata = await self._destination.refresh([POSITIONS_TOPIC])
        if not metadata.partitions(POSITIONS_TOPIC):
            return set()  # looking makes no topic
        async with KeptTopic(self._destination, POSITIONS_TOPIC, timeout_ms=QUERY_TIMEOUT_MS) as kept:
            await kept.read_to_end()
            return set(read_positions(kept.entries()).get(route.name, {}))

    async def _copied_before(self, topics: Mapping[str, str]) -> set[str]:
        """Those of which former topics of the same name were copied there."""
        ids = {
            topic: self._source.topics[topic].topic_id for topic in topics.keys() & self._source.topics.keys()
        }
        ledger = await find_ledger(self._destination, self._source.cluster_id)
        return {
            lane.topic
            for lane in ledger.lanes
            if topics.get(lane.topic) == lane.to and lane.topic_id not in (None, str(ids.get(lane.topic)))
        }

    async def _occupied(self, names: frozenset[str]) -> set[str]:
        """Those of the destination that hold something, or have held it."""
        await self._destination.refresh(names)
        partitions = self._destination.metadata.topic_partitions(sorted(names))
        ends = await latest_offsets(self._destination, partitions)
        return {partition.topic for partition, end in ends.items() if end > 0}
