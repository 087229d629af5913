"""A producer that writes transactions: records of several partitions, and positions of groups, that readers
of committed records see all together or not at all.

    settings = ProducerSettings(transactional_id="orders-1")
    async with TransactionalProducer(cluster, settings=settings) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("orders", b"...")
            await producer.send_offsets_to_transaction(positions, "group", member.membership)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from broker.client.cluster import Cluster, Routing
from broker.client.group_offsets import NO_MEMBERSHIP, Membership, OffsetAndMetadata
from broker.client.producer import Producer
from broker.client.producer_settings import ProducerSettings
from broker.client.transaction_requests import TransactionRequests
from broker.client.transaction_state import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionState,
    TransactionStateError,
    TransactionStatus,
)
from broker.client.transactions import TransactionManager
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from broker.types import TopicPartition

__all__ = [
    "ProducerFencedError",
    "TransactionAbortableError",
    "TransactionStateError",
    "TransactionStatus",
    "TransactionalProducer",
]

_log = logger("producer")


class TransactionalProducer(Producer):
    """Writes transactions one after the other, under the transactional id of its settings.

    What every call may raise: ProducerFencedError when another producer took over the id, or whatever else
    ended this one (close it then); TransactionAbortableError when the transaction must be aborted;
    TransactionStateError for a call out of turn; RequestTimedOutError or ConnectionFailedError when a
    coordinator did not answer for `max_block_ms` (`init_transactions`, `commit_transaction` and
    `abort_transaction` may be called again then).
    """

    def __init__(self, cluster: Cluster, *, settings: ProducerSettings, **producer: Any) -> None:
        """Settings and parts as of a Producer.

        Raises ConfigurationError without a transactional id, and where only one node can be reached.
        """
        if settings.transactional_id is None:
            raise ConfigurationError(["transactional_id is missing"])
        if cluster.routing is Routing.SINGLE:
            raise ConfigurationError(
                ["transactions need connections to their coordinators: routing is single"]
            )
        super().__init__(cluster, settings=settings, **producer)
        manager = TransactionManager(
            TransactionState(settings.transactional_id),
            TransactionRequests(cluster, settings.transactional_id, settings),
            self._sender,
        )
        self._manager = self._transactions = self._sender.identities = manager

    @property
    def status(self) -> TransactionStatus:
        """Where the transaction stands."""
        return self._manager.state.status

    async def init_transactions(self) -> None:
        """Take over the transactional id, once, before everything else: producers that had it before can
        write no more, and what they left open is aborted.
        """
        await self._manager.init()

    def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on is part of it."""
        self._manager.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        membership: Membership = NO_MEMBERSHIP,
    ) -> None:
        """Have the positions of a group (next offsets to read) committed with the transaction.

        With the `membership` of the consumer that read them (`consumer.member.membership`) a coordinator
        refuses positions of partitions that it has given to somebody else.
        """
        await self._manager.send_offsets(offsets, group_id, membership)

    async def commit_transaction(self) -> None:
        """Write what is buffered, and commit."""
        await self._manager.commit(self.flush)

    async def abort_transaction(self) -> None:
        """Give up what is buffered, and abort."""
        await self._manager.abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction that is committed at the end of the block, and aborted when that raises; the error
        goes on.
        """
        self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            if self.status in (TransactionStatus.OPEN, TransactionStatus.ABORTABLE):
                await self.abort_transaction()
            raise

    async def _finish(self) -> None:
        """An open transaction is aborted: nobody else can end it."""
        if self.status in (TransactionStatus.OPEN, TransactionStatus.ABORTABLE):
            try:
                await self.abort_transaction()
            except BrokerError as error:
                _log.warning("transaction_left_open", error=str(error))
        await super()._finish()
        await self._manager.close()
