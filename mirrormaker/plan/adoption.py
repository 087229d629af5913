"""Destination topics that hold records which a route did not bring, as a plan sees them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mirrormaker.plan.grounds import Grounds, undecided
from mirrormaker.plan.world import ObservedCluster
from mirrormaker.topology.model import RouteSpec


def undecided_topics(
    route: RouteSpec, source: ObservedCluster, destination: ObservedCluster, destinations: Mapping[str, str]
) -> dict[str, str]:
    """Those of the topics, source name to destination name, that the route must not copy before somebody has
    decided, as far as the world shows.
    """
    there = destination.topics
    empty = {name for name in destinations.values() if name not in there or not there[name].holds_records}
    positioned = {topic for topic, at in source.positions.get(route.name, {}).items() if at}
    left = undecided(route, destinations, Grounds(empty=empty, positioned=positioned))
    return undecided(route, left, destination.grounds.get(route.name, Grounds()))
