"""Moves of replicas between the log directories of this node (AlterReplicaLogDirs).

A move copies the log into a `-future` directory of its target, batch by batch in threads, while the replica
serves as ever. When next to nothing is missing, the replica is withdrawn for the moment in which the rest is
copied and the directories are renamed, and comes back with the copy as its log; whoever asks meanwhile is
told to try again. What a crash leaves behind is settled at the next start (`storage/log_directories`), which
begins interrupted moves anew. All copies share one budget of bytes per second.

A move begins anew too when its source is cut, or lost at its start what was not copied yet. It is given up
when its target fails or is full; the replica stays where it is then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.records.batch import read_header
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.storage.file_range import EMPTY, FileRange
from broker.storage.log import Log
from broker.storage.log_directory import LogDirectory
from broker.storage.throttle import Throttle
from broker.telemetry import logger
from broker.types import TopicPartition

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
REST_BYTES_MAX = 4 << 20
"""What may be copied on the event loop, at the end of a move."""
HOSTED_LOOK_SECONDS = 1.0
"""How often interrupted moves look whether the controller has named their replicas."""

_log = logger("log_moves")


class _SourceChangedError(StorageError):
    """The copy no longer is a part of its source."""


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """One replica on its way to another directory."""

    replica: Replica
    target: LogDirectory

    @property
    def topic_partition(self) -> TopicPartition:
        return self.replica.topic_partition


class LogMoves:
    """See the module's description; `run` is a task of the node."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        executor: Executor,
        copies_max: int,
        bytes_per_second_max: float = float("inf"),
    ) -> None:
        self._throttle = Throttle(bytes_per_second_max, monotonic=time.monotonic)
        self._reconfigured = asyncio.Event()
        self._replicas = replicas
        self._executor = executor
        self._copiers = asyncio.Semaphore(copies_max)
        self._tasks: dict[TopicPartition, tuple[_Move, asyncio.Task[None]]] = {}
        self._group = asyncio.TaskGroup()
        self._asking = asyncio.Lock()

    async def run(self) -> None:
        """Do the moves that are asked for; ends by cancellation."""
        async with self._group:
            interrupted = dict(self._replicas.directories.interrupted)
            while interrupted:
                for partition, root in list(interrupted.items()):
                    if self._replicas.get(*partition) is not None:
                        del interrupted[partition]
                        await self.ask(partition, root)
                await asyncio.sleep(HOSTED_LOOK_SECONDS)
            await asyncio.Event().wait()

    def reconfigure(self, bytes_per_second_max: float) -> None:
        """Copy so fast from now on, also what is under way."""
        self._throttle = Throttle(bytes_per_second_max, monotonic=time.monotonic)
        self._reconfigured.set()
        self._reconfigured = asyncio.Event()

    async def ask(self, partition: TopicPartition, root: Path) -> ErrorCode:
        """Begin to move a replica to the directory `root`; NONE once it is under way, or there already.

        A replica that is not here yet will be made there, and is answered REPLICA_NOT_AVAILABLE. A move that
        was answered NONE outlasts a crash.
        """
        async with self._asking:
            return await self._ask(partition, root)

    async def _ask(self, partition: TopicPartition, root: Path) -> ErrorCode:
        directories = self._replicas.directories
        target = directories.live.get(root)
        if target is None:
            return (
                ErrorCode.KAFKA_STORAGE_ERROR if root in directories.offline else ErrorCode.LOG_DIR_NOT_FOUND
            )
        replica = self._replicas.get(*partition)
        if replica is None:
            if self._replicas.is_offline(*partition):
                return ErrorCode.KAFKA_STORAGE_ERROR
            directories.prefer(partition, root)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        move, task = self._tasks.get(partition, (None, None))
        if move is not None and move.target is target:
            return ErrorCode.NONE
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if replica.log.directory.parent != root:
            move = _Move(replica, target)
            try:
                copy = await self._begun(move)
            except StorageError as error:
                _log.error("log_move_refused", partition=str(partition), reason=str(error))
                return ErrorCode.KAFKA_STORAGE_ERROR
            task = self._group.create_task(self._move(move, copy))
            self._tasks[partition] = move, task
            task.add_done_callback(lambda _: self._tasks.pop(partition, None))
        return ErrorCode.NONE

    async def _move(self, move: _Move, copy: _Copy) -> None:
        facts = {"partition": str(move.topic_partition), "log_directory": str(move.target.path)}
        _log.info("log_move_began", **facts)
        try:
            async with self._copiers:
                while not await self._copied_and_swapped(move, copy):
                    _log.info("log_move_began_anew", **facts)
                    await self._drop_copy(move)
                    copy = await self._begun(move)
        except (StorageError, ProtocolError) as error:
            _log.error("log_move_given_up", reason=str(error), **facts)
        else:
            _log.info("log_move_completed", **facts)
        finally:
            await asyncio.shield(self._drop_copy(move))

    async def _drop_copy(self, move: _Move) -> None:
        try:
            await self._in_thread(partial(move.target.drop_future, move.topic_partition))
        except StorageError as error:
            _log.warning("copy_not_dropped", partition=str(move.topic_partition), reason=str(error))

    async def _copied_and_swapped(self, move: _Move, copy: _Copy) -> bool:
        """False when the copy has to begin anew. Raises StorageError, ProtocolError."""
        try:
            while True:
                await self._copy(move, copy)
                await self._in_thread(copy.log.flush)
                async with self._replicas.orders:
                    await move.replica.settled()
                    self._require_hosted(move)
                    if copy.took_rest():
                        await self._swap(move)
                        return True
        except _SourceChangedError:
            return False

    async def _begun(self, move: _Move) -> _Copy:
        """An empty copy that begins with the first batch of its source."""
        await move.replica.settled()
        source = move.replica.log
        start, cut_count = source.log_start_offset, source.cut_count
        first = source.read(start, max_bytes=1, up_to=source.log_end_offset)
        base = start if first is EMPTY else read_header(await self._in_thread(first.read)).base_offset
        log = await self._in_thread(partial(move.target.begin_future, source, min(base, start)))
        return _Copy(source=source, log=log, start=start, cut_count=cut_count)

    async def _copy(self, move: _Move, copy: _Copy) -> None:
        """Until the copy has everything that there is at this moment."""
        while True:
            await move.replica.settled()
            if (found := copy.missing()) is EMPTY:
                return
            self._require_hosted(move)
            if not move.target.free_space.admits(len(found)):
                raise StorageError(f"{move.target.path} is full")
            data = await self._in_thread(found.read)
            await self._in_thread(partial(copy.log.append_as_follower, data))
            await self._earn(len(found))

    async def _earn(self, size: int) -> None:
        """Wait until so many bytes may be copied again, or other bounds hold."""
        reconfigured = self._reconfigured
        with suppress(TimeoutError):
            async with asyncio.timeout(self._throttle.spend(size)):
                await reconfigured.wait()

    async def _swap(self, move: _Move) -> None:
        """Let the complete copy be the replica's log. The caller holds the orders."""
        replica, directories = move.replica, self._replicas.directories
        holder = directories.find(move.topic_partition)
        if holder is None:
            raise StorageError(f"the log of {move.topic_partition} is gone")
        self._replicas.withdraw(replica)
        exchange = asyncio.ensure_future(
            self._in_thread(partial(_exchange, holder, move.target, replica.log))
        )
        try:
            await _finished(exchange)
        finally:
            home = directories.find(move.topic_partition)
            if home is not None:
                replica.log, replica.free_space = home.logs[move.topic_partition], home.free_space
                self._replicas.put_back(replica)

    def _require_hosted(self, move: _Move) -> None:
        if self._replicas.get(*move.topic_partition) is not move.replica:
            raise StorageError(f"{move.topic_partition} is no longer served here")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A copy under way, and what its source was when it began."""

    source: Log
    log: Log
    start: int
    cut_count: int

    def missing(self) -> FileRange:
        """What comes next of the source, EMPTY when the copy has all. Raises _SourceChangedError when the two
        have parted.
        """
        source, end = self.source, self.log.log_end_offset
        position = end if self.log.size else self.start
        if source.cut_count != self.cut_count or position < source.log_start_offset:
            raise _SourceChangedError(f"{source.topic_partition} was cut while it was copied")
        return source.read(position, max_bytes=CHUNK_BYTES, up_to=source.log_end_offset)

    def took_rest(self) -> bool:
        """Copy what is missing, unless it is too much to be done on the event loop."""
        size = 0
        while (found := self.missing()) is not EMPTY:
            size += len(found)
            if size > REST_BYTES_MAX:
                return False
            self.log.append_as_follower(found.read())
        return True


def _exchange(holder: LogDirectory, target: LogDirectory, source: Log) -> None:
    """Let the copy in `target` take the place of `source` in `holder`. Blocks. Raises StorageError; where it
    can, the source is in place again then.
    """
    partition, config = source.topic_partition, source.config
    target.prepare_future(partition, source)
    withdrawn = holder.withdraw_log(partition)
    try:
        target.adopt_future(partition, config)
    except StorageError:
        holder.put_back_log(source, withdrawn)
        raise
    holder.discard(withdrawn)


async def _finished(work: asyncio.Future[None]) -> None:
    """The end of `work`, also for a task that is cancelled meanwhile. Raises what it raises."""
    is_cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            is_cancelled = True
    work.result()
    if is_cancelled:
        raise asyncio.CancelledError
