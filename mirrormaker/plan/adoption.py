"""Destination topics that hold records which a route did not bring: whether it may add its own. Pure."""

from __future__ import annotations

from mirrormaker.topology.model import ExistingTopics, RouteSpec

REFUSED = (
    "{name!r} holds records already, and the route has no position: `mirrormaker apply --force` has it add to"
    " them, or 'topics.existing: append'"
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
