"""Clients of a simulated cluster: they speak the protocol as bytes, and tell the checks what they were told.

An idempotent producer has up to five batches of a partition on their way and sends what was not answered
again, in order, to whoever leads then. A careless one (acks=1) promises nothing and makes tails of logs that
nobody else has. A consumer reads each partition from its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from broker.client.connection import Connection, ConnectionSettings
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, RequestTimedOutError
from broker.records.batch import iterate_batches, read_header
from broker.records.builder import BatchBuilder
from broker.types import HostPort, TopicPartition
from broker.wire.message import Request, ResponseType
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.sim.checks import ViolationError
from tests.sim.loop import START_MS

if TYPE_CHECKING:
    from tests.sim.world import World

BATCHES_MAX = 5
BACKOFF_SECONDS = (0.02, 0.2)
FETCH_WAIT_MS = 200
REFUSALS_MAX = 5
"""A leader that is none any more may lack batches that were stored elsewhere, the real one not."""
RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


class Client:
    """A process of its own with connections to the nodes; subclasses say what it does."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.world = world
        self.random = Random(f"{world.seed} {name}")
        self.process = world.loop.new_process(name)
        self._connections: dict[int, Connection] = {}
        self._metadata: MetadataResponse | None = None
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        """By partition, the newest leader epoch heard of, and who leads in it (-1: nobody)."""
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, work: Iterable[object]) -> None:
        """Have coroutines run in this process; a failure of one is a failure of the run."""
        for coroutine in work:
            task = self.world.loop.create_task(coroutine, context=self.process.context)  # type: ignore[arg-type]
            task.add_done_callback(self._done)
            self._tasks.append(task)

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self._tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.failed(self.name, error)

    async def ask(self, node: int, request: Request[ResponseType]) -> ResponseType:
        """A node's answer. Raises ConnectionFailedError, RequestTimedOutError."""
        return await (await self.connection(node)).request(request)

    async def connection(self, node: int) -> Connection:
        """Raises as `ask`."""
        connection = self._connections.get(node)
        if connection is None or connection.closed:
            timeout_ms = self.world.scenario.request_timeout_ms
            connection = await Connection.open(
                HostPort(f"node-{node}", 9092),
                ConnectionSettings(
                    connect_timeout_ms=timeout_ms / 2,
                    request_timeout_ms=timeout_ms + FETCH_WAIT_MS,
                    client_id=self.name,
                ),
            )
            self._connections[node] = connection
        return connection

    async def leader(self, partition: TopicPartition) -> int | None:
        """Who leads, as the newest metadata says; None: nobody."""
        if self._metadata is None:
            node = self.random.randint(1, self.world.scenario.nodes)
            self._metadata = await self.ask(node, MetadataRequest(topics=None))
            self._take_leaders(self._metadata)
        leader = self._leaders.get(partition, (-1, -1))[1]
        return leader if leader > 0 else None

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The newest one heard of: whoever is at another one is fenced (KIP-320)."""
        return self._leaders.get(partition, (-1, -1))[0]

    def _take_leaders(self, metadata: MetadataResponse) -> None:
        """A node that was away tells of leaders that are none any more."""
        for topic in metadata.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name or "", found.partition_index)
                if found.leader_epoch >= self.leader_epoch(partition):
                    self._leaders[partition] = found.leader_epoch, found.leader_id

    async def back_off(self) -> None:
        """Rest a little, and ask for metadata again after it."""
        self._metadata = None
        await asyncio.sleep(self.random.uniform(*BACKOFF_SECONDS))


@dataclass(slots=True)
class _Sent:
    """A batch on its way."""

    number: int
    sequence: int
    records: bytes
    crc: int
    refusals: int = 0
    """How often it did not follow on what a leader has, though nothing before it is missing."""


class Producer(Client):
    """See the module's description; `acknowledged` counts batches."""

    acknowledged = 0

    def start(self, partitions: Iterable[TopicPartition]) -> None:
        self.begin(self._produce(partition) for partition in partitions)

    async def _produce(self, partition: TopicPartition) -> None:
        producer_id, epoch = await self._identity()
        waiting: list[_Sent] = []
        number = sequence = 0
        while waiting or not self.world.is_ending:
            if not self.world.is_ending:
                wanted = self.random.randint(1, BATCHES_MAX)
                while len(waiting) < wanted and (not waiting or number - waiting[0].number < BATCHES_MAX):
                    count = self.random.randint(1, 3)
                    batch = self._build(partition, producer_id, epoch, sequence, count)
                    waiting.append(_Sent(number, sequence, batch, read_header(batch).crc))
                    number, sequence = number + 1, sequence + count
            if await self._send_all(partition, waiting):
                await asyncio.sleep(self.random.expovariate(1 / self.world.think_seconds))
            else:
                await self.back_off()

    async def _identity(self) -> tuple[int, int]:
        while True:
            node = self.random.randint(1, self.world.scenario.nodes)
            try:
                answer = await self.ask(
                    node, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
            except (ConnectionFailedError, RequestTimedOutError):
                answer = None
            if answer is not None and not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            await self.back_off()

    def _build(
        self, partition: TopicPartition, producer_id: int, epoch: int, sequence: int, count: int
    ) -> bytes:
        builder = BatchBuilder(
            size_max=1 << 20, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        for index in range(count):
            value = f"{self.name} {partition} {sequence + index}".ljust(self.random.choice((20, 200)))
            builder.append(START_MS, None, value.encode())
        return bytes(builder.build())

    async def _send_all(self, partition: TopicPartition, waiting: list[_Sent]) -> bool:
        """Send everything in order, and take out what was acknowledged; False: something was not."""
        try:
            leader = await self.leader(partition)
            if leader is None:
                return False
            connection = await self.connection(leader)
        except (ConnectionFailedError, RequestTimedOutError):
            return False
        sent = list(waiting)
        try:
            answers = [connection.send(self._request(partition, each.records)) for each in sent]
        except ConnectionFailedError:
            return False
        results = await asyncio.gather(*answers, return_exceptions=True)
        may_be_missing = False
        for each, result in zip(sent, results, strict=True):
            if isinstance(result, BrokerError):
                may_be_missing = True
                continue
            if isinstance(result, BaseException):
                raise result
            answer = result.responses[0].partition_responses[0]
            if self._is_stored(partition, each, answer, may_be_missing=may_be_missing):
                waiting.remove(each)
                self.acknowledged += 1
            else:
                may_be_missing = True
        return not waiting

    def _is_stored(
        self,
        partition: TopicPartition,
        sent: _Sent,
        answer: PartitionProduceResponse,
        *,
        may_be_missing: bool,
    ) -> bool:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            self.world.checks.acknowledged(partition, answer.base_offset, sent.crc)
            return True
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            sent.refusals += not may_be_missing
            if sent.refusals < REFUSALS_MAX:
                return False
        if code in RETRIED:
            return False
        raise ViolationError(f"{partition}: {self.name} is answered {code.name} for sequence {sent.sequence}")

    def _request(self, partition: TopicPartition, records: bytes, acks: int = -1) -> ProduceRequest:
        return ProduceRequest(
            acks=acks,
            timeout_ms=self.world.scenario.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[PartitionProduceData(index=partition.partition, records=records)],
                )
            ],
        )


class CarelessProducer(Producer):
    """Sends with acks=1 and without an identity, and forgets."""

    async def _produce(self, partition: TopicPartition) -> None:
        number = 0
        while not self.world.is_ending:
            await asyncio.sleep(self.random.expovariate(1 / self.world.think_seconds))
            records = self._build(partition, -1, -1, -1, self.random.randint(1, 3))
            number += 1
            try:
                leader = await self.leader(partition)
                if leader is None:
                    await self.back_off()
                    continue
                answer = await self.ask(leader, self._request(partition, records, acks=1))
            except (ConnectionFailedError, RequestTimedOutError):
                await self.back_off()
                continue
            if answer.responses[0].partition_responses[0].error_code:
                await self.back_off()


class Consumer(Client):
    """See the module's description."""

    def start(self, partitions: Iterable[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, 0)
        self.latest = dict.fromkeys(self.positions, 0)
        self.rack = f"node-{self.random.randint(1, self.world.scenario.nodes)}"
        self.preferred: dict[TopicPartition, int] = {}
        """Which follower to read from, where the leader has named one."""
        self.begin(self._consume(partition) for partition in self.positions)

    async def _consume(self, partition: TopicPartition) -> None:
        while not self.world.is_over:
            try:
                leader = await self.leader(partition)
                is_well = leader is not None and await self._read(
                    self.preferred.get(partition, leader), partition
                )
                if is_well and leader is not None and self.random.random() < 0.1:
                    await self._look_at_end(leader, partition)
            except (ConnectionFailedError, RequestTimedOutError):
                is_well = False
            if not is_well:
                self.preferred.pop(partition, None)
                await self.back_off()

    async def _read(self, node: int, partition: TopicPartition) -> bool:
        position = self.positions[partition]
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            rack_id=self.rack if self.world.scenario.reads_from_followers else "",
            topics=[
                FetchTopic(
                    topic=partition.topic,
                    partitions=[
                        FetchPartition(
                            partition=partition.partition,
                            current_leader_epoch=self.leader_epoch(partition),
                            fetch_offset=position,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
        response = await (await self.connection(node)).request(request, 12)
        if not response.responses:
            return not response.error_code
        return self._take(partition, position, response.responses[0].partitions[0])

    def _take(self, partition: TopicPartition, position: int, answer: PartitionData) -> bool:
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            is_behind = code is ErrorCode.OFFSET_OUT_OF_RANGE and partition in self.preferred
            if code not in RETRIED and not is_behind:
                raise ViolationError(f"{partition}: {self.name} is answered {code.name} at {position}")
            return False
        if answer.preferred_read_replica >= 0:
            self.preferred[partition] = answer.preferred_read_replica
        for _, header in iterate_batches(answer.records or b""):
            self.world.checks.consumed(partition, position, header)
            position = header.next_offset
        if position > self.positions[partition]:
            self.positions[partition] = position
            self.latest[partition] = max(self.latest[partition], position)
        return True

    async def _look_at_end(self, leader: int, partition: TopicPartition) -> None:
        """The end of what is committed is never before what was seen of it."""
        seen = self.latest[partition]
        asked = ListOffsetsPartition(
            partition_index=partition.partition,
            current_leader_epoch=self.leader_epoch(partition),
            timestamp=-1,
        )
        topics = [ListOffsetsTopic(name=partition.topic, partitions=[asked])]
        response = await self.ask(leader, ListOffsetsRequest(replica_id=-1, topics=topics))
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            return
        if answer.offset < seen:
            raise ViolationError(f"{partition}: the end is at {answer.offset} after {seen} was seen")
        self.latest[partition] = answer.offset
