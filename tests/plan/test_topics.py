"""What a destination lacks for a route's topics."""

from __future__ import annotations

from broker.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from broker.errors import ErrorCode
from broker.types import HostPort
from mirrormaker.plan.topics import AddPartitions, CreateTopic, plan_topics
from mirrormaker.topology.model import RouteName, TopicSelection
from mirrormaker.topology.naming import compile_naming

NAMING = compile_naming("jfk", TopicSelection(include=("flights.*",)))


def topic(
    name: str,
    partitions: int,
    replicas: int = 1,
    *,
    internal: bool = False,
    error: ErrorCode = ErrorCode.NONE,
) -> TopicMetadata:
    return TopicMetadata(
        name=name,
        internal=internal,
        partitions={
            number: PartitionMetadata(leader=1, replicas=tuple(range(replicas)))
            for number in range(partitions)
        },
        error=error,
    )


def cluster(*topics: TopicMetadata, brokers: int = 1) -> ClusterMetadata:
    return ClusterMetadata(
        nodes={number: Node(id=number, address=HostPort("h", number + 1)) for number in range(brokers)},
        topics={told.name: told for told in topics},
    )


def test_a_missing_topic_is_created_with_the_partitions_of_its_source() -> None:
    source = cluster(topic("flights", 6, 3), topic("planes", 2), topic("__flights", 9))
    plan = plan_topics(NAMING, source, cluster(brokers=2), {})
    assert plan.steps == [CreateTopic(name="jfk.flights", partitions=6, replication_factor=2)]
    assert plan.destinations == {"flights": "jfk.flights"}


def test_a_topic_grows_with_its_source_and_never_shrinks() -> None:
    source = cluster(topic("flights-a", 6), topic("flights-b", 2))
    destination = cluster(topic("jfk.flights-a", 4), topic("jfk.flights-b", 4))
    plan = plan_topics(NAMING, source, destination, {})
    assert plan.steps == [AddPartitions(name="jfk.flights-a", partitions=6)]
    assert plan.destinations.keys() == {"flights-a", "flights-b"}


def test_nothing_is_done_when_nothing_differs() -> None:
    plan = plan_topics(NAMING, cluster(topic("flights", 3)), cluster(topic("jfk.flights", 3)), {})
    assert plan.steps == []
    assert plan.obstacles == {}


def test_internal_topics_are_left_alone() -> None:
    plan = plan_topics(NAMING, cluster(topic("flights", 3, internal=True)), cluster(), {})
    assert plan.destinations == {}


def test_a_topic_that_another_route_writes_is_an_obstacle_for_that_topic_only() -> None:
    source = cluster(topic("flights", 1), topic("flights-b", 1))
    plan = plan_topics(NAMING, source, cluster(), {"jfk.flights": RouteName("other")})
    assert plan.obstacles == {"flights": "the route 'other' writes 'jfk.flights' already"}
    assert plan.destinations == {"flights-b": "jfk.flights-b"}


def test_a_name_that_gets_too_long_is_an_obstacle() -> None:
    name = "flights" + "x" * 240
    plan = plan_topics(NAMING, cluster(topic(name, 1)), cluster(), {})
    assert "is not a legal topic name" in plan.obstacles[name]


def test_a_topic_that_may_not_be_seen_is_an_obstacle_and_one_without_leaders_is_not() -> None:
    source = cluster(topic("flights", 1), topic("flights-b", 1))
    destination = cluster(
        topic("jfk.flights", 0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        topic("jfk.flights-b", 0, error=ErrorCode.LEADER_NOT_AVAILABLE),
    )
    plan = plan_topics(NAMING, source, destination, {})
    assert plan.obstacles == {"flights": "'jfk.flights': not allowed on this topic"}
    assert plan.destinations == {"flights-b": "jfk.flights-b"}
    assert plan.steps == []
