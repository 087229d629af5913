"""What filters of a query leave to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from broker.types import TopicPartition
from mirrormaker.spark.batch_reader import PushingReader, RangePartition
from mirrormaker.spark.filters import push_filters
from mirrormaker.spark.offsets import TimeRange
from mirrormaker.spark.options import parse_options
from tests.spark.topics import NOW_MS, fill

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
            [In(TIME, (MOMENT + timedelta(seconds=1), None, MOMENT))],
            TimeRange(start=1_000_000, end=1_001_001),
        ),
        ([In(TIME, (None,))], TimeRange()),
        ([Not(EqualTo(TIME, MOMENT))], TimeRange()),
        ([IsNull(TIME)], TimeRange()),
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


PARTITION, OFFSET = ("partition",), ("offset",)
WHOLE = {0: (0, 10), 1: (0, 10), 2: (0, 10)}
Ranges = dict[int, tuple[int, int]]


def at(milliseconds: int) -> datetime:
    """So long after the first record."""
    return datetime.fromtimestamp((NOW_MS + milliseconds) / 1000, UTC)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    """Three partitions of ten records each, of one millisecond after the other."""
    return fill(bootstrap, partitions=3, count=30)


def planned(bootstrap: str, topic: str, given: list[Filter]) -> Ranges:
    """The first and the last offset to read, by partition."""
    servers = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = PushingReader(parse_options(servers))
    reader.pushFilters(given)
    ranges = [each.offset_range for each in reader.partitions() if isinstance(each, RangePartition)]
    return {each.partition.partition: (each.start, each.end) for each in ranges}


@pytest.mark.parametrize(
    ("given", "ranges"),
    [
        ([], WHOLE),
        ([EqualTo(PARTITION, 1)], {1: (0, 10)}),
        ([EqualTo(PARTITION, 7)], {}),
        ([EqualNullSafe(PARTITION, None)], {}),
        ([GreaterThan(PARTITION, 1)], {2: (0, 10)}),
        ([GreaterThanOrEqual(PARTITION, 1), LessThan(PARTITION, 2)], {1: (0, 10)}),
        ([LessThanOrEqual(PARTITION, 0)], {0: (0, 10)}),
        ([In(PARTITION, (0, 2, None))], {0: (0, 10), 2: (0, 10)}),
        ([Not(EqualTo(PARTITION, 0))], {1: (0, 10), 2: (0, 10)}),
        ([Not(In(PARTITION, (0, 1)))], {2: (0, 10)}),
        ([Not(In(PARTITION, (0, None)))], WHOLE),
        ([IsNull(PARTITION)], {}),
        ([Not(StringStartsWith(("topic",), "topic"))], {}),
        ([Not(EqualTo(("topic",), "another"))], WHOLE),
        ([EqualTo(OFFSET, 4)], dict.fromkeys(range(3), (4, 5))),
        ([EqualTo(OFFSET, 10)], {}),
        ([EqualNullSafe(OFFSET, None)], {}),
        ([GreaterThan(OFFSET, 4), LessThanOrEqual(OFFSET, 6)], dict.fromkeys(range(3), (5, 7))),
        ([GreaterThanOrEqual(OFFSET, 4), LessThan(OFFSET, 6)], dict.fromkeys(range(3), (4, 6))),
        ([In(OFFSET, (7, None, 3))], dict.fromkeys(range(3), (3, 8))),
        ([In(OFFSET, (None,))], {}),
        ([Not(EqualTo(OFFSET, 4))], WHOLE),
        ([EqualTo(PARTITION, 2), LessThan(OFFSET, 3)], {2: (0, 3)}),
        ([GreaterThanOrEqual(TIME, at(28))], {1: (9, 10), 2: (9, 10)}),
        ([GreaterThan(TIME, at(30))], {}),
        ([LessThan(TIME, at(3))], WHOLE),
        ([EqualTo(TIME, at(12))], {0: (4, 10), 1: (4, 10), 2: (4, 10)}),
        ([In(TIME, (at(15), at(27)))], {0: (5, 10), 1: (5, 10), 2: (5, 10)}),
        ([GreaterThanOrEqual(TIME, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC))], WHOLE),
        ([GreaterThanOrEqual(TIME, datetime(1950, 1, 1, tzinfo=UTC))], WHOLE),
    ],
    ids=str,
)
def test_filters_decide_on_the_ranges_that_are_read(
    bootstrap: str, topic: str, given: list[Filter], ranges: Ranges
) -> None:
    assert planned(bootstrap, topic, given) == ranges
