"""Clusters of a topology as far as they have to be told apart: those whose ids are alike are asked what else
there is to know of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from broker.errors import BrokerError
from mirrormaker.clusters import open_cluster
from mirrormaker.plan.identities import ClusterIdentity
from mirrormaker.topology.model import ClusterId, ClusterName, ClusterSpec


async def find_identities(
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
