"""Destination topics that hold records which a route did not bring: whether it may add its own. Pure.

It writes none that holds records unless there is a ground to. That a route wrote a topic before is known by
its positions, which are stored before the first record is copied, or by partitions of its that stand.
Positions go with their topic: that one was copied before it was deleted and made anew is known by the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrormaker.topology.model import ExistingTopics, RouteSpec

REFUSED = (
    "{name!r} holds records already, and the route has no position: `mirrormaker apply --force` has it add to"
    " them, or 'topics.existing: append'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Why a route may write topics of its destination; each is enough."""

    empty: Collection[str] = ()
    """Topics of the destination that are not there, or have never held a record."""
    taken_over: Collection[str] = ()
    """Topics of the destination that somebody has decided about."""
    positioned: Collection[str] = ()
    """Topics of the source that the route has a position in."""
    standing: Collection[str] = ()
    """Topics of the source of which partitions stand, or stood and were released."""
    copied: Collection[str] = ()
    """Topics of the source of which former ones of the same name were copied there, by the ledger."""


def undecided(route: RouteSpec, destinations: Mapping[str, str], grounds: Grounds) -> dict[str, str]:
    """Those of the topics, source name to destination name, that the route must not copy before somebody has
    decided, as far as `grounds` are known.
    """
    if may_append(route):
        return {}
    its_own = {*grounds.positioned, *grounds.standing, *grounds.copied}
    free = {*grounds.empty, *grounds.taken_over}
    return {topic: name for topic, name in destinations.items() if topic not in its_own and name not in free}


def may_append(route: RouteSpec) -> bool:
    """Whether the route adds to what it finds without anybody having decided. So it is where the file says
    that others write its topics too: routes that merge, that share the topics of a circle, or that switch
    their direction.
    """
    topics = route.topics
    return (
        topics.existing is ExistingTopics.APPEND
        or topics.merge
        or bool(route.provenance)
        or route.failover_group is not None
    )
