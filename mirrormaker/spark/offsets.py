"""Offset ranges: what a load reads of each partition, and how big ones are split. Pure.

In offsets of queries an entry `topic@ID` without partitions says which topic they are of: one that was
deleted and made anew has another id. An entry `@OFFSETS` in the end of a query's first trigger says where it
began. Spark's own Kafka source passes over such entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.spark.bounds import EARLIEST, LATEST, Bounds, OffsetBounds

Offsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, str]
"""Topic -> its id, in the letters in which Kafka's tools show it; of those whose id is told."""
JsonOffsets = dict[str, dict[str, int]]
_BEFORE_ID = "@"
"""No topic has it in its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition from `start` (inclusive) to `end` (exclusive)."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: str | None = None
    """Of the topic that is meant, where that is known."""

    @property
    def count(self) -> int:
        """Offsets in the range; compaction may have left fewer records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Timestamps from `start` (inclusive) to `end` (exclusive), milliseconds since 1970; None is no bound."""

    start: int | None = None
    end: int | None = None

    def within(self, start: int | None, end: int | None) -> TimeRange:
        """What is also within these bounds."""
        starts = [bound for bound in (start, self.start) if bound is not None]
        ends = [bound for bound in (end, self.end) if bound is not None]
        return TimeRange(start=max(starts, default=None), end=min(ends, default=None))

    def has(self, timestamp: int) -> bool:
        return (self.start is None or timestamp >= self.start) and (self.end is None or timestamp < self.end)


ANY_TIME = TimeRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The partitions to read, and from where to where they have records."""

    earliest: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    topic_ids: TopicIds = field(default_factory=dict)


class DataLossError(ValueError):
    """Offsets that were asked for are no longer, or not yet, in the log."""


def check_partitions(option: str, bounds: Bounds, logs: Logs) -> None:
    """Raises ConfigurationError for bounds of partitions that are not read."""
    strangers = sorted(bounds.by_partition.keys() - logs.latest.keys())
    if strangers:
        raise ConfigurationError(
            [f"option {option}: {partition} is not among the partitions to read" for partition in strangers]
        )


def resolve_offsets(bounds: OffsetBounds, logs: Logs) -> dict[TopicPartition, int]:
    """The offset that the bounds give each partition."""
    found = {}
    for partition, latest in logs.latest.items():
        words = {EARLIEST: logs.earliest[partition], LATEST: latest}
        found[partition] = words.get(bounds.of(partition), bounds.of(partition))
    return found


def plan_ranges(
    starts: Offsets, ends: Offsets, logs: Logs, *, fail_on_data_loss: bool = True
) -> list[OffsetRange]:
    """One range for each partition that has something to read.

    Offsets outside the log are clamped to it. Raises DataLossError instead with `fail_on_data_loss`, and
    ConfigurationError for offsets that cannot take effect.
    """
    ranges = []
    for partition in sorted(logs.latest):
        low, high = logs.earliest[partition], logs.latest[partition]
        start, end = starts[partition], ends[partition]
        if fail_on_data_loss and not low <= start <= high:
            raise DataLossError(_outside(partition, "starting", start, low, high))
        if fail_on_data_loss and not low <= end <= high:
            raise DataLossError(_outside(partition, "ending", end, low, high))
        if low <= end < start <= high:
            raise ConfigurationError([f"{partition}: starting offset {start} lies after ending offset {end}"])
        start, end = min(max(start, low), high), min(max(end, low), high)
        if start < end:
            topic_id = logs.topic_ids.get(partition.topic)
            ranges.append(OffsetRange(partition=partition, start=start, end=end, topic_id=topic_id))
    return ranges


def _outside(partition: TopicPartition, side: str, offset: int, low: int, high: int) -> str:
    return f"{partition}: {side} offset {offset} is outside the log's {low} to {high}"


def split_ranges(
    ranges: Sequence[OffsetRange], *, count_min: int | None = None, size_max: int | None = None
) -> list[OffsetRange]:
    """Split into ranges of at most `size_max` offsets, then in proportion to sizes until there are at least
    `count_min` of them (or one offset in each).
    """
    pieces = [piece for each in ranges for piece in _split(each, -(-each.count // (size_max or each.count)))]
    total = sum(piece.count for piece in pieces)
    if count_min is None or len(pieces) >= count_min or total == 0:
        return pieces
    return [
        piece
        for each in pieces
        for piece in _split(each, min(-(-each.count * count_min // total), each.count))
    ]


def _split(offset_range: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    bounds = [offset_range.start + offset_range.count * part // parts for part in range(parts + 1)]
    for low, high in pairwise(bounds):
        yield replace(offset_range, start=low, end=high)


def offsets_to_json(offsets: Offsets, topic_ids: TopicIds | None = None) -> dict[str, dict[str, int]]:
    """As Spark's checkpoints of Kafka's source have them: {"topic": {"0": 42}}; and of these topics, which
    they are, where that is known.
    """
    by_topic: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = offset
    known = topic_ids or {}
    return by_topic | {f"{topic}{_BEFORE_ID}{known[topic]}": {} for topic in by_topic if topic in known}


def offsets_from_json(by_topic: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """What `offsets_to_json` wrote. Raises ValueError for what it cannot have written."""
    try:
        return {
            TopicPartition(topic, int(number)): int(offset)
            for topic, by_number in by_topic.items()
            for number, offset in by_number.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"these are no offsets of topics: {by_topic!r}") from error


def topic_ids_from_json(by_topic: Mapping[str, Any]) -> dict[str, str]:
    """Which topics the offsets are of, as far as `offsets_to_json` was told."""
    named = (name.partition(_BEFORE_ID) for name in by_topic)
    return {topic: topic_id for topic, _, topic_id in named if topic and topic_id}


def with_beginning(end: JsonOffsets, start: JsonOffsets) -> JsonOffsets:
    """The end of a trigger, with where it began."""
    return end | {f"{_BEFORE_ID}{json.dumps(start)}": {}}


def without_beginning(end: JsonOffsets) -> JsonOffsets:
    return {name: parts for name, parts in end.items() if not name.startswith(_BEFORE_ID)}


def beginning_of(end: JsonOffsets) -> JsonOffsets | None:
    """Where a trigger that ends there began, if `with_beginning` said so."""
    told = next((name for name in end if name.startswith(_BEFORE_ID)), None)
    return None if told is None else json.loads(told.removeprefix(_BEFORE_ID))


def made_anew(known: TopicIds, told: TopicIds) -> list[str]:
    """The topics that are others by now, under the same names, sorted."""
    return sorted(topic for topic, topic_id in known.items() if told.get(topic, topic_id) != topic_id)
