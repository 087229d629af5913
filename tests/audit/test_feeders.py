"""Which topics feed a topic."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.errors import ErrorCode
from mirrormaker.audit.feeders import feeding_topic_by_name, feeding_topics, may_feed_some
from mirrormaker.topology.model import (
    ClusterName,
    RouteName,
    RouteSpec,
    RouteTo,
    TopicSelection,
    TransformSpec,
)
from mirrormaker.topology.naming import compile_naming


@dataclass(frozen=True)
class Topic:
    name: str
    internal: bool = False
    error: ErrorCode = ErrorCode.NONE


def route(name: str = "{cluster}.{topic}", transforms: tuple[TransformSpec, ...] = ()) -> RouteSpec:
    return RouteSpec(
        name=RouteName("r"),
        source=ClusterName("jfk"),
        destination=ClusterName("aggregate"),
        topics=TopicSelection(include=("flights.*",), exclude=("flights-x",), name=name),
        transforms=transforms,
    )


@pytest.mark.parametrize(
    ("template", "to", "topic"),
    [
        ("{cluster}.{topic}", "jfk.flights", "flights"),
        ("{cluster}.{topic}", "lga.flights", None),
        ("{cluster}.{topic}", "jfk.weather", None),
        ("{cluster}.{topic}", "jfk.flights-x", None),
        ("{topic}", "flights", "flights"),
        ("{topic}.of.{topic}", "flights.of.flights", "flights"),
        ("{topic}.of.{topic}", "flights.of.flightsy", None),
    ],
)
def test_names_alone_say_what_feeds_a_topic(template: str, to: str, topic: str | None) -> None:
    assert feeding_topic_by_name(route(template), to) == topic


@pytest.mark.parametrize(
    ("template", "include", "may_feed"),
    [
        ("{cluster}.{topic}", r".*\.flights", True),
        ("{cluster}.{topic}", r"jfk\.flights", True),
        ("{cluster}.{topic}", r"lga\.flights", False),
        ("{cluster}.{topic}", r"(lga|ewr)\.flights.*", False),
        ("{cluster}.{topic}", r"jfk\.weather.*", False),
        ("{topic}", r"flights|weather", True),
        ("{topic}", r"weather", False),
        ("all", "all", True),
        ("{topic}.of.{topic}", "flights.*", True),
    ],
)
def test_names_alone_say_whether_anything_could_be_fed(template: str, include: str, may_feed: bool) -> None:
    wanted = compile_naming("aggregate", TopicSelection(include=(include,)))
    assert may_feed_some(route(template), wanted) is may_feed
    sends = route("nowhere.{topic}", (TransformSpec(step=RouteTo(to=template, when=None)),))
    assert may_feed_some(sends, wanted) is may_feed


def test_topics_that_are_left_out_are_not_fed() -> None:
    selection = TopicSelection(include=(r"jfk\.flights",), exclude=("jfk.*",))
    assert not may_feed_some(route(), compile_naming("aggregate", selection))


def test_a_topic_that_steps_send_records_to_is_fed_by_all_that_they_are_for() -> None:
    sends = route(transforms=(TransformSpec(step=RouteTo(to="late", when=None), topics=("flights-a",)),))
    there = [Topic("flights-a"), Topic("flights-b"), Topic("weather")]
    assert feeding_topics(sends, "late", there) == ["flights-a"]
    assert feeding_topics(sends, "jfk.flights-b", there) == ["flights-b"]
