"""Destination topics that hold records which a route did not bring, as a plan sees them. Pure."""

from __future__ import annotations

from mirrormaker.plan.grounds import Grounds, Written, undecided
from mirrormaker.plan.world import ObservedCluster
from mirrormaker.topology.model import RouteSpec


def undecided_topics(
    route: RouteSpec, source: ObservedCluster, destination: ObservedCluster, written: Written
) -> dict[str, frozenset[str]]:
    """Those topics of the source that the route must not copy before somebody has decided, with those of the
    destination that are to be decided about, as far as the world shows. None where the source does not tell
    how far the route has come: nothing says that the copies there are not its own.
    """
    if route.name in source.untold:
        return {}
    there = destination.topics
    empty = {
        name
        for names in written.values()
        for name in names
        if name not in there or not there[name].holds_records
    }
    begun = {topic for topic, at in source.positions.get(route.name, {}).items() if at}
    positioned = begun.difference(source.moved.get(route.name, ()))
    left = undecided(route, written, Grounds(empty=empty, positioned=positioned))
    return undecided(route, left, destination.grounds.get(route.name, Grounds()))
