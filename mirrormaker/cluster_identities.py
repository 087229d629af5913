"""Clusters of a topology as far as they have to be told apart: those whose ids are alike are asked what else
there is to know of them. Circles of routes are found by that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.clusters import open_cluster
from mirrormaker.plan.circles import real_circles
from mirrormaker.plan.identities import ClusterIdentity
from mirrormaker.topology.model import ClusterId, ClusterName, ClusterSpec, RouteName, Topology


async def check_circles(topology: Topology, route: RouteName, ids: Mapping[ClusterName, ClusterId]) -> None:
    """Raises ConfigurationError for what the file does not show of a route: two names mean one cluster, so
    that it leads in a circle, or two clusters have one id.
    """
    for notice in real_circles(topology, await _find_identities(topology.clusters, ids)):
        if notice.about == route:
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
