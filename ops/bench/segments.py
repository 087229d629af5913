"""A node with more segments than it may open files: filled, killed, started again and read from end to end.

`python -m ops.bench.partitions --segments N` runs it: every partition gets N segments of one batch each, in
rounds over all partitions, so that files are closed and opened all the time. The node may open `descriptors`
files; how many it had open is looked at while all this goes on.
"""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, OffsetReset
from broker.client.producer import Producer
from broker.client.topic_admin import NewTopic
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from ops.bench.broker_append import Server

TIMEOUT_MS = 600_000
VALUE_BYTES = 900
TOPIC_SETTINGS = {"segment.bytes": "1024", "retention.ms": "-1"}
"""One batch of one record of `VALUE_BYTES` to a segment."""
LOOK_SECONDS = 0.1
TAKE_TIMEOUT_MS = 60_000


def limit_descriptors(count: int) -> None:
    """Let this process and those that it starts open no more files than so many."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


class SegmentsBench:
    """One node under its figures; `segments` of each partition."""

    def __init__(self, cluster: EmbeddedCluster, topics: int, partitions: int, segments: int) -> None:
        self._cluster = cluster
        self._segments = segments
        self._partitions = [
            TopicPartition(f"bench-{topic:04d}", partition)
            for topic in range(topics)
            for partition in range(partitions)
        ]
        self._topics = {f"bench-{topic:04d}": partitions for topic in range(topics)}

    def run(self) -> None:
        """Print a line for each phase."""
        empty_mb = self._server.resident_mb()
        with self._phase("fill", self._server.cpu_seconds()):
            asyncio.run(self._fill())
        self._print_memory(empty_mb)
        self._cluster.kill_node(1)
        with self._phase("start after kill -9", 0.0):
            self._cluster.start_node(1)
        self._print_memory(empty_mb)
        with self._phase("read all", self._server.cpu_seconds()):
            asyncio.run(self._read())
        self._print_memory(empty_mb)

    @property
    def _server(self) -> Server:
        return Server(self._cluster.bootstrap[0].port, self._cluster.pids[1])

    async def _fill(self) -> None:
        async with Cluster(self._cluster.bootstrap) as cluster:
            admin = Admin(cluster, timeout_ms=TIMEOUT_MS)
            for name, partitions in self._topics.items():
                await admin.create_topic(NewTopic(name=name, partitions=partitions, configs=TOPIC_SETTINGS))
            async with Producer(cluster) as producer:
                for number in range(self._segments):
                    value = b"%0*d" % (VALUE_BYTES, number)
                    for topic, partition in self._partitions:
                        await producer.send(topic, value, partition=partition)
                    await producer.flush()

    async def _read(self) -> None:
        """Read everything, and check it."""
        expected = dict.fromkeys(self._partitions, 0)
        remaining = len(self._partitions) * self._segments
        settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
        async with (
            Cluster(self._cluster.bootstrap) as cluster,
            Consumer(cluster, settings=settings) as consumer,
        ):
            consumer.assign(self._partitions)
            while remaining:
                records = await consumer.take(TAKE_TIMEOUT_MS)
                assert records, f"{remaining} records are missing"
                for record in records:
                    partition = TopicPartition(record.topic, record.partition)
                    assert record.offset == expected[partition] == int(record.value or b"-1")
                    expected[partition] += 1
                remaining -= len(records)

    @contextmanager
    def _phase(self, what: str, cpu_before: float) -> Iterator[None]:
        start = perf_counter()
        with _descriptors_of(self._cluster) as seen:
            yield
        seconds, cpu = perf_counter() - start, self._server.cpu_seconds() - cpu_before
        print(
            f"{what:24}{seconds:8.1f} s, {cpu:6.1f} s of processor time, at most {max(seen, default=0)} "
            "descriptors",
            flush=True,
        )

    def _print_memory(self, empty_mb: float) -> None:
        resident = self._server.resident_mb()
        count = len(self._partitions) * self._segments
        each = (resident - empty_mb) * 1e6 / count
        print(f"{'':24}resident {resident:.0f} MB, {each:.0f} bytes a segment", flush=True)


@contextmanager
def _descriptors_of(cluster: EmbeddedCluster) -> Iterator[Sequence[int]]:
    """How many the node's process had open, each time it was looked at."""
    seen: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            if (pid := cluster.pids.get(1)) is not None:
                try:
                    seen.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
                except OSError:  # it ended
                    continue

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
