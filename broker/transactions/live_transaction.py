"""One transactional id on this node: its machine, and the performing of what it decides.

Everything happens on the event loop in plain functions. Only the log is waited for, by callback; an id has
one record on its way at most, so the log has them in the order in which they were decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from broker.clock import Clock
from broker.coordinators.partition_writer import PartitionWriter
from broker.errors import ErrorCode
from broker.telemetry import logger
from broker.transactions.events import (
    AddPartitions,
    Effects,
    End,
    ExpiryChecked,
    Initialise,
    MarkersWritten,
    Reply,
    Store,
    Stored,
    TimeChecked,
)
from broker.transactions.log_codec import TransactionRecord
from broker.transactions.machine import TransactionMachine
from broker.transactions.transaction import Transaction

_log = logger("transactions")

STORE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What producers are told when their transaction could not be stored; other codes go through. Source: Kafka's
TransactionStateManager.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the ids of one partition share."""

    clock: Clock
    writer: PartitionWriter[TransactionRecord]
    on_began: Callable[[LiveTransaction], None] = field(repr=False)
    """Called when a record of the id is on its way to the log."""
    on_prepared: Callable[[LiveTransaction], None] = field(repr=False)
    """Called when the end of its transaction is decided, and stored."""
    on_gone: Callable[[LiveTransaction], None] = field(repr=False)
    """Called when there is nothing to know about the id (any more)."""


class LiveTransaction:
    """One id; every method belongs to the event loop's thread."""

    __slots__ = ("_machine", "_surroundings", "transactional_id")

    def __init__(
        self, transactional_id: str, surroundings: Surroundings, transaction: Transaction | None = None
    ) -> None:
        self.transactional_id = transactional_id
        self._machine = TransactionMachine(transaction)
        self._surroundings = surroundings

    @property
    def machine(self) -> TransactionMachine:
        """For questions only."""
        return self._machine

    async def ask(self, event: Initialise | AddPartitions | End) -> Reply | None:
        """What the producer is answered; None when it takes a new producer id, which the event did
        not bring.
        """
        effects = self._handle(event)
        if effects.needs_producer_id:
            return None
        if effects.store is None:
            assert effects.reply is not None, "an event that stores nothing is answered at once"
            return effects.reply
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._store(effects.store, answer)
        return await answer

    def look(self, event: TimeChecked | ExpiryChecked) -> None:
        """See whether something is due, and have it done."""
        effects = self._handle(event)
        if effects.store is not None:
            self._store(effects.store, None)

    async def complete(self) -> bool:
        """All markers are written: whether the log has taken that in."""
        effects = self._handle(MarkersWritten())
        if effects.store is None:
            return True
        stored: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._store(effects.store, None, stored)
        return await stored is ErrorCode.NONE

    def _handle(
        self, event: Initialise | AddPartitions | End | TimeChecked | ExpiryChecked | MarkersWritten
    ) -> Effects:
        return self._machine.handle(event, self._surroundings.clock.now_ms())

    def _store(
        self,
        store: Store,
        answer: asyncio.Future[Reply] | None,
        stored: asyncio.Future[ErrorCode] | None = None,
    ) -> None:
        record = TransactionRecord(transactional_id=self.transactional_id, transaction=store.value)
        self._surroundings.on_began(self)
        self._surroundings.writer.submit([record], partial(self._stored, answer, stored))

    def _stored(
        self,
        answer: asyncio.Future[Reply] | None,
        stored: asyncio.Future[ErrorCode] | None,
        error: ErrorCode,
    ) -> None:
        told = Stored(error=STORE_ERRORS.get(error, error))
        effects = self._machine.handle(told, self._surroundings.clock.now_ms())
        for fact in effects.facts:
            _log.info(fact.name, transactional_id=self.transactional_id, **fact.details)
        if effects.sends_markers:
            self._surroundings.on_prepared(self)
        if self._machine.transaction is None:
            self._surroundings.on_gone(self)
        if answer is not None and not answer.done():
            assert effects.reply is not None, "who waits for a store is answered"
            answer.set_result(effects.reply)
        if stored is not None and not stored.done():
            stored.set_result(error)
