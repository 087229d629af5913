"""Offset ranges of a load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.spark.offsets import DataLossError, OffsetRange, plan_ranges, split_ranges
from mirrormaker.spark.options import parse_options

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}


def test_each_partition_with_something_to_read_is_one_range() -> None:
    ranges = plan_ranges(parse_options(OPTIONS), {P0: 5, P1: 7}, {P0: 9, P1: 7})
    assert ranges == [OffsetRange(partition=P0, start=5, end=9)]


def test_offsets_outside_the_log_are_data_loss() -> None:
    options = parse_options({**OPTIONS, "startingOffsets": '{"a": {"0": 2}}'})
    with pytest.raises(DataLossError, match="a-0: starting offset 2 is outside the log's 5 to 9"):
        plan_ranges(options, {P0: 5}, {P0: 9})


def test_offsets_outside_the_log_are_clamped_when_loss_is_accepted() -> None:
    given_offsets = {"startingOffsets": '{"a": {"0": 2}}', "endingOffsets": '{"a": {"0": 100}}'}
    options = parse_options({**OPTIONS, **given_offsets, "failOnDataLoss": "false"})
    assert plan_ranges(options, {P0: 5}, {P0: 9}) == [OffsetRange(partition=P0, start=5, end=9)]


def test_offsets_of_partitions_that_are_not_read_are_refused() -> None:
    given_offsets = {"startingOffsets": '{"a": {"1": 0}, "b": {"0": 2}}', "endingOffsets": '{"a": {"7": 2}}'}
    with pytest.raises(ConfigurationError) as caught:
        plan_ranges(parse_options({**OPTIONS, **given_offsets}), {P0: 0, P1: 0}, {P0: 9, P1: 9})
    assert caught.value.problems == [
        "option startingOffsets: b-0 is not among the partitions to read",
        "option endingOffsets: a-7 is not among the partitions to read",
    ]


def test_a_start_after_the_end_is_refused() -> None:
    given_offsets = {"startingOffsets": '{"a": {"0": 7}}', "endingOffsets": '{"a": {"0": 6}}'}
    with pytest.raises(ConfigurationError, match="a-0: starting offset 7 lies after ending offset 6"):
        plan_ranges(parse_options({**OPTIONS, **given_offsets}), {P0: 5}, {P0: 9})


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    count_min=st.one_of(st.none(), st.integers(1, 50)),
)
def test_splitting_keeps_every_offset_exactly_once(sizes: list[int], count_min: int | None) -> None:
    ranges = [
        OffsetRange(partition=TopicPartition("a", number), start=number, end=number + size)
        for number, size in enumerate(sizes)
    ]
    pieces = split_ranges(ranges, count_min)
    assert len(pieces) >= min(count_min or 1, sum(sizes))
    assert all(piece.count > 0 for piece in pieces)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert mine[0].start == whole.start
        assert mine[-1].end == whole.end
        assert [piece.end for piece in mine[:-1]] == [piece.start for piece in mine[1:]]
