"""Stored places: read back as they were written, and exact also when topics have grown since."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.records.record import Record
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.flow.positions import Arrival, Place, SourceId, place_in, transactional_id, value_of
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.transit import had_then
from mirrormaker.flow.ways import choose_lane
from mirrormaker.topology.model import ClusterId, PartitionPolicy

PARKED = TopicPartition("copy.dead-letters", 3)
OFFSETS = range(40)


def lanes_to(count: int) -> tuple[TopicPartition, ...]:
    return (*(TopicPartition("copy", number) for number in range(count)), PARKED)


def stored(
    place: Place, destinations: tuple[TopicPartition, ...], spread: PartitionPolicy = PartitionPolicy.SAME
) -> Place:
    """As whoever takes over, and spreads records so, reads it."""
    return place_in(json.loads(encode_document(value_of("r", place))), destinations, spread)


def record(offset: int) -> Record:
    return Record(offset, 0, 0, b"%d" % (offset % 7), b"", ())


def is_sent(place: Place, offset: int) -> bool:
    """Whether whoever goes on there sends this record."""
    lanes = place.lanes[:-1]
    if any(had_then(former, record(offset)) for former in place.former):
        return False
    return offset >= lanes[lane_of(place, offset)]


def lane_of(place: Place, offset: int) -> int:
    return choose_lane(place.spread, range(len(place.lanes) - 1), record(offset))


@given(data=st.data())
def test_every_record_is_sent_once_however_topics_grow_and_policies_change_while_lanes_are_not_equally_far(
    data: st.DataObject,
) -> None:
    shapes = st.one_of(
        st.just((PartitionPolicy.SAME, 1)),
        st.tuples(st.sampled_from((PartitionPolicy.KEY, PartitionPolicy.ROUND_ROBIN)), st.integers(1, 5)),
    )
    spread, count = data.draw(shapes)
    place = Place((0,) * (count + 1), destinations=lanes_to(count), spread=spread)
    there: set[int] = set()
    for following, to in data.draw(st.lists(shapes, min_size=1, max_size=5)):
        positions = [
            data.draw(st.integers(position, max(position, OFFSETS.stop))) for position in place.lanes[:-1]
        ]
        for offset in OFFSETS:
            if is_sent(place, offset) and offset < positions[lane_of(place, offset)]:
                assert offset not in there
                there.add(offset)
        reached = place._replace(lanes=(*positions, min(positions)))
        place = stored(reached, lanes_to(to), following)
        assert min(place.lanes) == min(reached.lanes)
        assert {offset for offset in OFFSETS if not is_sent(place, offset)} == there


def test_a_place_is_read_as_it_was_written() -> None:
    arrived = (Arrival(0, 7, 2, 5, 99, None),)
    place = Place((9, 4), 3, arrived, lanes_to(1))
    assert stored(place, lanes_to(1)) == place
    assert stored(Place((4, 4), destinations=lanes_to(1)), lanes_to(2)).lanes == (4, 4, 4)


def test_lanes_of_which_it_is_not_said_where_they_led_are_no_start_when_there_are_others_now() -> None:
    value = {"position": 4, "lanes": [4, 9]}
    assert place_in(value, lanes_to(1), PartitionPolicy.SAME).lanes == (4, 9)
    with pytest.raises(ValueError, match="went to 2 partitions"):
        place_in(value, lanes_to(2), PartitionPolicy.SAME)


@pytest.mark.parametrize(
    "value", [{}, {"position": -1}, {"position": 3, "lanes": [None]}, {"position": 3, "arrived": [[1]]}]
)
def test_what_is_no_place_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        place_in(value, lanes_to(1), PartitionPolicy.SAME)


def test_stretches_that_lie_side_by_side_become_one() -> None:
    first = Arrival(0, 7, 2, 5, 99, None)
    assert first.followed_by(Arrival(0, 9, 1, 7, 1, 4)) == Arrival(0, 7, 3, 5, 100, None)
    assert first.followed_by(Arrival(0, 9, 1, 8, 1, 4)) is None
    assert first.followed_by(Arrival(1, 9, 1, 7, 1, 4)) is None


def test_stretches_of_which_nobody_said_where_they_are_become_one_whatever_lies_between() -> None:
    unknown = Arrival(0, 7, 2, None, None, None)
    assert unknown.followed_by(Arrival(0, 20, 5, None, 3, 4)) == Arrival(0, 7, 18, None, None, None)
    assert unknown.followed_by(Arrival(1, 20, 5, None, None, None)) is None
    assert unknown.followed_by(Arrival(0, 9, 5, 3, None, None)) is None
    assert Arrival(0, 7, 2, 5, 99, None).followed_by(Arrival(0, 9, 1, None, None, None)) is None
    assert stored(Place((9, 4), 3, (unknown,), lanes_to(1)), lanes_to(1)).arrived == (unknown,)


def test_paths_have_keys_and_ids_of_their_own() -> None:
    source = SourceId(
        cluster_id="a", topic_id=NO_TOPIC_ID, partition=TopicPartition("orders", 3), to="orders"
    )
    path = (ClusterId("c"), ClusterId("d"))
    assert source.on(path).key() == {**source.key(), "path": ["c", "d"]}
    key = ProducerKey(3, 0, None)
    assert transactional_id("r", key) == "mirror/r/3"
    assert transactional_id("r", key, path) == "mirror/r/3/from:c/d"
    merged = key._replace(source=source.partition)
    assert transactional_id("r", merged, path) == "mirror/r/3/orders-3/from:c/d"
