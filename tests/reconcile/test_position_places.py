"""A route whose membership changes takes its positions along."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from broker.types import TopicId, TopicPartition
from mirrormaker.flow.lane_note import LaneNote
from mirrormaker.flow.position_note import Led, write_note
from mirrormaker.flow.positions import Place
from mirrormaker.reconcile.control import read_wishes
from mirrormaker.reconcile.position_places import (
    Brought,
    Stored,
    brought,
    former_membership,
    place_record,
)
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import Delivery, Membership, RouteName, RouteSpec

COORDINATOR, ZOOKEEPER = Membership.COORDINATOR, Membership.ZOOKEEPER
AT = TopicPartition("flights", 0)
NOW, BEFORE = (TopicId(UUID(int=number)) for number in (7, 6))
ROUTE = RouteName("a")


def route(membership: Membership) -> RouteSpec:
    text = (
        "clusters: {jfk: {bootstrap: ['a:1'], zookeeper: 'z:2'}, lga: {bootstrap: ['b:1']}}\n"
        "routes: [{name: a, from: jfk, to: lga, topics: {include: [t]},"
        f" membership: {membership.value}}}]\n"
    )
    return parse_topology(text, Path("t.yaml")).routes[0]


@pytest.mark.parametrize(
    ("now", "said", "former"),
    [
        (COORDINATOR, None, None),
        (COORDINATOR, ZOOKEEPER, ZOOKEEPER),
        (ZOOKEEPER, None, COORDINATOR),
        (ZOOKEEPER, ZOOKEEPER, None),
        (ZOOKEEPER, COORDINATOR, COORDINATOR),
        (COORDINATOR, COORDINATOR, None),
    ],
)
def test_where_positions_may_be_that_are_not_where_they_should(
    now: Membership, said: Membership | None, former: Membership | None
) -> None:
    assert former_membership(route(now), said) is former


@pytest.mark.parametrize("membership", Membership)
def test_the_place_is_read_as_it_was_written(membership: Membership) -> None:
    key, value = place_record(ROUTE, membership)
    assert read_wishes([(key, value)])[ROUTE].positions is membership
    assert read_wishes([(key, {"membership": "stars"})]).get(ROUTE) is None


def bring(
    at: Stored, *, is_here: bool = False, delivery: Delivery = Delivery.AT_LEAST_ONCE, is_said: bool = False
) -> Brought | None:
    had = {AT} if is_here else set[TopicPartition]()
    gone = TopicPartition("gone", 0)
    found = brought({AT: at, gone: at}, had, {"flights": NOW}, delivery, is_said=is_said)
    assert gone not in found
    return found.get(AT)


def test_what_is_here_counts_unless_it_is_said_where_positions_are() -> None:
    """A seek may have moved it back since."""
    stored = Stored(30, str(NOW))
    assert bring(stored) == Brought(30)
    assert bring(stored, is_here=True) is None
    assert bring(stored, is_here=True, is_said=True) == Brought(30)


def test_the_position_of_a_topic_that_was_made_anew_is_its_beginning() -> None:
    assert bring(Stored(30, str(BEFORE))) == Brought(None)
    assert bring(Stored(30, "")) == bring(Stored(30, "-")) == Brought(30)
    assert bring(Stored(30, write_note(NOW, "", Led("jfk.flights", "c")))) == Brought(30)


def test_at_most_once_all_lanes_go_on_behind_the_furthest_and_what_lacks_is_told() -> None:
    to = (TopicPartition("jfk.flights", 0), TopicPartition("jfk.flights", 1))
    note = LaneNote(Place((30, 50), destinations=to), (25, 50)).text()
    once = bring(Stored(30, f"{NOW} {note}"), delivery=Delivery.AT_MOST_ONCE)
    assert once is not None
    assert once.offset == 50
    assert once.lacked is not None
    assert (once.lacked.first, once.lacked.next, once.lacked.count) == (25, 50, 25)
    least = bring(Stored(30, f"{NOW} {note}"))
    assert least is not None
    assert least.offset == 30
    sent = bring(Stored(30, f"{NOW} 28"), delivery=Delivery.AT_MOST_ONCE)
    assert sent is not None
    assert sent.lacked is not None
    assert (sent.offset, sent.lacked.count) == (30, 2)
