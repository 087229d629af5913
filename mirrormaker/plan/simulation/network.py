"""The mesh that a topology describes: what each route wants, and the narrow places on its way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirrormaker.plan.simulation.limits import HOUR_MS, UNLIMITED, Limit
from mirrormaker.topology.model import ClusterName, CopyMode, LinkSpec, RouteSpec, Topology

HOURS = 24
BATCHES_REMEMBERED = 5
"""Of a partition a stock broker takes so many batches at once from one producer."""
COALESCED_BYTES = 15 << 16
"""Batches are gathered up to this where the round trip asks for it, unless the route forbids or says so."""
PARTITION_BUFFER_BYTES = 8 << 20
"""What a partition may always have of the buffer, unless the route says so: half of a larger one where a
cluster is far.
"""
LINK_BYTES_PER_SECOND = 12.5e9
"""Size of a link that nothing is said of."""
Ends = tuple[ClusterName, ClusterName]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Somewhere that routes pass through together. All of its limits hold."""

    name: str
    limits: tuple[Limit, ...]

    def size_at(self, now_ms: float) -> float:
        """Bytes per second that pass."""
        return min(limit.at(now_ms) for limit in self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One route: what arrives, and what it may carry by itself."""

    route: RouteSpec
    places: tuple[int, ...]
    """Numbers of places on its way; its link is the first."""
    limit: Limit
    ceiling: float
    """What the round trip lets pass, in bytes per second."""

    def arriving(self, now_ms: float) -> float:
        """Bytes per second that are produced."""
        assumed = self.route.simulate
        if not assumed.by_hour:
            return assumed.bytes_per_second
        return assumed.bytes_per_second * assumed.by_hour[int(now_ms // HOUR_MS) % HOURS] / 100

    def allowed(self, now_ms: float) -> float:
        """Bytes per second that it may carry."""
        return min(self.limit.at(now_ms), self.ceiling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """All of it."""

    streams: tuple[Stream, ...]
    places: tuple[Place, ...]

    def parts(self) -> Iterable[list[Stream]]:
        """Streams that share places, directly or through others, apart from those that do not."""
        leader: dict[int, int] = {}

        def find(place: int) -> int:
            while leader.setdefault(place, place) != place:
                leader[place] = leader[leader[place]]
                place = leader[place]
            return place

        for stream in self.streams:
            for place in stream.places[1:]:
                leader[find(place)] = find(stream.places[0])
        grouped: dict[int, list[Stream]] = {}
        for stream in self.streams:
            grouped.setdefault(find(stream.places[0]), []).append(stream)
        return grouped.values()


def build_network(topology: Topology) -> Network:
    """The network of the routes that are enabled."""
    links = {(link.source, link.destination): link for link in topology.links}
    places: list[Place] = []
    numbers: dict[str, int] = {}

    def number_of(name: str, limits: tuple[Limit, ...]) -> int:
        if name not in numbers:
            numbers[name] = len(places)
            places.append(Place(name=name, limits=limits))
        return numbers[name]

    streams = []
    for route in topology.routes:
        if route.enabled:
            named = _places_of(route, topology, links)
            streams.append(
                Stream(
                    route=route,
                    places=tuple(number_of(name, limits) for name, limits in named.items()),
                    limit=Limit(
                        bytes_per_second=_size(route.resources.bytes_per_second),
                        windows=route.resources.windows,
                    ),
                    ceiling=_ceiling(route, _round_trip_ms(route, topology, links)),
                )
            )
    return Network(streams=tuple(streams), places=tuple(places))


def _places_of(
    route: RouteSpec, topology: Topology, links: Mapping[Ends, LinkSpec]
) -> dict[str, tuple[Limit, ...]]:
    source, destination = topology.clusters[route.source], topology.clusters[route.destination]
    found = {f"{source.name} -> {destination.name}": _link_limits(links.get((source.name, destination.name)))}
    leaving, taking = source.simulate, destination.simulate
    if leaving.out_bytes_per_second is not None or leaving.outages:
        limit = Limit(bytes_per_second=_size(leaving.out_bytes_per_second), outages=leaving.outages)
        found[f"out of {source.name}"] = (limit,)
    if taking.in_bytes_per_second is not None or taking.outages:
        limit = Limit(bytes_per_second=_size(taking.in_bytes_per_second), outages=taking.outages)
        found[f"into {destination.name}"] = (limit,)
    return found


def _link_limits(link: LinkSpec | None) -> tuple[Limit, ...]:
    """What the mirror keeps to, and what the link itself can do."""
    if link is None:
        return (Limit(bytes_per_second=LINK_BYTES_PER_SECOND),)
    assumed = link.simulate
    size = LINK_BYTES_PER_SECOND if assumed.bytes_per_second is None else float(assumed.bytes_per_second)
    return (
        Limit(bytes_per_second=_size(link.bytes_per_second), windows=link.windows),
        Limit(bytes_per_second=size, outages=assumed.outages),
    )


def _round_trip_ms(route: RouteSpec, topology: Topology, links: Mapping[Ends, LinkSpec]) -> int:
    link = links.get((route.source, route.destination))
    if link is not None and link.simulate.round_trip_ms:
        return link.simulate.round_trip_ms
    ends = topology.clusters[route.source], topology.clusters[route.destination]
    return max(end.round_trip_ms or 0 for end in ends)


def _ceiling(route: RouteSpec, round_trip_ms: int) -> float:
    """What can be in flight, once a round trip: for all partitions, and for the one that gets most."""
    if not round_trip_ms:
        return UNLIMITED
    assumed, resources = route.simulate, route.resources
    gathered = 0 if route.copy is CopyMode.SHALLOW else route.batch.bytes or COALESCED_BYTES
    partition_buffer_bytes = resources.partition_buffer_bytes or min(
        resources.buffer_bytes, max(PARTITION_BUFFER_BYTES, resources.buffer_bytes // 2)
    )
    of_partition = min(BATCHES_REMEMBERED * max(assumed.batch_bytes, gathered), partition_buffer_bytes)
    of_route = min(assumed.partitions * of_partition, resources.buffer_bytes * resources.workers)
    part = (assumed.hottest_percent or 0) / 100
    hottest = of_partition / part if part else UNLIMITED
    return min(of_route, hottest) / round_trip_ms * 1000


def _size(limit: int | None) -> float:
    return UNLIMITED if limit is None else float(limit)
