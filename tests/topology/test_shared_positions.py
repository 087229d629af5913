"""Whose a position at a destination is, of several routes that bring one topic to one topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrormaker.topology.model import Delivery, RouteName, RouteSpec, TopicSelection
from mirrormaker.topology.shared_positions import PositionOwners, routes_beside
from tests.plan.worlds import AGGREGATE, JFK, LGA, route


def sharing(name: str, *include: str, **keys: object) -> RouteSpec:
    topics = TopicSelection(include=include, merge=True)
    return replace(route(topics=topics, **keys), name=RouteName(name))  # type: ignore[arg-type]


ONE, OTHER = sharing("one", "flights"), sharing("other", "flights|planes", delivery=Delivery.EXACTLY_ONCE)


@pytest.mark.parametrize(
    ("name", "topic", "to", "taken", "withdrawn"),
    [
        ("one", "flights", "jfk.flights", True, True),
        ("other", "flights", "jfk.flights", False, False),
        ("other", "gates", "jfk.gates", True, True),
        ("other", "flights", "elsewhere", True, True),
        ("before", "flights", "jfk.flights", True, False),
        (None, "flights", "jfk.flights", True, False),
    ],
)
def test_a_position_is_anothers_while_that_brings_the_topic_there(
    name: str | None, topic: str, to: str, taken: bool, withdrawn: bool
) -> None:
    owners = PositionOwners(ONE, [OTHER])
    assert owners.may_take(name, topic, to) is taken
    assert owners.may_withdraw(name, topic, to) is withdrawn


def test_a_route_that_shares_no_topic_has_all_that_is_kept_of_where_it_writes() -> None:
    owners = PositionOwners(route())
    assert owners.may_take("before", "flights", "jfk.flights")
    assert owners.may_withdraw("before", "flights", "jfk.flights")


def test_routes_are_beside_each_other_between_the_same_clusters_whatever_their_delivery() -> None:
    listed = [
        ONE,
        OTHER,
        replace(sharing("back", ".*"), source=AGGREGATE, destination=JFK),
        replace(sharing("lga", ".*"), source=LGA),
        replace(sharing("off", ".*"), enabled=False),
        replace(route(), name=RouteName("alone")),
    ]
    assert routes_beside(listed) == {"one": (OTHER,), "other": (ONE,)}
