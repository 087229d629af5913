"""Sending what the producer has buffered: whose turn it is, and at which node.

Nothing polls: whatever makes a partition sendable enlists it at its leader's outbox, and outboxes are worked
off in the next turn of the loop. One request takes one batch of each partition in line. Several requests are
in flight per node; what becomes of them is `produce_exchange`'s. Identities come from an `IdentitySource`,
leaders that are not known from a `LeaderSearch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.client.backoff import Backoff, Random
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.identity_source import IdempotentIdentity, IdentitySource, IdentityUse
from broker.client.leader_search import LeaderSearch, SearchUse
from broker.client.partition_queue import PartitionQueue
from broker.client.produce_exchange import Batches, ExchangeUse, ProduceExchange
from broker.client.producer_batch import ProducerBatch
from broker.client.producer_identity import NO_IDENTITY, ProducerIdentity
from broker.client.producer_metrics import ProducerCounters
from broker.client.producer_settings import ProducerSettings
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    RequestTimedOutError,
)
from broker.telemetry import logger
from broker.types import TopicPartition

_HOUSEKEEPING_INTERVAL_MS = 500.0
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
        self.exchange = ProduceExchange(
            cluster,
            settings,
            ExchangeUse(
                start=self.start,
                sendable=self.enlist,
                moved=lambda topic: self._search.want([topic]),
                enqueued=hooks.enqueued,
            ),
            backoff=backoff,
            random=random,
            counters=counters,
        )
        self._search = LeaderSearch(
            cluster,
            SearchUse(start=self.start, looked=self._enlist_again, refused=self.fail),
            backoff=backoff,
            random=random,
        )
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
            self._search.find(queue.topic_partition)
            return
        if queue.in_flight and queue.node_id != leader:
            return  # the old leader's answers come first
        queue.enlisted = True
        outbox = self._outboxes.get(leader)
        if outbox is None:
            outbox = self._outboxes[leader] = _Outbox()
        outbox.ready.append(queue)
        self._schedule(leader, outbox)

    def _enlist_again(self, topic_partition: TopicPartition) -> None:
        self.enlist(self.queues[topic_partition])

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
        self._search.want(topics)

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
            outbox.in_flight += 1
            if not self.exchange.send(connection, batches, partial(self._request_ended, node_id, outbox)):
                outbox.in_flight -= 1

    def _request_ended(self, node_id: int, outbox: _Outbox) -> None:
        outbox.in_flight -= 1
        self._answered.set()
        self._schedule(node_id, outbox)

    @property
    def _has_identity(self) -> bool:
        return not self._settings.idempotent or self.identities.current is not NO_IDENTITY

    def _collect(self, node_id: int, outbox: _Outbox) -> Batches:
        """One batch of each partition in line, as many as fit into a request.

        Those with more get in line again.
        """
        collected: Batches = []
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

    def identity_obtained(self) -> None:
        """There is an identity: send what waited for it."""
        self._schedule_all()

    def fail(self, error: BrokerError) -> None:
        """Nothing can be written any more."""
        _log.warning("producer_failed", error=str(error))
        self.failure = error
        self._hooks.failed()
        self.give_up_all(error)
