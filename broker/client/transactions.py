"""Drives a transactional producer: asks coordinators what `transaction_state` says, and has the sender wait,
go on or give up.

Owned by the producer's loop. `init`, `send_offsets`, `commit` and `abort` are for one task at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from broker.client.backoff import is_retriable
from broker.client.group_offsets import Membership, OffsetAndMetadata
from broker.client.partition_queue import PartitionQueue
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.client.sender import Sender
from broker.client.transaction_requests import Ended, TransactionRequests
from broker.client.transaction_state import (
    Severity,
    TransactionAbortableError,
    TransactionState,
    TransactionStateError,
    TransactionStatus,
    severity_at_coordinator,
    severity_of_batch,
)
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition

_LAST_PRODUCE_VERSION_OF_FIRST_PROTOCOL = 11

_Result = TypeVar("_Result")

_log = logger("producer")


class TransactionManager:
    """The transactions of one producer, and the source of its identities."""

    def __init__(self, state: TransactionState, requests: TransactionRequests, sender: Sender) -> None:
        self._state = state
        self._requests = requests
        self._sender = sender
        self._held: set[PartitionQueue] = set()
        """Their partitions are not part of the transaction yet."""
        self._nothing_to_add = asyncio.Event()
        self._nothing_to_add.set()
        self._may_have_added = False
        """The coordinator did not answer whether it added partitions."""
        self._busy = False

    @property
    def state(self) -> TransactionState:
        """Where the transaction stands; to look at only."""
        return self._state

    # What the program calls

    async def init(self) -> None:
        """Take the transactional id over."""
        if self._state.status is not TransactionStatus.UNINITIALIZED:
            self._state.raise_error()
            raise TransactionStateError(f"{self._state.transactional_id} is initialized already")
        async with self._alone("initialize"):
            ended = await self._asked(self._requests.init(NO_IDENTITY))
            assert ended.identity is not None, "an initialized producer has an identity"
            self._state.initialized(ended.identity, ended.version)
            self._agree_on_version()
        _log.info("transactions_initialized", transactional_id=self._state.transactional_id)

    def begin(self) -> None:
        """Open a transaction."""
        self._state.begin()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_id: str, membership: Membership
    ) -> None:
        """Have a group's positions committed with the transaction."""
        self._state.require_open("send offsets")
        if not offsets:
            return
        identity, by_leaders = self._state.identity, not self._state.adds_partitions
        async with self._alone("send offsets"):
            self._state.offsets_sent()
            if not by_leaders:
                await self._asked(self._requests.add_offsets(identity, group_id))
            committing = self._requests.commit_offsets(
                identity, group_id, membership, offsets, by_leaders=by_leaders
            )
            await self._asked(committing)
            self._state.raise_error()

    async def commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Commit what was sent, once `flush` has written it."""
        async with self._alone("commit"):
            self._state.begin_commit()
            await flush()
            await asyncio.sleep(0)  # what was given up before is told by then
            await self._nothing_to_add.wait()
            self._state.raise_error()
            ended = await self._end(commit=True)
            self._state.ended(ended.identity, ended.version)
            self._agree_on_version()

    async def abort(self) -> None:
        """Give up what is not written, and have the rest of the transaction ignored by readers."""
        async with self._alone("abort"):
            self._state.begin_abort()
            self._sender.pause()
            try:
                await self._stop_writing()
                ended = await self._end(commit=False)
                self._state.ended(ended.identity, ended.version)
                self._agree_on_version()
            finally:
                self._sender.resume()

    # The producer's side

    def require_open(self) -> None:
        """Raise what forbids to send."""
        self._state.require_open("send")

    def include(self, queue: PartitionQueue) -> None:
        """A record is buffered there, in this turn of the loop. Raises what forbids it."""
        if not self._state.write(queue.topic_partition) and queue not in self._held:
            queue.held = True
            self._held.add(queue)
            if self._nothing_to_add.is_set():
                self._nothing_to_add.clear()
                self._sender.start(self._add_partitions())

    def batch_given_up(self, error: BrokerError) -> None:
        """Records of the transaction are not written."""
        self._fail(error, severity_of_batch(error))

    async def close(self) -> None:
        """Close the connections to coordinators."""
        await self._requests.close()

    # As a source of identities

    @property
    def current(self) -> ProducerIdentity:
        return self._state.identity

    def want(self) -> None:
        """An identity comes by `init` only."""

    def leave(self) -> None:
        message = "a batch before this one was lost"
        self._fail(ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message), Severity.ABORTABLE)

    # Steps

    async def _add_partitions(self) -> None:
        try:
            while partitions := self._state.partitions_to_add:
                await self._requests.add_partitions(self._state.identity, partitions)
                self._state.added(partitions)
                self._release(partitions)
        except BrokerError as error:
            self._may_have_added |= is_retriable(error)
            self._fail(error, severity_at_coordinator(error))
        finally:
            self._nothing_to_add.set()

    def _agree_on_version(self) -> None:
        """Later versions of Produce say that the leader is to make the partition part of the transaction."""
        adds = self._state.adds_partitions
        self._sender.exchange.version_max = _LAST_PRODUCE_VERSION_OF_FIRST_PROTOCOL if adds else None

    def _release(self, partitions: frozenset[TopicPartition]) -> None:
        for queue in [queue for queue in self._held if queue.topic_partition in partitions]:
            self._held.discard(queue)
            queue.held = False
            self._sender.enlist(queue)

    async def _stop_writing(self) -> None:
        """Give up everything buffered; return when nothing is in flight any more."""
        error = TransactionAbortableError("the transaction was aborted before this was written")
        self._sender.give_up_waiting(error)
        while self._sender.requests_in_flight:
            await self._sender.next_answer()
            self._sender.give_up_waiting(error)
        await self._nothing_to_add.wait()
        for queue in self._held:
            queue.held = False
        self._held.clear()
        await asyncio.sleep(0)  # what was given up is told while the transaction is being aborted

    async def _end(self, *, commit: bool) -> Ended:
        """End the transaction at its coordinator, who gives the identity for the next one."""
        state, adds = self._state, self._state.adds_partitions
        ended = Ended(None, state.version)
        if state.is_known_to_coordinator and not self._may_have_added:
            ended = await self._asked(self._requests.end(state.identity, commit=commit, by_leaders=not adds))
        elif not self._may_have_added:
            return ended
        if adds and not commit:
            ended = await self._asked(self._requests.init(state.identity))
        self._may_have_added = False
        return ended

    async def _asked(self, request: Awaitable[_Result]) -> _Result:
        """The coordinator's answer. A refusal counts against the transaction, running out of time not."""
        try:
            return await request
        except BrokerError as error:
            if not is_retriable(error):
                self._fail(error, severity_at_coordinator(error))
                self._state.raise_error()
            raise

    def _fail(self, error: BrokerError, severity: Severity) -> None:
        """Nothing more of the transaction is written."""
        state = self._state
        before = state.status
        state.failed(error, severity)
        if state.status is before:
            return
        _log.warning(
            "transaction_failed",
            transactional_id=state.transactional_id,
            status=state.status.value,
            error=str(error),
        )
        assert state.error is not None, "a failed transaction failed of something"
        if state.status is TransactionStatus.DEAD:
            self._sender.fail(state.error)
        else:
            self._sender.give_up_waiting(TransactionAbortableError(f"the transaction failed: {error}"))

    @asynccontextmanager
    async def _alone(self, what: str) -> AsyncIterator[None]:
        if self._busy:
            raise TransactionStateError(
                f"{self._state.transactional_id}: cannot {what} while another such call is under way"
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
