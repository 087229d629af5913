"""Decisions that a route may add to a topic that holds records: their records, and which topic they mean."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.reconcile.control import RouteWishes, read_wishes
from mirrormaker.reconcile.take_overs import (
    TakeOver,
    settled_records,
    take_over_record,
    taken_over,
)
from mirrormaker.topology.model import RouteName
from tests.plan.worlds import by_name, topic

ROUTE = RouteName("a")
ONE, OTHER = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def test_a_decision_comes_back_out_of_its_record_and_is_taken_back_by_its_key() -> None:
    key, value = take_over_record(ROUTE, "jfk.flights", ONE, 5, "ops@jfk")
    decision = TakeOver(topic_id=str(ONE), at_ms=5, by="ops@jfk")
    assert read_wishes([(key, value)]) == {ROUTE: RouteWishes(take_overs={"jfk.flights": decision})}
    assert settled_records(ROUTE, ["jfk.flights"]) == [(key, None)]
    assert read_wishes([(key, {**value, "by": None})]) == {}


@pytest.mark.parametrize(
    ("meant", "now", "holds"),
    [(ONE, ONE, True), (ONE, OTHER, False), (NO_TOPIC_ID, OTHER, True), (ONE, NO_TOPIC_ID, True)],
)
def test_a_decision_is_about_the_topic_that_had_the_name_then(
    meant: TopicId, now: TopicId, holds: bool
) -> None:
    wishes = read_wishes([take_over_record(ROUTE, "jfk.flights", meant, 5, "ops@jfk")])[ROUTE]
    there = by_name(replace(topic("jfk.flights"), topic_id=now))
    assert taken_over(wishes.take_overs, there) == ({"jfk.flights"} if holds else set())
    assert taken_over(wishes.take_overs, {}) == set()
