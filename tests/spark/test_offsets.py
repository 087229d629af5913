"""Offset ranges of a load."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.spark.admission import count_new, limit_offsets
from mirrormaker.spark.bounds import OffsetBounds, read_ending, read_starting
from mirrormaker.spark.given_options import GivenOptions
from mirrormaker.spark.offsets import (
    DataLossError,
    Logs,
    OffsetRange,
    Offsets,
    check_partitions,
    offsets_from_json,
    offsets_to_json,
    plan_ranges,
    resolve_offsets,
    split_ranges,
)

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)


def plan(
    earliest: Offsets, latest: Offsets, options: dict[str, str], *, fail_on_data_loss: bool = True
) -> list[OffsetRange]:
    given_options = GivenOptions(options)
    starting, ending = read_starting(given_options, streaming=False), read_ending(given_options)
    given_options.raise_problems()
    assert isinstance(starting, OffsetBounds)
    assert isinstance(ending, OffsetBounds)
    logs = Logs(earliest=earliest, latest=latest)
    check_partitions("startingOffsets", starting, logs)
    starts, ends = resolve_offsets(starting, logs), resolve_offsets(ending, logs)
    return plan_ranges(starts, ends, logs, fail_on_data_loss=fail_on_data_loss)


def test_each_partition_with_something_to_read_is_one_range() -> None:
    assert plan({P0: 5, P1: 7}, {P0: 9, P1: 7}, {}) == [OffsetRange(partition=P0, start=5, end=9)]


def test_offsets_outside_the_log_are_data_loss() -> None:
    with pytest.raises(DataLossError, match="a-0: starting offset 2 is outside the log's 5 to 9"):
        plan({P0: 5}, {P0: 9}, {"startingOffsets": '{"a": {"0": 2}}'})


def test_offsets_outside_the_log_are_clamped_when_loss_is_accepted() -> None:
    options = {"startingOffsets": '{"a": {"0": 2}}', "endingOffsets": '{"a": {"0": 100}}'}
    ranges = plan({P0: 5}, {P0: 9}, options, fail_on_data_loss=False)
    assert ranges == [OffsetRange(partition=P0, start=5, end=9)]


def test_offsets_of_partitions_that_are_not_read_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan({P0: 0, P1: 0}, {P0: 9, P1: 9}, {"startingOffsets": '{"a": {"1": 0, "7": 2}, "b": {"0": 2}}'})
    assert caught.value.problems == [
        "option startingOffsets: a-7 is not among the partitions to read",
        "option startingOffsets: b-0 is not among the partitions to read",
    ]


def test_a_start_after_the_end_is_refused() -> None:
    options = {"startingOffsets": '{"a": {"0": 7}}', "endingOffsets": '{"a": {"0": 6}}'}
    with pytest.raises(ConfigurationError, match="a-0: starting offset 7 lies after ending offset 6"):
        plan({P0: 5}, {P0: 9}, options)


def test_offsets_come_back_from_their_form_in_checkpoints() -> None:
    offsets = {P0: 5, P1: 0, TopicPartition("b.c", 12): 1 << 40}
    by_topic = offsets_to_json(offsets)
    assert by_topic == {"a": {"0": 5, "1": 0}, "b.c": {"12": 1 << 40}}
    assert offsets_from_json(json.loads(json.dumps(by_topic))) == offsets
    with pytest.raises(ValueError, match="no offsets of topics"):
        offsets_from_json({"a": 5})


@given(
    sizes=st.dictionaries(st.integers(0, 8), st.integers(0, 10_000), min_size=1),
    count_max=st.integers(1, 30_000),
)
def test_a_limited_trigger_goes_on_everywhere_and_reaches_the_end(
    sizes: dict[int, int], count_max: int
) -> None:
    latest = {TopicPartition("a", number): 100 + size for number, size in sizes.items()}
    start = dict.fromkeys(latest, 100)
    end = limit_offsets(start, latest, count_max)
    assert all(start[each] <= end[each] <= latest[each] for each in latest)
    assert all(end[each] > start[each] for each in latest if latest[each] > start[each])
    assert count_new(start, end) <= count_max + len(sizes)
    if count_new(start, latest) <= count_max:
        assert end == latest


@given(
    sizes=st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    count_min=st.one_of(st.none(), st.integers(1, 50)),
    size_max=st.one_of(st.none(), st.integers(1000, 5000)),
)
def test_splitting_keeps_every_offset_exactly_once(
    sizes: list[int], count_min: int | None, size_max: int | None
) -> None:
    ranges = [
        OffsetRange(partition=TopicPartition("a", number), start=number, end=number + size)
        for number, size in enumerate(sizes)
    ]
    pieces = split_ranges(ranges, count_min=count_min, size_max=size_max)
    assert len(pieces) >= min(count_min or 1, sum(sizes))
    assert all(0 < piece.count <= (size_max or max(sizes)) for piece in pieces)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert mine[0].start == whole.start
        assert mine[-1].end == whole.end
        assert [piece.end for piece in mine[:-1]] == [piece.start for piece in mine[1:]]
