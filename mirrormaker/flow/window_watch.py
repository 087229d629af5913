"""Finds the partitions that their window holds back, and not the way, for bigger pieces to be sent. Pure.

A lane has five chunks under way (see `lane`), whatever they measure: at a round trip of 150 ms that is 33 a
second. Where they are small, as single batches toward a broker that takes one batch a request, or as answers
that come with every batch that is produced, the way stays empty while records wait. It is the window that
binds when it is full at every look, has more behind it, and chunks come through about as fast as round trips
let them, over all such partitions together. If the way were full or the destination slow, they would take
longer than that.

What holds for some holds for all of the route whose windows are full of little at two looks: as soon as the
first send big pieces the way is full, and nobody could tell any more, while what the others have queued
takes the buffer.

From then on the partition's batches are gathered (`FlowConfig.bound`), and what was queued and not sent is
fetched anew for that, until its source has so few batches that all would pass as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirrormaker.flow.lane import BATCHES_REMEMBERED, Lane, LaneState
from mirrormaker.flow.partition import Partition

SPAN_MS = 500
"""Looked at for at least so long before anything is concluded, and for some round trips."""
ROUND_TRIPS = 3
BINDS_FROM = 0.7
"""Part of what the window could let through that does come through."""
RELEASE_SPAN_MS = 60_000
RELEASES_BELOW = 0.5
"""Part of what the window could let through that the source has batches for."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Running totals of a partition at the start of a span."""

    at_ms: int
    count: int


class WindowWatch:
    """Of one route."""

    def __init__(self) -> None:
        self._full: dict[Partition, _Mark] = {}
        """Windows that were full at each look since then; chunks that had been acknowledged."""
        self._bound: dict[Partition, _Mark] = {}
        """Partitions that were found bound; batches that had come from their source."""

    @property
    def bound(self) -> int:
        """Partitions that gather because of their window."""
        return len(self._bound)

    def look(
        self, partitions: Iterable[Partition], piece_bytes: int, round_trip_ms: float, now_ms: int
    ) -> list[Partition]:
        """Those whose window is found to bind. Pieces of half of `piece_bytes` cannot become much bigger."""
        full: dict[Partition, _Mark] = {}
        held_back: list[Partition] = []
        came = passes = 0.0
        self._bound = {partition: mark for partition, mark in self._bound.items() if partition.is_bound}
        for partition in partitions:
            if partition.is_bound:
                self._look_whether_to_release(partition, round_trip_ms, now_ms)
                continue
            if len(partition.lanes) > 1 or not _holds_back(partition.lanes[0], piece_bytes):
                continue
            mark = self._full.get(partition)
            if mark is None:
                full[partition] = _Mark(now_ms, partition.copied_chunks)
            elif now_ms - mark.at_ms < max(SPAN_MS, ROUND_TRIPS * round_trip_ms):
                full[partition] = mark
            else:
                held_back.append(partition)
                came += partition.copied_chunks - mark.count
                passes += _passes(mark, round_trip_ms, now_ms)
        self._full = full
        if not self._bound and (not held_back or came < BINDS_FROM * passes):
            return []
        alike = [partition for partition, mark in full.items() if mark.at_ms < now_ms]
        for partition in alike:
            del full[partition]
        held_back += alike
        self._bound |= {partition: _Mark(now_ms, partition.taken_batches) for partition in held_back}
        return held_back

    def _look_whether_to_release(self, partition: Partition, round_trip_ms: float, now_ms: int) -> None:
        mark = self._bound.get(partition)
        if mark is None:
            return
        if partition.is_released:
            del self._bound[partition]
        elif now_ms - mark.at_ms >= RELEASE_SPAN_MS:
            came = partition.taken_batches - mark.count
            if came < RELEASES_BELOW * _passes(mark, round_trip_ms, now_ms):
                partition.is_bound = False
                del self._bound[partition]
            else:
                self._bound[partition] = _Mark(now_ms, partition.taken_batches)


def _holds_back(lane: Lane, piece_bytes: int) -> bool:
    """Whether the window is full, there is more behind it, and its chunks could be bigger."""
    if lane.state is not LaneState.COPYING or lane.sent < BATCHES_REMEMBERED or len(lane.queue) <= lane.sent:
        return False
    size = sum(lane.queue[index].size for index in range(BATCHES_REMEMBERED))
    return size * 2 < piece_bytes * BATCHES_REMEMBERED


def _passes(mark: _Mark, round_trip_ms: float, now_ms: int) -> float:
    """Chunks that a window lets through since then."""
    return BATCHES_REMEMBERED * (now_ms - mark.at_ms) / max(round_trip_ms, 1)
