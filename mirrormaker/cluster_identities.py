"""Clusters of a topology as far as they have to be told apart: those whose ids are alike are asked what else
there is to know of them. Circles of routes are found by that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.clusters import open_cluster
from mirrormaker.plan.circles import circles_of_topics, real_circles
from mirrormaker.plan.identities import ClusterIdentity
from mirrormaker.topology.model import ClusterId, ClusterName, ClusterSpec, RouteName, Topology

TOPICS_AT_A_TIME = 500
"""Each takes some 0.1 ms, in which nothing else is done."""


async def check_circles(topology: Topology, route: RouteName, ids: Mapping[ClusterName, ClusterId]) -> None:
    """Raises ConfigurationError for what the file does not show of a route: two names mean one cluster, so
    that it leads in a circle, or two clusters have one id.
    """
    identities = await _find_identities(topology.clusters, ids)
    for notice in real_circles(topology, identities):
        if notice.about == route:
            raise ConfigurationError([notice.line])


class CircleWatch:
    """Topics that would go in circles, by the file in force: patterns alone do not show all of them. Of one
    route; each topic is looked at once for as long as the file, and what clusters are known to be, stay.
    """

    def __init__(
        self,
        route: RouteName,
        topology: Callable[[], Topology | None],
        ids: Callable[[Topology], Mapping[ClusterName, ClusterId]],
    ) -> None:
        self._route = route
        self._topology = topology
        self._ids = ids
        self._in_force: Topology | None = None
        self._known: Mapping[ClusterName, ClusterId] = {}
        self._identities: Mapping[ClusterName, ClusterIdentity] = {}
        self._judged: set[str] = set()
        self._found: dict[str, str] = {}

    async def find(self, topics: Collection[str]) -> dict[str, str]:
        """Those of these topics of the source, each with the way that it would go."""
        topology = self._topology()
        if topology is None:
            return {}
        known = self._ids(topology)
        if topology is not self._in_force or known != self._known:
            self._identities = await _find_identities(topology.clusters, known)
            self._in_force, self._known = topology, known
            self._judged, self._found = set(), {}
        fresh = sorted(set(topics) - self._judged)
        for start in range(0, len(fresh), TOPICS_AT_A_TIME):
            some = fresh[start : start + TOPICS_AT_A_TIME]
            self._found |= circles_of_topics(topology, self._identities, self._route, some)
            self._judged |= set(some)
            await asyncio.sleep(0)
        return {topic: self._found[topic] for topic in self._found.keys() & set(topics)}


async def _find_identities(
    specs: Mapping[ClusterName, ClusterSpec], ids: Mapping[ClusterName, ClusterId]
) -> dict[ClusterName, ClusterIdentity]:
    """Of all whose ids are known. One that does not answer counts as the cluster whose id it has."""
    uses = Counter(ids.values())
    names = list(ids)
    found = await asyncio.gather(*(_find(specs[name], ids[name], uses[ids[name]] > 1) for name in names))
    return dict(zip(names, found, strict=True))


async def _find(spec: ClusterSpec, cluster_id: ClusterId, is_shared: bool) -> ClusterIdentity:
    if is_shared:
        try:
            async with open_cluster(spec) as cluster:
                return ClusterIdentity.of(cluster_id, (await cluster.refresh()).topics.values())
        except BrokerError:
            pass
    return ClusterIdentity(cluster_id=cluster_id)
