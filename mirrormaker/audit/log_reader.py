"""A stretch of a log, read batch by batch in its order; the next fetch is under way meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from broker.client.cluster import Cluster
from broker.client.fetch import (
    FetchedBatches,
    FetchTerms,
    PartitionPosition,
    build_fetch,
    bytes_needed,
    cut_batches,
    read_fetch,
    version_limit,
)
from broker.client.offsets import LATEST, earliest_offsets, list_offsets
from broker.client.operations import READ
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.fetch import FetchRequest, PartitionData
from mirrormaker.audit.entries import Entry, check, visible_entries
from mirrormaker.audit.ranges import Range
from mirrormaker.missing_rights import explained

FIRST_FETCH_BYTES = 64 << 10
FETCH_BYTES_MAX = 4 << 20
FETCH_WAIT_MS = 500
RETRIES_TIMEOUT_MS = 30_000


class LogReader:
    """Reads one partition. What it has read and not handed out is at most two answers."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        within: Range,
        *,
        committed_only: bool,
        lane: str,
        verifies: bool = True,
        fetch_bytes: int = FIRST_FETCH_BYTES,
    ) -> None:
        """`lane`: of the connections that it takes; see `Cluster.new_lane`. `verifies`: the checksums of
        batches. `fetch_bytes`: asked for first; more with each fetch, so that a short stretch costs little.
        """
        self.bytes = 0
        self.log_start = 0
        """Where the log begins at the earliest: what was deleted while it was read is passed over."""
        self._cluster = cluster
        self._partition = partition
        self._within = within
        self._committed_only = committed_only
        self.lane = lane
        self._verifies = verifies
        self._fetch_bytes = fetch_bytes

    async def entries(self) -> AsyncGenerator[Entry]:
        """Batches with records of the stretch; the first and last may have others beside. Raises
        CorruptRecordsError for damage, BrokerError when it cannot be read.
        """
        position = self._within.first
        coming: asyncio.Task[FetchedBatches | int] | None = None
        try:
            while position < self._within.next:
                fetched = await (coming or self._ask(position))
                coming = None
                if isinstance(fetched, int):
                    if fetched <= position:
                        return
                    position = self.log_start = fetched
                    continue
                if fetched.next_offset <= position:
                    return
                position = fetched.next_offset
                self.bytes += len(fetched.records)
                self._ask_for_more(len(fetched.records))
                if position < self._within.next:
                    coming = asyncio.create_task(self._ask(position))
                for entry in visible_entries(fetched, committed_only=self._committed_only):
                    if entry.next <= self._within.first:
                        continue
                    if entry.header is not None and entry.header.base_offset >= self._within.next:
                        return
                    if self._verifies:
                        check(entry)
                    yield entry
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    def _ask_for_more(self, came: int) -> None:
        """Than the fetch before, of which so many bytes came."""
        wanted = 2 * max(self._fetch_bytes, came)
        self._fetch_bytes = max(self._fetch_bytes, min(wanted, FETCH_BYTES_MAX))

    async def _start(self) -> int:
        """Raises BrokerError."""
        return (await earliest_offsets(self._cluster, [self._partition]))[self._partition]

    async def _end(self) -> int:
        """Up to where it may be read. Raises BrokerError."""
        wanted = {self._partition: LATEST}
        found = await list_offsets(self._cluster, wanted, read_committed=self._committed_only)
        return found[self._partition].offset

    async def _ask(self, offset: int) -> FetchedBatches | int:
        """From `offset` on; where the log has nothing there that may be read, its start. Raises BrokerError.

        An empty answer alone does not say that: a node gives one to a client beyond its quota, and while it
        does not know yet how far the log is committed.
        """
        retries = self._cluster.retries(RETRIES_TIMEOUT_MS)
        while True:
            try:
                fetched = await self._fetch(offset)
                if fetched is not None:
                    return fetched
                start, end = await self._start(), await self._end()
                if not start <= offset < end:
                    return start
                raise ProtocolError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{self._partition} goes to {end}, and the answer to a fetch from {offset} on is empty",
                )
            except BrokerError as error:
                if isinstance(error, ProtocolError) and not error.code.retriable:
                    raise
                await retries.pause(error)
                await self._cluster.refresh([self._partition.topic])

    async def _fetch(self, offset: int) -> FetchedBatches | None:
        while True:
            data = await self._request(offset)
            if data is None:
                return None
            code = ErrorCode.of(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None  # deleted, or beyond the end
            if code:
                error = ProtocolError(code, f"fetch of {self._partition}")
                raise explained(error, self._cluster.name, self._partition.topic, READ)
            position = self._position(offset)
            fetched = cut_batches(position, data)
            if fetched is not None:
                return fetched
            needed = bytes_needed(data, self._fetch_bytes)
            if needed <= self._fetch_bytes:
                return None
            self._fetch_bytes = needed

    async def _request(self, offset: int) -> PartitionData | None:
        """None: the answer says nothing of the partition, as where a quota is used up."""
        node_id = self._cluster.leader(self._partition)
        if node_id is None:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, str(self._partition))
        positions = [self._position(offset)]
        terms = FetchTerms(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            read_committed=self._committed_only,
        )
        metadata = self._cluster.metadata
        request = build_fetch(positions, terms, metadata)
        connection = await self._cluster.connection(node_id, self.lane)
        version = connection.version_of(FetchRequest, at_most=version_limit(positions, metadata))
        for partition, data in read_fetch(await connection.request(request, version), request):
            if partition == self._partition:
                return data
        return None

    def _position(self, offset: int) -> PartitionPosition:
        return PartitionPosition(topic_partition=self._partition, offset=offset, max_bytes=self._fetch_bytes)
