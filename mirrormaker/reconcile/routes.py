"""What is to be done about the routes of a process: those that it should run x those that it runs. Pure.

A change of what only bounds or chooses (`_is_live`) is given to the route at work; anything else that changed
means another mirror than before, and the route starts anew, it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from mirrormaker.reconcile.control import digest_of
from mirrormaker.topology.failover_groups import FailoverGroup, failover_groups, return_route
from mirrormaker.topology.model import (
    ClusterSpec,
    Delivery,
    ExistingTopics,
    Objectives,
    Resources,
    RouteName,
    RouteSpec,
    SimulatedCluster,
    SimulatedRoute,
    TopicSelection,
    Topology,
)
from mirrormaker.topology.naming import compile_naming
from mirrormaker.topology.shared_positions import earlier_sharers, routes_beside
from mirrormaker.topology.ways import Way, settings_ways, ways_back, ways_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """The routes that share the work with one that has provenance and keeps names."""

    ways: tuple[Way, ...] = ()
    clusters: tuple[ClusterSpec, ...] = ()
    """All that lie on the ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteWork:
    """A route and the clusters at its ends: all that it takes to run it."""

    route: RouteSpec
    source: ClusterSpec
    destination: ClusterSpec
    mesh: Mesh = field(default_factory=Mesh)
    """Empty for a route that is no part of one."""
    settings_ways: tuple[Way, ...] = ()
    """Those that settings of its topics could come round by; none for a route that is no part of a mesh."""
    earlier: tuple[RouteSpec, ...] = ()
    """Those of which it leaves topics alone that both take: they have one position."""
    beside: tuple[RouteSpec, ...] = ()
    """Those that may bring a topic where it brings that too: each goes on by its own position."""
    failover: FailoverGroup | None = None
    """The routes that it switches its direction with."""
    back: tuple[Way, ...] = ()
    """Those by which records come back under their names; none where no groups are carried."""

    @property
    def name(self) -> RouteName:
        return self.route.name

    @property
    def digest(self) -> str:
        """The same in every process that does the same for the route: see `digest_of`."""
        return digest_of(self.route, self.mesh.ways)

    @property
    def way_back(self) -> RouteSpec | None:
        """The route of its failover group that takes over from it."""
        return None if self.failover is None else return_route(self.route, self.failover.routes)

    def brings_back(self, topic: str) -> bool:
        """Whether what is written to a topic of the destination comes to the source while this route runs."""
        return self.way_back is None and any(
            compile_naming(way.source, way.topics).selects(topic) for way in self.back
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSteps:
    """What to do, each in the order of names."""

    start: tuple[RouteWork, ...] = ()
    change: tuple[RouteWork, ...] = ()
    """Tell the running route, which goes on."""
    restart: tuple[RouteName, ...] = ()
    """Stop; once it has ended, the next comparison starts it."""
    stop: tuple[RouteName, ...] = ()
    keep: tuple[RouteName, ...] = ()

    def describe(self) -> dict[str, list[str]]:
        """The names of routes by what is done about them."""
        return {
            "started": [work.name for work in self.start],
            "changed": [work.name for work in self.change],
            "restarted": list(self.restart),
            "stopped": list(self.stop),
            "kept": list(self.keep),
        }


def work_of(topology: Topology) -> dict[RouteName, RouteWork]:
    """The routes that a process with this file should run, or, in a failover group, may have to."""
    clusters, mesh, groups = topology.clusters, _mesh_of(topology), failover_groups(topology)
    ways, earlier = settings_ways(topology.routes), earlier_sharers(topology.routes)
    beside = routes_beside(topology.routes)
    return {
        route.name: RouteWork(
            route=route,
            source=clusters[route.source],
            destination=clusters[route.destination],
            mesh=mesh if ways_of([route]) else Mesh(),
            settings_ways=ways.get(route.name, ()),
            earlier=earlier.get(route.name, ()),
            beside=beside.get(route.name, ()),
            failover=None if route.failover_group is None else groups[route.failover_group],
            back=() if route.sync.groups is None else ways_back(route, topology.routes),
        )
        for route in topology.routes
        if route.may_run
    }


def _mesh_of(topology: Topology) -> Mesh:
    ways = ways_of(topology.routes)
    on_ways = {name for way in ways for name in (way.source, way.destination)}
    return Mesh(
        ways=ways, clusters=tuple(spec for name, spec in topology.clusters.items() if name in on_ways)
    )


def compare_routes(
    desired: Mapping[RouteName, RouteWork],
    running: Mapping[RouteName, RouteWork],
    leaving: Collection[RouteName] = (),
) -> RouteSteps:
    """The steps from `running` to `desired`; routes that are `leaving` have been stopped and not ended yet:
    nothing is done about them before they have.
    """
    both = sorted(desired.keys() & running.keys())
    changed = [name for name in both if desired[name] != running[name]]
    live = {name for name in changed if _is_live(running[name], desired[name])}
    return RouteSteps(
        start=tuple(desired[name] for name in sorted(desired.keys() - running.keys() - set(leaving))),
        change=tuple(desired[name] for name in changed if name in live),
        restart=tuple(name for name in changed if name not in live),
        stop=tuple(sorted(running.keys() - desired.keys())),
        keep=tuple(name for name in both if desired[name] == running[name]),
    )


def _is_live(old: RouteWork, new: RouteWork) -> bool:
    """Whether all that differs can be given to a route at work."""
    return _lasting(old) == _lasting(new)


def _lasting(work: RouteWork) -> RouteWork:
    """`work` without what may change while it runs. How long a transaction may be open is told the
    destination as its producer begins.
    """
    route = work.route
    commits_as_told = route.delivery is Delivery.EXACTLY_ONCE
    return RouteWork(
        route=replace(
            route,
            topics=replace(route.topics, include=(), exclude=(), existing=ExistingTopics.REFUSE),
            sync=replace(route.sync, topics=True, partitions=True, config=(), repair=()),
            resources=Resources(),
            objectives=Objectives(),
            owner=None,
            simulate=SimulatedRoute(),
            commit_interval_ms=route.commit_interval_ms if commits_as_told else 0,
            refresh_interval_ms=0,
        ),
        source=_reached(work.source),
        destination=_reached(work.destination),
        failover=None if work.failover is None else replace(work.failover, routes=()),
        back=tuple(replace(way, topics=TopicSelection(include=())) for way in work.back[:1]),
    )


def _reached(cluster: ClusterSpec) -> ClusterSpec:
    """`cluster` without what is no part of the way there."""
    return replace(cluster, topics={}, simulate=SimulatedCluster(), datacenter=None, round_trip_ms=None)
