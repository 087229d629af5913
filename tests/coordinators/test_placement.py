"""Where keys live: as Kafka would have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.placement import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("été", 233 * 962 + 116 * 31),
        ("𐍈", 0xD800 * 31 + 0xDF48),
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [("test", 48), ("my-group", 12), ("console-consumer-12345", None), ("polygenelubricants", 0)],
)
def test_a_group_lives_where_kafka_would_put_it(group_id: str, partition: int | None) -> None:
    value = 0
    for character in group_id:
        value = (value * 31 + ord(character)) % (1 << 32)
    signed = value - (1 << 32) if value >= 1 << 31 else value
    assert partition_of(group_id, 50) == (abs(signed) % 50 if signed != -(1 << 31) else 0)
    if partition is not None:
        assert partition_of(group_id, 50) == partition


@given(st.text(max_size=30), st.integers(1, 1_000))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_of(group_id, count) < count
