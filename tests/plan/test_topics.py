"""What a destination lacks for a route's topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.errors import ErrorCode
from mirrormaker.plan.settings import is_same
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange
from mirrormaker.plan.topics import Destination, TopicPlan, plan_topics
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.model import (
    ClusterName,
    Delivery,
    DropParts,
    FailurePolicies,
    PartitionPolicy,
    RecordErrorPolicy,
    RouteName,
    RouteSpec,
    RouteTo,
    SyncSpec,
    TopicSelection,
    TopicSpec,
    TransformSpec,
)
from mirrormaker.topology.naming import compile_naming
from mirrormaker.topology.shared_positions import EarlierCopies, earlier_sharers
from mirrormaker.topology.ways import Ways
from tests.plan.worlds import AGGREGATE, FLIGHTS, JFK, by_name, route, topic

KEPT = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
WEEK, DAY = "604800000", "86400000"


def plan(
    source: list[ObservedTopic],
    destination: list[ObservedTopic] | None = None,
    *,
    of: RouteSpec | None = None,
    nodes: int = 1,
    claims: dict[str, RouteName] | None = None,
    declared: dict[str, TopicSpec] | None = None,
    earlier: Sequence[RouteSpec] = (),
) -> TopicPlan:
    of = of or route()
    there = Destination(
        name=AGGREGATE, topics=by_name(*(destination or [])), nodes=nodes, declared=declared or {}
    )
    known = by_name(*source)
    copies = EarlierCopies(earlier)
    return plan_topics(of, compile_naming(JFK, of.topics), known, there, claims or {}, Ways(), copies)


def create(name: str, partitions: int, replication: int = 1, **config: str) -> CreateTopic:
    return CreateTopic(
        cluster=AGGREGATE,
        name=name,
        partitions=partitions,
        replication_factor=replication,
        config=KEPT | {key.replace("_", "."): value for key, value in config.items()},
    )


def test_a_missing_topic_is_created_with_the_partitions_of_its_source() -> None:
    source = [topic("flights", 6, 3), topic("planes", 2), topic("__flights", 9)]
    planned = plan(source, nodes=2)
    assert planned.steps == [create("jfk.flights", 6, 2)]
    assert planned.destinations == {"flights": "jfk.flights"}


def test_a_topic_grows_with_its_source_and_never_shrinks() -> None:
    source = [topic("flights-a", 6), topic("flights-b", 2)]
    planned = plan(source, [topic("jfk.flights-a", 4), topic("jfk.flights-b", 4)])
    assert planned.steps == [AddPartitions(cluster=AGGREGATE, name="jfk.flights-a", have=4, partitions=6)]
    assert planned.destinations.keys() == {"flights-a", "flights-b"}


@pytest.mark.parametrize(
    "of",
    [
        route(sync=SyncSpec(partitions=False)),
        route(topics=replace(FLIGHTS, partitions=PartitionPolicy.KEY)),
    ],
)
def test_a_topic_that_need_not_follow_does_not_grow(of: RouteSpec) -> None:
    assert plan([topic("flights", 6)], [topic("jfk.flights", 4)], of=of).steps == []
    assert plan([topic("flights", 6)], of=of).steps == [create("jfk.flights", 6)]


def test_a_topic_that_steps_send_several_to_is_as_large_as_the_largest_of_them() -> None:
    of = route(transforms=(TransformSpec(step=RouteTo(to="all")),))
    source = [topic("flights-a", 8), topic("flights-b", 2)]
    copies = [topic("jfk.flights-a", 8), topic("jfk.flights-b", 2)]
    assert plan(source, copies, of=of).steps == [create("all", 8)]
    assert plan(source, [*copies, topic("all", 2)], of=of).steps == [
        AddPartitions(cluster=AGGREGATE, name="all", have=2, partitions=8)
    ]


def test_dead_letters_keep_their_partitions_also_where_records_are_spread() -> None:
    of = route(
        topics=replace(FLIGHTS, partitions=PartitionPolicy.KEY),
        transforms=(TransformSpec(step=DropParts(headers=("trace",))),),
        on=FailurePolicies(record_error=RecordErrorPolicy.PARK),
    )
    there = [topic("jfk.flights", 2), topic("jfk.flights.dead-letters", 2)]
    assert plan([topic("flights", 6)], there, of=of).steps == [
        AddPartitions(cluster=AGGREGATE, name="jfk.flights.dead-letters", have=2, partitions=6)
    ]
    letters = topic("flights.dead-letters", 6)
    assert plan([letters], [topic("jfk.flights.dead-letters", 2)], of=of).steps == [
        AddPartitions(cluster=AGGREGATE, name="jfk.flights.dead-letters", have=2, partitions=6)
    ]


def test_where_records_are_spread_the_file_says_how_many_partitions_a_new_topic_has() -> None:
    spread = route(topics=replace(FLIGHTS, partitions=PartitionPolicy.ROUND_ROBIN))
    declared = {"jfk.flights": TopicSpec(partitions=2)}
    assert plan([topic("flights", 6)], of=spread, declared=declared).steps == [create("jfk.flights", 2)]
    assert plan([topic("flights", 6)], declared=declared).steps == [create("jfk.flights", 6)]


def test_nothing_is_done_when_nothing_differs() -> None:
    planned = plan([topic("flights", 3)], [topic("jfk.flights", 3)])
    assert planned.steps == []
    assert planned.obstacles == {}


def test_internal_topics_are_left_alone() -> None:
    assert plan([topic("flights", 3, internal=True)]).destinations == {}


def test_a_topic_that_another_route_writes_is_an_obstacle_for_that_topic_only() -> None:
    planned = plan([topic("flights"), topic("flights-b")], claims={"jfk.flights": RouteName("other")})
    assert planned.obstacles == {"flights": "the route 'other' writes 'jfk.flights' already"}
    assert planned.destinations == {"flights-b": "jfk.flights-b"}


def merging(name: str, *include: str, **keys: Any) -> RouteSpec:
    """Exactly once, to a topic that routes share."""
    topics = TopicSelection(include=include, name="all.{topic}", merge=True)
    exact: dict[str, Any] = {"delivery": Delivery.EXACTLY_ONCE, "topics": topics, **keys}
    return replace(route(**exact), name=RouteName(name))


def test_a_topic_is_copied_by_the_first_of_the_routes_that_would_have_one_position_for_it() -> None:
    first, second = merging("first", "flights.*"), merging("second", ".*-b")
    earlier = earlier_sharers([first, second])
    assert earlier == {"second": (first,)}
    source = [topic("flights-a"), topic("flights-b"), topic("weather-b")]
    planned = plan(source, of=second, earlier=earlier[second.name])
    assert planned.destinations == {"weather-b": "all.weather-b"}
    (obstacle,) = planned.obstacles.items()
    assert obstacle[0] == "flights-b"
    assert obstacle[1].startswith(
        "the route 'first' copies it to 'all.flights-b' already, 'exactly_once' as this one:"
    )


@pytest.mark.parametrize(
    "other",
    [
        merging("other", ".*", delivery=Delivery.AT_LEAST_ONCE),
        merging("other", ".*", source=ClusterName("lga")),
        merging("other", ".*", destination=ClusterName("archive")),
        merging("other", ".*", enabled=False),
        merging("other", ".*", topics=TopicSelection(include=(".*",), name="all.{topic}")),
    ],
)
def test_routes_that_differ_have_positions_of_their_own(other: RouteSpec) -> None:
    assert earlier_sharers([other, merging("own", ".*")]) == {}


def test_one_topic_may_be_brought_to_several_places() -> None:
    other = merging(
        "other", ".*", topics=TopicSelection(include=(".*",), name="elsewhere.{topic}", merge=True)
    )
    own = merging("own", ".*")
    assert plan([topic("flights")], of=own, earlier=earlier_sharers([other, own])[own.name]).obstacles == {}


@pytest.mark.parametrize(
    "of",
    [
        replace(
            route(),
            transforms=(TransformSpec(step=DropParts(headers=("trace",))),),
            on=FailurePolicies(record_error=RecordErrorPolicy.PARK),
        ),
        replace(route(), transforms=(TransformSpec(step=RouteTo(to="{topic}.of-{cluster}")),)),
    ],
)
def test_a_topic_of_which_records_could_go_where_no_topic_can_be_is_an_obstacle(of: RouteSpec) -> None:
    name = "flights-" + "x" * 236
    planned = plan([topic(name), topic("flights")], of=of)
    assert planned.destinations == {"flights": "jfk.flights"}
    assert "is not a legal topic name" in planned.obstacles[name]
    assert name[:100] not in str(planned.steps)


def test_a_topic_of_which_a_step_sends_records_to_that_of_another_route_is_an_obstacle() -> None:
    late = TransformSpec(step=RouteTo(to="late"), topics=("flights-b",))
    source = [topic("flights-a"), topic("flights-b")]
    planned = plan(source, of=replace(route(), transforms=(late,)), claims={"late": RouteName("other")})
    assert planned.obstacles == {"flights-b": "the route 'other' writes 'late' already"}
    assert planned.steps == [create("jfk.flights-a", 1)]
    free = plan(source, of=replace(route(), transforms=(late,)))
    assert free.written == {"flights-a": {"jfk.flights-a"}, "flights-b": {"jfk.flights-b", "late"}}


def test_a_name_that_gets_too_long_is_an_obstacle() -> None:
    name = "flights" + "x" * 240
    assert "is not a legal topic name" in plan([topic(name)]).obstacles[name]


def test_a_topic_that_is_not_to_be_created_is_an_obstacle() -> None:
    planned = plan([topic("flights")], of=route(sync=SyncSpec(topics=False)))
    assert planned.obstacles == {
        "flights": "there is no 'jfk.flights', and 'sync.topics' says not to create it"
    }
    assert planned.steps == []


def test_a_topic_that_may_not_be_seen_is_an_obstacle_and_one_without_leaders_is_not() -> None:
    planned = plan(
        [topic("flights"), topic("flights-b")],
        [
            topic("jfk.flights", 0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            topic("jfk.flights-b", 0, error=ErrorCode.LEADER_NOT_AVAILABLE),
        ],
    )
    lacking = "TOPIC_AUTHORIZATION_FAILED: the mirror lacks the right to Describe topic 'jfk.flights' at"
    assert planned.obstacles == planned.hidden == {"flights": f"{lacking} 'aggregate'"}
    assert planned.destinations == {"flights-b": "jfk.flights-b"}
    assert planned.steps == []


def test_a_topic_is_created_with_the_settings_that_its_source_has_of_its_own() -> None:
    source = topic(
        "flights",
        own={"retention.ms": DAY, "segment.bytes": "1048576", "compression.type": "zstd"},
        usual={"cleanup.policy": "delete"},
    )
    assert plan([source]).steps == [create("jfk.flights", 1, retention_ms=DAY)]
    all_of_them = route(sync=SyncSpec(config=(".*",)))
    (step,) = plan([source], of=all_of_them).steps
    assert step == create("jfk.flights", 1, retention_ms=DAY, segment_bytes="1048576")


def test_a_copy_does_not_want_more_replicas_in_sync_than_it_has() -> None:
    """Nobody could write to it."""
    of = route(sync=SyncSpec(config=("min.insync.replicas",)))
    source = topic("flights", 1, 3, own={"min.insync.replicas": "2"})
    assert plan([source], of=of).steps == [create("jfk.flights", 1, min_insync_replicas="1")]
    assert plan([source], of=of, nodes=3).steps == [create("jfk.flights", 1, 3, min_insync_replicas="2")]
    alone = topic("jfk.flights", 1, 1, own={"min.insync.replicas": "1"})
    assert plan([source], [alone], of=of, nodes=3).steps == []


def test_settings_that_differ_are_changed_and_those_left_to_the_source_cluster_are_not() -> None:
    source = topic("flights", own={"retention.ms": WEEK}, usual={"max.message.bytes": "2"})
    there = topic("jfk.flights", own={"max.message.bytes": "1", "retention.ms": DAY})
    assert plan([source], [there]).steps == [
        ChangeSettings(
            cluster=AGGREGATE,
            name="jfk.flights",
            changes={"retention.ms": SettingChange(old=DAY, new=WEEK)},
        )
    ]


def test_lists_that_mean_the_same_do_not_differ() -> None:
    source = topic("flights", own={"cleanup.policy": "compact,delete"})
    assert plan([source], [topic("jfk.flights", own={"cleanup.policy": "delete, compact"})]).steps == []


def test_settings_that_are_not_known_do_not_differ() -> None:
    assert plan([topic("flights", own={"retention.ms": DAY})], [topic("jfk.flights")]).steps == []


def test_what_the_file_says_of_a_topic_goes_before_its_source() -> None:
    declared = {"jfk.flights": TopicSpec(partitions=12, replication=2, config={"retention.ms": WEEK})}
    source = topic("flights", 6, own={"retention.ms": DAY, "retention.bytes": "7"})
    assert plan([source], declared=declared, nodes=3).steps == [
        create("jfk.flights", 12, 2, retention_ms=WEEK, retention_bytes="7")
    ]
    there = topic("jfk.flights", 6, own={"retention.ms": WEEK, "retention.bytes": "7"})
    assert plan([source], [there], declared=declared).steps == [
        AddPartitions(cluster=AGGREGATE, name="jfk.flights", have=6, partitions=12)
    ]


def test_topics_of_clusters_and_mirrors_are_never_written() -> None:
    of = replace(route(), topics=TopicSelection(include=(".*",), name="_{topic}"))
    planned = plan([topic("_mirrormaker_control"), topic("flights")], of=of)
    assert planned.destinations == {"flights": "_flights"}
    assert "'__mirrormaker_control': topics that begin with __" in planned.obstacles["_mirrormaker_control"]
    elsewhere = replace(
        of, topics=TopicSelection(include=(".*",)), transforms=(TransformSpec(step=RouteTo(to="_{topic}")),)
    )
    planned = plan([topic("_x")], of=elsewhere)
    assert "'__x': topics that begin with __" in planned.obstacles["_x"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.50", "0.5", True),
        ("0.5", "0.51", False),
        ("1000", "1000.0", True),
        ("NaN", "nan", False),
        ("lz4", "LZ4", False),
        ("0.5", None, False),
    ],
)
def test_numbers_mean_the_same_however_they_are_spelt(one: str, other: str | None, same: bool) -> None:
    assert is_same("min.cleanable.dirty.ratio", one, other) is same
