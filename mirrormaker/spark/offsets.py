"""Offset ranges: what a load reads of each partition, and how big ones are split. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.spark.options import EARLIEST, LATEST, SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition from `start` (inclusive) to `end` (exclusive)."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def count(self) -> int:
        """Offsets in the range; compaction may have left fewer records."""
        return self.end - self.start


class DataLossError(ValueError):
    """Offsets that were asked for are no longer, or not yet, in the log."""


def plan_ranges(
    options: SourceOptions,
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """One range for each partition that has something to read, split further where `minPartitions` asks.

    Offsets outside the log are clamped to it. Raises DataLossError instead when `failOnDataLoss` holds, and
    ConfigurationError for offsets that cannot take effect.
    """
    _check_partitions(options, latest.keys())
    ranges = []
    for partition in sorted(latest):
        low, high = earliest[partition], latest[partition]
        start = _resolve(options.starting.of(partition), low, high)
        end = _resolve(options.ending.of(partition), low, high)
        if options.fail_on_data_loss and not low <= start <= high:
            raise DataLossError(f"{partition}: starting offset {start} is outside the log's {low} to {high}")
        if options.fail_on_data_loss and not low <= end <= high:
            raise DataLossError(f"{partition}: ending offset {end} is outside the log's {low} to {high}")
        if low <= end < start <= high:
            raise ConfigurationError([f"{partition}: starting offset {start} lies after ending offset {end}"])
        start, end = min(max(start, low), high), min(max(end, low), high)
        if start < end:
            ranges.append(OffsetRange(partition=partition, start=start, end=end))
    return split_ranges(ranges, options.partitions_min)


def _check_partitions(options: SourceOptions, selected: Set[TopicPartition]) -> None:
    problems = [
        f"option {name}: {partition} is not among the partitions to read"
        for name, offsets in (("startingOffsets", options.starting), ("endingOffsets", options.ending))
        for partition in sorted(offsets.by_partition.keys() - selected)
    ]
    if problems:
        raise ConfigurationError(problems)


def _resolve(offset: int, low: int, high: int) -> int:
    return {EARLIEST: low, LATEST: high}.get(offset, offset)


def split_ranges(ranges: Sequence[OffsetRange], count_min: int | None) -> list[OffsetRange]:
    """Split in proportion to sizes until there are at least `count_min` ranges (or one offset in each)."""
    total = sum(offset_range.count for offset_range in ranges)
    if count_min is None or len(ranges) >= count_min or total == 0:
        return list(ranges)
    pieces: list[OffsetRange] = []
    for offset_range in ranges:
        share = -(-offset_range.count * count_min // total)
        pieces += _split(offset_range, min(share, offset_range.count))
    return pieces


def _split(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [offset_range.start + offset_range.count * part // parts for part in range(parts + 1)]
    return [
        OffsetRange(partition=offset_range.partition, start=low, end=high) for low, high in pairwise(bounds)
    ]
