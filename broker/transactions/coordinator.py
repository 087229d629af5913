"""The transaction coordinator of a node: for the transactional ids whose partition of `__transaction_state`
it leads.

`async with` it: the writers of its partitions, markers under way and the checks of timeouts are tasks of its
own, and end with it. Its methods belong to one event loop, and never raise for what a producer did or the log
refused: that is in the answers. A caller that is cancelled (its connection went away) leaves what it asked
for under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from broker.clock import Clock
from broker.coordinators.led_partitions import LedPartitions
from broker.coordinators.partition_writer import CoordinatorLog
from broker.coordinators.placement import partition_of
from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import ErrorCode, ProtocolError
from broker.transactions.config import TransactionConfig
from broker.transactions.events import (
    AddPartitions,
    End,
    ExpiryChecked,
    Initialise,
    Reply,
    TimeChecked,
)
from broker.transactions.live_transaction import LiveTransaction
from broker.transactions.markers import Markers
from broker.transactions.partition import StatePartition
from broker.transactions.state import State
from broker.transactions.transaction import Transaction
from broker.types import TopicPartition

TOPIC = "__transaction_state"
ID_BYTES_MAX = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What ListTransactions shows of an id: its name and its transaction as the log has it."""

    transactional_id: str
    transaction: Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which ids ListTransactions asks for; empty sets and a negative duration ask for all."""

    states: frozenset[str] = field(default_factory=frozenset)
    producer_ids: frozenset[int] = field(default_factory=frozenset)
    open_longer_than_ms: int = -1

    def shows(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether it is one of those."""
        return (
            (not self.states or transaction.state.value in self.states)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.open_longer_than_ms < 0 or now_ms - transaction.started_ms > self.open_longer_than_ms)
        )


class TransactionCoordinator:
    """Coordinates the transactional ids whose partition this node leads."""

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        config: TransactionConfig,
        markers: Markers,
        *,
        new_producer_id: Callable[[], Awaitable[int]],
        value_version: Callable[[], int],
    ) -> None:
        """`new_producer_id` may raise ProtocolError; `value_version`: see StatePartition."""
        self._log = log
        self._clock = clock
        self._config = config
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._partitions = LedPartitions(
            TOPIC,
            lambda partition, leader_epoch: StatePartition(
                partition,
                leader_epoch,
                log=log,
                clock=clock,
                config=config,
                markers=markers,
                value_version=value_version,
            ),
        )
        self._tasks = asyncio.TaskGroup()
        self._checks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._markers.run_in(self._tasks)
        self._checks = [
            self._tasks.create_task(self._check_timeouts()),
            self._tasks.create_task(self._check_expiry()),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._partitions.resign_all()
        for check in self._checks:
            check.cancel()
        self._markers.close()
        await self._tasks.__aexit__(kind, error, traceback)

    # Partitions come and go

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that an id lives on. Raises ProtocolError while the topic
        does not exist.
        """
        count = self._log.partition_count
        if count <= 0:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TOPIC} does not exist yet")
        return partition_of(transactional_id, count)

    async def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node leads `partition` since `leader_epoch`: read it, then serve its ids."""
        await self._partitions.elect(partition, leader_epoch, self._tasks)

    def on_resigned(self, partition: int) -> None:
        """This node does not lead `partition` (any more)."""
        self._partitions.resign(partition)

    def resign_all(self) -> None:
        """This node is about to stop: have everybody who waits look elsewhere."""
        self._partitions.resign_all()

    def _partition(self, transactional_id: str) -> StatePartition:
        number = self.partition_of(transactional_id)
        if not self._log.is_leader(number):
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        return self._partitions.live(number)

    # Producers

    async def initialise(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Reply:
        """InitProducerId: who the producer of the id is from now on."""
        if transactional_id and not 0 < timeout_ms <= self._config.timeout_max_ms:
            return Reply(error=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return await self._ask(transactional_id, Initialise(timeout_ms=timeout_ms, expected=expected))

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """AddPartitionsToTxn, AddOffsetsToTxn: NONE once the log has it that the transaction writes there."""
        event = AddPartitions(producer=producer, partitions=frozenset(partitions))
        return (await self._ask(transactional_id, event)).error

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commits: bool, version: int
    ) -> Reply:
        """EndTxn: answered once the outcome is in the log; `version` is the client's
        `transaction.version`.
        """
        return await self._ask(transactional_id, End(producer=producer, commits=commits, version=version))

    async def _ask(self, transactional_id: str, event: Initialise | AddPartitions | End) -> Reply:
        try:
            _require_valid(transactional_id)
            while True:
                partition = self._partition(transactional_id)
                if partition.writer.is_full:
                    raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many appends are waiting")
                reply = await partition.obtain(transactional_id).ask(event)
                if reply is not None:
                    return reply
                assert not isinstance(event, AddPartitions), "takes no producer id"
                event = replace(event, spare_producer_id=await self._new_producer_id())
        except ProtocolError as error:
            return Reply(error=error.code)

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn with `verify_only`: whether partitions are part of the open transaction."""
        asked = tuple(partitions)
        try:
            _require_valid(transactional_id)
            live = self._partition(transactional_id).obtain(transactional_id)
        except ProtocolError as error:
            return dict.fromkeys(asked, error.code)
        return live.machine.verify(producer, asked)

    # Looking

    def describe(self, transactional_id: str) -> Transaction:
        """The id as the log has it. Raises ProtocolError TRANSACTIONAL_ID_NOT_FOUND among others."""
        _require_valid(transactional_id)
        live = self._partition(transactional_id).find(transactional_id)
        transaction = None if live is None else live.machine.transaction
        if live is None or transaction is None or live.machine.state is State.DEAD:
            raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    @property
    def is_loading(self) -> bool:
        """Whether some partition that this node leads is still being read."""
        return any(not partition.is_live for partition in self._partitions)

    def list(self, wanted: ListFilter) -> list[Listing]:
        """The ids of live partitions."""
        now_ms = self._clock.now_ms()
        return [
            Listing(transactional_id=live.transactional_id, transaction=transaction)
            for live in self._live()
            if (transaction := live.machine.transaction) is not None
            and live.machine.state is not State.DEAD
            and wanted.shows(transaction, now_ms)
        ]

    @property
    def id_count(self) -> int:
        """Transactional ids that this node coordinates."""
        return sum(1 for _ in self._live())

    @property
    def open_count(self) -> int:
        """Those with an open transaction."""
        return sum(live.machine.state is State.ONGOING for live in self._live())

    @property
    def markers(self) -> Markers:
        """For questions only."""
        return self._markers

    def _live(self) -> Iterator[LiveTransaction]:
        for partition in self._partitions:
            if partition.is_live:
                yield from partition

    # Time

    def abort_overdue(self) -> None:
        """Have transactions aborted that outlived their timeout; runs by itself every check interval."""
        for live in self._live():
            live.look(TimeChecked())

    def remove_expired(self) -> None:
        """Have ids removed that nobody used for long; runs by itself every check interval."""
        for live in self._live():
            live.look(ExpiryChecked(expiration_ms=self._config.id_expiration_ms))

    async def _check_timeouts(self) -> None:
        while True:
            await asyncio.sleep(self._config.timeout_check_interval_ms / 1000)
            self.abort_overdue()

    async def _check_expiry(self) -> None:
        while True:
            await asyncio.sleep(self._config.expiry_check_interval_ms / 1000)
            self.remove_expired()


def _require_valid(transactional_id: str) -> None:
    """Raises ProtocolError INVALID_REQUEST for an id that no record could hold."""
    if not transactional_id or len(transactional_id.encode()) > ID_BYTES_MAX:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"a transactional id has 1 to {ID_BYTES_MAX} bytes")
