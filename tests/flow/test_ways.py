"""To which partition a record goes that has no key, or whose route spreads all in turn."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.batch_limits import BatchLimits
from mirrormaker.flow.chunk import Frame
from mirrormaker.flow.exchange import FetchedPartition
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.transit import RouteTransit
from mirrormaker.flow.ways import Ways, in_turn
from mirrormaker.topology.model import (
    ClusterName,
    CopyMode,
    DropParts,
    FailurePolicies,
    PartitionPolicy,
    RecordErrorPolicy,
    RouteName,
    RouteSpec,
    TopicSelection,
    TransformSpec,
)
from tests.flow.test_intake import ONE_BY_ONE, SIZE_MAX, build, records_of


@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_each_lane_is_taken_once_in_every_round(count: int) -> None:
    for first in range(0, 100 * count, count):
        assert sorted(in_turn(offset, count) for offset in range(first, first + count)) == list(range(count))


@pytest.mark.parametrize("count", [2, 3, 4, 12])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_no_lane_is_left_out_where_a_marker_or_a_filter_takes_the_offsets_between(
    count: int, stride: int
) -> None:
    taken = Counter(in_turn(offset, count) for offset in range(0, stride * count**3, stride))
    assert taken == dict.fromkeys(range(count), count**2)


def test_former_lanes_of_a_topic_are_behind_its_own_and_all_others_keep_theirs() -> None:
    ways = Ways(main="all", elsewhere=("some",), parked="dead", notes=True)
    lane_map = ways.lanes(1, lambda _: 3)
    assert not lane_map.is_spread()
    assert lane_map.widened(()) is lane_map
    wide = lane_map.widened([TopicPartition("all", 0), TopicPartition("all", 2)])
    assert wide.is_spread()
    assert wide.destinations[:3] == tuple(TopicPartition("all", number) for number in (1, 0, 2))
    assert wide.targets == {"all": range(3), "some": range(3, 4)}
    assert wide.destinations[3] == TopicPartition("some", 1)
    assert (wide.parked_lane, wide.skipped_lane) == (4, 5)
    assert wide.destinations[4:] == (TopicPartition("dead", 1), TopicPartition(SKIPPED_TOPIC, 0))


@pytest.mark.parametrize("policy", PartitionPolicy)
@pytest.mark.parametrize("partition", [0, 1, 5])
def test_dead_letters_take_the_lane_of_what_steps_send_to_their_topic(
    policy: PartitionPolicy, partition: int
) -> None:
    ways = Ways(main="all", elsewhere=("dead", "some"), parked="dead", notes=True, policy=policy)
    lane_map = ways.lanes(partition, lambda _: 3)
    assert lane_map.is_merged
    for each in (lane_map, lane_map.widened([TopicPartition("all", 7), TopicPartition("dead", 7)])):
        assert len(set(each.destinations)) == len(each.destinations)
        assert each.parked_lane is not None
        assert each.destinations[each.parked_lane] == TopicPartition("dead", partition)
        assert each.parked_lane in each.targets["dead"]
        assert each.skipped_lane == len(each.destinations) - 1


@pytest.mark.parametrize("policy", PartitionPolicy)
def test_dead_letters_of_dead_letters_take_a_lane_to_their_own_copy(policy: PartitionPolicy) -> None:
    ways = Ways(main="dead", parked="dead", policy=policy)
    assert ways.topics == ("dead",)
    for partition in range(3):
        each = ways.lanes(partition, lambda _: 1)
        assert each.parked_lane is not None
        assert each.destinations[each.parked_lane] == TopicPartition("dead", partition)
        assert len(set(each.destinations)) == len(each.destinations)


@pytest.mark.parametrize(
    ("include", "name", "is_merged"),
    [("orders.*", "{topic}", True), ("orders", "{topic}", False), ("orders.*", "{topic}.copy", False)],
)
def test_who_parks_where_copies_of_another_topic_may_be_has_producer_ids_of_its_own(
    include: str, name: str, is_merged: bool
) -> None:
    route = RouteSpec(
        name="r",
        source="jfk",
        destination="aggregate",
        topics=TopicSelection(include=(include,), name=name),
        transforms=(TransformSpec(step=DropParts(fields=("secret",))),),
        on=FailurePolicies(record_error=RecordErrorPolicy.PARK),
    )
    transit = RouteTransit(route, BatchLimits())
    assert transit.ways("orders").lanes(0, lambda _: 1).is_merged == is_merged


@pytest.mark.parametrize("copy", [CopyMode.AUTO, CopyMode.SHALLOW])
def test_batches_pass_again_once_nothing_of_them_went_by_another_policy(copy: CopyMode) -> None:
    """Also where nothing is to be decoded: that would stand for good otherwise."""
    source, to = TopicPartition("orders", 0), TopicPartition("jfk.orders", 0)
    topics = TopicSelection(include=("orders",))
    route = RouteSpec(
        name=RouteName("r"), source=ClusterName("jfk"), destination=ClusterName("a"), topics=topics, copy=copy
    )
    partition = Partition(source, (to,), 0, 0, SIZE_MAX)
    partition.former = (FormerLanes(to.topic, (0, 2, 0), PartitionPolicy.ROUND_ROBIN),)
    transit = RouteTransit(route, BatchLimits())
    crossed = []
    for batch in (build(0), build(3)):
        answer = FetchedPartition(source=source, offset=partition.position, records=batch, source_end=6)
        intake = transit.take(partition, answer, ONE_BY_ONE, Frame(len(batch)))
        crossed.append([each.key for chunk in intake.chunks for each in records_of(chunk)])
        partition.position = intake.position
    assert crossed == [[b"key-0", b"key-2"], [b"key-3", b"key-4", b"key-5"]]
    assert not intake.deep
