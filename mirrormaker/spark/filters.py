"""Filters of a query that Spark hands to the source, turned into fewer partitions and shorter offset ranges.

Topic, partition and offset are decided here for good. Bounds on the timestamp leave records out where they
are decoded, and the lower one becomes an offset by the time index of the nodes; Spark looks at each record
once more. An upper bound becomes no offset: records need not come in the order of their timestamps, and what
the index knows is the first record that is younger, not the last that is older. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

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
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from broker.types import TopicPartition
from mirrormaker.spark.offsets import ANY_TIME, TimeRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What is left to read."""

    topic_tests: tuple[Test, ...] = ()
    partition_tests: tuple[Test, ...] = ()
    offset_min: int = 0
    offset_end: int | None = None
    """Exclusive."""
    times: TimeRange = ANY_TIME

    def wants(self, partition: TopicPartition) -> bool:
        """Whether any record of the partition can be wanted."""
        return all(test(partition.topic) for test in self.topic_tests) and all(
            test(partition.partition) for test in self.partition_tests
        )


def push_filters(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What all of the filters leave to read, and those that Spark must still look at."""
    narrowing, left = Narrowing(), []
    for each in filters:
        narrowing, is_done = _narrow(narrowing, each)
        if not is_done:
            left.append(each)
    return narrowing, left


def _narrow(narrowing: Narrowing, given: Filter) -> tuple[Narrowing, bool]:
    """What one more filter leaves, and whether it is dealt with."""
    asserted = given.child if isinstance(given, Not) else given
    match getattr(asserted, "attribute", None):
        case ("topic",) if (test := _test_of(given)) is not None:
            return replace(narrowing, topic_tests=(*narrowing.topic_tests, test)), True
        case ("partition",) if (test := _test_of(given)) is not None:
            return replace(narrowing, partition_tests=(*narrowing.partition_tests, test)), True
        case ("offset",) if asserted is given:
            return _narrow_offsets(narrowing, given)
        case ("timestamp",) if asserted is given:
            return _narrow_time(narrowing, given), isinstance(given, IsNotNull)
    return narrowing, False


def _test_of(given: Filter) -> Test | None:
    """The filter as a function of its column, which is never null here; None where that is for Spark."""
    match given:
        case Not(child=child):
            return _opposite(child)
        case IsNotNull():
            return lambda found: True
        case IsNull():
            return lambda found: False
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return lambda found: bool(found == value)
        case In(value=values):
            return lambda found: found in values
        case GreaterThan(value=value):
            return lambda found: bool(found > value)
        case GreaterThanOrEqual(value=value):
            return lambda found: bool(found >= value)
        case LessThan(value=value):
            return lambda found: bool(found < value)
        case LessThanOrEqual(value=value):
            return lambda found: bool(found <= value)
        case StringStartsWith(value=value):
            return lambda found: found.startswith(value)
        case StringEndsWith(value=value):
            return lambda found: found.endswith(value)
        case StringContains(value=value):
            return lambda found: value in found
    return None


def _opposite(given: Filter) -> Test | None:
    """That the filter is false, which one that compares with null never is."""
    test = _test_of(given)
    if test is None or (isinstance(given, In) and None in given.value):
        return None
    return lambda found: not test(found)


def _narrow_offsets(narrowing: Narrowing, given: Filter) -> tuple[Narrowing, bool]:
    match given:
        case IsNull() | EqualTo(value=None) | EqualNullSafe(value=None):
            return _within(narrowing, 0, 0), True
        case IsNotNull():
            return narrowing, True
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return _within(narrowing, value, value + 1), True
        case GreaterThan(value=value):
            return _within(narrowing, value + 1, None), True
        case GreaterThanOrEqual(value=value):
            return _within(narrowing, value, None), True
        case LessThan(value=value):
            return _within(narrowing, 0, value), True
        case LessThanOrEqual(value=value):
            return _within(narrowing, 0, value + 1), True
        case In(value=values):
            known = [value for value in values if value is not None]
            return _within(narrowing, min(known, default=0), max(known, default=-1) + 1), False
    return narrowing, False


def _within(narrowing: Narrowing, low: int, end: int | None) -> Narrowing:
    ends = [each for each in (end, narrowing.offset_end) if each is not None]
    return replace(
        narrowing,
        offset_min=max(narrowing.offset_min, low),
        offset_end=min(ends) if ends else None,
    )


def _narrow_time(narrowing: Narrowing, given: Filter) -> Narrowing:
    start: datetime | None = None
    end: datetime | None = None
    match given:
        case GreaterThan(value=datetime() as start) | GreaterThanOrEqual(value=datetime() as start):
            pass
        case LessThan(value=datetime() as end) | LessThanOrEqual(value=datetime() as end):
            pass
        case EqualTo(value=datetime() as start) | EqualNullSafe(value=datetime() as start):
            end = start
        case In(value=values) if known := [value for value in values if isinstance(value, datetime)]:
            start, end = min(known), max(known)
        case _:
            return narrowing
    low = None if start is None else _milliseconds(start)
    high = None if end is None else _milliseconds(end) + 1
    return replace(narrowing, times=narrowing.times.within(low, high))


def _milliseconds(time: datetime) -> int:
    """Since 1970, whole ones."""
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)
