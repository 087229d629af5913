"""Spark loads a topic into files and copies it to another while its driver, its workers and the node are
killed: both hold every record once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

from broker.child_process import ChildProcess
from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, Isolation, OffsetReset
from broker.client.producer import Producer, ProducerSettings
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.chaos.spark_loader import COPY, SOURCE

PARTITIONS = 4
RECORDS_PER_ROUND = 3_000
PATIENCE_SECONDS = 600
"""Spark takes its time to start, most of all where others work, too."""
READING = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED)


class Loader:
    """The process with Spark's driver, started again whenever it has ended."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path) -> None:
        addresses = ",".join(map(str, cluster.bootstrap))
        self._command = [sys.executable, "-m", "tests.chaos.spark_loader", addresses, str(directory)]
        self._log = directory / "loader.log"
        self._directory = directory
        self._process = self._start()

    def _start(self) -> ChildProcess:
        return ChildProcess.start("loader", self._command, self._log)

    def ensure(self) -> None:
        if self._process.has_exited():
            self._process = self._start()

    def kill(self) -> None:
        """The driver's Python and JVM at once; workers find their driver gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def kill_worker(self) -> None:
        """One of Spark's Python workers, which is a task that fails, or the query with it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                if "pyspark.daemon" in " ".join(child.cmdline()) and not child.children():
                    child.kill()
                    return

    def triggers_begun(self) -> int:
        """Of both queries, in all runs."""
        return sum(1 for _ in self._directory.glob("*-state/offsets/[0-9]*"))

    def wait_until_working(self) -> None:
        """Until it has begun a trigger that it had not before."""
        begun = self.triggers_begun()
        self._wait_until(lambda: self.triggers_begun() > begun)

    def times_caught_up(self) -> int:
        return self._log.read_text(errors="replace").count("caught up")

    def wait_until_caught_up(self) -> None:
        """Until it has caught up twice, in the second round with all that is written by now."""
        wanted = self.times_caught_up() + 2
        self._wait_until(lambda: self.times_caught_up() >= wanted)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            self.ensure()
            assert time.monotonic() < deadline, self._process.log_tail()
            time.sleep(0.1)


@pytest.fixture
def loader(node: EmbeddedCluster, tmp_path: Path) -> Iterator[Loader]:
    asyncio.run(create_topics(node))
    loader = Loader(node, tmp_path)
    yield loader
    loader.kill()


async def create_topics(node: EmbeddedCluster) -> None:
    async with Cluster(node.bootstrap) as cluster:
        for name in (SOURCE, COPY):
            topic = NewTopic(name=name, partitions=PARTITIONS, replication_factor=1)
            await Admin(cluster).create_topic(topic)


async def write(node: EmbeddedCluster, numbers: range) -> None:
    async with (
        Cluster(node.bootstrap) as cluster,
        Producer(cluster, settings=ProducerSettings(batch_bytes=2_000)) as producer,
    ):
        for number in numbers:
            await producer.send(SOURCE, b"%08d" % number, partition=number % PARTITIONS)


async def read_copy(node: EmbeddedCluster, count: int) -> Counter[int]:
    """The numbers in the copy, which has come to its end when nothing follows."""
    found: Counter[int] = Counter()
    async with Cluster(node.bootstrap) as cluster, Consumer(cluster, settings=READING) as consumer:
        consumer.assign([TopicPartition(COPY, number) for number in range(PARTITIONS)])
        while records := await consumer.take(2_000 if found.total() >= count else 30_000):
            found.update(int(record.value or b"") for record in records)
    return found


def read_files(directory: Path) -> Counter[int]:
    """The numbers in the files that Spark's log of the sink names."""
    files = []
    for entry in sorted((directory / "files" / "_spark_metadata").iterdir()):
        if entry.name.isdigit() or entry.name.endswith(".compact"):
            lines = entry.read_text().splitlines()[1:]
            files += [json.loads(line)["path"].removeprefix("file://") for line in lines]
    values = ds.dataset(sorted(set(files))).to_table(columns=["value"]).column("value").to_pylist()
    return Counter(int(value) for value in values)


@pytest.mark.timeout(CHAOS_SECONDS + 3 * PATIENCE_SECONDS)
def test_files_and_copy_hold_every_record_once(
    node: EmbeddedCluster, loader: Loader, disturbance: Disturbance, tmp_path: Path
) -> None:
    count = 0
    for round_number in disturbance:
        asyncio.run(write(node, range(count, count + RECORDS_PER_ROUND)))
        count += RECORDS_PER_ROUND
        loader.wait_until_working()
        disturbance.pause(0.0, 3.0)
        match round_number % 4:
            case 1 | 3:
                loader.kill()
            case 2:
                loader.kill_worker()
            case 0:
                disturbance.crash(node)
    loader.wait_until_caught_up()
    everything = Counter(range(count))
    assert read_files(tmp_path) == everything
    assert asyncio.run(read_copy(node, count)) == everything
