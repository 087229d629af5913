"""A mesh on paper: how long `mirrormaker plan --simulate` takes.

    python -m ops.bench.mesh [--clusters N] [--routes N] [--partitions N] [--days N]

Edge clusters send to ten hubs over links of 100 Mbit/s with 150 ms of round trip, more by day than by night;
each has a link that is down for an hour at some time. With `--hub-mb` the hubs are bounded, too, so that all
routes to one share it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time

from broker.types import HostPort
from mirrormaker.plan.simulation.forecast import simulate
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    LinkSpec,
    Outage,
    Resources,
    RouteName,
    RouteSpec,
    SimulatedCluster,
    SimulatedLink,
    SimulatedRoute,
    TopicSelection,
    Topology,
)

HUBS = 10
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
LINK_BYTES_PER_SECOND = 12_500_000
BY_HOUR = (40,) * 8 + (160,) * 8 + (100,) * 8


def mesh(edges: int, routes_each: int, partitions: int, hub_bytes_per_second: int | None) -> Topology:
    """Edges with routes to hubs; `partitions` in all."""
    hub = SimulatedCluster(in_bytes_per_second=hub_bytes_per_second)
    clusters = [_cluster(f"hub{number}", hub) for number in range(HUBS)]
    routes: list[RouteSpec] = []
    links: list[LinkSpec] = []
    for edge in range(edges):
        source = _cluster(f"edge{edge}", SimulatedCluster())
        clusters.append(source)
        for number in range(routes_each):
            destination = clusters[(edge + number) % HUBS].name
            routes.append(_route(source.name, destination, edge, partitions // (edges * routes_each)))
            links.append(_link(source.name, destination, edge, is_down=number == 0))
    return Topology(
        clusters={cluster.name: cluster for cluster in clusters},
        routes=tuple(routes),
        links=tuple(links),
        data_dir=Path(),
    )


def _cluster(name: str, assumed: SimulatedCluster) -> ClusterSpec:
    return ClusterSpec(name=ClusterName(name), bootstrap=(HostPort(name, 9092),), simulate=assumed)


def _route(source: ClusterName, destination: ClusterName, edge: int, partitions: int) -> RouteSpec:
    return RouteSpec(
        name=RouteName(f"{source}-to-{destination}"),
        source=source,
        destination=destination,
        topics=TopicSelection(include=(".*",)),
        resources=Resources(priority=1 + edge % 10),
        simulate=SimulatedRoute(
            bytes_per_second=3_000_000 + edge * 10_000, by_hour=BY_HOUR, partitions=max(partitions, 1)
        ),
    )


def _link(source: ClusterName, destination: ClusterName, edge: int, *, is_down: bool) -> LinkSpec:
    down = Outage(after_ms=HOUR_MS * (1 + edge % 20) + edge * 7_000, lasts_ms=HOUR_MS)
    return LinkSpec(
        source=source,
        destination=destination,
        simulate=SimulatedLink(
            bytes_per_second=LINK_BYTES_PER_SECOND, round_trip_ms=150, outages=(down,) * is_down
        ),
    )


def main() -> None:
    """Simulate the mesh and say how long that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=300)
    parser.add_argument("--routes", type=int, default=3, help="of each cluster")
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--hub-mb", type=int, default=600, help="what a hub takes a second; 0: no bound")
    options = parser.parse_args()
    hub = options.hub_mb * 1_000_000 or None
    topology = mesh(options.clusters, options.routes, options.partitions, hub)
    begun = process_time()
    forecast = simulate(topology, options.days * DAY_MS)
    seconds = process_time() - begun
    late = sum(route.lag_seconds_max > 0 for route in forecast.routes)
    print(
        f"{len(topology.clusters):,} clusters, {len(topology.routes):,} routes,"
        f" {sum(route.partitions for route in forecast.routes):,} partitions,"
        f" {options.days} days: {seconds:.2f} s of processor time; {late:,} routes lagged at some time"
    )


if __name__ == "__main__":
    main()
