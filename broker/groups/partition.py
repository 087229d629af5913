"""One partition of `__consumer_offsets` that this node leads, and the groups that live on it.

First the log is read to its end (`load`), meanwhile nobody is served; then it is live until this node
resigns. A group comes to be when it is first asked for and is forgotten when nothing would be lost by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from broker.clock import Clock
from broker.coordinators.loading import entries_of
from broker.coordinators.partition_writer import CoordinatorLog, PartitionWriter
from broker.coordinators.stored_batches import Unreadable
from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.consumer_groups.config import ConsumerConfigOf
from broker.groups.consumer_groups.topics import TopicDirectory
from broker.groups.live_group import LiveGroup
from broker.groups.log_codec import LogEntry, LogRecord, TransactionEnded, encode, read_log
from broker.groups.surroundings import Surroundings
from broker.groups.waiters import Waiters
from broker.telemetry import logger

_log = logger("groups")


class OffsetsPartition:
    """The groups of one partition, from election to resignation."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        log: CoordinatorLog,
        clock: Clock,
        config: GroupConfig,
        consumer_config_of: ConsumerConfigOf,
        topics: TopicDirectory,
        waiters: Waiters,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_live = False
        self.writer = PartitionWriter[LogRecord](
            log,
            partition,
            clock,
            encode,
            batch_bytes_max=config.batch_bytes_max,
            pending_max=config.appends_pending_max,
        )
        self._log = log
        self._config = config
        self._is_resigned = False
        self._writing: asyncio.Task[None] | None = None
        self._groups: dict[str, LiveGroup] = {}
        self._in_transactions: dict[int, set[str]] = {}
        """Groups with offsets that wait for the end of a transaction, by its producer."""
        self._surroundings = Surroundings(
            config=config,
            consumer_config_of=consumer_config_of,
            clock=clock,
            topics=topics,
            writer=self.writer,
            waiters=waiters,
            on_disposable=self._forget,
            in_transaction=self._note_transaction,
        )

    def __iter__(self) -> Iterator[LiveGroup]:
        return iter(tuple(self._groups.values()))

    async def load(self) -> bool:
        """Read the log to its end and go live; False if the node resigned meanwhile. Raises ProtocolError."""
        count = 0
        async for entry in entries_of(
            self._log,
            self.partition,
            lambda chunk: read_log(chunk, batch_bytes_max=self._config.load_batch_bytes_max),
        ):
            if self._is_resigned:
                return False
            self._replay(entry)
            count += 1
        if self._is_resigned:
            return False
        self.is_live = True
        for group in self:
            group.go_live()
        _log.info("partition_loaded", partition=self.partition, records=count, groups=len(self._groups))
        return True

    def _replay(self, entry: LogEntry) -> None:
        match entry:
            case Unreadable():
                _log.error("record_skipped", partition=self.partition, reason=entry.reason)
            case TransactionEnded():
                self._end_transaction(entry.producer_id, committed=entry.committed)
            case _:
                self.group(entry.group_id).replay(entry)

    def _note_transaction(self, producer_id: int, group_id: str) -> None:
        self._in_transactions.setdefault(producer_id, set()).add(group_id)

    def _end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group_id in sorted(self._in_transactions.pop(producer_id, ())):
            group = self._groups.get(group_id)
            if group is not None:
                group.end_transaction(producer_id, committed=committed)

    async def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """The producer's marker is in the log: what it committed to groups counts now, or never."""
        await self.writer.told()
        self._end_transaction(producer_id, committed=committed)

    def start_writing(self, tasks: asyncio.TaskGroup) -> None:
        """Run the writer as one of `tasks` until this node resigns."""
        self._writing = tasks.create_task(self.writer.run())

    def find(self, group_id: str) -> LiveGroup | None:
        """The group, if there is anything to know about it."""
        return self._groups.get(group_id)

    def group(self, group_id: str) -> LiveGroup:
        """The group; one that was not known is made, and forgotten again unless something comes of it."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = LiveGroup(group_id, self._surroundings)
        return group

    def _forget(self, group: LiveGroup) -> None:
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def resign(self) -> None:
        """Send every waiter away with NOT_COORDINATOR and serve no more."""
        self._is_resigned = True
        self.is_live = False
        for group in self:
            group.leave_node()
        self.writer.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._writing is not None:
            self._writing.cancel()
        self._groups.clear()
