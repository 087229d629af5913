"""One hosted replica: its log, its machine, and the requests that wait for it.

Everything but `flush_through` is synchronous and runs on the event loop, so that a produce or fetch request
steps through all of its partitions at once. What the disk does not do is answered KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Executor

from broker.errors import CorruptRecordsError, DiskFullError, ErrorCode, ProtocolError, StorageError
from broker.records.batch import iterate_batches
from broker.records.control import Marker, build_marker
from broker.replication.follower_progress import UNKNOWN_OFFSET
from broker.replication.partition import Partition, Role
from broker.replication.verifications import Verifications
from broker.replication.waits import CommitWaits, FetchWait, FollowerWaits
from broker.storage.appends import Appended
from broker.storage.file_range import EMPTY, FileRange
from broker.storage.free_space import FreeSpace
from broker.storage.leader_epochs import EpochEnd
from broker.storage.log import Log
from broker.storage.page_cache import ColdReadError
from broker.storage.transactions import AbortedTransaction
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition

log_event = logger("replica")

READ_COMMITTED = 1


class Replica:
    """A replica on this node; `machine` decides, `log` stores."""

    __slots__ = (
        "_executor",
        "_flush",
        "archived_end",
        "commit_waits",
        "cutting",
        "fetch_waits",
        "follower_waits",
        "free_space",
        "log",
        "machine",
        "progress_waits",
        "prompt_waits",
        "stable_waits",
        "verifications",
    )

    def __init__(self, log: Log, machine: Partition, executor: Executor, *, free_space: FreeSpace) -> None:
        self.log = log
        self.free_space = free_space
        self.machine = machine
        self.fetch_waits: dict[FetchWait, None] = {}
        self.follower_waits: dict[FetchWait, None] = {}
        self.prompt_waits: dict[FetchWait, None] = {}
        self.stable_waits: dict[FetchWait, int] = {}
        self.commit_waits = CommitWaits()
        self.progress_waits = FollowerWaits()
        self.archived_end = 0
        self.cutting: asyncio.Future[None] | None = None
        """Done when a cut of the log is over that is under way in a thread."""
        self.verifications = Verifications()
        """Of transactions that are about to begin here."""
        self._executor = executor
        self._flush: asyncio.Future[int] | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self.machine.topic_partition

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it every record is committed, and its transaction, if any, is decided."""
        return self.log.last_stable_offset(self.machine.high_watermark)

    def append(self, records: bytearray | memoryview, *, acks: int, now_ms: int) -> Appended:
        """Append what a producer sent, in place; the answer may be due only once it is committed and flushed.

        Raises ProtocolError for records that are refused, a replica that does not lead, and too few
        in-sync replicas.
        """
        machine = self.machine
        if machine.role is not Role.LEADER:
            machine.require_leader()
        if acks == -1:
            machine.require_in_sync(self.log.config.min_insync_replicas)
        try:
            appended = self.log.append(records, machine.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            raise self._failed(error) from error
        if not appended.duplicate:
            self._appended(appended, len(records))
        return appended

    def refuse_for_space(self, records: bytearray | memoryview) -> None:
        """The log directory is full. Raises ProtocolError KAFKA_STORAGE_ERROR, unless all of this was stored
        before: whoever repeats it must not take it for lost.
        """
        try:
            headers = (header for _, header in iterate_batches(records))
            if all(found is not None for found in self.log.producers.check_all(headers)):
                return
        except ProtocolError:
            pass  # what is wrong with it can be told when there is room
        raise ProtocolError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self.topic_partition} is full"
        )

    def append_unsequenced(self, batch: bytearray, *, now_ms: int) -> Appended:
        """Append what a coordinator on this node writes as part of a transaction; to be waited for as an
        append with acks=all. Raises ProtocolError as `append_marker` does.
        """
        machine = self.machine
        machine.require_leader()
        machine.require_in_sync(self.log.config.min_insync_replicas)
        try:
            appended = self.log.append_unsequenced(batch, machine.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            raise self._failed(error) from error
        self._appended(appended, len(batch))
        return appended

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, now_ms: int
    ) -> Appended:
        """End a transaction by order of its coordinator; to be waited for as an append with acks=all.

        Raises ProtocolError for a marker that is refused, a replica that does not lead, and too few in-sync
        replicas.
        """
        machine = self.machine
        machine.require_leader()
        machine.require_in_sync(self.log.config.min_insync_replicas)
        batch = build_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms
        )
        try:
            appended = self.log.append_marker(batch, marker, machine.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            raise self._failed(error) from error
        self.verifications.marked(producer_id)
        self._appended(appended, len(batch))
        return appended

    def fetched_by(
        self,
        follower: BrokerId,
        offset: int,
        *,
        broker_epoch: int,
        now_ms: int,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        """A follower whose log starts at `log_start_offset` asked for `offset`, and its history up to there
        is this log's: what that commits is told to those who wait for it.

        Raises ProtocolError OFFSET_OUT_OF_RANGE, and as `Partition.fetched` does.
        """
        log, machine = self.log, self.machine
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has offsets {log.log_start_offset} to {log.log_end_offset}",
            )
        before = machine.high_watermark
        if machine.fetched(
            follower,
            offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
        ):
            self.committed_since(before)
        if self.progress_waits:
            self.progress_waits.settle()

    def is_committed(self, next_offset: int) -> bool:
        """Whether everything below `next_offset` is committed."""
        return self.machine.high_watermark >= next_offset

    def is_acknowledged(self, next_offset: int, acks: int) -> bool:
        """Whether enough replicas have everything below `next_offset`: with acks=-1 all that are in sync,
        else as many in-sync ones as it says.
        """
        if acks == -1:
            return self.machine.high_watermark >= next_offset
        return acks <= 1 or self.machine.count_holding(next_offset) >= acks

    def acknowledgement(self, next_offset: int, acks: int) -> asyncio.Future[None] | None:
        """Done when `is_acknowledged`; None when it is. Fails when this node stops leading."""
        if self.is_acknowledged(next_offset, acks):
            return None
        if acks == -1:
            return self.commit_waits.add(next_offset)
        return self.progress_waits.add(lambda: self.is_acknowledged(next_offset, acks))

    @property
    def flush_is_due(self) -> bool:
        """Whether an acknowledgement has to wait for the disk."""
        return self.log.unflushed_count >= self.log.config.flush_messages

    async def flush_through(self, next_offset: int) -> None:
        """Return once everything below `next_offset` is on the disk. Appends that wait together
        share one flush.

        Raises ProtocolError KAFKA_STORAGE_ERROR when the disk fails, NOT_LEADER_OR_FOLLOWER when this node
        stopped leading meanwhile, so that another record may stand there.
        """
        epoch = self.machine.leader_epoch
        for _ in range(2):  # the flush under way may have begun before the append, the one after it has not
            if self.log.flushed_end >= next_offset:
                break
            await self._flushed_once()
        self._count_flushed()
        machine = self.machine
        machine.require_leader()
        if machine.leader_epoch != epoch or self.log.flushed_end < next_offset:
            raise ProtocolError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {self.topic_partition} was cut or closed"
            )

    def begin_flush(self) -> None:
        """Have what is here flushed, if it has to be, and the high watermark wait for it."""
        if self._is_bound_by_flush() and self._flush is None:
            self._start_flush()

    def read(self, offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool) -> FileRange | None:
        """Whole batches from `offset` on, none beyond `up_to`; None when there are none.

        Raises ProtocolError OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER while the log is being cut, or
        KAFKA_STORAGE_ERROR when the disk fails.
        """
        if self.cutting is not None:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is being cut")
        if offset >= up_to and self.log.log_start_offset <= offset <= self.log.log_end_offset:
            return None
        try:
            found = self.log.read(offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch)
        except StorageError as error:
            raise self._failed(error) from error
        return None if found is EMPTY else found

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records or a marker between two offsets. Raises ProtocolError KAFKA_STORAGE_ERROR when
        the disk fails.
        """
        try:
            return self.log.aborted_transactions(start, end)
        except StorageError as error:
            raise self._failed(error) from error

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where a leader epoch ended, as OffsetForLeaderEpoch answers it.

        An epoch that is over without a record in this log ended where the log ends, if none came after it: a
        replica that has records of it must cut them off.
        """
        end, known = self.log.log_end_offset, self.log.leader_epochs
        if epoch == self.machine.leader_epoch:
            return EpochEnd(epoch, end)
        if known.latest < epoch < self.machine.leader_epoch:
            return EpochEnd(known.latest if known.entries else epoch, end)
        return known.end_offset_for(epoch, end)

    async def settled(self) -> None:
        """Return when no cut of the log is under way; none begins before the caller awaits again."""
        while self.cutting is not None:
            await asyncio.wait([self.cutting])

    def take_offline(self, refusal: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop serving; every waiting request is answered, produces with `refusal`."""
        self.machine.stop(refusal)
        self.end_waits(refusal)

    def end_waits(self, refusal: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Leadership or state changed: waiting fetches are answered, waiting produces refused."""
        for wait in [*self.fetch_waits, *self.follower_waits, *self.stable_waits, *self.prompt_waits]:
            wait.end()
        self.verifications.spoil()
        error = ProtocolError(refusal, f"{self.topic_partition} stopped leading before the commit")
        self.commit_waits.fail(error)
        self.progress_waits.fail(error)

    def committed_since(self, before: int) -> None:
        """The high watermark moved from `before` for another reason than an append."""
        size = self._size_between(before, self.machine.high_watermark) if self.fetch_waits else 0
        self._committed(size)

    def delete_before(self, offset: int) -> asyncio.Future[None] | None:
        """Let the log start at `offset`, and tell followers so at once; done when no in-sync replica has
        records below, None when it is so already. Fails when this node stops leading. Raises StorageError.
        """
        self.log.advance_start(offset)
        for wait in list(self.follower_waits):
            wait.end()
        if self.low_watermark >= offset:
            return None
        return self.progress_waits.add(lambda: self.low_watermark >= offset)

    @property
    def low_watermark(self) -> int:
        """As `Partition.low_watermark`."""
        return self.machine.low_watermark(self.log.log_start_offset)

    def _appended(self, appended: Appended, size: int) -> None:
        if self.follower_waits:
            for wait in list(self.follower_waits):
                wait.grew(size, self)
        self.begin_flush()
        if self.machine.appended(appended.last_offset + 1):
            self._committed(size)

    def _committed(self, size: int) -> None:
        if self.commit_waits:
            self.commit_waits.advance(self.machine.high_watermark)
        if self.fetch_waits:
            for wait in list(self.fetch_waits):
                wait.grew(size, self)
        if self.stable_waits:
            self._became_stable()
        if self.prompt_waits:
            for wait in list(self.prompt_waits):
                wait.end()

    def _became_stable(self) -> None:
        """Tell fetches that read committed records how much the last stable offset passed."""
        stable = self.last_stable_offset
        for wait, counted in list(self.stable_waits.items()):
            if stable > counted:
                self.stable_waits[wait] = stable
                wait.grew(self._size_between(counted, stable), self)

    def _size_between(self, start: int, end: int) -> int:
        """Bytes that readers may have more; as good as endless where the disk fails or would have to be
        waited for: their reads will tell.
        """
        try:
            return self.log.size_between(start, end)
        except (ColdReadError, CorruptRecordsError, StorageError):
            return sys.maxsize

    async def _flushed_once(self) -> None:
        flush = self._flush or self._start_flush()
        try:
            await asyncio.shield(flush)
        except StorageError as error:
            raise self._failed(error) from error

    def _start_flush(self) -> asyncio.Future[int]:
        flush = asyncio.get_running_loop().run_in_executor(self._executor, self.log.flush)
        flush.add_done_callback(self._flushed)
        self._flush = flush
        return flush

    def _flushed(self, flush: asyncio.Future[int]) -> None:
        self._flush = None
        if flush.cancelled() or flush.exception() is not None:
            return
        self._count_flushed()
        if self.machine.is_leader and not self.log.closed:
            self.begin_flush()

    def _is_bound_by_flush(self) -> bool:
        """Where the settings ask for a flush, nobody sees what a loss of power could take back."""
        is_due = self.flush_is_due
        self.machine.flushed_end = self.log.flushed_end if is_due else None
        return is_due

    def _count_flushed(self) -> None:
        """More may be committed now that more is on the disk."""
        before = self.machine.high_watermark
        self._is_bound_by_flush()
        if self.machine.advance():
            self.committed_since(before)

    def _failed(self, error: StorageError) -> ProtocolError:
        if isinstance(error, DiskFullError):
            self.free_space.ran_out()
            return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        log_event.error("replica_failed", partition=str(self.topic_partition), reason=str(error))
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


LeadershipObserver = Callable[[TopicPartition, int], None]
"""Told of a partition that this node began to lead, with its epoch; -1: stopped leading."""
