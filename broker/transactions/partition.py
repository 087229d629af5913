"""One partition of `__transaction_state` that this node leads, and the transactional ids that live on it.

First the log is read to its end (`load`), meanwhile nobody is served; then it is live until this node
resigns. Ends that were decided and not completed are gone on with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from broker.clock import Clock
from broker.coordinators.loading import entries_of
from broker.coordinators.partition_writer import CoordinatorLog, PartitionWriter
from broker.coordinators.record_batches import KeyValue
from broker.coordinators.stored_batches import Unreadable
from broker.errors import ErrorCode
from broker.telemetry import logger
from broker.transactions.config import TransactionConfig
from broker.transactions.live_transaction import LiveTransaction, Surroundings
from broker.transactions.log_codec import TransactionRecord, encode, read_log
from broker.transactions.markers import Ending, Markers
from broker.transactions.state import State
from broker.transactions.transaction import Transaction

_log = logger("transactions")


class StatePartition:
    """The ids of one partition, from election to resignation."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        log: CoordinatorLog,
        clock: Clock,
        config: TransactionConfig,
        markers: Markers,
        value_version: Callable[[], int],
    ) -> None:
        """`value_version` tells how records are to be written at the moment."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_live = False
        self.is_resigned = False

        def encoded(record: TransactionRecord) -> KeyValue:
            return encode(record, value_version=value_version())

        self.writer = PartitionWriter[TransactionRecord](
            log,
            partition,
            clock,
            encoded,
            batch_bytes_max=config.batch_bytes_max,
            pending_max=config.appends_pending_max,
        )
        self._log = log
        self._config = config
        self._markers = markers
        self._writing: asyncio.Task[None] | None = None
        self._ids: dict[str, LiveTransaction] = {}
        self._surroundings = Surroundings(
            clock=clock,
            writer=self.writer,
            on_began=self._keep,
            on_prepared=self._write_markers,
            on_gone=self._forget,
        )

    def __iter__(self) -> Iterator[LiveTransaction]:
        return iter(tuple(self._ids.values()))

    async def load(self) -> bool:
        """Read the log to its end and go live; False if the node resigned meanwhile. Raises ProtocolError."""
        found: dict[str, Transaction] = {}

        async for entry in entries_of(
            self._log,
            self.partition,
            lambda chunk: read_log(chunk, batch_bytes_max=self._config.load_batch_bytes_max),
        ):
            if self.is_resigned:
                return False
            if isinstance(entry, Unreadable):
                _log.error("record_skipped", partition=self.partition, reason=entry.reason)
            elif entry.transaction is None:
                found.pop(entry.transactional_id, None)
            else:
                found[entry.transactional_id] = entry.transaction
        if self.is_resigned:
            return False
        for name, transaction in found.items():
            self._ids[name] = LiveTransaction(name, self._surroundings, transaction)
        self.is_live = True
        _log.info("transactions_loaded", partition=self.partition, ids=len(found))
        return True

    def start_writing(self, tasks: asyncio.TaskGroup) -> None:
        """Run the writer as one of `tasks` until this node resigns; go on with what was being ended."""
        self._writing = tasks.create_task(self.writer.run())
        for live in self:
            transaction = live.machine.transaction
            if transaction is not None and transaction.state.is_prepared:
                self._write_markers(live)

    def find(self, transactional_id: str) -> LiveTransaction | None:
        """The id, if there is anything to know about it."""
        return self._ids.get(transactional_id)

    def obtain(self, transactional_id: str) -> LiveTransaction:
        """The id; one that was not known is kept once something comes of it."""
        return self._ids.get(transactional_id) or LiveTransaction(transactional_id, self._surroundings)

    def _keep(self, live: LiveTransaction) -> None:
        self._ids[live.transactional_id] = live

    def _forget(self, live: LiveTransaction) -> None:
        if self._ids.get(live.transactional_id) is live:
            del self._ids[live.transactional_id]

    def _write_markers(self, live: LiveTransaction) -> None:
        transaction = live.machine.transaction
        assert transaction is not None, "its end was just stored"
        if self.is_resigned:
            return
        self._markers.write(
            Ending(
                transactional_id=live.transactional_id,
                producer=transaction.producer,
                commits=transaction.state is State.PREPARE_COMMIT,
                coordinator_epoch=self.leader_epoch,
                transaction_version=transaction.client_version,
                partitions=set(transaction.partitions),
                is_wanted=lambda: not self.is_resigned,
                complete=live.complete,
            )
        )

    def resign(self) -> None:
        """Send every waiter away with NOT_COORDINATOR and serve no more."""
        self.is_resigned = True
        self.is_live = False
        self.writer.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._writing is not None:
            self._writing.cancel()
        self._ids.clear()
