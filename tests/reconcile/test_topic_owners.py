"""Daemons agree on who writes a topic that several routes could: by what was said first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.kept_view import encode_document
from mirrormaker.reconcile.topic_owners import Contenders, TopicOwners, destinations_of_several
from mirrormaker.topology.model import (
    ClusterName,
    FailurePolicies,
    RecordErrorPolicy,
    RouteName,
    RouteSpec,
    RouteTo,
    TopicSelection,
    Topology,
    TransformSpec,
)

HUB = ClusterName("hub")
ONE, OTHER, THIRD = RouteName("one"), RouteName("other"), RouteName("third")


def put(view: TopicOwners, topic: str, route: RouteName | None) -> None:
    value = None if route is None else encode_document({"route": route, "daemon": "d", "at_ms": 1})
    view.apply(encode_document({"topic": topic}), value)


def test_the_first_record_of_a_topic_counts_until_it_is_taken_back() -> None:
    view = TopicOwners()
    put(view, "a", ONE)
    put(view, "a", OTHER)
    assert (view.owners, view.overwritten) == ({"a": ONE}, {"a"})
    put(view, "a", ONE)
    assert (view.owners, view.overwritten) == ({"a": ONE}, set())
    put(view, "a", None)
    put(view, "a", OTHER)
    assert view.owners == {"a": OTHER}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([ONE, OTHER, None])), max_size=20))
def test_once_nothing_is_overwritten_the_last_records_alone_say_the_same(
    records: list[tuple[str, RouteName | None]],
) -> None:
    view, compacted = TopicOwners(), TopicOwners()
    for topic, route in records:
        put(view, topic, route)
    written = dict(records)
    for topic in sorted(view.overwritten):
        put(view, topic, view.owners[topic])
        written[topic] = view.owners[topic]
    for topic, route in written.items():
        put(compacted, topic, route)
    assert (view.owners, view.overwritten) == (compacted.owners, set())


@pytest.mark.parametrize(
    ("key", "value"), [(b"7", b"{}"), (b"{}", b"{}"), (b'{"topic":"a"}', b"{}"), (None, None)]
)
def test_what_is_no_claim_changes_nothing(key: bytes | None, value: bytes | None) -> None:
    view = TopicOwners()
    with pytest.raises(ValueError, match=r"."):
        view.apply(key, value)
    assert len(view) == 0


def route(name: RouteName, include: str, source: str = "jfk", *, merge: bool = False) -> RouteSpec:
    topics = TopicSelection(include=(include,), name="{topic}", merge=merge)
    return RouteSpec(name=name, source=ClusterName(source), destination=HUB, topics=topics)


def contenders_of(*routes: RouteSpec) -> Contenders:
    return Contenders(Topology(clusters={}, routes=routes, data_dir=Path()), HUB)


def test_topics_are_contended_where_two_routes_could_write_them() -> None:
    named = TopicSelection(include=(".*",), name="{cluster}.{topic}")
    third = replace(route(THIRD, ".*"), topics=named)
    contenders = contenders_of(route(ONE, "a.*"), route(OTHER, ".*b", "lax"), third)
    assert contenders.rivals(ONE, "ab")
    assert not contenders.rivals(ONE, "ac")
    assert not contenders.rivals(OTHER, "cb")
    assert contenders.rivals(OTHER, "jfk.b"), "what the third route makes of b"
    asked = {OTHER: frozenset({"ab", "cb"}), ONE: frozenset({"ab", "ac"})}
    assert contenders.wanted(asked) == {"ab": ONE}, "the first in the file"
    assert contenders.wanted({OTHER: asked[OTHER]}) == {"ab": OTHER}
    assert contenders.granted({"ab": OTHER}) == {OTHER: {"ab"}}


def test_topics_that_steps_write_are_contended_like_copies() -> None:
    steps = (
        TransformSpec(step=RouteTo(to="late"), topics=("a.*",)),
        TransformSpec(step=RouteTo(to="{cluster}.{topic}.old"), topics=("a.*",)),
    )
    parked = FailurePolicies(record_error=RecordErrorPolicy.PARK)
    one = replace(route(ONE, "[ab].*"), transforms=steps, on=parked)
    contenders = contenders_of(one, route(OTHER, ".*", "lax"))
    for topic in ("a1", "late", "jfk.a1.old", "a1.dead-letters"):
        assert contenders.rivals(OTHER, topic), topic
        assert contenders.rivals(ONE, topic), topic
    for topic in ("c", "latest", "jfk.b1.old", "lax.a1.old", "jfk.a1", "c.dead-letters"):
        assert not contenders.rivals(OTHER, topic), topic


def test_routes_that_merge_do_not_contend_and_share_what_one_of_them_has() -> None:
    merging = route(ONE, ".*", merge=True), route(OTHER, ".*", "lax", merge=True)
    assert not contenders_of(*merging).rivals(ONE, "a")
    contenders = contenders_of(*merging, route(THIRD, "a"))
    assert contenders.rivals(ONE, "a")
    assert not contenders.rivals(ONE, "b")
    assert contenders.granted({"a": OTHER}) == {ONE: {"a"}, OTHER: {"a"}}


def test_destinations_of_several_routes_are_looked_at() -> None:
    routes = route(ONE, "a"), route(OTHER, "b")
    assert destinations_of_several(Topology(clusters={}, routes=routes, data_dir=Path())) == [HUB]
    assert destinations_of_several(Topology(clusters={}, routes=routes[:1], data_dir=Path())) == []
