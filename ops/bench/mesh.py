"""A mesh on paper: how long `mirrormaker plan --simulate` takes, from the file on.

    python -m ops.bench.mesh [--clusters N] [--routes N] [--partitions N] [--days N] [--hubs N]
        [--hub-mb N] [--outages N]

Edge clusters in several time zones send to hubs over links of 100 Mbit/s with 150 ms of round trip, more
by day than by night; in office hours a link lets the mirror have half of itself, and each edge has one that
is down for an hour at some time. With `--hub-mb` the hubs are bounded, too, so that all routes to one share
it; `--hubs 1 --routes 1 --outages 3` is many sources and one aggregate.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import yaml

from mirrormaker.plan.simulation.forecast import simulate
from mirrormaker.topology.loader import load_topology

HOUR_MINUTES = 60
DAY_MS = 86_400_000
LINK_BYTES_PER_SECOND = 12_500_000
BY_HOUR = (40,) * 8 + (160,) * 8 + (100,) * 8
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Tokyo")


def mesh(
    edges: int,
    routes_each: int,
    partitions: int,
    hub_bytes_per_second: int | None,
    *,
    hubs: int,
    outages: int,
) -> dict[str, Any]:
    """Edges with routes to hubs; `partitions` in all, `outages` of one link of each edge."""
    hub = {"in_bytes_per_second": hub_bytes_per_second} if hub_bytes_per_second else {}
    clusters = {f"hub{number}": _cluster(f"hub{number}") | {"simulate": hub} for number in range(hubs)}
    routes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    for edge in range(edges):
        source = f"edge{edge}"
        clusters[source] = _cluster(source)
        for number in range(routes_each):
            destination = f"hub{(edge + number) % hubs}"
            routes.append(_route(source, destination, edge, partitions // (edges * routes_each)))
            links.append(_link(source, destination, edge, outages=0 if number else outages))
    return {"clusters": clusters, "routes": routes, "links": links, "data_dir": "data"}


def _cluster(name: str) -> dict[str, Any]:
    return {"bootstrap": [f"{name}.example:9092"]}


def _route(source: str, destination: str, edge: int, partitions: int) -> dict[str, Any]:
    return {
        "from": source,
        "to": destination,
        "topics": {"include": [".*"]},
        "resources": {"priority": 1 + edge % 10},
        "simulate": {
            "bytes_per_second": 3_000_000 + edge * 10_000,
            "by_hour": list(BY_HOUR),
            "partitions": max(partitions, 1),
        },
    }


def _link(source: str, destination: str, edge: int, *, outages: int) -> dict[str, Any]:
    begins = HOUR_MINUTES * (1 + edge % 20) + edge % HOUR_MINUTES
    office = {
        "days": ["mon", "tue", "wed", "thu", "fri"],
        "from": "08:00",
        "to": "18:00",
        "zone": ZONES[edge % len(ZONES)],
        "bytes_per_second": LINK_BYTES_PER_SECOND // 2,
    }
    assumed = {"bytes_per_second": LINK_BYTES_PER_SECOND, "round_trip_ms": 150}
    if outages:
        assumed["outages"] = [{"after": f"{begins + 137 * i}m", "lasts": "1h"} for i in range(outages)]
    return {"from": source, "to": destination, "windows": [office], "simulate": assumed}


def main() -> None:
    """Read and simulate the mesh, and say how long that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=300)
    parser.add_argument("--routes", type=int, default=3, help="of each cluster")
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--hubs", type=int, default=10)
    parser.add_argument("--outages", type=int, default=1, help="of one link of each cluster")
    parser.add_argument("--hub-mb", type=int, default=600, help="what a hub takes a second; 0: no bound")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="leave the topology there")
    options = parser.parse_args()
    hub = options.hub_mb * 1_000_000 or None
    document = mesh(
        options.clusters,
        options.routes,
        options.partitions,
        hub,
        hubs=options.hubs,
        outages=options.outages,
    )
    text = yaml.safe_dump(document, sort_keys=False)
    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder) / "mesh.yaml"
        file.write_text(text)
        begun = process_time()
        topology = load_topology(file)
        read = process_time()
        forecast = simulate(topology, options.days * DAY_MS)
        done = process_time()
    late = sum(route.lag_seconds_max > 0 for route in forecast.routes)
    print(
        f"{len(topology.clusters):,} clusters, {len(topology.routes):,} routes,"
        f" {sum(route.partitions for route in forecast.routes):,} partitions, {options.days} days:"
        f" {read - begun:.2f} s of processor time to read {len(text) >> 10} KiB, {done - read:.2f} s to"
        f" simulate; {late:,} routes lagged at some time"
    )


if __name__ == "__main__":
    main()
