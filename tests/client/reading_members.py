"""Members of a group that write down what they read and what they are told, for tests on real brokers."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, Self

from broker.child_process import ChildProcess
from broker.client.admin import Admin, NewTopic
from broker.client.assignors import Assignor
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, OffsetReset
from broker.client.group_settings import AnyGroupSettings
from broker.client.producer import Producer
from broker.client.subscription import Subscription
from broker.errors import BrokerError
from broker.types import HostPort, TopicPartition

PARTITIONS = 4
QUICK_CONSUMER_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}
"""Members are heard often. Settings of nodes, ours or Apache Kafka's."""
SHORT_SESSIONS = {
    **QUICK_CONSUMER_GROUPS,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
}
"""And given up soon, also where they are only late: all members of a test share one loop."""
READ_ALL = ConsumerSettings(
    offset_reset=OffsetReset.EARLIEST, auto_commit_interval_ms=200, fetch_max_wait_ms=50
)


class Brokers(Protocol):
    """A cluster that runs, ours or Apache Kafka's."""

    @property
    def bootstrap(self) -> Sequence[HostPort]: ...


class Reads(Protocol):
    """Who reads, in whatever way."""

    @property
    def values(self) -> Collection[str]: ...

    @property
    def has(self) -> Collection[TopicPartition]: ...


class Reader:
    """One consumer of ours with connections of its own."""

    def __init__(
        self,
        brokers: Brokers,
        group: AnyGroupSettings,
        *,
        settings: ConsumerSettings = READ_ALL,
        assignors: Sequence[Assignor] | None = None,
    ) -> None:
        self.values: list[str] = []
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.may_give_up = asyncio.Event()
        self.may_give_up.set()
        self.failure: BrokerError | None = None
        self._cluster = Cluster(brokers.bootstrap)
        self.consumer = Consumer(self._cluster, settings=settings, group=group, assignors=assignors)
        self._reading: asyncio.Task[None] | None = None

    @property
    def has(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment

    async def start(self, subscription: Subscription) -> Self:
        await self._cluster.start()
        await self.consumer.start()
        self.consumer.subscribe(
            subscription, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def close(self) -> None:
        """Leave; a second time does nothing."""
        if self._reading is None:
            return
        self.may_give_up.set()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._reading = None
        await self.consumer.close()
        await self._cluster.close()

    async def _read(self) -> None:
        try:
            async for record in self.consumer:
                self.values.append((record.value or b"").decode())
        except BrokerError as failure:
            self.failure = failure

    async def _assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))

    async def _revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))
        await self.may_give_up.wait()

    async def _lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("lost", partitions))


class ReadingProcess:
    """`broker consume` as a member, which can be killed."""

    def __init__(self, brokers: Brokers, directory: Path, group: str, topic: str) -> None:
        self._log = directory / "consume.log"
        command = [sys.executable, "-m", "broker.cli", "consume", topic, "--group", group]
        addresses = ",".join(map(str, brokers.bootstrap))
        options = ["--group-protocol", "consumer", "--from-beginning", "--output", "json"]
        self.process = ChildProcess.start(
            "consume", [*command, *options, "--bootstrap-server", addresses], self._log
        )

    @property
    def has(self) -> frozenset[TopicPartition]:
        """Where it has read so far."""
        return frozenset(TopicPartition(each["topic"], each["partition"]) for each in self._records())

    @property
    def values(self) -> list[str]:
        return [each["value"] for each in self._records()]

    def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        self.process.stop(timeout_ms=5_000)

    def _records(self) -> list[dict[str, object]]:
        whole = self._log.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in whole if line.startswith('{"topic"')]


class Scene:
    """A topic, what was sent to it, and those who read it."""

    def __init__(self, brokers: Brokers, client: Cluster, producer: Producer, topic: str) -> None:
        self.brokers, self.client, self.topic = brokers, client, topic
        self.sent: list[str] = []
        self.readers: list[Reader] = []
        self._producer = producer

    async def join(
        self,
        group: AnyGroupSettings,
        subscription: Subscription | None = None,
        *,
        settings: ConsumerSettings = READ_ALL,
        assignors: Sequence[Assignor] | None = None,
    ) -> Reader:
        reader = Reader(self.brokers, group, settings=settings, assignors=assignors)
        self.readers.append(reader)
        return await reader.start([self.topic] if subscription is None else subscription)

    async def send(self, count: int = 40, topic: str | None = None) -> None:
        """Records for every partition, each with a value of its own."""
        for _ in range(count):
            self.sent.append(str(len(self.sent)))
            partition = len(self.sent) % PARTITIONS
            await self._producer.send(topic or self.topic, self.sent[-1].encode(), partition=partition)
        await self._producer.flush()

    def is_shared_out(self, readers: Sequence[Reads], topics: Collection[str] = ()) -> bool:
        """Whether each partition is in the hands of exactly one reader, and no reader goes without."""
        held = sorted(itertools.chain.from_iterable(reader.has for reader in readers))
        topics = topics or {self.topic}
        everything = sorted(TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS))
        return held == everything and all(reader.has for reader in readers)

    def is_read(self, *others: Reads) -> bool:
        """Whether everything sent was read by somebody."""
        return set(self.sent) <= set(self.counts(*others))

    def counts(self, *others: Reads) -> Counter[str]:
        return Counter(itertools.chain.from_iterable(reader.values for reader in (*self.readers, *others)))

    async def committed(self, group_id: str) -> dict[int, int]:
        offsets = await Admin(self.client).group_offsets(group_id)
        return {partition.partition: position.offset for partition, position in offsets.items()}


@asynccontextmanager
async def scene(brokers: Brokers, *, topic: str = "t", replicas: int = 1) -> AsyncIterator[Scene]:
    async with Cluster(brokers.bootstrap) as client, Producer(client) as producer:
        await Admin(client).create_topic(
            NewTopic(name=topic, partitions=PARTITIONS, replication_factor=replicas)
        )
        made = Scene(brokers, client, producer, topic)
        try:
            yield made
        finally:
            for reader in made.readers:
                await reader.close()
