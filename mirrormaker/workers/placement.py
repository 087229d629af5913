"""Which process of a daemon runs which routes. Pure.

A route with one worker is run by the daemon itself. One with more is run by the workers 1 to that number,
and not by the daemon. Routes share workers: there are as many as the route with the most asks for.
"""

from __future__ import annotations

from mirrormaker.reconcile.routes import RouteWork, work_of
from mirrormaker.topology.model import RouteName, RouteSpec, Topology


def works_of_daemon(topology: Topology) -> dict[RouteName, RouteWork]:
    """The routes that the daemon runs itself."""
    return {name: work for name, work in work_of(topology).items() if not _has_workers(work.route)}


def works_of_worker(topology: Topology, number: int) -> dict[RouteName, RouteWork]:
    """The routes that a worker takes part in; workers are counted from 1."""
    return {
        name: work
        for name, work in work_of(topology).items()
        if _has_workers(work.route) and number <= work.route.resources.workers
    }


def count_workers(topology: Topology) -> int:
    """How many workers there are to be."""
    return max(
        (work.route.resources.workers for work in work_of(topology).values() if _has_workers(work.route)),
        default=0,
    )


def _has_workers(route: RouteSpec) -> bool:
    return route.resources.workers > 1
