"""Produce requests of a producer and their answers: what is sent, and what becomes of its batches.

A batch that is too large for its leader is sent as two; one that failed goes back to its queue, whose
partition rests before it is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.client.backoff import Backoff, Random, is_retriable
from broker.client.cluster import Cluster, Routing
from broker.client.connection import Connection
from broker.client.partition_queue import PartitionQueue
from broker.client.produce_requests import answers_by_partition, build_produce, format_records
from broker.client.producer_batch import NO_OFFSET, ProducerBatch
from broker.client.producer_metrics import ProducerCounters
from broker.client.producer_settings import ProducerSettings
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.records.batch import HEADER_SIZE
from broker.types import Buffer, TopicPartition
from broker.wire.features import PRODUCE_FORWARDING
from broker.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

Batches = list[tuple[PartitionQueue, ProducerBatch]]
"""One of each partition, as its queue handed it out."""
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeUse:
    """What the exchange does with the producer that it serves."""

    start: Callable[[Coroutine[Any, Any, None]], None]
    """Runs work in the producer's background."""
    sendable: Callable[[PartitionQueue], None]
    """There may be something to send of the partition again."""
    moved: Callable[[str], None]
    """Leaders of this topic may be others."""
    enqueued: Callable[[ProducerBatch], None]
    """A batch was made out of another."""


class ProduceExchange:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        use: ExchangeUse,
        *,
        backoff: Backoff,
        random: Random,
        counters: ProducerCounters,
    ) -> None:
        self.version_max: int | None = None
        """Bound of the version of requests, if any."""
        self._cluster = cluster
        self._settings = settings
        self._use = use
        self._backoff = backoff
        self._random = random
        self._counters = counters

    def send(self, connection: Connection, batches: Batches, ended: Callable[[], None]) -> bool:
        """Send these in one request; whether that is under way. `ended` is called when it is not any more."""
        self._counters.requests += 1
        try:
            self._require_forwarding(connection)
            version = connection.version_of(ProduceRequest, at_most=self.version_max)
        except BrokerError as error:
            self._fail_all(batches, error)
            return False
        batches, contents = self._formatted(batches, version, connection)
        if not batches:
            return False
        forward = self._cluster.routing is Routing.SINGLE
        request = build_produce(contents, self._settings, forward=forward)
        if self._settings.acks == 0:
            self._use.start(self._send_unanswered(connection, batches, request, version, ended))
            return True
        try:
            timeout_ms = self._settings.request_timeout_ms
            answer = connection.send(request, version, timeout_ms=timeout_ms)
        except BrokerError as error:
            self._fail_all(batches, error)
            return False
        sent_at = asyncio.get_running_loop().time()
        answer.add_done_callback(partial(self._on_answer, batches, sent_at, ended))
        return True

    def _formatted(
        self, batches: Batches, version: int, connection: Connection
    ) -> tuple[Batches, list[tuple[TopicPartition, Buffer]]]:
        """The batches that can travel in a request of that version, and what of them travels; the others are
        given up.
        """
        kept: Batches = []
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
        connection: Connection,
        batches: Batches,
        request: ProduceRequest,
        version: int,
        ended: Callable[[], None],
    ) -> None:
        """With acks 0 a batch counts as written when the kernel has taken it."""
        try:
            connection.send_and_forget(request, version)
            await connection.drained()
            for queue, batch in batches:
                queue.settle(batch, NO_OFFSET, -1)
                self._use.sendable(queue)
        except BrokerError as error:
            self._fail_all(batches, error)
        finally:
            ended()

    def _on_answer(
        self,
        batches: Batches,
        sent_at: float,
        ended: Callable[[], None],
        answer: asyncio.Future[ProduceResponse],
    ) -> None:
        ended()
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
            self._use.sendable(queue)
        elif code in _TOO_LARGE and batch.splittable and batch.count > 1:
            self._split(queue, batch)
        else:
            message = f"{queue.topic_partition}: {answer.error_message or code.meaning}"
            self._fail(queue, batch, ProtocolError(code, message))

    def _fail_all(self, batches: Batches, error: BrokerError) -> None:
        self._counters.requests_failed += 1
        for queue, batch in batches:
            if batch in queue.in_flight:  # unless given up meanwhile
                self._fail(queue, batch, error)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: BrokerError) -> None:
        """Let the queue decide what becomes of the batch; the partition rests before it is sent again."""
        queue.fail(batch, error)
        if is_retriable(error):
            self._use.moved(queue.topic_partition.topic)
        if batch.done.done() or queue.resting:
            self._use.sendable(queue)
            return
        queue.resting = True
        delay_ms = self._backoff.delay_ms(batch.attempts, self._random)
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._end_rest, queue)

    def _end_rest(self, queue: PartitionQueue) -> None:
        queue.resting = False
        self._use.sendable(queue)

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
            self._use.enqueued(half)
        queue.replace(batch, halves)
        self._use.sendable(queue)
