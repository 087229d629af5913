"""Claims of topics, for all processes of a daemon together. Pure.

Where several routes lead to one destination and one of them has workers, these tell in their pictures what
they claim; the daemon enters that among the claims of its own routes, where whoever asks first has a topic,
and tells all workers what became of it. Claims stay while no worker of a route tells any, as between the end
of a process and the start of the next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mirrormaker.reconcile.claims import Decision, DestinationClaims
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, Topology


def contested(topology: Topology) -> set[ClusterName]:
    """Destinations of several routes, of which a process may run but one."""
    at_work = [route for route in topology.routes if route.may_run]
    counts = Counter(route.destination for route in at_work)
    return {
        route.destination
        for route in at_work
        if counts[route.destination] > 1 and route.resources.workers > 1
    }


class SharedClaims:
    """The daemon's."""

    def __init__(self, claims: Mapping[ClusterName, DestinationClaims]) -> None:
        """`claims`: those that the daemon's own routes use; ones of a destination that has none appear."""
        self._claims = claims

    def take(self, topology: Topology, pictures: Iterable[Mapping[str, Any]]) -> None:
        """Enter what workers tell."""
        told: dict[RouteName, set[str]] = defaultdict(set)
        for picture in pictures:
            for topics_of in picture.get("claims", {}).values():
                for name, topics in topics_of.items():
                    told[RouteName(name)].update(topics)
        routes = {route.name: route for route in topology.routes if route.may_run}
        for destination in contested(topology):
            claims = self._claims[destination]
            for name in [name for name in claims.all() if not _leads_to(routes.get(name), destination)]:
                claims.claim(name, frozenset())
        for name, topics in told.items():
            route = routes.get(name)
            if route is not None and route.resources.workers > 1:
                self._claims[route.destination].claim(name, frozenset(topics), shares=route.topics.merge)

    def lists(self, topology: Topology) -> dict[str, dict[str, list[str]]]:
        """Who has what, where workers have to be told."""
        return {name: _granted(self._claims[name]) for name in sorted(contested(topology))}


def _granted(claims: DestinationClaims) -> dict[str, list[str]]:
    return {route: sorted(claims.granted(route)) for route in claims.all()}


def claim_lists(claims: DestinationClaims) -> dict[str, list[str]]:
    """What each route claims, as plain data."""
    return {route: sorted(topics) for route, topics in claims.all().items()}


def _leads_to(route: RouteSpec | None, destination: ClusterName) -> bool:
    return route is not None and route.destination == destination


def decisions_of(
    topology: Topology, table: Mapping[str, Mapping[str, Collection[str]]]
) -> dict[ClusterName, Decision]:
    """The decisions of a table as a worker is told it; a contested destination that it lacks has none yet."""
    sharing = {route.name for route in topology.routes if route.topics.merge}
    return {
        name: Decision(
            granted={RouteName(route): frozenset(topics) for route, topics in table.get(name, {}).items()},
            sharing=sharing,
        )
        for name in contested(topology)
    }
