"""Offsets of a time: of the first record that is as young as its beginning up to the first that is as young
as its end; see `windows`.

Clusters find the first batch that is so young. The marker of a transaction is one, and as young as the
commit: in a history that was written so, all of it would seem to end at the first marker. So what is found is
looked at, and where it is a marker the log is read on to the first record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import aclosing

from broker.client.cluster import Cluster
from broker.client.offsets import EARLIEST, LATEST, NO_OFFSET, OffsetAndTimestamp, list_offsets
from broker.types import TopicPartition
from mirrormaker.audit.entries import Entry, columns_of
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.windows import TimeWindow

LOOKS_AT_ONCE = 32


async def offsets_of_window(
    cluster: Cluster, partitions: Collection[TopicPartition], window: TimeWindow
) -> dict[TopicPartition, Range]:
    """The offsets of a time in each partition, as far as they are kept. Records of transactions that are open
    count. Raises BrokerError, CorruptRecordsError.
    """
    return await TimeOffsets(cluster, partitions).of(window)


class TimeOffsets:
    """Of one cluster as it is at the first question. Windows that ascend cost one reading where there is any
    to do.
    """

    def __init__(
        self, cluster: Cluster, partitions: Collection[TopicPartition], *, slack_ms: int = 0
    ) -> None:
        """`slack_ms`: what is younger by less is taken for a record without a look."""
        self._cluster = cluster
        self._partitions = partitions
        self._slack_ms = slack_ms
        self._ends: Mapping[TopicPartition, OffsetAndTimestamp] | None = None
        self._last_ms: int | None = None
        self._last: dict[TopicPartition, int] = {}
        """What was found for that time."""
        self._gate = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def of(self, window: TimeWindow) -> dict[TopicPartition, Range]:
        """See `offsets_of_window`."""
        if not self._partitions:
            return {}
        if self._ends is None:
            self._ends = await list_offsets(self._cluster, dict.fromkeys(self._partitions, LATEST))
        ends = {each: at.offset for each, at in self._ends.items()}
        if window.from_ms is None:
            begun = await list_offsets(self._cluster, dict.fromkeys(self._partitions, EARLIEST))
            firsts = {each: at.offset for each, at in begun.items()}
        else:
            firsts = await self._at(window.from_ms, ends)
        nexts = ends if window.to_ms is None else await self._at(window.to_ms, ends)
        return {each: Range(firsts[each], nexts[each]) for each in self._partitions}

    async def _at(self, at_ms: int, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first record that is so young, else the end."""
        if at_ms == self._last_ms:
            return self._last
        since = self._last if self._last_ms is not None and self._last_ms <= at_ms else {}
        found = await list_offsets(self._cluster, dict.fromkeys(self._partitions, at_ms))
        places = {
            each: ends[each] if at.offset == NO_OFFSET else max(at.offset, since.get(each, 0))
            for each, at in found.items()
        }
        doubtful = [
            each
            for each, at in found.items()
            if places[each] < ends[each] and at.timestamp - at_ms >= self._slack_ms
        ]
        if doubtful:
            places |= await self._look_at(doubtful, at_ms, places, ends)
        self._last_ms, self._last = at_ms, places
        return places

    async def _look_at(
        self,
        doubtful: Collection[TopicPartition],
        at_ms: int,
        places: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        lane = self._cluster.new_lane("times")

        async def look(partition: TopicPartition) -> int:
            async with self._gate:
                return await self._first_record(
                    partition, at_ms, Range(places[partition], ends[partition]), lane
                )

        try:
            offsets = await asyncio.gather(*map(look, doubtful))
        finally:
            await self._cluster.release_lane(lane)
        return dict(zip(doubtful, offsets, strict=True))

    async def _first_record(self, partition: TopicPartition, at_ms: int, within: Range, lane: str) -> int:
        """The first of a stretch that is so young, its end where none is."""
        reader = LogReader(self._cluster, partition, within, committed_only=False, lane=lane, fetch_bytes=1)
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:  # the first has it, but for markers and histories
                if (offset := _first_in(entry, at_ms, within)) is not None:
                    return offset
        return within.next


def _first_in(entry: Entry, at_ms: int, within: Range) -> int | None:
    """The first record of a batch that is so young, of those within; None: there is none."""
    if entry.header is None:
        return within.first  # of a time before there were transactions
    if entry.header.max_timestamp < at_ms:
        return None
    columns = columns_of(entry)
    return next(
        (
            offset
            for offset, timestamp in zip(columns.offsets, columns.timestamps, strict=True)
            if timestamp >= at_ms and within.first <= offset < within.next
        ),
        None,
    )
