"""The links of a process: those between the clusters of its topology, limited or not.

Limits in the file are those of all processes together: each has an equal part, and lends what it does not
need to those that need more (`lending`). There are as many as the route's group has members; on a link that
several routes share, as many as a daemon has for all of them, times the daemons that the largest of the
groups speaks for. Owned by the event loop of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from broker.clock import Clock
from mirrormaker.flow.bandwidth.appetite import Appetite
from mirrormaker.flow.bandwidth.fair_parts import Want
from mirrormaker.flow.bandwidth.lending import Lending
from mirrormaker.flow.bandwidth.link import LinkBandwidth, RouteBandwidth, RouteTerms
from mirrormaker.flow.bandwidth.schedule import Schedule
from mirrormaker.flow.bandwidth.shared_limits import Ends, link_limit, processes_by_link
from mirrormaker.flow.bandwidth.statements import LimitName, MemberName, Need, Statement
from mirrormaker.topology.model import ClusterName, RouteName, Topology


class Sharer(Protocol):
    """A route on a link."""

    def needs(self) -> Mapping[LimitName, Need]:
        """Of the limits that are its own."""

    def take_parts(self) -> None:
        """Put its parts of limits in force as they are now."""


class Link:
    """The way from one cluster to another, for routes of this process."""

    def __init__(self, ends: Ends, lending: Lending, clock: Clock) -> None:
        self.bandwidth = LinkBandwidth(clock.monotonic_ms())
        self.schedule = Schedule()
        self.processes = 1
        """Of one daemon, for all routes on it."""
        self._name = link_limit(*ends)
        self._lending = lending
        self._clock = clock
        self._members: dict[RouteName, tuple[int, int]] = {}
        """Processes of each route, and how many of them a daemon has."""
        self._sharers: dict[RouteName, Sharer] = {}
        self._hosted: set[RouteName] = set()

    @property
    def is_idle(self) -> bool:
        """Whether this process has no route for it."""
        return self.bandwidth.is_idle and not self._hosted

    @property
    def members(self) -> int:
        """Processes that share its limit."""
        daemons = (-(-members // workers) for members, workers in self._members.values())
        return self.processes * max(daemons, default=1)

    def members_of(self, name: RouteName) -> int:
        """Processes that run the route."""
        members, _ = self._members.get(name, (1, 1))
        return members

    @contextmanager
    def hosting(self, name: RouteName) -> Iterator[None]:
        """The route is this process's to run: while it rests it needs nothing, and others may have that."""
        self._hosted.add(name)
        try:
            yield
        finally:
            self._hosted.discard(name)
            if name not in self._sharers:
                self._members.pop(name, None)

    def join(
        self, name: RouteName, terms: RouteTerms, on_admitted: Callable[[], None], sharer: Sharer
    ) -> RouteBandwidth:
        """A route begins to use it."""
        self._members.setdefault(name, (1, 1))
        self._sharers[name] = sharer
        self.look()
        return self.bandwidth.join(name, terms, on_admitted)

    def leave(self, name: RouteName) -> None:
        """It has ended, or rests."""
        if name not in self._hosted:
            self._members.pop(name, None)
        self._sharers.pop(name, None)
        self.bandwidth.leave(name)

    def set_members(self, name: RouteName, members: int, workers: int) -> None:
        """So many processes run the route, `workers` of each daemon."""
        self._members[name] = (members, workers)

    def part(self, limit: LimitName, members: int) -> float:
        """What this process may use of a limit that so many share."""
        return self._lending.part(limit, members, self._clock.monotonic_ms())

    def look(self) -> None:
        """Have the limit of the present time of day in force, and the part of it that this process has."""
        limit, now_ms = self._limit(), self._clock.monotonic_ms()
        self.bandwidth.appetite.look(now_ms)
        self.bandwidth.set_limit(limit, now_ms, self.part(self._name, self.members))

    def take_parts(self) -> None:
        """Put the parts of its limit and of those of its routes in force as they are now."""
        self.look()
        for sharer in self._sharers.values():
            sharer.take_parts()

    def needs(self) -> Iterator[tuple[LimitName, Need]]:
        """Of what this process shares with others here."""
        limit, members = self._limit(), self.members
        if limit and members > 1 and self._sharers:
            yield self._name, need_of(self.bandwidth.appetite, limit, members, self._weight())
        elif limit and members > 1 and self._hosted:
            yield self._name, Need(members=members, want=Want(part=0.0))
        for sharer in self._sharers.values():
            yield from sharer.needs().items()

    def _limit(self) -> int | None:
        return self.schedule.limit_at(self._clock.now_ms())

    def _weight(self) -> float:
        """What this process counts on the link: the priorities of routes that wait here, each for its part of
        the processes that run it.
        """
        weights = {
            route: route.terms.priority / self.members_of(name)
            for name, route in self.bandwidth.routes.items()
        }
        return sum(weight for route, weight in weights.items() if route.is_waiting) or sum(weights.values())

    def describe(self) -> dict[str, Any]:
        """For `status` and metrics: what holds now, and what was sent; rates in bytes a second. A process
        that has no route on it has no part of its limit.
        """
        bandwidth, now_ms = self.bandwidth, self._clock.monotonic_ms()
        rate, limit = bandwidth.rate(now_ms), None if bandwidth.is_idle else bandwidth.limit
        return {
            "bytes": bandwidth.bytes,
            "rate": round(rate),
            "limit": limit,
            "share_of_limit": rate / limit if limit else None,
            "members": self.members,
            "borrowed": borrowed(limit, self._limit(), self.members),
        }


class Links:
    """All of them."""

    def __init__(self, member: MemberName, clock: Clock) -> None:
        """`member`: this process, to others that share its limits."""
        self._member = member
        self._clock = clock
        self._links: dict[Ends, Link] = {}
        self._lendings: dict[ClusterName, Lending] = {}
        """By destination."""

    def of(self, source: ClusterName, destination: ClusterName) -> Link:
        """The link between two clusters; one that the file does not name has no limit."""
        link = self._links.get((source, destination))
        if link is None:
            lending = self._lending(destination)
            link = self._links[source, destination] = Link((source, destination), lending, self._clock)
        return link

    def configure(self, topology: Topology) -> None:
        """Its limits from now on, and no others."""
        named = {(spec.source, spec.destination): Schedule.of(spec) for spec in topology.links}
        processes = processes_by_link(topology)
        for ends in [*self._links]:
            if ends not in named and self._links[ends].is_idle:
                del self._links[ends]
        for ends in named.keys() | self._links.keys():
            link = self.of(*ends)
            link.schedule = named.get(ends, Schedule())
            link.processes = processes.get(ends, 1)
            link.look()

    def tell(self) -> list[Statement]:
        """What the others are to know: one statement for each destination where a limit is shared."""
        now_ms = self._clock.monotonic_ms()
        needs: dict[ClusterName, dict[LimitName, Need]] = {}
        for (_, destination), link in self._links.items():
            needs.setdefault(destination, {}).update(link.needs())
        return [self._lendings[name].tell(shared, now_ms) for name, shared in needs.items() if shared]

    def hear(self, statements: Iterable[Statement]) -> None:
        """What the others told; parts that are others now are in force at once."""
        now_ms = self._clock.monotonic_ms()
        moved = {
            statement.destination
            for statement in statements
            if self._lending(statement.destination).hear(statement, now_ms)
        }
        for (_, destination), link in self._links.items():
            if destination in moved:
                link.take_parts()

    def _lending(self, destination: ClusterName) -> Lending:
        return self._lendings.setdefault(destination, Lending(destination, self._member))

    def describe(self) -> list[dict[str, Any]]:
        """Every link that routes are on, or that has a limit."""
        return [
            {"from": source, "to": destination, **link.describe()}
            for (source, destination), link in sorted(self._links.items())
        ]


def need_of(appetite: Appetite, limit: int, members: int, weight: float = 1.0) -> Need:
    """What a process needs of a limit that so many share."""
    return Need(members=members, want=Want(part=appetite.part_of(limit), weight=weight))


def borrowed(own: float | None, limit: int | None, members: int) -> float | None:
    """Bytes a second that a process has beyond its equal part of a limit; less than 0: it lends them."""
    return None if own is None or limit is None else round(own - limit / members)
