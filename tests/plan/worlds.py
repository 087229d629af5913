"""Worlds made up for tests of plans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from broker.errors import ErrorCode
from broker.types import HostPort
from mirrormaker.plan.world import (
    ObservedCluster,
    ObservedSetting,
    ObservedTopic,
    PartitionTraffic,
    UnreachableCluster,
    World,
)
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    RouteName,
    RouteSpec,
    TopicSelection,
    TopicSpec,
    Topology,
)

JFK, LGA, AGGREGATE = ClusterName("jfk"), ClusterName("lga"), ClusterName("aggregate")
FLIGHTS = TopicSelection(include=("flights.*",))


def topic(
    name: str,
    partitions: int = 1,
    replication: int = 1,
    *,
    internal: bool = False,
    error: ErrorCode = ErrorCode.NONE,
    own: Mapping[str, str] | None = None,
    usual: Mapping[str, str] | None = None,
    traffic: PartitionTraffic | None = None,
    rights: frozenset[int] | None = None,
) -> ObservedTopic:
    """A topic; `own` are settings of its own, `usual` those of its cluster."""
    settings = {name: ObservedSetting(value=value, own=False) for name, value in (usual or {}).items()}
    settings |= {name: ObservedSetting(value=value, own=True) for name, value in (own or {}).items()}
    return ObservedTopic(
        name=name,
        partitions=partitions,
        replication=replication,
        internal=internal,
        error=error,
        config=settings,
        traffic=dict.fromkeys(range(partitions), traffic) if traffic is not None else {},
        rights=rights,
    )


def by_name(*topics: ObservedTopic) -> dict[str, ObservedTopic]:
    return {each.name: each for each in topics}


def cluster(
    name: ClusterName,
    *topics: ObservedTopic,
    nodes: int = 1,
    cluster_id: str | None = None,
    positions: Mapping[RouteName, Mapping[str, Mapping[int, int]]] | None = None,
) -> ObservedCluster:
    return ObservedCluster(
        name=name,
        cluster_id=cluster_id or f"id of {name}",
        nodes=nodes,
        topics=by_name(*topics),
        positions=positions or {},
    )


def world(*clusters: ObservedCluster | UnreachableCluster) -> World:
    return World(clusters={each.name: each for each in clusters})


def route(
    source: ClusterName = JFK,
    destination: ClusterName = AGGREGATE,
    *,
    topics: TopicSelection = FLIGHTS,
    **keys: object,
) -> RouteSpec:
    name = RouteName(f"{source}-to-{destination}")
    return RouteSpec(name=name, source=source, destination=destination, topics=topics, **keys)  # type: ignore[arg-type]


def topology(
    *routes: RouteSpec, declared: Mapping[ClusterName, Mapping[str, TopicSpec]] | None = None
) -> Topology:
    names = dict.fromkeys(end for each in routes for end in (each.source, each.destination))
    names |= dict.fromkeys(declared or {})
    return Topology(
        clusters={
            name: ClusterSpec(
                name=name,
                bootstrap=(HostPort(name, 9092),),
                topics=(declared or {}).get(name, {}),
            )
            for name in names
        },
        routes=routes,
        data_dir=Path("data"),
    )
