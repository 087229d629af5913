"""Archiving what retention is about to delete.

Only a leader archives, and only what is decided: segments below the high watermark and the last stable
offset. A segment of a topic with `archive.enable` that is not archived yet is kept, however old, and so is
everything behind it; what DeleteRecords removed is not archived. Followers follow the leader's log start
offset.

What is archived is known to the archive itself; a node that starts anew asks it again, segment by segment, at
the next turn. A turn is a task of the event loop, uploads run in threads of their own, so that no other work
waits for a slow archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import UUID

from broker.clock import Clock
from broker.errors import StorageError
from broker.replication.replica import Replica
from broker.storage.archive import SealedSegment, SegmentArchive
from broker.storage.retention import SegmentAge
from broker.storage.segment import Segment
from broker.telemetry import logger

log_event = logger("archiving")

_CHUNK_BYTES = 4 << 20


class Archiving:
    """What this node archived, and how far retention may go."""

    def __init__(self, archive: SegmentArchive | None, *, threads: int, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="archive")
        self.workers = threads
        self._stopping = Event()

    def deletable_end(self, replica: Replica) -> int:
        """The offset up to which retention may delete segments of this replica."""
        if not replica.log.config.archive_enable:
            return replica.high_watermark
        return min(replica.high_watermark, max(replica.archived_end, replica.log.log_start_offset))

    async def archive(self, replica: Replica) -> bool:
        """Archive what retention would delete from this replica's log; whether there was anything. A failure
        is logged, and tried again at the next call.
        """
        if not replica.log.config.archive_enable or not replica.machine.is_leader:
            replica.archived_end = 0
            return False
        expired = self._expired(replica)
        for segment, age in expired:
            if age.next_offset <= replica.archived_end:
                continue
            if not await self._store(replica, segment, age):
                break
            replica.archived_end = age.next_offset
        return bool(expired)

    def close(self) -> None:
        """Break off what is being archived. Blocks until the threads ended."""
        self._stopping.set()
        self._executor.shutdown(cancel_futures=True)

    def _expired(self, replica: Replica) -> list[tuple[Segment, SegmentAge]]:
        """Segments to archive, all of them sealed."""
        log = replica.log
        end = min(replica.high_watermark, replica.last_stable_offset)
        expired = log.expired_segments(self._clock.now_ms(), end_offset_max=end)
        if len(expired) == log.segment_count:
            log.roll()
            expired = log.expired_segments(self._clock.now_ms(), end_offset_max=end)
        return [(segment, age) for segment, age in expired if age.next_offset > log.log_start_offset]

    async def _store(self, replica: Replica, segment: Segment, age: SegmentAge) -> bool:
        facts = {
            "partition": str(replica.topic_partition),
            "base_offset": segment.base_offset,
            "next_offset": age.next_offset,
            "size": age.size,
        }
        if self._archive is None:
            log_event.error("segment_kept", **facts, reason="the node has no log.archive.url")
            return False
        sealed = SealedSegment(
            topic_partition=replica.topic_partition,
            topic_id=UUID(int=0) if replica.log.topic_id is None else replica.log.topic_id,
            base_offset=segment.base_offset,
            next_offset=age.next_offset,
            size=age.size,
            max_timestamp_ms=segment.largest_timestamp(),
            aborted=tuple(replica.log.aborted_transactions(segment.base_offset, age.next_offset)),
            chunks=lambda: self._chunks(segment, age.size),
        )
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, self._archive.store, sealed)
        except Exception as error:  # noqa: BLE001 an archive may be anybody's code: no failure of it ends the node
            log_event.error("segment_not_archived", **facts, reason=str(error) or type(error).__name__)
            return False
        log_event.info("segment_archived", **facts)
        return True

    def _chunks(self, segment: Segment, size: int) -> Iterator[bytes]:
        """The bytes of a segment's log. Raises StorageError, also when the node stops."""
        with segment.log as file:
            for position in range(0, size, _CHUNK_BYTES):
                if self._stopping.is_set():
                    raise StorageError("the node stops")
                yield file.pread(min(_CHUNK_BYTES, size - position), position)
