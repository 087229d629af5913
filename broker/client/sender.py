"""Sending what the producer has buffered: outboxes per node, answers, leaders that move.

Nothing polls: whatever makes a partition sendable enlists it at its leader's outbox, and outboxes are worked
off in the next turn of the loop. One request takes one batch of each partition in line. Several requests are
in flight per node. Identities come from an `IdentitySource`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.client.backoff import Backoff, Random, is_retriable
from broker.client.cluster import Cluster, Routing
from broker.client.connection import Connection
from broker.client.identity_source import IdempotentIdentity, IdentitySource, IdentityUse
from broker.client.partition_queue import PartitionQueue
from broker.client.produce_requests import answers_by_partition, build_produce, format_records
from broker.client.producer_batch import NO_OFFSET, ProducerBatch
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.client.producer_metrics import ProducerCounters
from broker.client.producer_settings import ProducerSettings
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.records.batch import HEADER_SIZE
from broker.telemetry import logger
from broker.types import Buffer, TopicPartition
from broker.wire.features import PRODUCE_FORWARDING
from broker.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

_HOUSEKEEPING_INTERVAL_MS = 500.0
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

_Batches = list[tuple[PartitionQueue, ProducerBatch]]

_log = logger("producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderHooks:
    """What the producer is told of its batches."""

    enqueued: Callable[[ProducerBatch], None]
    """The sender made a batch out of another."""
    closed: Callable[[TopicPartition], None]
    """The partition's open batch takes no more records."""
    sending: Callable[[ProducerBatch], None] | None
    """A batch is about to be sent; None where nobody wants to know."""
    failed: Callable[[], None]
    """Nothing can be written any more."""


class _Outbox:
    """What is to be sent to one node."""

    __slots__ = ("connecting", "connection", "in_flight", "ready", "scheduled")

    def __init__(self) -> None:
        self.ready: deque[PartitionQueue] = deque()
        self.connection: Connection | None = None
        self.connecting = False
        self.in_flight = 0
        self.scheduled = False


class Sender:
    """Owns the queues of a producer's partitions.

    `run` is its task; everything else is called from the same loop.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        backoff: Backoff,
        random: Random,
        counters: ProducerCounters,
        hooks: SenderHooks,
    ) -> None:
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        """By topic and partition, so that no TopicPartition has to be made to find one."""
        self.hurries = 0
        """While this is not 0, batches are sent although they could still grow."""
        self.produce_version_max: int | None = None
        """Bound of the version of requests, if any."""
        self.failure: BrokerError | None = None
        """Why nothing can be written any more."""
        self._cluster = cluster
        self._settings = settings
        self._backoff = backoff
        self._random = random
        self._counters = counters
        self._hooks = hooks
        self._outboxes: dict[int, _Outbox] = {}
        self.identities: IdentitySource = IdempotentIdentity(
            cluster,
            IdentityUse(start=self.start, obtained=self.identity_obtained, refused=self.fail),
            backoff=backoff,
            random=random,
        )
        self._leaderless: set[TopicPartition] = set()
        """Partitions with batches for which no leader is known."""
        self._stale_topics: set[str] = set()
        self._refreshing = False
        self._lane = cluster.new_lane("produce")
        self._paused = False
        self._tasks: asyncio.TaskGroup | None = None
        self._answered = asyncio.Event()

    # The producer's side

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, made when there is none."""
        queue = self.queues.get(topic_partition)
        if queue is None:
            queue = self.queues[topic_partition] = PartitionQueue(
                topic_partition, window=self._settings.window, retries=self._settings.retries
            )
        return queue

    def unsettled(self) -> list[ProducerBatch]:
        """Every batch that is neither written nor given up."""
        return [batch for queue in self.queues.values() for batch in queue.batches]

    @property
    def requests_in_flight(self) -> int:
        return sum(outbox.in_flight for outbox in self._outboxes.values())

    def enlist_all(self) -> None:
        """List every partition that has something to send."""
        for queue in self.queues.values():
            self.enlist(queue)

    def enlist(self, queue: PartitionQueue) -> None:
        """List a partition at its leader's outbox if something of it can be sent."""
        if queue.enlisted or self._paused or not queue.sendable(hurry=self.hurries > 0):
            return
        leader = self._cluster.write_node(queue.topic_partition)
        if leader is None:
            self._leaderless.add(queue.topic_partition)
            self._want_metadata(queue.topic_partition.topic)
            return
        if queue.in_flight and queue.node_id != leader:
            return  # the old leader's answers come first
        queue.enlisted = True
        outbox = self._outboxes.get(leader)
        if outbox is None:
            outbox = self._outboxes[leader] = _Outbox()
        outbox.ready.append(queue)
        self._schedule(leader, outbox)

    def hasten(self) -> None:
        """Send everything buffered now, as soon as it can be: it does not linger any more."""
        for queue in self.queues.values():
            if queue.waiting:
                queue.waiting[-1].due = True
            self.enlist(queue)

    def give_up_all(self, error: BrokerError) -> None:
        """Give up everything that is not written."""
        for queue in self.queues.values():
            queue.give_up_all(error)

    def give_up_waiting(self, error: BrokerError) -> None:
        """Give up everything that is not in flight."""
        for queue in self.queues.values():
            queue.give_up_waiting(error)

    def pause(self) -> None:
        """Send nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Send again, also what got ready meanwhile."""
        self._paused = False
        self.enlist_all()
        self._schedule_all()

    async def next_answer(self) -> None:
        """Return when a request was answered, or failed."""
        self._answered.clear()
        await self._answered.wait()

    def want_metadata_of(self, topics: Iterable[str]) -> None:
        """Refresh metadata in the background."""
        for topic in topics:
            self._want_metadata(topic)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            self.enlist_all()
            await self._keep_house()

    async def close(self) -> None:
        """Close the producer's connections; `run` must have ended."""
        await self._cluster.release_lane(self._lane)

    # Outboxes

    def _schedule_all(self) -> None:
        for node_id, outbox in self._outboxes.items():
            self._schedule(node_id, outbox)

    def _schedule(self, node_id: int, outbox: _Outbox) -> None:
        if not outbox.scheduled:
            outbox.scheduled = True
            asyncio.get_running_loop().call_soon(self._work_off, node_id, outbox)

    def _work_off(self, node_id: int, outbox: _Outbox) -> None:
        """Send what is ready for a node, as far as connection, identity and requests in flight allow."""
        outbox.scheduled = False
        if not outbox.ready or self._paused:
            return
        if not self._has_identity:
            self.identities.want()
            return
        connection = outbox.connection
        if connection is None or connection.closed:
            if not outbox.connecting:
                outbox.connecting = True
                self.start(self._connect(node_id, outbox))
            return
        while (
            outbox.in_flight < self._settings.max_in_flight and not connection.closed and self._has_identity
        ):
            batches = self._collect(node_id, outbox)
            if not batches:
                return
            self._transmit(node_id, outbox, connection, batches)

    @property
    def _has_identity(self) -> bool:
        return not self._settings.idempotent or self.identities.current is not NO_IDENTITY

    def _collect(self, node_id: int, outbox: _Outbox) -> _Batches:
        """One batch of each partition in line, as many as fit into a request.

        Those with more get in line again.
        """
        collected: _Batches = []
        size = 0
        for _ in range(len(outbox.ready)):
            queue = outbox.ready[0]
            if not self._goes_to(node_id, queue):
                outbox.ready.popleft().enlisted = False
                self.enlist(queue)
                continue
            identity = self.identities.current
            if queue.left_identity is not NO_IDENTITY and queue.left_identity == identity:
                self.identities.leave()
                break
            self._close_first(queue)
            size += len(queue.waiting[0].records)
            if collected and size > self._settings.max_request_bytes:
                break
            outbox.ready.popleft().enlisted = False
            collected.append((queue, self._take(queue, identity, node_id)))
            self.enlist(queue)
        return collected

    def _take(self, queue: PartitionQueue, identity: ProducerIdentity, node_id: int) -> ProducerBatch:
        batch = queue.take(identity, node_id)
        if batch.attempts > 1:
            self._counters.batches_repeated += 1
        if self._hooks.sending is not None:
            self._hooks.sending(batch)
        return batch

    def _goes_to(self, node_id: int, queue: PartitionQueue) -> bool:
        sendable = queue.sendable(hurry=self.hurries > 0)
        return sendable and self._cluster.write_node(queue.topic_partition) == node_id

    def _close_first(self, queue: PartitionQueue) -> None:
        """The next batch takes no more records."""
        if queue.waiting[0].is_open:
            queue.waiting[0].close()
            self._hooks.closed(queue.topic_partition)

    def _transmit(self, node_id: int, outbox: _Outbox, connection: Connection, batches: _Batches) -> None:
        self._counters.requests += 1
        try:
            self._require_forwarding(connection)
            version = connection.version_of(ProduceRequest, at_most=self.produce_version_max)
        except BrokerError as error:
            self._fail_all(batches, error)
            return
        batches, contents = self._formatted(batches, version, connection)
        if not batches:
            return
        forward = self._cluster.routing is Routing.SINGLE
        request = build_produce(contents, self._settings, forward=forward)
        outbox.in_flight += 1
        if self._settings.acks == 0:
            self.start(self._send_unanswered(node_id, outbox, connection, batches, request, version))
            return
        try:
            timeout_ms = self._settings.request_timeout_ms
            answer = connection.send(request, version, timeout_ms=timeout_ms)
        except BrokerError as error:
            outbox.in_flight -= 1
            self._fail_all(batches, error)
            return
        sent_at = asyncio.get_running_loop().time()
        answer.add_done_callback(partial(self._on_answer, node_id, outbox, batches, sent_at))

    def _formatted(
        self, batches: _Batches, version: int, connection: Connection
    ) -> tuple[_Batches, list[tuple[TopicPartition, Buffer]]]:
        """The batches that can travel in a request of that version, and what of them travels; the others are
        given up.
        """
        kept: _Batches = []
        contents: list[tuple[TopicPartition, Buffer]] = []
        for queue, batch in batches:
            try:
                records = format_records(batch.records, version, connection.address)
            except ProtocolError as error:
                self._fail(queue, batch, error)
                continue
            kept.append((queue, batch))
            contents.append((queue.topic_partition, records))
        return kept, contents

    def _require_forwarding(self, connection: Connection) -> None:
        """Raises ProtocolError when records for all leaders go to a node that passes none on."""
        forwards = PRODUCE_FORWARDING in connection.supported_features
        if self._cluster.routing is Routing.SINGLE and not forwards:
            message = f"{connection.address} does not pass records on to the leaders of their partitions"
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, message)

    async def _send_unanswered(
        self,
        node_id: int,
        outbox: _Outbox,
        connection: Connection,
        batches: _Batches,
        request: ProduceRequest,
        version: int,
    ) -> None:
        """With acks 0 a batch counts as written when the kernel has taken it."""
        try:
            connection.send_and_forget(request, version)
            await connection.drained()
            for queue, batch in batches:
                queue.settle(batch, NO_OFFSET, -1)
                self.enlist(queue)
        except BrokerError as error:
            self._fail_all(batches, error)
        finally:
            outbox.in_flight -= 1
        self._schedule(node_id, outbox)

    # Answers

    def _on_answer(
        self,
        node_id: int,
        outbox: _Outbox,
        batches: _Batches,
        sent_at: float,
        answer: asyncio.Future[ProduceResponse],
    ) -> None:
        outbox.in_flight -= 1
        self._answered.set()
        failure = answer.exception()
        if failure is None:
            self._counters.request_latencies.record((asyncio.get_running_loop().time() - sent_at) * 1000)
            answers = answers_by_partition(answer.result())
            for queue, batch in batches:
                if batch in queue.in_flight:  # unless given up meanwhile
                    self._settle(queue, batch, answers.get(queue.topic_partition))
        elif isinstance(failure, BrokerError):
            self._fail_all(batches, failure)
        else:
            raise failure
        self._schedule(node_id, outbox)

    def _settle(
        self, queue: PartitionQueue, batch: ProducerBatch, answer: PartitionProduceResponse | None
    ) -> None:
        if answer is None:
            message = f"{queue.topic_partition}: the answer does not mention it"
            self._fail(queue, batch, ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, message))
            return
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            queue.settle(batch, answer.base_offset, answer.log_append_time_ms)
            self.enlist(queue)
        elif code in _TOO_LARGE and batch.splittable and batch.count > 1:
            self._split(queue, batch)
        else:
            message = f"{queue.topic_partition}: {answer.error_message or code.meaning}"
            self._fail(queue, batch, ProtocolError(code, message))

    def _fail_all(self, batches: _Batches, error: BrokerError) -> None:
        self._counters.requests_failed += 1
        for queue, batch in batches:
            if batch in queue.in_flight:  # unless given up meanwhile
                self._fail(queue, batch, error)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: BrokerError) -> None:
        """Let the queue decide what becomes of the batch; the partition rests before it is sent again."""
        queue.fail(batch, error)
        if is_retriable(error):
            self._want_metadata(queue.topic_partition.topic)
        if batch.done.done() or queue.resting:
            self.enlist(queue)
            return
        queue.resting = True
        delay_ms = self._backoff.delay_ms(batch.attempts, self._random)
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._end_rest, queue)

    def _end_rest(self, queue: PartitionQueue) -> None:
        queue.resting = False
        self.enlist(queue)

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The leader takes no batch of this size: send it as two."""
        self._counters.batches_split += 1
        settings = self._settings
        halves = batch.split(
            codec=settings.codec_for(queue.topic_partition.topic),
            level=settings.compression_level,
            transactional=settings.transactional_id is not None,
            decoded_bytes_max=max(settings.batch_bytes, settings.max_request_bytes) + HEADER_SIZE,
        )
        for half in halves:
            self._hooks.enqueued(half)
        queue.replace(batch, halves)
        self.enlist(queue)

    # The background

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work beside the sending; it ends with it."""
        assert self._tasks is not None
        self._tasks.create_task(work)

    async def _keep_house(self) -> None:
        """Give up what waited too long, and learn of new partitions now and then."""
        loop = asyncio.get_running_loop()
        refreshed_at = loop.time()
        timeout_ms = self._settings.delivery_timeout_ms
        interval_ms = min(_HOUSEKEEPING_INTERVAL_MS, timeout_ms / 2)
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for queue in self.queues.values():
                error = RequestTimedOutError(f"{queue.topic_partition}: not written within {timeout_ms} ms")
                queue.expire(loop.time() - timeout_ms / 1000, error)
                self.enlist(queue)
            if (loop.time() - refreshed_at) * 1000 > self._settings.metadata_max_age_ms:
                refreshed_at = loop.time()
                self.want_metadata_of({queue.topic_partition.topic for queue in self.queues.values()})

    async def _connect(self, node_id: int, outbox: _Outbox) -> None:
        try:
            outbox.connection = await self._cluster.connection(node_id, self._lane)
        except (AuthenticationError, ConfigurationError) as error:
            self.fail(error)
        except BrokerError as error:
            _log.info("leader_not_reached", node=node_id, error=str(error))
            await self._look_for_other_leaders(outbox)
        finally:
            outbox.connecting = False
        self._schedule(node_id, outbox)

    async def _look_for_other_leaders(self, outbox: _Outbox) -> None:
        """The node cannot be reached: after a pause, line its partitions up wherever they are led by then."""
        self.want_metadata_of({queue.topic_partition.topic for queue in outbox.ready})
        await asyncio.sleep(self._backoff.delay_ms(1, self._random) / 1000)
        queues = list(outbox.ready)
        outbox.ready.clear()
        for queue in queues:
            queue.enlisted = False
            self.enlist(queue)

    def _want_metadata(self, topic: str) -> None:
        self._stale_topics.add(topic)
        if not self._refreshing:
            self._refreshing = True
            self.start(self._refresh())

    async def _refresh(self) -> None:
        """Ask for metadata until every partition with batches has a leader."""
        attempt = 0
        while self._stale_topics:
            topics = set(self._stale_topics)
            try:
                await self._cluster.refresh(topics)
                self._stale_topics -= topics
            except (AuthenticationError, ConfigurationError) as error:
                self.fail(error)
                self._stale_topics.clear()
            except BrokerError as error:
                _log.info("metadata_not_refreshed", error=str(error))
            leaderless, self._leaderless = self._leaderless, set()
            for topic_partition in leaderless:
                self.enlist(self.queues[topic_partition])
            attempt += 1
            if self._stale_topics:
                await asyncio.sleep(self._backoff.delay_ms(attempt, self._random) / 1000)
        self._refreshing = False

    def identity_obtained(self) -> None:
        """There is an identity: send what waited for it."""
        self._schedule_all()

    def fail(self, error: BrokerError) -> None:
        """Nothing can be written any more."""
        _log.warning("producer_failed", error=str(error))
        self.failure = error
        self._hooks.failed()
        self.give_up_all(error)
