"""The limits of a topology by the names that processes which share them go by, and who these are. Pure."""

from __future__ import annotations

from mirrormaker.flow.bandwidth.statements import LimitName
from mirrormaker.topology.model import ClusterName, RouteName, Topology

Ends = tuple[ClusterName, ClusterName]
"""From and to."""


def link_limit(source: ClusterName, destination: ClusterName) -> LimitName:
    """That of a link."""
    return LimitName(f"link {source} {destination}")


def route_limit(route: RouteName) -> LimitName:
    """That of a route."""
    return LimitName(f"route {route}")


def catch_up_limit(route: RouteName) -> LimitName:
    """That of a route for old records."""
    return LimitName(f"catch-up {route}")


def processes_by_limit(topology: Topology) -> dict[LimitName, int]:
    """How many processes of a daemon share each of the limits that there may be."""
    of_links = {link_limit(*ends): count for ends, count in processes_by_link(topology).items()}
    of_routes = {
        name(route.name): route.resources.workers
        for route in topology.routes
        for name in (route_limit, catch_up_limit)
    }
    return of_links | of_routes


def processes_by_link(topology: Topology) -> dict[Ends, int]:
    """How many processes of a daemon run routes on a link: routes with workers share those, all others are
    run by the daemon itself.
    """
    workers: dict[Ends, int] = {}
    at_home: set[Ends] = set()
    for route in topology.routes:
        ends, wanted = (route.source, route.destination), route.resources.workers
        if route.may_run and wanted > 1:
            workers[ends] = max(workers.get(ends, 0), wanted)
        elif route.may_run:
            at_home.add(ends)
    return {ends: workers.get(ends, 0) + (ends in at_home) for ends in workers.keys() | at_home}
