"""A topology with one pipeline, and what its runs leave behind."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.producer import Producer, ProducerSettings
from broker.client.transactional_producer import TransactionalProducer
from broker.clock import SystemClock
from broker.types import HostPort
from mirrormaker.pipelines.run_record import RunRecord
from mirrormaker.pipelines.runner import Runner, RunRequest
from mirrormaker.pipelines.windows import Span, parse_moment
from mirrormaker.topology.loader import load_topology

START_MS = parse_moment("2013-01-01T00:00:00Z")
HOUR_MS = 3_600_000


def produce(bootstrap: str, topic: str, values: Iterable[tuple[int, bytes | None]]) -> None:
    """Records by their time; the topic is made when it is not there."""

    async def send() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            if topic not in (await cluster.refresh()).topics:
                kept = {"retention.ms": "-1"}  # records are of 2013
                new = NewTopic(name=topic, partitions=2, replication_factor=1, configs=kept)
                await Admin(cluster).create_topic(new)
            async with Producer(cluster) as producer:
                for number, (moment_ms, value) in enumerate(values):
                    await producer.send(topic, value, partition=number % 2, timestamp_ms=moment_ms)
                await producer.flush()

    asyncio.run(send())


def give_up(bootstrap: str, topic: str, value: tuple[int, bytes]) -> None:
    """A record of a transaction that is aborted, in each partition."""
    moment_ms, content = value

    async def send() -> None:
        settings = ProducerSettings(transactional_id=f"giving up {topic}")
        async with (
            Cluster([HostPort.parse(bootstrap)]) as cluster,
            TransactionalProducer(cluster, settings=settings) as producer,
        ):
            await producer.init_transactions()
            producer.begin_transaction()
            for partition in range(2):
                await producer.send(topic, content, partition=partition, timestamp_ms=moment_ms)
            await producer.flush()
            await producer.abort_transaction()

    asyncio.run(send())


def order(number: int, hour: int) -> tuple[int, bytes]:
    return START_MS + hour * HOUR_MS + number, json.dumps({"id": number, "price": number / 2}).encode()


class Place:
    """A topology with one pipeline, in a folder, on a topic of its own."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.spark = spark
        self.bootstrap = bootstrap
        self.keys = "format: json\n    schema: id int, price double\n    sinks: [{parquet: out}]\n"
        self.sources = ""
        self.routes = "[]"

    def produce(self, values: Iterable[tuple[int, bytes | None]]) -> None:
        produce(self.bootstrap, self.topic, values)

    def runner(self, session: SparkSession | None = None) -> Runner:
        file = self.folder / "topology.yaml"
        file.write_text(
            f'clusters: {{a: {{bootstrap: ["{self.bootstrap}"]}}{self.sources}}}\nroutes: {self.routes}\n'
            f"pipelines:\n  - name: p\n    cluster: a\n"
            f'    topics: {{include: ["{self.topic}"]}}\n    {self.keys}'
        )
        topology = load_topology(file)
        opened = nullcontext(session or self.spark.newSession())
        return Runner(topology, topology.pipelines[0], SystemClock(), session=opened)

    def run(self, **request: object) -> RunRecord:
        return self.runner().run(RunRequest(**request))  # type: ignore[arg-type]

    def reload(self, start: int, end: int) -> RunRecord:
        """Hours from the first, up to one."""
        return self.run(reload=Span(start_ms=START_MS + start * HOUR_MS, end_ms=START_MS + end * HOUR_MS))

    def ids(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.folder / "out")).selectExpr("value.id as id").collect()
        return sorted(row.id for row in rows)

    def files(self, pattern: str = "**/*.parquet") -> set[str]:
        found = (self.folder / "out").glob(pattern)
        return {str(file.relative_to(self.folder / "out")) for file in found}
