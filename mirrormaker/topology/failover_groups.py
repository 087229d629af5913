"""Routes that switch their direction together: a failover group, between two clusters. Pure.

At home are the records as long as nothing has been switched: the routes that are enabled lead from there to
the standby. Those that lead back are in the file from the start, with `enabled: false`. Which of them run is
not the file's to say from then on, but the last switch's (`reconcile/switches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirrormaker.topology.findings import Finding
from mirrormaker.topology.loops import is_compilable
from mirrormaker.topology.model import ClusterName, PartitionPolicy, RouteSpec, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverGroup:
    """See the module."""

    name: str
    home: ClusterName
    standby: ClusterName
    routes: tuple[RouteSpec, ...]

    def leaving(self, cluster: ClusterName) -> tuple[RouteSpec, ...]:
        """The routes that lead from one of the two clusters to the other."""
        return tuple(route for route in self.routes if route.source == cluster)

    def other(self, cluster: ClusterName) -> ClusterName:
        """The other one of the two clusters."""
        return self.standby if cluster == self.home else self.home


def failover_groups(topology: Topology) -> dict[str, FailoverGroup]:
    """The groups of a topology that was checked, by name."""
    return {
        name: FailoverGroup(
            name=name, home=forth.source, standby=forth.destination, routes=tuple(members.values())
        )
        for name, members in _members(topology.routes).items()
        for forth in [next(route for route in members.values() if route.enabled)]
    }


def return_route(route: RouteSpec, routes: Sequence[RouteSpec]) -> RouteSpec | None:
    """The route of the same group that leads back and takes the same topics; None where there is none."""
    if route.failover_group is None:
        return None
    for other in routes:
        ends = (other.source, other.destination)
        is_back = other.failover_group == route.failover_group and ends == (route.destination, route.source)
        if is_back and _same_topics(route, other):
            return other
    return None


def check_failover_groups(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    """What keeps routes from switching together."""
    for name, members in _members(routes).items():
        yield from _check_ends(name, members)
        yield from _check_return(members)


def one_way_routes(routes: Sequence[RouteSpec]) -> Iterator[Finding]:
    """Routes without another that copies back once they are switched: allowed, and seldom meant."""
    for number, route in enumerate(routes):
        if route.failover_group is not None and route.enabled and return_route(route, routes) is None:
            message = (
                f"no route of the group {route.failover_group!r} leads back: once it is switched, nothing is"
                f" copied to {route.source!r}"
            )
            yield Finding(path=f"routes[{number}].failover_group", message=message)


def _members(routes: Sequence[RouteSpec]) -> dict[str, dict[int, RouteSpec]]:
    """The routes of each group by their number in the file."""
    found: dict[str, dict[int, RouteSpec]] = {}
    for number, route in enumerate(routes):
        if route.failover_group is not None:
            found.setdefault(route.failover_group, {})[number] = route
    return found


def _check_ends(name: str, members: dict[int, RouteSpec]) -> Iterator[Finding]:
    first = next((route for route in members.values() if route.enabled), None)
    if first is None:
        number = next(iter(members))
        message = f"no route of the group {name!r} is enabled: those from its home are, those back are not"
        yield Finding(path=f"routes[{number}].failover_group", message=message)
        return
    ends = {first.source, first.destination}
    for number, route in members.items():
        path = f"routes[{number}]"
        if {route.source, route.destination} != ends:
            message = (
                f"the group {name!r} is between {first.source!r} and {first.destination!r}: this route leads"
                " elsewhere"
            )
            yield Finding(path=f"{path}.failover_group", message=message)
        elif route.source == first.source and not route.enabled:
            message = f"routes of {name!r} from {first.source!r} switch together: all are enabled, or none"
            yield Finding(path=f"{path}.enabled", message=message)
        elif route.source == first.destination and route.enabled:
            message = f"leads back in the group {name!r}: say 'enabled: false', a failover switches it on"
            yield Finding(path=f"{path}.enabled", message=message)


def _check_return(members: dict[int, RouteSpec]) -> Iterator[Finding]:
    """Where there is a way back, records go both ways under one name."""
    if not any(not route.enabled for route in members.values()):
        return
    circles_are_known = all(map(is_compilable, members.values()))  # by which provenance is on where left out
    for number, route in members.items():
        path = f"routes[{number}]"
        if route.topics.name.replace("{cluster}", route.source) != "{topic}":
            message = "a route that switches its direction keeps names: say '{topic}'"
            yield Finding(path=f"{path}.topics.name", message=message)
        elif circles_are_known and not route.provenance:
            message = (
                "a route that switches its direction needs it: else records come back to where they were"
            )
            yield Finding(path=f"{path}.provenance", message=message)
        if route.topics.partitions is not PartitionPolicy.SAME:
            message = "a route that switches its direction keeps partitions: say 'same'"
            yield Finding(path=f"{path}.topics.partitions", message=message)
        if return_route(route, tuple(members.values())) is None:
            message = (
                "no route of the group brings the same topics back: 'include' and 'exclude' must be alike"
            )
            yield Finding(path=f"{path}.topics", message=message)


def _same_topics(one: RouteSpec, other: RouteSpec) -> bool:
    return (set(one.topics.include), set(one.topics.exclude)) == (
        set(other.topics.include),
        set(other.topics.exclude),
    )
