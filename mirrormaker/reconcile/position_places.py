"""Where the positions of a route are that has met in ZooKeeper: a record of the control topic. Pure.

    {"route": NAME, "positions": "group"}     {"membership": "zookeeper" | "coordinator"}

It is written once all positions are there: whoever runs the route by another `membership` brings them first
(`former_group`). Without it they are at the coordinator. A route in ZooKeeper has none where a version before
this record ran it there, or where its destination was another cluster: then it goes on where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from broker.types import TopicId, TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.lane_note import Arrears, arrears, arrears_in, read_note
from mirrormaker.flow.position_note import read_note as read_beside
from mirrormaker.topology.model import Delivery, Membership, RouteName, RouteSpec


class Stored(NamedTuple):
    """What a group has of a partition."""

    offset: int
    metadata: str = ""


class Brought(NamedTuple):
    """Where a partition goes on that another membership had."""

    offset: int | None
    """None: at the beginning, as the topic was made anew since."""
    lacked: Arrears | None = None
    """What will not be there of the records before."""


def place_record(route: RouteName, membership: Membership) -> tuple[Document, Document]:
    """What to write once the positions are all there."""
    return {"route": route, "positions": "group"}, {"membership": membership.value}


def read_place(value: Document) -> Membership | None:
    """The record; None for what is none."""
    match value:
        case {"membership": Membership.ZOOKEEPER.value | Membership.COORDINATOR.value as membership}:
            return Membership(membership)
    return None


def former_membership(route: RouteSpec, said: Membership | None) -> Membership | None:
    """Where positions may be that are to be brought, `said` as the record says; None: they are where they
    should be.
    """
    if route.membership is (said or Membership.COORDINATOR):
        return None
    return said or Membership.COORDINATOR


def brought(
    stored: Mapping[TopicPartition, Stored],
    here: Collection[TopicPartition],
    topic_ids: Mapping[str, TopicId],
    delivery: Delivery,
    *,
    is_said: bool,
) -> dict[TopicPartition, Brought]:
    """What is to be stored of what the group `stored` before, of topics that there are. Unless the record
    `is_said` to name that place, what is `here` counts: the route has run here since.
    """
    return {
        source: _brought(at, topic_ids[source.topic], delivery)
        for source, at in stored.items()
        if source.topic in topic_ids and (is_said or source not in here)
    }


def _brought(at: Stored, topic_id: TopicId, delivery: Delivery) -> Brought:
    """Notes do not come along. At most once nothing may be sent again: then all lanes go on behind the one
    that had come furthest.
    """
    beside = read_beside(at.metadata)
    if not beside.is_of(topic_id):
        return Brought(None)
    lanes = read_note(at.offset, beside.note)
    if lanes is None or delivery is not Delivery.AT_MOST_ONCE:
        return Brought(at.offset, arrears_in(at.offset, beside.note))
    furthest = max((*lanes.place.lanes, *(each.end for each in lanes.place.former)))
    return Brought(furthest, arrears((furthest,) * len(lanes.there), lanes.there))
