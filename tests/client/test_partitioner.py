from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.partitioner import (
    ConsistentPartitioner,
    Crc32Partitioner,
    Murmur2Partitioner,
    Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    murmur2,
)

JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA_VECTORS.items())
def test_murmur2_is_that_of_javas_clients(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(key=st.binary(max_size=40), count=st.integers(1, 1000))
def test_keys_choose_partitions_as_other_clients_do(key: bytes, count: int) -> None:
    from kafka.partitioner.default import murmur2 as reference

    available = list(range(count))
    chosen = Murmur2Partitioner().partition("t", key, count, available)
    assert chosen == (reference(key) & 0x7FFFFFFF) % count
    if key:
        assert Crc32Partitioner().partition("t", key, count, available) == crc32(key) % count
    assert ConsistentPartitioner().partition("t", key, count, available) == crc32(key) % count
    assert ConsistentPartitioner().partition("t", None, count, available) == 0


@pytest.mark.parametrize(
    "partitioner",
    [
        Murmur2Partitioner(),
        Crc32Partitioner(),
        StickyPartitioner(),
        RandomPartitioner(),
        RoundRobinPartitioner(),
    ],
    ids=lambda partitioner: type(partitioner).__name__,
)
def test_records_without_a_key_avoid_partitions_without_a_leader(partitioner: Partitioner) -> None:
    for turn in range(50):
        chosen = partitioner.partition("t", None, 6, [1, 4])
        assert chosen in (1, 4)
        if turn % 7 == 0:
            partitioner.batch_closed("t", chosen)


def test_sticky_stays_until_the_batch_is_closed() -> None:
    turns = iter([0.0, 0.9, 0.5])
    partitioner = StickyPartitioner(lambda: next(turns))
    assert [partitioner.partition("t", None, 4, [0, 1, 2, 3]) for _ in range(3)] == [0, 0, 0]
    partitioner.batch_closed("t", 2)
    assert partitioner.partition("t", None, 4, [0, 1, 2, 3]) == 0
    partitioner.batch_closed("t", 0)
    assert partitioner.partition("t", None, 4, [0, 1, 2, 3]) == 3


def test_sticky_leaves_a_partition_that_lost_its_leader() -> None:
    partitioner = StickyPartitioner(lambda: 0.0)
    assert partitioner.partition("t", None, 2, [0, 1]) == 0
    assert partitioner.partition("t", None, 2, [1]) == 1


def test_round_robin_takes_the_partitions_of_each_topic_in_turn() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("a", b"key", 3, [0, 1, 2]) for _ in range(4)] == [0, 1, 2, 0]
    assert partitioner.partition("b", b"key", 3, [0, 1, 2]) == 0
