"""To which partition a record goes that has no key, or whose route spreads all in turn."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.ways import Ways, in_turn


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
