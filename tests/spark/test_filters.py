"""What filters of a query leave to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from broker.types import TopicPartition
from mirrormaker.spark.filters import push_filters
from mirrormaker.spark.offsets import TimeRange

TIME = ("timestamp",)
MOMENT = datetime.fromtimestamp(1_000, UTC)
BETWEEN = MOMENT + timedelta(microseconds=500)
"""Half a millisecond later than a record can be."""


@pytest.mark.parametrize(
    ("given", "times"),
    [
        ([LessThan(TIME, MOMENT)], TimeRange(end=1_000_001)),
        ([LessThanOrEqual(TIME, BETWEEN)], TimeRange(end=1_000_001)),
        ([GreaterThan(TIME, BETWEEN)], TimeRange(start=1_000_000)),
        ([GreaterThanOrEqual(TIME, MOMENT)], TimeRange(start=1_000_000)),
        ([EqualTo(TIME, MOMENT)], TimeRange(start=1_000_000, end=1_000_001)),
        (
            [
                GreaterThan(TIME, MOMENT),
                GreaterThan(TIME, MOMENT - timedelta(days=1)),
                LessThan(TIME, MOMENT + timedelta(seconds=1)),
                LessThan(TIME, MOMENT + timedelta(days=1)),
            ],
            TimeRange(start=1_000_000, end=1_001_001),
        ),
    ],
)
def test_bounds_on_times_leave_out_no_record_that_is_wanted(given: list[Filter], times: TimeRange) -> None:
    narrowing, left = push_filters(given)
    assert narrowing.times == times
    assert left == given


def test_topic_partition_and_offset_are_decided_for_good() -> None:
    given: list[Filter] = [
        IsNotNull(("topic",)),
        StringStartsWith(("topic",), "jfk."),
        In(("partition",), (1, 2)),
        GreaterThanOrEqual(("offset",), 10),
        LessThan(("offset",), 20),
        EqualTo(("key",), b"a"),
    ]
    narrowing, left = push_filters(given)
    assert left == given[-1:]
    assert (narrowing.offset_min, narrowing.offset_end) == (10, 20)
    wanted = [TopicPartition("jfk.a", 1), TopicPartition("jfk.b", 2)]
    others = [TopicPartition("lga.a", 1), TopicPartition("jfk.a", 0)]
    assert [each for each in (*wanted, *others) if narrowing.wants(each)] == wanted
