"""Filters and transforms that are for topics which no route takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.topology.model import (
    ClusterName,
    DropParts,
    RouteName,
    RouteSpec,
    TopicSelection,
    TransformSpec,
)
from mirrormaker.topology.step_topics import check_step_topics, unmatched_topics
from tests.topology.files import CLUSTERS, load, load_route, problem_of_route, problems_of

DROP = "drop: {fields: [ssn]}"


@pytest.mark.parametrize(
    ("include", "topics"),
    [
        ("[p1]", "a.p1"),
        ("['p.*'], exclude: [p2]", "p2"),
        ("['p.*']", "a.p1"),
        ("['p.*'], exclude: ['p.*-test']", "p1-test"),
        ("['orders|planes']", "orders.*-late"),
        ("['orders.*']", "a[.]orders.*"),
        ("['.*']", "__consumer_offsets"),
    ],
)
def test_a_step_that_can_be_for_no_topic_is_refused(tmp_path: Path, include: str, topics: str) -> None:
    keys = f"topics: {{include: {include}}}"
    told = f"topics[0]: {topics!r} matches no topic that the route takes: topics are meant by their names"
    problem = problem_of_route(tmp_path, f"{keys}, transforms: [{{{DROP}, topics: ['{topics}']}}]")
    assert problem.startswith(f"transforms[0].{told}")
    problem = problem_of_route(
        tmp_path, f"{keys}, filters: [{{drop: {{key_prefix: x}}, topics: ['{topics}']}}]"
    )
    assert problem.startswith(f"filters[0].{told}")


def test_each_pattern_of_a_step_is_told_where_it_stands(tmp_path: Path) -> None:
    text = f"""\
{CLUSTERS}routes:
  - from: a
    to: b
    topics: {{include: [p1, q1]}}
    transforms:
      - {DROP}
        topics:
          - p1
          - a.q1
"""
    (problem,) = problems_of(tmp_path, text)
    assert problem.startswith("10: routes[0].transforms[0].topics[1]: 'a.q1' matches no topic")


@pytest.mark.parametrize(
    ("include", "topics"),
    [
        ("[p1]", "p1"),
        ("[p1]", "p.*"),
        ("['.*']", "a.p1"),
        ("[p1, 'q.*']", "q1"),
        ("['(?i)P.*']", "p1"),
        ("['.*-eu']", "orders-.*"),
        ("['orders(-eu)?']", "orders"),
        ("['orders|planes']", ".*s"),
    ],
)
def test_a_step_that_may_be_for_a_topic_is_well(tmp_path: Path, include: str, topics: str) -> None:
    keys = f"topics: {{include: {include}}}, transforms: [{{{DROP}, topics: ['{topics}']}}]"
    assert load_route(tmp_path, keys).transforms


def test_of_routes_that_have_a_step_by_default_one_takes_its_topic(tmp_path: Path) -> None:
    text = f"""\
{CLUSTERS}defaults:
  transforms:
    - {{{DROP}, topics: [orders]}}
routes:
  - {{from: a, to: b, topics: {{include: [planes]}}}}
  - {{from: a, to: c, topics: {{include: [orders]}}}}
"""
    assert load(tmp_path, text)
    (problem,) = problems_of(tmp_path, text.replace("include: [orders]", "include: [orders-eu]"))
    assert problem.startswith("4: routes[0].transforms[0].topics[0]: 'orders' matches no topic")
    of_its_own = text.replace("[planes]}", f"[planes]}}, transforms: [{{{DROP}, topics: [x]}}]")
    (problem,) = problems_of(tmp_path, of_its_own)
    assert problem.startswith("6: routes[0].transforms[0].topics[0]: 'x' matches no topic")


PATTERNS = (
    "flights",
    "flights.*",
    ".*",
    "a?flights",
    "(jfk|ewr)[.]x",
    "jfk[.].*",
    ".x",
    "(?i)FLIGHTS",
    "j?fk.x",
)


@given(st.data())
def test_no_step_is_refused_that_is_for_a_topic_of_its_route(data: st.DataObject) -> None:
    include, topics = data.draw(st.sampled_from(PATTERNS)), data.draw(st.sampled_from(PATTERNS))
    name = data.draw(
        st.sampled_from(("flights", "aflights", "jfk.x", "ewr.x", "fk.x", "fk1x", "flights-2", ".x"))
    )
    step = TransformSpec(step=DropParts(fields=("ssn",)), topics=(topics,))
    route = RouteSpec(
        name=RouteName("r"),
        source=ClusterName("a"),
        destination=ClusterName("b"),
        topics=TopicSelection(include=(include,)),
        transforms=(step,),
    )
    if re.fullmatch(include, name) and re.fullmatch(topics, name):
        assert list(check_step_topics([route])) == []


def test_what_matches_no_topic_that_is_there_is_told(tmp_path: Path) -> None:
    seen = {"a": {"orders", "planes"}, "b": {"orders-eu"}, "c": set[str]()}
    text = f"""\
{CLUSTERS}defaults:
  transforms: [{{{DROP}, topics: ['orders-.*']}}]
routes:
  - from: a
    to: b
    topics: {{include: ['.*']}}
    start: {{offsets: {{orders: {{0: 7}}, order: {{0: 7}}}}}}
    transforms: [{{{DROP}, topics: [planes, a.orders]}}]
    filters: [{{drop: {{key_prefix: x}}, topics: ['pla.*']}}]
  - {{from: a, to: c, topics: {{include: ['o.*']}}}}
  - {{from: b, to: c, topics: {{include: ['.*']}}}}
  - {{from: c, to: b, name: none, topics: {{include: ['o.*']}}, transforms: [{{{DROP}, topics: [o]}}]}}
"""
    routes = load(tmp_path, text).routes
    told = {each.path: each.message for each in unmatched_topics(routes, seen.get)}
    assert told == {
        "routes[0].transforms[0].topics[1]": (
            "'a.orders' matches no topic that the route takes so far: "
            "topics are meant by their names at the source"
        ),
        "routes[0].start.offsets.order": "there is no such topic at 'a'",
    }
    without = {each.path for each in unmatched_topics(routes, (seen | {"b": {"planes"}}).get)}
    assert without == {*told, "routes[1].transforms[0].topics[0]"}
    assert list(unmatched_topics(routes, lambda _: None)) == []
