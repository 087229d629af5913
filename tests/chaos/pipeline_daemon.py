"""A daemon that runs one pipeline, from topics into files and another topic: what of it can be killed, and
what it has loaded and recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow.dataset as ds
import yaml
from confluent_kafka import Consumer, KafkaError, TopicPartition

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.producer import Producer
from broker.embedded import EmbeddedCluster
from broker.types import HostPort
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunRecord, RunState, merge_offsets
from mirrormaker.topology.model import PipelineName
from tests.chaos.load import CLIENT_SETTINGS, PARTITIONS
from tests.daemon.conftest import MirrorProcess

PATIENCE_SECONDS = 600.0
"""Spark takes its time to start, most of all where others work, too."""
TOPIC, COPY = "numbers", "copy"
BATCH_RECORDS = 300
_DRIVER, _JVM, _WORKER = "mirrormaker.pipelines.child", "org.apache.spark.deploy.SparkSubmit", "pyspark."
_ROWS = "select topic, partition, offset, cast(value as string) as value, date from records"
_RECORDS = "select concat(partition, ' ', cast(value as string)) as value from records"
EVERY = {"every": "2s"}
CONTINUOUS = {"continuous": "1s"}

Places = Counter[tuple[int, int]]
"""Partition and number of records."""


class RunDaemon:
    """A daemon with one pipeline, and the processes of its runs."""

    def __init__(self, topology: Mapping[str, object], folder: Path, pipeline: str) -> None:
        """`topology` with the `data_dir` data."""
        file = folder / "topology.yaml"
        file.write_text(yaml.safe_dump(dict(topology)))
        self.process = MirrorProcess(file, folder / "daemon.log")
        self.data = PipelineFolder(folder / "data", PipelineName(pipeline))

    def close(self) -> None:
        """Kill what runs."""
        if self.process.process is not None and self.process.process.poll() is None:
            self.process.kill()

    # ---- what can be killed

    def driver(self) -> psutil.Process | None:
        """The Python of the run."""
        return next(self._processes(_DRIVER), None)

    def jvm(self) -> psutil.Process | None:
        """Spark's driver proper."""
        return next(self._processes(_JVM), None)

    def kill_driver(self) -> bool:
        """False where there is none."""
        return _kill(self.driver())

    def kill_jvm(self) -> bool:
        """False where there is none."""
        return _kill(self.jvm())

    def kill_worker(self, chance: Random) -> bool:
        """One of Spark's Python processes: of a task, or one that makes the source or asks it for offsets."""
        workers = [each for each in self._processes(_WORKER) if not _children(each)]
        return _kill(chance.choice(workers)) if workers else False

    def _processes(self, word: str) -> Iterator[psutil.Process]:
        assert self.process.pid is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if any(part.startswith(word) for part in child.cmdline()):
                        yield child

    # ---- what it says

    def runs(self) -> list[RunRecord]:
        """What was said last of each, the oldest first."""
        return self.data.runs()

    def last_run(self) -> RunRecord:
        """The last that began."""
        return self.runs()[-1]

    def rows_recorded(self) -> int:
        """By all runs together."""
        return sum(run.rows_read for run in self.runs())


class PipelineDaemon(RunDaemon):
    """The daemon, and its pipeline `p` from `numbers…` into `out` and the topic `copy`."""

    def __init__(
        self,
        node: EmbeddedCluster,
        folder: Path,
        schedule: Mapping[str, str],
        **keys: object,
    ) -> None:
        """`keys` are more of the pipeline's."""
        self.address = str(node.bootstrap[0])
        pipeline = {
            "name": "p",
            "cluster": "aggregate",
            "topics": {"include": [f"{TOPIC}.*"]},
            "steps": [
                {"name": "rows", "from": "records", "sql": _ROWS},
                {"name": "copies", "from": "records", "sql": _RECORDS},
            ],
            "sinks": [{"parquet": "out", "from": "rows"}, {"topic": COPY, "from": "copies"}],
            "schedule": dict(schedule),
            "batch_records": BATCH_RECORDS,
            "retry": {"attempts": 3, "backoff": "1s", "backoff_max": "2s"},
            "master": "local[2]",
            **keys,
        }
        topology = {
            "clusters": {"aggregate": {"bootstrap": [self.address]}},
            "routes": [],
            "pipelines": [pipeline],
            "data_dir": "data",
        }
        super().__init__(topology, folder, "p")
        self.table = folder / "out"

    def batches_begun(self) -> int:
        """In all runs."""
        return sum(1 for _ in (self.data.checkpoint).glob("*/load/offsets/[0-9]*"))

    def wait_until_working(self) -> None:
        """Until it has begun a batch that it had not before."""
        begun = self.batches_begun()
        self.process.until(lambda: self.batches_begun() > begun, "a batch begins", PATIENCE_SECONDS)

    def wait_until_loaded(self, count: int) -> None:
        """Until so many rows are recorded."""
        what = f"{count} rows are recorded"
        self.process.until(lambda: self.rows_recorded() >= count, what, PATIENCE_SECONDS)

    # ---- what it has loaded

    def loaded(self, topic: str = TOPIC) -> Places:
        """What the table has of a topic."""
        if not self.table.exists():
            return Counter()
        table = ds.dataset(self.table, partitioning="hive").to_table(columns=["topic", "partition", "value"])
        rows = table.to_pylist()
        return Counter((row["partition"], _number(row["value"])) for row in rows if row["topic"] == topic)

    def copied(self) -> Places:
        """What readers of committed records see in the copy."""
        found = Places()
        for _, told in records_of(self.address, COPY):
            partition, _, value = told.decode().partition(" ")
            found[int(partition), _number(value)] += 1
        return found

    def assert_recorded_truly(self, written: Places, killed: Counter[str]) -> None:
        """Every run has its end, and all of them together have loaded what was written, no row twice."""
        runs, count = self.runs(), written.total()
        told = [(run.state.value, run.rows_read, run.problem) for run in runs]
        assert all(run.state.is_over and run.ended_ms is not None for run in runs), told
        assert all((run.state is RunState.FAILED) == (run.problem is not None) for run in runs), told
        assert sum(run.rows_read for run in runs) == count, (killed, told)
        for sink in ("0-parquet", "1-topic"):
            assert sum(run.rows_written.get(sink, 0) for run in runs) == count, (sink, killed, told)
        offsets: dict[str, dict[str, tuple[int, int]]] = {}
        for run in runs:
            assert run.offsets_read == run.rows_read, told
            offsets = merge_offsets(offsets, run.offsets)
        ends = {str(number): (0, len([1 for place in written if place[0] == number])) for number in range(4)}
        assert offsets == {TOPIC: {number: end for number, end in ends.items() if end != (0, 0)}}
        assert sum(sum(counts.values()) for run in runs for counts in run.hours.values()) == count


def write(daemon: PipelineDaemon, topic: str, numbers: range) -> Places:
    """Records with these numbers; the topic is made when it is not there."""

    async def send() -> None:
        async with Cluster([HostPort.parse(daemon.address)]) as cluster:
            if topic not in (await cluster.refresh()).topics:
                new = NewTopic(name=topic, partitions=PARTITIONS, replication_factor=1)
                await Admin(cluster).create_topic(new)
            async with Producer(cluster) as producer:
                for number in numbers:
                    await producer.send(topic, b"%d x" % number, partition=number % PARTITIONS)
                await producer.flush()

    asyncio.run(send())
    return Places((number % PARTITIONS, number) for number in numbers)


def has_ended(process: psutil.Process) -> bool:
    """Whoever has yet to take notice."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _number(value: str) -> int:
    return int(value.split(" ", 1)[0])


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process | None) -> bool:
    try:
        if process is not None:
            process.kill()
    except psutil.NoSuchProcess:
        return False
    return process is not None


def records_of(address: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of what is committed in a topic, b"" where there is none."""
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        **CLIENT_SETTINGS,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        unfinished = set(range(PARTITIONS))
        while unfinished:
            for message in consumer.consume(5_000, timeout=1.0):
                error = message.error()
                if error is None:
                    yield _bytes(message.key()), _bytes(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
    finally:
        consumer.close()


def _bytes(told: str | bytes | None) -> bytes:
    return told.encode() if isinstance(told, str) else told or b""
