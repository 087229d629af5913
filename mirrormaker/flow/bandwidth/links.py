"""The links of a process: those between the clusters of its topology, limited or not.

Limits in the file are those of all processes together: each takes an equal part. There are as many as the
route's group has members; on a link that several routes share, as many as a daemon has for all of them, times
the daemons that the largest of the groups speaks for. Owned by the event loop of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.clock import Clock
from mirrormaker.flow.bandwidth.link import LinkBandwidth, RouteBandwidth, RouteTerms
from mirrormaker.flow.bandwidth.schedule import Schedule
from mirrormaker.topology.model import ClusterName, RouteName, Topology

Ends = tuple[ClusterName, ClusterName]
"""From and to."""


class Link:
    """The way from one cluster to another, for routes of this process."""

    def __init__(self, clock: Clock) -> None:
        self.bandwidth = LinkBandwidth(clock.monotonic_ms())
        self.schedule = Schedule()
        self.processes = 1
        """Of one daemon, for all routes on it."""
        self._clock = clock
        self._members: dict[RouteName, tuple[int, int]] = {}
        """Processes of each route, and how many of them a daemon has."""

    @property
    def members(self) -> int:
        """Processes that share its limit."""
        daemons = (-(-members // workers) for members, workers in self._members.values())
        return self.processes * max(daemons, default=1)

    def members_of(self, name: RouteName) -> int:
        """Processes that run the route."""
        members, _ = self._members.get(name, (1, 1))
        return members

    def join(self, name: RouteName, terms: RouteTerms, on_admitted: Callable[[], None]) -> RouteBandwidth:
        """A route begins to use it."""
        self._members.setdefault(name, (1, 1))
        self.look()
        return self.bandwidth.join(name, terms, on_admitted)

    def leave(self, name: RouteName) -> None:
        """It has ended."""
        self._members.pop(name, None)
        self.bandwidth.leave(name)

    def set_members(self, name: RouteName, members: int, workers: int) -> None:
        """So many processes run the route, `workers` of each daemon."""
        self._members[name] = (members, workers)

    def look(self) -> None:
        """Have the limit of the present time of day in force."""
        limit = self.schedule.limit_at(self._clock.now_ms())
        own = None if limit is None else limit / self.members
        self.bandwidth.set_limit(own, self._clock.monotonic_ms())

    def describe(self) -> dict[str, Any]:
        """For `status` and metrics: what holds now, and what was sent; rates in bytes a second."""
        bandwidth, now_ms = self.bandwidth, self._clock.monotonic_ms()
        rate = bandwidth.rate(now_ms)
        return {
            "bytes": bandwidth.bytes,
            "rate": round(rate),
            "limit": bandwidth.limit,
            "share_of_limit": rate / bandwidth.limit if bandwidth.limit else None,
            "members": self.members,
        }


class Links:
    """All of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[Ends, Link] = {}

    def of(self, source: ClusterName, destination: ClusterName) -> Link:
        """The link between two clusters; one that the file does not name has no limit."""
        link = self._links.get((source, destination))
        if link is None:
            link = self._links[source, destination] = Link(self._clock)
        return link

    def configure(self, topology: Topology) -> None:
        """Its limits from now on, and no others."""
        named = {(spec.source, spec.destination): Schedule.of(spec) for spec in topology.links}
        processes = processes_by_link(topology)
        for ends in [*self._links]:
            if ends not in named and self._links[ends].bandwidth.is_idle:
                del self._links[ends]
        for ends in named.keys() | self._links.keys():
            link = self.of(*ends)
            link.schedule = named.get(ends, Schedule())
            link.processes = processes.get(ends, 1)
            link.look()

    def describe(self) -> list[dict[str, Any]]:
        """Every link that routes are on, or that has a limit."""
        return [
            {"from": source, "to": destination, **link.describe()}
            for (source, destination), link in sorted(self._links.items())
        ]


def processes_by_link(topology: Topology) -> dict[Ends, int]:
    """How many processes of a daemon run routes on a link: routes with workers share those, all others are
    run by the daemon itself.
    """
    workers: dict[Ends, int] = {}
    at_home: set[Ends] = set()
    for route in topology.routes:
        ends, wanted = (route.source, route.destination), route.resources.workers
        runs = route.enabled or route.failover_group is not None
        if runs and wanted > 1:
            workers[ends] = max(workers.get(ends, 0), wanted)
        elif runs:
            at_home.add(ends)
    return {ends: workers.get(ends, 0) + (ends in at_home) for ends in workers.keys() | at_home}
