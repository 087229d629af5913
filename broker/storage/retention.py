"""Which of a log's oldest segments may go. Pure: a function of facts, the log does the removing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.storage.log_config import LogConfig


class SegmentAge(NamedTuple):
    """A segment for retention: where it ends (offset, exclusive), its size (bytes), its latest timestamp
    (ms).
    """

    next_offset: int
    size: int
    latest_ms: int


def expired(
    segments: Iterable[SegmentAge],
    config: LogConfig,
    *,
    size: int,
    log_start_offset: int,
    end_offset_max: int,
    now_ms: int,
) -> list[SegmentAge]:
    """Those of a log's segments, from the oldest on, that may be removed. Ages are read as far as needed.

    A segment may go when all of it lies below the log start offset, or when the log deletes by age or size
    and it is older than the time, or all of them (`size` bytes) are more than the size; never when it ends
    above `end_offset_max` (the high watermark). The first that stays ends the search.
    """
    excess = size - config.retention_bytes if config.retention_bytes >= 0 else 0
    found = []
    for segment in segments:
        if segment.next_offset > end_offset_max:
            break
        too_large = config.deletes and excess > 0 and excess >= segment.size
        too_old = (
            config.deletes and config.retention_ms >= 0 and now_ms - segment.latest_ms > config.retention_ms
        )
        if not (too_large or too_old or segment.next_offset <= log_start_offset):
            break
        excess -= segment.size
        found.append(segment)
    return found
