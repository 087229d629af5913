"""What of a log may be compacted now, how much that is worth, and how its segments go together. Pure.

A log is clean below its first dirty offset (where the last pass ended) and dirty above. Never touched is what
lies above the last stable offset or the recovery point, the active segment, and segments with records younger
than `min.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.storage.log_config import LogConfig

SEGMENTS_PER_GROUP_MAX = 32
"""Segments that become one at most: taking their place is one step of the event loop, of which each costs
some microseconds.
"""


class DirtySegment(NamedTuple):
    """A sealed segment as it bears on the choice: where it ends (offset, exclusive), its size in bytes, its
    timestamps in ms (-1: none), read when they are asked for.
    """

    base_offset: int
    next_offset: int
    size: int
    first_timestamp: Callable[[], int]
    largest_timestamp: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableRange:
    """The dirty part of a log that may be compacted, in offsets, and what weighs for it, in bytes."""

    start_offset: int
    end_offset: int
    clean_size: int
    dirty_size: int
    is_overdue: bool
    """Whether a dirty record is older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of the whole, from 0 to 1."""
        total = self.clean_size + self.dirty_size
        return self.dirty_size / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether a pass is worth its cost."""
        if self.end_offset <= self.start_offset or not self.dirty_size:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable_range(
    segments: Sequence[DirtySegment],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    end_offset_max: int,
    now_ms: int,
) -> CleanableRange:
    """The range that a pass over these sealed segments would cover."""
    dirty = [segment for segment in segments if segment.next_offset > first_dirty_offset]
    end_offset = min(end_offset_max, segments[-1].next_offset) if segments else first_dirty_offset
    if config.min_compaction_lag_ms > 0:
        young = (
            segment.base_offset
            for segment in dirty
            if segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms
        )
        end_offset = min(end_offset, next(young, end_offset))
    return CleanableRange(
        start_offset=first_dirty_offset,
        end_offset=end_offset,
        clean_size=sum(segment.size for segment in segments if segment.next_offset <= first_dirty_offset),
        dirty_size=sum(segment.size for segment in dirty if segment.base_offset < end_offset),
        is_overdue=_is_overdue(dirty, config, end_offset, now_ms),
    )


def _is_overdue(dirty: Sequence[DirtySegment], config: LogConfig, end_offset: int, now_ms: int) -> bool:
    oldest_ms = now_ms - config.max_compaction_lag_ms
    if oldest_ms <= 0:
        return False
    return any(
        0 <= segment.first_timestamp() < oldest_ms for segment in dirty if segment.base_offset < end_offset
    )


class SegmentSize(NamedTuple):
    """A segment's place and its files' sizes in bytes; `next_offset` is where the next segment begins."""

    base_offset: int
    next_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


def grouped(
    segments: Sequence[SegmentSize], config: LogConfig, *, relative_offset_max: int
) -> Iterator[slice]:
    """Neighbours that fit into one segment and its indexes, whatever is removed from them."""
    start = 0
    for index in range(1, len(segments) + 1):
        if index < len(segments) and _fits(segments[start : index + 1], config, relative_offset_max):
            continue
        yield slice(start, index)
        start = index


def _fits(segments: Sequence[SegmentSize], config: LogConfig, relative_offset_max: int) -> bool:
    return (
        len(segments) <= SEGMENTS_PER_GROUP_MAX
        and sum(segment.size for segment in segments) <= config.segment_bytes
        and sum(segment.offset_index_size for segment in segments) <= config.segment_index_bytes_max
        and sum(segment.time_index_size for segment in segments) <= config.segment_index_bytes_max
        and segments[-1].next_offset - 1 - segments[0].base_offset <= relative_offset_max
    )
