"""Clusters of a topology as far as they have to be told apart: those whose ids are alike are asked what else
there is to know of them. Circles of routes are found by that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ConfigurationError, ErrorCode
from mirrormaker.clusters import open_cluster
from mirrormaker.plan.circles import circles_of_route, real_circles
from mirrormaker.plan.identities import ClusterIdentity
from mirrormaker.topology.model import ClusterId, ClusterName, ClusterSpec, RouteName, Topology


async def check_circles(
    topology: Topology, route: RouteName, ids: Mapping[ClusterName, ClusterId], source: Cluster
) -> None:
    """Raises ConfigurationError for what the file does not show of a route: two names mean one cluster, so
    that it leads in a circle, a topic of its `source` shows a circle, or two clusters have one id. Raises
    BrokerError where the source cannot be asked.
    """
    identities = await _find_identities(topology.clusters, ids)
    found = [notice for notice in real_circles(topology, identities) if notice.about == route]
    topics = [
        topic.name
        for topic in (await source.refresh()).topics.values()
        if topic.error is ErrorCode.NONE and not topic.internal
    ]
    for notice in found or circles_of_route(topology, identities, route, topics):
        raise ConfigurationError([notice.line])


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
