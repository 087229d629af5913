"""Destination topics that hold records which a route did not bring: whether it may add its own. Pure.

It writes none that holds records unless there is a ground to. That a route wrote a topic before is known by
its positions, which are stored before the first record is copied, or by partitions of its that stand.
Positions go with their topic: that one was copied before it was deleted and made anew is known by the ledger.
Topics that steps name are asked about as those of copies are; one that several topics of the source go to is
the route's own as soon as it may copy one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrormaker.topology.model import ExistingTopics, RouteSpec

Written = Mapping[str, Collection[str]]
"""Topics of the source, each with those of the destination that its records may go to."""


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
    settled: Collection[str] = ()
    """Topics of the source that there was a ground for before."""


def undecided(route: RouteSpec, written: Written, grounds: Grounds) -> dict[str, frozenset[str]]:
    """Those topics of the source that the route must not copy before somebody has decided, with those of the
    destination that are to be decided about, as far as `grounds` are known.
    """
    if may_append(route):
        return {}
    its_own = {*grounds.positioned, *grounds.standing, *grounds.copied, *grounds.settled} & written.keys()
    free = {*grounds.empty, *grounds.taken_over}.union(*(written[topic] for topic in its_own))
    left = {topic: frozenset(names) - free for topic, names in written.items()}
    return {topic: names for topic, names in left.items() if names}


def refusal(names: Collection[str]) -> str:
    """Why a topic is not copied, of which these are to be decided about."""
    hold = "holds" if len(names) == 1 else "hold"
    return (
        f"{', '.join(map(repr, sorted(names)))} {hold} records already, and the route has no position:"
        " `mirrormaker apply --force` has it add to them, or 'topics.existing: append'"
    )


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
