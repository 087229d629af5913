from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.placement import PlacementBroker, place_replicas
from broker.types import BrokerId


def brokers(*racks: str | None) -> list[PlacementBroker]:
    return [PlacementBroker(broker_id=BrokerId(number), rack=rack) for number, rack in enumerate(racks)]


def test_three_partitions_on_three_brokers_as_in_the_table() -> None:
    placed = place_replicas(brokers(None, None, None), 3, 3, start=1)
    assert placed == {0: (1, 2, 0), 1: (2, 0, 1), 2: (0, 1, 2)}


def test_the_jth_replica_of_partition_i_is_on_broker_i_plus_j() -> None:
    placed = place_replicas(brokers(*[None] * 4), 4, 3)
    assert placed == {i: tuple((i + j) % 4 for j in range(3)) for i in range(4)}


def test_the_shift_grows_after_every_round_of_brokers() -> None:
    placed = place_replicas(brokers(*[None] * 5), 10, 3)
    assert placed[0] == (0, 1, 2)
    assert placed[5] == (0, 2, 3)


def test_added_partitions_continue_the_pattern() -> None:
    whole = place_replicas(brokers(*[None] * 4), 4, 2)
    added = place_replicas(brokers(*[None] * 4), 2, 2, first_partition=2)
    assert added == {2: whole[2], 3: whole[3]}


def test_neighbours_stand_in_different_racks() -> None:
    placed = place_replicas(brokers("a", "a", "b", "b", "c", "c"), 6, 3)
    racks = dict(enumerate("aabbcc"))
    assert all(len({racks[replica] for replica in replicas}) == 3 for replicas in placed.values())
    assert Counter(replicas[0] for replicas in placed.values()) == dict.fromkeys(range(6), 1)


def test_racks_do_not_count_when_one_is_unknown() -> None:
    assert place_replicas(brokers("a", "a", None), 3, 2) == place_replicas(brokers(None, None, None), 3, 2)


@pytest.mark.parametrize("replication_factor", [0, -1, 4])
def test_more_replicas_than_brokers_do_not_fit(replication_factor: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        place_replicas(brokers(None, None, None), 1, replication_factor)


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    aware=st.booleans(),
    partitions=st.integers(0, 30),
    start=st.integers(0, 10),
    shift=st.integers(0, 10),
    data=st.data(),
)
@settings(max_examples=100)
def test_replicas_are_distinct_and_spread_over_brokers_and_racks(
    racks: list[str], aware: bool, partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(racks)))
    candidates = brokers(*(rack if aware else None for rack in racks))
    placed = place_replicas(candidates, partitions, replication_factor, start=start, shift=shift)
    assert list(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == replication_factor
        if aware:
            spread = len({racks[replica] for replica in replicas})
            assert spread == min(replication_factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed.values())
    counts = [leaders.get(broker.broker_id, 0) for broker in candidates]
    assert max(counts) - min(counts) <= 1
