"""Plans out of topologies and worlds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.access_rule import ALLOW, GROUP, LITERAL, PREFIXED, TOPIC, AccessRule
from broker.client.operations import (
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERYTHING,
    READ,
    WRITE,
)
from broker.errors import ConfigurationError, ErrorCode
from broker.types import TopicPartition
from mirrormaker.plan.circles import circles_of_topics
from mirrormaker.plan.diff import make_plan
from mirrormaker.plan.document import differences, plan_document, read_plan, step_document
from mirrormaker.plan.effects import after
from mirrormaker.plan.grounds import Grounds
from mirrormaker.plan.notices import NoticeKind
from mirrormaker.plan.plan import Plan
from mirrormaker.plan.render import render_plan
from mirrormaker.plan.safety import large_parts
from mirrormaker.plan.steps import (
    AddPartitions,
    AddRules,
    AdoptTopic,
    ChangeSettings,
    CreateTopic,
    RestartRoute,
    StartRoute,
    Step,
    StopRoute,
    TopicStep,
)
from mirrormaker.plan.topics import Destination, plan_topics
from mirrormaker.plan.world import MissingRights, ObservedCluster, PartitionTraffic, UnreachableCluster, World
from mirrormaker.topology.model import (
    ClusterName,
    Compression,
    ExistingTopics,
    FailurePolicies,
    FailurePolicy,
    GroupSync,
    Objectives,
    RecordErrorPolicy,
    Resources,
    RouteName,
    RouteSpec,
    RouteTo,
    Start,
    StartAtOffsets,
    StartAtTime,
    StartPosition,
    SyncSpec,
    TopicSelection,
    TopicSpec,
    Topology,
    TransformSpec,
)
from mirrormaker.topology.naming import compile_naming
from mirrormaker.topology.shared_positions import EarlierCopies
from mirrormaker.topology.ways import Ways, settings_ways
from tests.plan.worlds import AGGREGATE, FLIGHTS, JFK, LGA, cluster, route, topic, topology, world

WEEK, DAY, HOUR = "604800000", "86400000", "3600000"
SAME_NAMES = TopicSelection(include=("flights.*",), name="{topic}")


def plan(of: Topology, seen: World) -> Plan:
    return make_plan(of, seen, "digest")


def notices(made: Plan, kind: NoticeKind) -> list[str]:
    return [notice.line for notice in made.notices if notice.kind is kind]


def traffic(
    start: int = 0, end: int = 100, day_start: int | None = 90, size: int | None = 1000
) -> PartitionTraffic:
    return PartitionTraffic(start=start, end=end, day_start=day_start, bytes=size)


def test_routes_and_declared_topics_become_steps_once_each() -> None:
    asked = topology(
        route(),
        route(LGA),
        declared={AGGREGATE: {"orders": TopicSpec(partitions=4), "jfk.flights": TopicSpec(partitions=9)}},
    )
    made = plan(
        asked, world(cluster(JFK, topic("flights", 2)), cluster(LGA, topic("flights", 3)), cluster(AGGREGATE))
    )
    assert [(step.name, step.partitions) for step in made.steps if isinstance(step, CreateTopic)] == [
        ("jfk.flights", 9),
        ("lga.flights", 3),
        ("orders", 4),
    ]
    assert made.is_whole
    assert made.dangers == ()


def test_two_routes_that_merge_make_one_topic_as_large_as_the_larger_wants() -> None:
    merged = replace(SAME_NAMES, merge=True)
    asked = topology(route(topics=merged), route(LGA, topics=merged))
    made = plan(
        asked, world(cluster(JFK, topic("flights", 2)), cluster(LGA, topic("flights", 3)), cluster(AGGREGATE))
    )
    assert [(type(step), getattr(step, "partitions", 0)) for step in made.steps] == [(CreateTopic, 3)]
    apart = topology(route(topics=SAME_NAMES), route(LGA, topics=SAME_NAMES))
    made = plan(
        apart, world(cluster(JFK, topic("flights", 2)), cluster(LGA, topic("flights", 3)), cluster(AGGREGATE))
    )
    assert len(made.steps) == 1
    assert notices(made, NoticeKind.OBSTACLE) == [
        "lga-to-aggregate: flights: is not copied: the route 'jfk-to-aggregate' writes 'flights' already"
    ]


def test_a_topic_that_steps_of_two_routes_write_belongs_to_the_first_unless_they_merge() -> None:
    late = (TransformSpec(step=RouteTo(to="late")),)
    seen = world(cluster(JFK, topic("flights")), cluster(LGA, topic("flights")), cluster(AGGREGATE))
    apart = plan(topology(route(transforms=late), route(LGA, transforms=late)), seen)
    assert notices(apart, NoticeKind.OBSTACLE) == [
        "lga-to-aggregate: flights: is not copied: the route 'jfk-to-aggregate' writes 'late' already"
    ]
    merged = replace(FLIGHTS, merge=True)
    routes = [route(origin, topics=merged, transforms=late) for origin in (JFK, LGA)]
    assert notices(plan(topology(*routes), seen), NoticeKind.OBSTACLE) == []


CARRIES = SyncSpec(config=("retention.ms", "max.message.bytes", "segment.ms"))


def both_ways(*names: str, merge: bool = False) -> list[RouteSpec]:
    """Between all of these clusters, under the same names."""
    topics = replace(SAME_NAMES, merge=merge)
    return [
        route(ClusterName(source), ClusterName(end), topics=topics, provenance=True, sync=CARRIES)
        for source, end in permutations(names, 2)
    ]


def values_of(seen: World, name: str) -> dict[str, str | None]:
    """Values of the setting of `flights` by cluster."""
    return {
        key: each.topics["flights"].setting(name)
        for key, each in seen.clusters.items()
        if isinstance(each, ObservedCluster)
    }


def changed(seen: World, steps: Iterable[Step]) -> World:
    """The world after these steps about topics."""
    taken = [step for step in steps if isinstance(step, CreateTopic | ChangeSettings | AddPartitions)]
    return World(
        clusters={
            name: replace(each, topics=after(each.topics, [step for step in taken if step.cluster == name]))
            for name, each in seen.clusters.items()
            if isinstance(each, ObservedCluster)
        }
    )


def steps_at_once(asked: Topology, seen: World) -> list[TopicStep]:
    """What all routes of a daemon would do that look at the same moment."""
    ways, steps = settings_ways(asked.routes), []
    for each in asked.routes:
        source, there = seen.reached(each.source), seen.reached(each.destination)
        assert source is not None
        assert there is not None
        naming, mesh = compile_naming(each.source, each.topics), Ways(ways.get(each.name, ()))
        destination = Destination(name=there.name, topics=there.topics)
        steps += plan_topics(each, naming, source.topics, destination, {}, mesh, EarlierCopies()).steps
    return steps


def settled(asked: Topology, seen: World, *, at_once: bool = False) -> World:
    """The world once nothing is to be done any more."""
    for _ in range(10):
        steps = steps_at_once(asked, seen) if at_once else plan(asked, seen).steps
        if not steps:
            return seen
        seen = changed(seen, steps)
    raise AssertionError(values_of(seen, "retention.ms"))


def test_of_clusters_that_copy_to_each_other_the_first_by_name_decides_settings() -> None:
    asked = topology(*both_ways("b", "a"))
    of_a = {"retention.ms": "100000000", "max.message.bytes": "2000000"}
    of_b = {"retention.ms": "200000000", "max.message.bytes": "1500000"}
    seen = world(
        cluster(ClusterName("b"), topic("flights", own=of_b)),
        cluster(ClusterName("a"), topic("flights", own=of_a)),
    )
    made = plan(asked, seen)
    (step,) = made.steps
    assert (getattr(step, "cluster", None), len(made.dangers)) == ("b", 1)
    (told,) = notices(made, NoticeKind.SETTING)
    assert told.startswith(
        "b-to-a: flights: max.message.bytes 1500000, retention.ms 200000000 is not carried"
    )
    assert values_of(settled(asked, seen), "retention.ms") == {"a": "100000000", "b": "100000000"}
    assert not notices(plan(asked, settled(asked, seen)), NoticeKind.SETTING)


def test_a_topic_that_is_made_gets_the_settings_of_where_it_was_born() -> None:
    asked = topology(*both_ways("a", "b"))
    born = cluster(ClusterName("b"), topic("flights", own={"retention.ms": WEEK}))
    seen = settled(asked, world(cluster(ClusterName("a")), born))
    assert values_of(seen, "retention.ms") == {"a": WEEK, "b": WEEK}


def test_the_way_back_of_a_failover_group_does_not_decide_settings() -> None:
    forth, back = both_ways("b", "a")
    forth, back = replace(forth, failover_group="f"), replace(back, failover_group="f", enabled=False)
    seen = world(
        cluster(ClusterName("b"), topic("flights", own={"retention.ms": DAY})),
        cluster(ClusterName("a"), topic("flights", own={"retention.ms": WEEK})),
    )
    assert values_of(settled(topology(forth, back), seen), "retention.ms") == {"b": DAY, "a": DAY}
    alone = topology(replace(forth, failover_group=None), replace(back, failover_group=None))
    assert values_of(settled(alone, seen), "retention.ms") == {"b": DAY, "a": DAY}


def test_routes_that_merge_make_ordered_settings_larger_and_leave_others() -> None:
    merging = TopicSelection(include=("flights.*",), name="{topic}", merge=True)
    all_flights = TransformSpec(step=RouteTo(to="all"))
    asked = topology(
        *(route(name, topics=merging, transforms=(all_flights,), sync=CARRIES) for name in (JFK, LGA))
    )
    small = topic("flights", own={"max.message.bytes": "1000000", "segment.ms": DAY})
    large = topic("flights", own={"max.message.bytes": "2000000", "segment.ms": WEEK})
    seen = settled(asked, world(cluster(JFK, large), cluster(LGA, small), cluster(AGGREGATE)))
    there = seen.reached(AGGREGATE)
    assert there is not None
    for name in ("flights", "all"):
        assert there.topics[name].setting("max.message.bytes") == "2000000"
        assert there.topics[name].setting("segment.ms") == WEEK
    (told,) = notices(plan(asked, seen), NoticeKind.SETTING)
    assert told.startswith(f"lga-to-aggregate: flights: segment.ms {DAY} is not carried over")


_SAID = st.dictionaries(
    st.sampled_from(["retention.ms", "max.message.bytes", "segment.ms"]),
    st.sampled_from(["-1", "1000", "2000", "3000"]),
)


@given(
    said=st.lists(_SAID, min_size=2, max_size=4),
    shape=st.sampled_from(["both", "ring", "mesh"]),
    at_once=st.booleans(),
    extra=st.booleans(),
)
def test_settings_of_any_mesh_come_to_rest(
    said: list[dict[str, str]], shape: str, at_once: bool, extra: bool
) -> None:
    names = [ClusterName(name) for name in "cadb"[: len(said)]]
    routes = both_ways(*names, merge=shape == "mesh")
    if shape != "mesh":
        ring = dict(zip(names, [*names[1:], names[0]], strict=True))
        routes = [each for each in routes if ring[each.source] == each.destination]
    if extra:  # one more from outside, into a topic that it then shares
        routes = [replace(each, topics=replace(each.topics, merge=True)) for each in routes]
        routes.append(route(JFK, names[0], topics=replace(SAME_NAMES, merge=True), sync=CARRIES))
    asked = topology(*routes)
    usual = {"retention.ms": "1500", "max.message.bytes": "1500", "segment.ms": "1500"}
    clusters = [
        cluster(name, topic("flights", usual=usual, own=own)) for name, own in zip(names, said, strict=True)
    ]
    outside = cluster(JFK, topic("flights", usual=usual, own={"retention.ms": "2500"}))
    settled(asked, world(*clusters, *([outside] if extra else [])), at_once=at_once)


def test_one_cluster_under_two_names_is_told_and_nothing_is_planned_twice() -> None:
    asked = topology(route(), route(LGA))
    seen = world(
        cluster(JFK, topic("flights"), cluster_id="x"),
        cluster(LGA, topic("flights"), cluster_id="x"),
        cluster(AGGREGATE, cluster_id="y"),
    )
    assert notices(plan(asked, seen), NoticeKind.TWO_NAMES) == [
        "lga: is the cluster 'jfk' under another name"
    ]


def test_a_route_from_a_cluster_to_itself_blocks() -> None:
    seen = world(cluster(JFK, topic("flights"), cluster_id="x"), cluster(AGGREGATE, cluster_id="x"))
    made = plan(topology(route()), seen)
    assert not made.is_whole
    assert made.dangers == (
        "jfk-to-aggregate: 'jfk' and 'aggregate' are one cluster: it would copy into itself",
    )


def test_a_circle_that_only_real_ids_show_blocks() -> None:
    asked = topology(route(JFK, AGGREGATE, topics=SAME_NAMES), route(AGGREGATE, LGA, topics=SAME_NAMES))
    seen = world(
        cluster(JFK, topic("flights"), cluster_id="x"),
        cluster(AGGREGATE, cluster_id="y"),
        cluster(LGA, cluster_id="x"),
    )
    made = plan(asked, seen)
    assert len(notices(made, NoticeKind.CIRCLE)) == 2
    assert "would go in circles" in notices(made, NoticeKind.CIRCLE)[0]
    cut = topology(*(replace(each, provenance=True) for each in asked.routes))
    assert notices(plan(cut, seen), NoticeKind.CIRCLE) == []


BEGINS_WITH_EU = TopicSelection(include=("(?=eu).*",), name="{topic}")
ALSO_BEGINS_SO = TopicSelection(include=("(?=e.-).*",), name="{topic}")


def test_a_circle_that_only_topics_show_blocks() -> None:
    asked = topology(
        route(topics=BEGINS_WITH_EU),
        route(AGGREGATE, JFK, topics=ALSO_BEGINS_SO),
        route(LGA, JFK, topics=BEGINS_WITH_EU),
    )
    harmless = cluster(JFK, topic("eux"), topic("ex-y"), topic("eu-z", internal=True))
    assert notices(plan(asked, world(harmless, cluster(AGGREGATE), cluster(LGA))), NoticeKind.CIRCLE) == []
    for seen in (
        world(cluster(JFK), cluster(AGGREGATE, topic("eu-flights")), cluster(LGA)),
        world(cluster(JFK), cluster(AGGREGATE), cluster(LGA, topic("eu-flights"))),
    ):
        made = plan(asked, seen)
        assert [line.split(":")[0] for line in notices(made, NoticeKind.CIRCLE)] == [
            "jfk-to-aggregate",
            "aggregate-to-jfk",
        ]
        assert not made.is_whole
        cut = topology(*(replace(each, provenance=True) for each in asked.routes))
        assert notices(plan(cut, seen), NoticeKind.CIRCLE) == []


def test_topics_of_its_source_that_a_route_would_carry_in_a_circle_are_named() -> None:
    forth = route(topics=BEGINS_WITH_EU)
    asked = topology(forth, route(AGGREGATE, JFK, topics=ALSO_BEGINS_SO))
    found = circles_of_topics(asked, {}, forth.name, ["eux", "eu-y", "ex-y"])
    assert list(found) == ["eu-y"]
    assert found["eu-y"].startswith("topic 'eu-y' would go in circles: jfk -> aggregate -> jfk")
    cut = topology(*(replace(each, provenance=True) for each in asked.routes))
    assert circles_of_topics(cut, {}, forth.name, ["eu-y"]) == {}


def test_a_circle_that_only_topics_of_steps_show_blocks() -> None:
    to_late = (TransformSpec(step=RouteTo(to="late-{cluster}")),)
    forth = route(topics=TopicSelection(include=("(?=eu|la).*",)), transforms=to_late)
    back = route(AGGREGATE, JFK, topics=TopicSelection(include=("(?=la).*",), name="{topic}"))
    asked = topology(forth, back)
    other = world(cluster(JFK, topic("orders")), cluster(AGGREGATE))
    assert notices(plan(asked, other), NoticeKind.CIRCLE) == []
    seen = world(cluster(JFK, topic("eu-flights")), cluster(AGGREGATE))
    made = plan(asked, seen)
    assert [line.split(",")[0] for line in notices(made, NoticeKind.CIRCLE)] == [
        "jfk-to-aggregate: topic 'late-jfk' would go in circles: jfk -> aggregate -> jfk",
        "aggregate-to-jfk: topic 'late-jfk' would go in circles: aggregate -> jfk -> aggregate",
    ]
    assert not made.is_whole
    cut = topology(*(replace(each, provenance=True) for each in asked.routes))
    assert notices(plan(cut, seen), NoticeKind.CIRCLE) == []
    assert list(circles_of_topics(asked, {}, forth.name, ["eu-flights", "late-jfk"])) == ["late-jfk"]
    assert list(circles_of_topics(asked, {}, back.name, ["late", "late-jfk"])) == ["late-jfk"]


def test_a_circle_of_a_step_between_two_names_of_one_cluster_blocks() -> None:
    """Topics are called by the name that stands in the file."""
    to_late = (TransformSpec(step=RouteTo(to="late.{cluster}")),)
    asked = topology(
        route(AGGREGATE, JFK, topics=TopicSelection(include=("late[.]lga",), name="{topic}")),
        route(LGA, AGGREGATE, topics=TopicSelection(include=("flights|late[.]lga",)), transforms=to_late),
    )
    away = (cluster(AGGREGATE, cluster_id="y"), cluster(LGA, cluster_id="z"))
    apart = plan(asked, world(cluster(JFK, topic("planes"), cluster_id="x"), *away))
    assert notices(apart, NoticeKind.CIRCLE) == []
    alike = plan(asked, world(cluster(JFK, topic("planes"), cluster_id="z"), *away))
    assert [line.split(":")[0] for line in notices(alike, NoticeKind.CIRCLE)] == [
        "aggregate-to-jfk",
        "lga-to-aggregate",
    ]


def test_a_cluster_that_is_away_leaves_the_rest_of_the_plan() -> None:
    asked = topology(route(), route(LGA))
    away = UnreachableCluster(name=LGA, problem="nobody there")
    made = plan(asked, world(cluster(JFK, topic("flights")), away, cluster(AGGREGATE)))
    assert [step.name for step in made.steps if isinstance(step, CreateTopic)] == ["jfk.flights"]
    assert notices(made, NoticeKind.UNREACHABLE) == ["lga: nobody there"]
    assert not made.is_whole


ADOPTION = AdoptTopic(
    route=RouteName("jfk-to-aggregate"), cluster=AGGREGATE, name="jfk.flights", source="flights"
)


@pytest.mark.parametrize(
    ("copy", "positions", "existing", "expected"),
    [
        (traffic(), {}, ExistingTopics.REFUSE, [ADOPTION]),
        (traffic(), {}, ExistingTopics.APPEND, []),
        (traffic(), {"flights": {0: 7}}, ExistingTopics.REFUSE, []),
        (traffic(0, 0, 0), {}, ExistingTopics.REFUSE, []),
    ],
)
def test_a_topic_that_holds_records_is_taken_over_by_decision_only(
    copy: PartitionTraffic, positions: Any, existing: ExistingTopics, expected: list[AdoptTopic]
) -> None:
    asked = topology(route(topics=replace(FLIGHTS, existing=existing)))
    seen = world(
        cluster(JFK, topic("flights"), positions={RouteName("jfk-to-aggregate"): positions}),
        cluster(AGGREGATE, topic("jfk.flights", traffic=copy)),
    )
    made = plan(asked, seen)
    assert list(made.steps) == expected
    assert bool(made.dangers) == bool(expected)


def test_positions_that_are_not_told_are_not_taken_for_none() -> None:
    """Nobody is to decide about copies that may be the route's own."""
    name = RouteName("jfk-to-aggregate")
    source = cluster(JFK, topic("flights"), positions={name: {}})
    there = cluster(AGGREGATE, topic("jfk.flights", traffic=traffic()))
    assert list(plan(topology(route()), world(source, there)).steps) == [ADOPTION]
    untold = replace(source, untold=frozenset([name]))
    assert list(plan(topology(route()), world(untold, there)).steps) == []


def test_positions_of_copies_that_went_to_another_topic_are_no_ground_to_append() -> None:
    name = RouteName("jfk-to-aggregate")
    source = cluster(JFK, topic("flights"), positions={name: {"flights": {0: 7}}})
    there = cluster(AGGREGATE, topic("jfk.flights", traffic=traffic()))
    moved = replace(source, moved={name: {"flights": "flights.old"}})
    assert list(plan(topology(route()), world(moved, there)).steps) == [ADOPTION]


@pytest.mark.parametrize(
    ("grounds", "expected"),
    [
        (Grounds(), [ADOPTION]),
        (Grounds(copied={"flights"}), []),
        (Grounds(copied={"flights-new"}), [ADOPTION]),
        (Grounds(standing={"flights"}), []),
        (Grounds(taken_over={"jfk.flights"}), []),
        (Grounds(taken_over={"flights"}), [ADOPTION]),
    ],
)
def test_what_the_destination_keeps_of_a_route_tells_that_a_topic_is_its_own(
    grounds: Grounds, expected: list[AdoptTopic]
) -> None:
    told = replace(
        cluster(AGGREGATE, topic("jfk.flights", traffic=traffic())),
        grounds={RouteName("jfk-to-aggregate"): grounds},
    )
    assert list(plan(topology(route()), world(cluster(JFK, topic("flights")), told)).steps) == expected


ALL_IN_ONE = (TransformSpec(step=RouteTo(to="all")),)


@pytest.mark.parametrize(
    ("holding", "positions", "expected"),
    [
        ((), {}, []),
        (("all",), {}, [replace(ADOPTION, name="all")]),
        (("all",), {"flights": {0: 7}}, []),
        (("all",), {"flights-b": {0: 7}}, []),
        (
            ("all", "jfk.flights-b"),
            {"flights": {0: 7}},
            [replace(ADOPTION, name="jfk.flights-b", source="flights-b")],
        ),
        (("jfk.flights.dead-letters",), {}, [replace(ADOPTION, name="jfk.flights.dead-letters")]),
    ],
)
def test_a_topic_that_a_step_names_is_taken_over_by_decision_as_that_of_a_copy(
    holding: tuple[str, ...], positions: Any, expected: list[AdoptTopic]
) -> None:
    names = ["all"]
    for source in ("flights", "flights-b"):
        names += [f"jfk.{source}", f"jfk.{source}.dead-letters"]
    there = [topic(name, traffic=traffic() if name in holding else traffic(0, 0, 0)) for name in names]
    seen = world(
        cluster(
            JFK,
            topic("flights"),
            topic("flights-b"),
            positions={RouteName("jfk-to-aggregate"): positions},
        ),
        cluster(AGGREGATE, *there),
    )
    parked = FailurePolicies(record_error=RecordErrorPolicy.PARK)
    made = plan(topology(route(transforms=ALL_IN_ONE, on=parked)), seen)
    assert list(made.steps) == expected
    assert bool(made.dangers) == bool(expected)


@pytest.mark.parametrize(
    ("old", "new", "dangerous"),
    [
        ({"retention.ms": WEEK}, {"retention.ms": DAY}, True),
        ({"retention.ms": DAY}, {"retention.ms": WEEK}, False),
        ({"retention.ms": DAY}, {"retention.ms": "-1"}, False),
        ({"retention.ms": "-1"}, {"retention.ms": WEEK}, True),
        ({"retention.bytes": "-1"}, {"retention.bytes": "5"}, True),
        ({"max.message.bytes": "10"}, {"max.message.bytes": "9"}, True),
        ({"max.message.bytes": "10"}, {"max.message.bytes": "11"}, False),
        ({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, True),
        ({"retention.ms": "odd"}, {"retention.ms": DAY}, True),
        ({"unclean.leader.election.enable": "false"}, {"unclean.leader.election.enable": "true"}, True),
        ({"unclean.leader.election.enable": "true"}, {"unclean.leader.election.enable": "false"}, False),
    ],
)
def test_what_takes_something_away_is_a_danger(
    old: dict[str, str], new: dict[str, str], dangerous: bool
) -> None:
    seen = world(cluster(JFK, topic("flights", own=new)), cluster(AGGREGATE, topic("jfk.flights", own=old)))
    made = plan(topology(route(sync=SyncSpec(config=(".*",)))), seen)
    assert [type(step) for step in made.steps] == [ChangeSettings]
    assert bool(made.dangers) == dangerous


def test_a_lot_at_once_is_a_danger() -> None:
    new = CreateTopic(cluster=JFK, name="t", partitions=10, replication_factor=1)
    assert large_parts([new] * 100) == ()
    assert large_parts([new] * 101) == (
        "it makes 101 topics, more than 100",
        "it makes 1,010 partitions, more than 1,000",
    )
    grown = AddPartitions(cluster=JFK, name="t", have=5, partitions=1006)
    assert large_parts([grown]) == ("it makes 1,001 partitions, more than 1,000",)


def test_what_does_not_fit_is_told() -> None:
    source = topic("flights", 2, 3, usual={"max.message.bytes": "2000", "retention.ms": WEEK})
    copy = topic(
        "jfk.flights",
        4,
        1,
        usual={"max.message.bytes": "1000"},
        own={"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
    )
    made = plan(topology(route()), world(cluster(JFK, source), cluster(AGGREGATE, copy)))
    about = "jfk-to-aggregate: flights -> jfk.flights: "
    assert [notice.line.removeprefix(about) for notice in made.notices] == [
        "4 partitions, the source has 2: it is not copied ('on.partition_mismatch')",
        "1 replicas, the source has 3",
        "takes batches of 1,000 bytes, the source of 2,000 (max.message.bytes)",
        "compression.type gzip makes the destination compress every batch again",
        "message.timestamp.type LogAppendTime replaces the records' own timestamps",
    ]
    assert made.steps == ()


@pytest.mark.parametrize(
    ("keys", "declared"),
    [
        ({"on": FailurePolicies(partition_mismatch=FailurePolicy.SKIP_AND_RECORD)}, {}),
        ({"topics": replace(FLIGHTS, merge=True)}, {}),
        ({}, {"jfk.flights": TopicSpec(partitions=4)}),
    ],
)
def test_a_copy_with_more_partitions_is_copied_to_where_somebody_wants_that(
    keys: dict[str, Any], declared: dict[str, TopicSpec]
) -> None:
    seen = world(cluster(JFK, topic("flights", 2)), cluster(AGGREGATE, topic("jfk.flights", 4)))
    (told,) = notices(
        plan(topology(route(**keys), declared={AGGREGATE: declared}), seen), NoticeKind.PARTITIONS
    )
    assert told.endswith("4 partitions, the source has 2: some stay empty")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_copy_that_takes_dead_letters_and_has_too_few_partitions_is_told_of(is_there: bool) -> None:
    letters, copied = topic("flights.dead-letters", 1), topic("jfk.flights.dead-letters", 1)
    here, there = cluster(JFK, topic("flights", 2), letters), cluster(AGGREGATE, *[copied] * is_there)
    on, both = FailurePolicies(record_error=RecordErrorPolicy.PARK), TopicSelection(include=("flights.*",))
    park = route(topics=both, transforms=ALL_IN_ONE, on=on)
    assert notices(plan(topology(park), world(here, there)), NoticeKind.PARTITIONS) == [
        "jfk-to-aggregate: flights -> jfk.flights.dead-letters: 1 partitions, the source topic that parks "
        "there has 2: the others stand ('on.partition_mismatch'); say 'partitions: 2' of it in 'topics' of "
        "the cluster 'aggregate'"
    ]
    declared = {AGGREGATE: {"jfk.flights.dead-letters": TopicSpec(partitions=2)}}
    mended = plan(topology(park, declared=declared), world(here, there))
    assert [told for told in notices(mended, NoticeKind.PARTITIONS) if "parks" in told] == []


def test_a_topic_that_is_to_grow_needs_the_right_to_be_altered() -> None:
    may_write = topic("jfk.flights", 1, rights=frozenset({WRITE}))
    seen = world(cluster(JFK, topic("flights", 2)), cluster(AGGREGATE, may_write))
    assert notices(plan(topology(route()), seen), NoticeKind.RIGHTS) == [
        "jfk-to-aggregate: jfk.flights at 'aggregate': the daemon's user lacks the right to Alter"
    ]


def test_rights_that_are_missing_are_told() -> None:
    source = topic("flights", rights=frozenset({DESCRIBE}))
    new = topic("flights-b", rights=frozenset({READ}))
    destination = replace(
        cluster(AGGREGATE, topic("jfk.flights", rights=frozenset({READ}))), rights=frozenset({DESCRIBE})
    )
    made = plan(topology(route()), world(cluster(JFK, source, new), destination))
    assert notices(made, NoticeKind.RIGHTS) == [
        "jfk-to-aggregate: flights at 'jfk': the daemon's user lacks the right to Read",
        "jfk-to-aggregate: jfk.flights at 'aggregate': the daemon's user lacks the right to Write",
        "jfk-to-aggregate: cluster 'aggregate': the daemon's user lacks the right to Create",
    ]
    allowed = replace(destination, rights=frozenset({CREATE, WRITE}))
    made = plan(topology(route()), world(cluster(JFK, new), allowed))
    assert notices(made, NoticeKind.RIGHTS) == []


def test_topics_that_may_not_be_seen_are_told_and_not_made() -> None:
    hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    asked = replace(route(), topics=TopicSelection(include=("flights", "planes", "gates.*")))
    sources = topic("flights"), topic("planes", error=hidden), topic("gates-a", error=hidden)
    copies = topic("jfk.flights", 0, error=hidden), topic("orders", 0, error=hidden)
    declared = topology(asked, declared={AGGREGATE: {"orders": TopicSpec(partitions=3)}})
    made = plan(declared, world(cluster(JFK, *sources), cluster(AGGREGATE, *copies)))
    assert made.steps == ()
    assert notices(made, NoticeKind.RIGHTS) == [
        "jfk-to-aggregate: planes at 'jfk': the daemon's user lacks the right to Describe",
        "aggregate: orders at 'aggregate': the daemon's user lacks the right to Describe",
    ]
    assert notices(made, NoticeKind.OBSTACLE) == [
        "jfk-to-aggregate: flights: is not copied: TOPIC_AUTHORIZATION_FAILED: the mirror lacks the right to "
        "Describe topic 'jfk.flights' at 'aggregate'"
    ]


def test_topics_that_may_be_created_by_their_names_need_no_right_to_create_any() -> None:
    sources = [topic(f"flights-{each}") for each in "abcde"]
    destination = replace(cluster(AGGREGATE), rights=frozenset(), creatable=frozenset({"jfk.flights-a"}))
    made = plan(topology(route()), world(cluster(JFK, sources[0]), destination))
    assert notices(made, NoticeKind.RIGHTS) == []
    made = plan(topology(route()), world(cluster(JFK, *sources), destination))
    assert notices(made, NoticeKind.RIGHTS) == [
        "jfk-to-aggregate: cluster 'aggregate', for 'jfk.flights-b', 'jfk.flights-c', 'jfk.flights-d'"
        " and 1 more: the daemon's user lacks the right to Create"
    ]


def test_rights_that_a_route_lacks_for_what_it_keeps_itself_are_told() -> None:
    lacking = MissingRights(route=RouteName("jfk-to-aggregate"), of="a topic", rights=(READ, WRITE))
    others = replace(lacking, route=RouteName("another"))
    destination = replace(cluster(AGGREGATE), missing_rights=(lacking, others))
    made = plan(topology(route()), world(cluster(JFK), destination))
    assert notices(made, NoticeKind.RIGHTS) == [
        "jfk-to-aggregate: a topic at 'aggregate': the daemon's user lacks the right to Read, Write"
    ]


def test_rights_and_sizes_at_topics_that_steps_name_are_told() -> None:
    source = topic("flights", 2, usual={"max.message.bytes": "5000000"})
    other = topic("late", 1, usual={"max.message.bytes": "1000"}, rights=frozenset())
    asked = topology(route(transforms=(TransformSpec(step=RouteTo(to="late")),)))
    made = plan(asked, world(cluster(JFK, source), cluster(AGGREGATE, other)))
    assert notices(made, NoticeKind.RIGHTS) == [
        "jfk-to-aggregate: late at 'aggregate': the daemon's user lacks the right to Write, Alter"
    ]
    assert notices(made, NoticeKind.MESSAGE_SIZE) == [
        "jfk-to-aggregate: flights -> late: takes batches of 1,000 bytes, the source of 5,000,000"
        " (max.message.bytes)"
    ]


def test_rights_at_topics_that_the_file_asks_for_are_told() -> None:
    declared = {
        "changed": TopicSpec(config={"retention.ms": "5"}),
        "grown": TopicSpec(partitions=2),
        "new": TopicSpec(),
        "right": TopicSpec(partitions=1),
    }
    known = topic("changed", own={"retention.ms": "3"}), topic("grown"), topic("right")
    lacking = [replace(each, rights=frozenset({WRITE})) for each in known]
    there = replace(cluster(AGGREGATE, *lacking), rights=frozenset())
    asked = topology(route(), declared={AGGREGATE: declared})
    assert notices(plan(asked, world(cluster(JFK), there)), NoticeKind.RIGHTS) == [
        "aggregate: changed: the daemon's user lacks the right to AlterConfigs",
        "aggregate: grown: the daemon's user lacks the right to Alter",
        "aggregate: the daemon's user lacks the right to Create",
    ]
    allowed = [replace(each, rights=frozenset({ALTER, ALTER_CONFIGS})) for each in known]
    there = replace(cluster(AGGREGATE, *allowed), rights=frozenset({CREATE}))
    assert notices(plan(asked, world(cluster(JFK), there)), NoticeKind.RIGHTS) == []


@pytest.mark.parametrize(
    ("position", "retention", "kinds"),
    [
        (95, HOUR, [NoticeKind.RETENTION]),  # half a day behind
        (95, WEEK, []),
        (100, HOUR, []),
        (3, WEEK, [NoticeKind.LOST, NoticeKind.RETENTION]),
        (95, "-1", []),
    ],
)
def test_what_is_or_may_be_deleted_before_it_is_copied_is_told(
    position: int, retention: str, kinds: list[NoticeKind]
) -> None:
    source = topic("flights", own={"retention.ms": retention}, traffic=traffic(10))
    seen = world(
        cluster(JFK, source, positions={RouteName("jfk-to-aggregate"): {"flights": {0: position}}}),
        cluster(AGGREGATE, topic("jfk.flights", own={"retention.ms": retention})),
    )
    made = plan(topology(route()), seen)
    assert [notice.kind for notice in made.notices] == kinds


@pytest.mark.parametrize(("position", "missing"), [(95, "85"), (10, None), (3, None), (120, "90")])
def test_what_a_copy_that_is_gone_will_lack_is_told(position: int, missing: str | None) -> None:
    name = RouteName("jfk-to-aggregate")
    source = cluster(JFK, topic("flights", traffic=traffic(10)), positions={name: {"flights": {0: position}}})
    told = notices(plan(topology(route()), world(source, cluster(AGGREGATE))), NoticeKind.GONE)
    assert told == [
        "jfk-to-aggregate: flights: the copy 'jfk.flights' is gone, and the route goes on where it was:"
        f" up to {each} offsets will be missing there; `mirrormaker seek` takes the route back"
        for each in [missing]
        if each is not None
    ]
    there = cluster(AGGREGATE, topic("jfk.flights"))
    assert not notices(plan(topology(route()), world(source, there)), NoticeKind.GONE)


@pytest.mark.parametrize(
    ("position", "young", "late"),
    [(40, 90, ["50"]), (5, 90, ["80"]), (90, 90, []), (40, -1, ["60"]), (100, -1, [])],
)
def test_what_waits_for_longer_than_promised_is_told(position: int, young: int, late: list[str]) -> None:
    promised = Objectives(lag_seconds=30)
    name = RouteName("jfk-to-aggregate")
    source = cluster(JFK, topic("flights", traffic=traffic(10)), positions={name: {"flights": {0: position}}})
    punctual = {name: {TopicPartition("flights", 0): young}}
    seen = world(replace(source, punctual=punctual), cluster(AGGREGATE, topic("jfk.flights")))
    made = plan(topology(route(objectives=promised)), seen)
    assert notices(made, NoticeKind.LAG) == [
        f"jfk-to-aggregate: flights: {count} offsets wait for longer than they should: "
        "'objectives.lag_seconds' is 30"
        for count in late
    ]


@pytest.mark.parametrize(
    ("start", "positions", "behind"),
    [
        (Start.EARLIEST, {}, 1000),
        (Start.LATEST, {}, 0),
        (Start.LATEST, {"flights": {0: 75}}, 250),
        (StartAtTime(timestamp_ms=1), {}, 600),
        (StartAtOffsets(offsets={"flights": {0: 70}}), {}, 300),
        (StartAtOffsets(offsets={"flights": {1: 70}}), {}, 1000),
    ],
)
def test_bytes_a_day_and_bytes_to_copy_are_estimated(
    start: StartPosition, positions: Any, behind: int
) -> None:
    name = RouteName("jfk-to-aggregate")
    source = cluster(JFK, topic("flights", traffic=traffic()), positions={name: positions})
    starts = {name: {TopicPartition("flights", 0): 40}}
    seen = world(replace(source, starts=starts), cluster(AGGREGATE))
    (estimate,) = plan(topology(route(start=start)), seen).routes
    assert (estimate.topics, estimate.partitions) == (1, 1)
    assert estimate.bytes_per_day == 100
    assert estimate.bytes_behind == behind


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"resources": Resources(catch_up_bytes_per_second=900)}, ["900 B"]),
        ({"resources": Resources(catch_up_bytes_per_second=1_000)}, ["1000 B"]),
        ({"resources": Resources(catch_up_bytes_per_second=1_100)}, []),
        ({"resources": Resources()}, []),
        ({"resources": Resources(catch_up_bytes_per_second=9), "compression": Compression.ZSTD}, []),
    ],
)
def test_a_budget_for_old_records_below_what_comes_is_told(keys: dict[str, Any], told: list[str]) -> None:
    busy = traffic(day_start=0, size=86_400_000)
    seen = world(cluster(JFK, topic("flights", traffic=busy)), cluster(AGGREGATE))
    made = plan(topology(route(**keys)), seen)
    assert notices(made, NoticeKind.CATCH_UP) == [
        "jfk-to-aggregate: 1000 B a second come to the source, and 'catch_up_bytes_per_second' is "
        f"{budget}: what falls behind stays behind"
        for budget in told
    ]


def test_a_source_that_keeps_an_hour_is_no_day_behind_and_brings_more_than_it_has() -> None:
    kept = replace(traffic(10, 100, 10, 900), day_ms=float(HOUR))
    source = topic("flights", own={"retention.ms": HOUR}, traffic=kept)
    positions = {RouteName("jfk-to-aggregate"): {"flights": {0: 95}}}
    made = plan(
        topology(route()),
        world(cluster(JFK, source, positions=positions), cluster(AGGREGATE, topic("jfk.flights"))),
    )
    assert notices(made, NoticeKind.RETENTION) == [], "a little more than three minutes"
    (estimate,) = made.routes
    assert (estimate.bytes_per_day, estimate.bytes_behind) == (24 * 900, 50)
    young = topic("flights", own={"retention.ms": HOUR}, traffic=replace(kept, start=0, day_start=0))
    (estimate,) = plan(topology(route()), world(cluster(JFK, young), cluster(AGGREGATE))).routes
    assert estimate.bytes_per_day == 900, "nothing has gone yet"


def test_an_estimate_without_sizes_is_none() -> None:
    seen = world(cluster(JFK, topic("flights", traffic=traffic(size=None))), cluster(AGGREGATE))
    (estimate,) = plan(topology(route()), seen).routes
    assert estimate.bytes_per_day is None


def test_a_partition_whose_source_tells_no_times_has_something_to_copy_and_no_day() -> None:
    untimed = topic("flights", own={"retention.ms": HOUR}, traffic=traffic(day_start=None))
    positions = {RouteName("jfk-to-aggregate"): {"flights": {0: 60}}}
    seen = world(cluster(JFK, untimed, positions=positions), cluster(AGGREGATE, topic("jfk.flights")))
    made = plan(topology(route()), seen)
    (estimate,) = made.routes
    assert (estimate.bytes_per_day, estimate.bytes_behind) == (None, 400)
    assert notices(made, NoticeKind.RETENTION) == []
    empty = topic("flights", traffic=traffic(end=0, day_start=None))
    (estimate,) = plan(topology(route()), world(cluster(JFK, empty), cluster(AGGREGATE))).routes
    assert estimate.bytes_per_day == 0


def test_groups_that_a_route_carries_are_named() -> None:
    asked = topology(route(sync=SyncSpec(groups=GroupSync(include=("app.*",), exclude=("app-x",)))))
    source = replace(cluster(JFK, topic("flights")), groups=("app-a", "app-x", "other", "mirror/jfk-to-lga"))
    (estimate,) = plan(asked, world(source, cluster(AGGREGATE))).routes
    assert estimate.groups == ("app-a",)
    (estimate,) = plan(
        topology(route(sync=SyncSpec(groups=GroupSync()))), world(source, cluster(AGGREGATE))
    ).routes
    assert estimate.groups == ("app-a", "app-x", "other"), "those of mirrors mean nothing elsewhere"


def rule(name: str, operation: int, pattern: int = LITERAL, *, resource: int = TOPIC) -> AccessRule:
    return AccessRule(
        resource=resource,
        name=name,
        pattern_type=pattern,
        principal="User:a",
        host="*",
        operation=operation,
        permission=ALLOW,
    )


RULES = (
    rule("flights", READ),
    rule("flights", WRITE),
    rule("flight", EVERYTHING, PREFIXED),
    rule("*", DESCRIBE),
    rule("planes", READ),
    rule("app", READ, PREFIXED, resource=GROUP),
    rule("other", READ, resource=GROUP),
)
GROUPS = GroupSync(include=("app-.*",))


def rules_added(sync: SyncSpec, *there: AccessRule) -> tuple[AccessRule, ...]:
    source = replace(cluster(JFK, topic("flights")), rules=RULES, groups=("app-a", "appendix", "other"))
    destination = replace(cluster(AGGREGATE, topic("jfk.flights")), rules=there)
    (step,) = plan(topology(route(sync=sync)), world(source, destination)).steps
    assert isinstance(step, AddRules)
    return step.rules


def test_rules_to_read_are_carried_over_for_each_copy_and_rules_to_write_are_not() -> None:
    added = rules_added(SyncSpec(acls=True, groups=GROUPS), rule("jfk.flights", DESCRIBE))
    assert added == (
        rule("jfk.flights", READ),
        rule("jfk.flights", DESCRIBE_CONFIGS),
        rule("app-a", READ, resource=GROUP),
    )


def test_rules_are_carried_as_they_are_where_everything_moves() -> None:
    assert set(rules_added(SyncSpec(acls=True, write_acls=True, groups=GROUPS))) == {
        rule("jfk.flights", READ),
        rule("jfk.flights", WRITE),
        rule("jfk.flights", DESCRIBE),
        rule("jfk.flight", EVERYTHING, PREFIXED),
        rule("app", READ, PREFIXED, resource=GROUP),
    }


def test_a_cluster_without_an_authoriser_is_told_of() -> None:
    asked = topology(route(sync=SyncSpec(acls=True)))
    source = replace(cluster(JFK, topic("flights")), is_open=True)
    there = replace(cluster(AGGREGATE, topic("jfk.flights")), rules=())
    made = plan(asked, world(source, there))
    assert [notice.line for notice in made.notices] == [
        "jfk-to-aggregate: cluster 'jfk': it has no authoriser, so there are no access rules to carry over "
        "('sync.acls')"
    ]
    made = plan(asked, world(replace(source, is_open=False, rules=()), replace(there, rights=frozenset())))
    assert [notice.line for notice in made.notices] == [
        "jfk-to-aggregate: cluster 'aggregate', for 'sync.acls': the daemon's user lacks the right to Alter"
    ]


def test_a_plan_reads_like_a_difference() -> None:
    seen = world(
        cluster(
            JFK,
            topic("flights", 3, own={"retention.ms": DAY}, traffic=traffic()),
            topic("flights-b", own={"retention.ms": DAY}),
        ),
        cluster(AGGREGATE, topic("jfk.flights-b", own={"retention.ms": WEEK})),
    )
    steps = [
        StopRoute(route=RouteName("a")),
        RestartRoute(route=RouteName("b")),
        StartRoute(route=RouteName("c")),
    ]
    made = make_plan(topology(route()), seen, "digest", steps)
    assert list(render_plan(made)) == [
        "+ aggregate: topic jfk.flights, 3 partitions, 1 replica",
        "    + compression.type = producer",
        "    + message.timestamp.type = CreateTime",
        f"    + retention.ms = {DAY}",
        "~ aggregate: topic jfk.flights-b, 1 setting",
        f"    ~ retention.ms = {WEEK} -> {DAY}",
        f"    ! retention.ms {WEEK} -> {DAY}: records are deleted sooner",
        "- route a",
        "~ route b, which starts anew",
        "+ route c",
        "",
        "  jfk-to-aggregate  jfk -> aggregate: 2 topics, 4 partitions, 300 B a day, 2.9 KiB to copy",
        "",
        "5 steps, 1 danger: wants --force",
    ]


# ---- saved plans


def saved(made: Plan) -> Any:
    return read_plan(json.dumps(plan_document(made)), "plan.json")


def test_a_saved_plan_that_was_changed_is_refused() -> None:
    made = plan(topology(route()), world(cluster(JFK, topic("flights")), cluster(AGGREGATE)))
    text = json.dumps(plan_document(made))
    with pytest.raises(ConfigurationError, match="has been changed since it was written"):
        read_plan(text.replace("jfk.flights", "jfk.planes"), "plan.json")
    for odd in ("", "[]", "{}", text[:-9], json.dumps({"version": 1}), "[" * 200_000):
        with pytest.raises(ConfigurationError, match="not a saved plan"):
            read_plan(odd, "plan.json")


settings = st.dictionaries(
    st.sampled_from(["retention.ms", "retention.bytes", "cleanup.policy"]), st.sampled_from(["1", "2", "3"])
)
topics = st.dictionaries(
    st.sampled_from(["flights-a", "flights-b", "flights-c"]),
    st.tuples(st.integers(1, 4), settings),
)


def made_up(names: dict[str, tuple[int, dict[str, str]]], prefix: str = "") -> ObservedCluster:
    listed = [
        topic(prefix + name, partitions, own=own, usual={"delete.retention.ms": "1"})
        for name, (partitions, own) in names.items()
    ]
    return cluster(AGGREGATE if prefix else JFK, *listed)


@given(source=topics, destination=topics, done=st.sets(st.integers(0, 9)))
def test_any_part_of_a_plan_may_be_done_already_and_all_of_it_leaves_nothing(
    source: dict[str, tuple[int, dict[str, str]]],
    destination: dict[str, tuple[int, dict[str, str]]],
    done: set[int],
) -> None:
    asked, there = topology(route()), made_up(destination, "jfk.")
    made = plan(asked, world(made_up(source), there))
    steps = [step for step in made.steps if isinstance(step, CreateTopic | AddPartitions | ChangeSettings)]
    assert len(steps) == len(made.steps)
    partly = replace(there, topics=after(there.topics, (steps[at] for at in done if at < len(steps))))
    rest = plan(asked, world(made_up(source), partly))
    assert differences(saved(made), rest) == []
    assert list(map(step_document, rest.steps)) == [
        step_document(step) for at, step in enumerate(steps) if at not in done
    ]
    whole = replace(there, topics=after(there.topics, steps))
    assert plan(asked, world(made_up(source), whole)).steps == ()


@given(first=topics, middle=topics, last=topics, done=st.sets(st.integers(0, 19)))
def test_any_part_of_the_plan_of_a_chain_may_be_done_already(
    first: dict[str, tuple[int, dict[str, str]]],
    middle: dict[str, tuple[int, dict[str, str]]],
    last: dict[str, tuple[int, dict[str, str]]],
    done: set[int],
) -> None:
    onwards = route(AGGREGATE, LGA, topics=TopicSelection(include=(r"jfk\.flights.*",), name="{topic}"))
    asked = topology(onwards, route())
    end = replace(made_up(last, "jfk."), name=LGA, cluster_id="id of lga")
    seen = world(made_up(first), made_up(middle, "jfk."), end)
    made = plan(asked, seen)
    rest = plan(asked, changed(seen, [step for at, step in enumerate(made.steps) if at in done]))
    assert differences(saved(made), rest) == []
    assert plan(asked, changed(seen, made.steps)).steps == ()
    about = [(type(step), getattr(step, "cluster", ""), getattr(step, "name", "")) for step in made.steps]
    assert len(set(about)) == len(about)


def test_a_saved_plan_does_not_cover_another_world() -> None:
    asked, seen = topology(route()), world(cluster(JFK, topic("flights")), cluster(AGGREGATE))
    made = plan(asked, seen)
    grown = world(cluster(JFK, topic("flights", 2)), cluster(AGGREGATE))
    (difference,) = differences(saved(made), plan(asked, grown))
    head = "+ aggregate: topic jfk.flights, 2 partitions, 1 replica"
    told = f"{head}, + compression.type = producer, + message.timestamp.type = CreateTime"
    assert difference == f"this is to be done now, and was not then: {told}"
    other = world(cluster(JFK, topic("flights")), cluster(AGGREGATE, cluster_id="other"))
    assert differences(saved(made), plan(asked, other)) == [
        "cluster 'aggregate' was 'id of aggregate' and is 'other'"
    ]
    away = world(cluster(JFK, topic("flights")), UnreachableCluster(name=AGGREGATE, problem="away"))
    assert differences(saved(made), plan(asked, away)) == ["cluster 'aggregate' does not answer"]
    assert differences(saved(made), make_plan(asked, seen, "edited")) == [
        "the topology file is another than the one that the plan was made for"
    ]


def test_a_large_plan_of_which_a_part_is_done_is_gone_on_with() -> None:
    names = [f"flights-{number}" for number in range(150)]
    asked, source = topology(route()), cluster(JFK, *map(topic, names))
    made = plan(asked, world(source, cluster(AGGREGATE)))
    rest = plan(asked, world(source, cluster(AGGREGATE, *(topic(f"jfk.{name}") for name in names[:20]))))
    assert rest.dangers == ("it makes 130 topics, more than 100",)
    assert differences(saved(made), rest) == []
    assert len(differences(saved(rest), made)) == 20


def test_a_step_of_which_a_part_is_done_is_gone_on_with() -> None:
    def settings_now(**own: str) -> Plan:
        there = topic("jfk.flights", own={name.replace("_", "."): value for name, value in own.items()})
        source = topic("flights", own={"retention.ms": DAY, "retention.bytes": "7"})
        return plan(topology(route()), world(cluster(JFK, source), cluster(AGGREGATE, there)))

    made = settings_now(retention_ms=WEEK, retention_bytes="5")
    assert differences(saved(made), settings_now(retention_ms=DAY, retention_bytes="5")) == []
    assert differences(saved(made), settings_now(retention_ms=WEEK, retention_bytes="7")) == []
    assert len(differences(saved(made), settings_now(retention_ms=DAY, retention_bytes="6"))) == 1

    def rules_now(*there: AccessRule) -> Plan:
        source = replace(cluster(JFK, topic("flights")), rules=(rule("flights", EVERYTHING),))
        has = replace(cluster(AGGREGATE, topic("jfk.flights")), rules=there)
        return plan(topology(route(sync=SyncSpec(acls=True))), world(source, has))

    may_read = rule("jfk.flights", READ)
    assert differences(saved(rules_now()), rules_now(may_read)) == []
    assert len(differences(saved(rules_now(may_read)), rules_now())) == 1


def test_partitions_of_which_somebody_has_made_some_are_gone_on_with() -> None:
    def partitions_now(there: int, wanted: int = 5) -> Plan:
        seen = world(cluster(JFK, topic("flights", wanted)), cluster(AGGREGATE, topic("jfk.flights", there)))
        return plan(topology(route()), seen)

    made = partitions_now(2)
    assert differences(saved(made), partitions_now(4)) == []
    assert len(differences(saved(made), partitions_now(1))) == 1
    assert len(differences(saved(made), partitions_now(4, wanted=6))) == 1


def test_what_the_file_asks_of_a_topic_and_nobody_makes_is_told_also_of_copies() -> None:
    asked = {"orders": TopicSpec(replication=3), "jfk.flights": TopicSpec(partitions=2, replication=1)}
    there = cluster(AGGREGATE, topic("orders", 2, 1), topic("jfk.flights", 3, 1), nodes=3)
    made = plan(
        topology(route(), declared={AGGREGATE: asked}), world(cluster(JFK, topic("flights", 3)), there)
    )
    assert notices(made, NoticeKind.REPLICATION) == [
        "aggregate: orders: 1 replicas, the file asks for 3: reassign them by hand"
    ]
    assert notices(made, NoticeKind.PARTITIONS) == [
        "aggregate: jfk.flights: 3 partitions, the file asks for 2: they are never made fewer"
    ]
    assert made.steps == ()


def test_topics_that_the_plan_itself_makes_fit_are_not_told_not_to() -> None:
    """The last copy has more partitions than the middle one, until that grows."""
    onwards = route(AGGREGATE, LGA, topics=TopicSelection(include=(".*",), name="{topic}"))
    asked = topology(onwards, route(topics=SAME_NAMES))
    seen = world(
        cluster(JFK, topic("flights", 4)),
        cluster(AGGREGATE, topic("flights", 1)),
        cluster(LGA, topic("flights", 2)),
    )
    made = plan(asked, seen)
    assert [(step.cluster, step.partitions) for step in made.steps if isinstance(step, AddPartitions)] == [
        (AGGREGATE, 4),
        (LGA, 4),
    ]
    assert notices(made, NoticeKind.PARTITIONS) == []


def test_what_wants_force_is_told_with_its_topic() -> None:
    there = [topic(f"jfk.{name}", own={"retention.ms": WEEK}) for name in ("flights", "flights-b")]
    source = [topic(name, own={"retention.ms": DAY}) for name in ("flights", "flights-b")]
    assert plan(topology(route()), world(cluster(JFK, *source), cluster(AGGREGATE, *there))).dangers == tuple(
        f"aggregate: topic jfk.{name}: retention.ms {WEEK} -> {DAY}: records are deleted sooner"
        for name in ("flights", "flights-b")
    )


def test_what_a_chain_takes_back_again_is_not_done_on_the_way() -> None:
    """The last copy is to follow the middle one, which is to change itself: not what that was before."""
    onwards = route(AGGREGATE, LGA, topics=TopicSelection(include=(".*",), name="{topic}"))
    asked = topology(onwards, route(topics=SAME_NAMES))
    middle, last = topic("flights", 2, own={"retention.ms": HOUR}), {"retention.ms": DAY}
    seen = world(
        cluster(JFK, topic("flights", 6, own={"retention.ms": WEEK})),
        cluster(AGGREGATE, middle),
        cluster(LGA, topic("flights", 1, own=last)),
    )
    made = plan(asked, seen)
    assert made.dangers == ()
    assert [line for line in render_plan(made) if line.startswith(("~", "    "))] == [
        "~ lga: topic flights, 1 -> 6 partitions",
        "~ lga: topic flights, 1 setting",
        "    ~ retention.ms = 86400000 -> 604800000",
        "~ aggregate: topic flights, 2 -> 6 partitions",
        "~ aggregate: topic flights, 1 setting",
        "    ~ retention.ms = 3600000 -> 604800000",
    ]
    assert plan(asked, changed(seen, made.steps)).steps == ()


def test_a_copy_that_is_as_the_end_of_a_plan_wants_it_is_left_alone() -> None:
    onwards = route(AGGREGATE, LGA, topics=TopicSelection(include=(".*",), name="{topic}"))
    asked = topology(onwards, route(topics=SAME_NAMES))
    first, last = (topic("flights", own={"retention.ms": WEEK}) for _ in range(2))
    middle = topic("flights", own={"retention.ms": HOUR})
    made = plan(asked, world(cluster(JFK, first), cluster(AGGREGATE, middle), cluster(LGA, last)))
    assert [getattr(step, "cluster", None) for step in made.steps] == [AGGREGATE]


def test_what_a_plan_makes_is_planned_on_and_nothing_is_left_afterwards() -> None:
    onwards = route(AGGREGATE, LGA, topics=TopicSelection(include=(".*",)), sync=CARRIES)
    own = {"flights": TopicSpec(partitions=3, config={"retention.ms": DAY}), "planes": TopicSpec()}
    asked = topology(onwards, route(topics=TopicSelection(include=(".*",))), declared={JFK: own})
    seen = world(cluster(JFK), cluster(AGGREGATE), cluster(LGA))
    made = plan(asked, seen)
    created = [step for step in made.steps if isinstance(step, CreateTopic)]
    assert len(created) == len(made.steps)
    assert [(step.cluster, step.name, step.partitions) for step in created] == [
        (JFK, "flights", 3),
        (JFK, "planes", -1),
        (AGGREGATE, "jfk.flights", 3),
        (LGA, "aggregate.jfk.flights", 3),
    ]
    assert created[-1].config["retention.ms"] == DAY
    assert [(route.topics, route.partitions) for route in made.routes] == [(1, 3), (1, 3)]
    done = changed(seen, made.steps)
    left = [getattr(step, "name", "") for step in plan(asked, done).steps]
    assert left == ["jfk.planes", "aggregate.jfk.planes"], "the cluster has said how many partitions it has"
