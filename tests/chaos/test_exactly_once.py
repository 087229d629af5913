"""Copies in transactions while the copiers and the nodes are killed: every record arrives once, and
in order.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedZooKeeper
from tests.chaos.conftest import AFTERMATH_SECONDS, LONG_SECONDS, NODE_SETTINGS
from tests.chaos.disturbance import Disturbance
from tests.chaos.faults import Choice, Schedule, crash, cut_between_nodes, freeze, isolation, rolling_restart
from tests.chaos.journal import Journal
from tests.chaos.load import (
    PARTITIONS,
    Placed,
    Writer,
    assert_written_once_and_in_order,
    create_topic,
    read_all,
    wait_until,
)
from tests.chaos.three_nodes import NODES, three_nodes

pytestmark = pytest.mark.timeout(LONG_SECONDS + 2 * AFTERMATH_SECONDS)

SOURCE, TARGET, GROUP = "source", "target", "copiers"
COPIERS = 2
RECORDS_PER_SECOND = 200
SETTINGS = {name: value for name, value in NODE_SETTINGS.items() if not name.startswith("transaction.")} | {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 3_000,
    "replica.socket.timeout.ms": 3_000,
    "replica.fetch.backoff.ms": 200,
    "log.cleaner.backoff.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}
BREAKS: dict[Choice, int] = {crash: 6, freeze: 3, cut_between_nodes: 2, isolation: 2, rolling_restart: 1}


class Copier:
    """One copier at work within a `with`: killed now and then, and started again whenever it ends."""

    def __init__(self, bootstrap: str, name: str, log: Path) -> None:
        self.starts = 0
        self._command = [
            sys.executable,
            "-m",
            "tests.chaos.copier",
            bootstrap,
            SOURCE,
            TARGET,
            GROUP,
            name,
        ]
        self._name = name
        self._log = log
        self._process: ChildProcess | None = None
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=name)

    def __enter__(self) -> Self:
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._keeper.join()

    def kill(self) -> None:
        """End it as it is."""
        process = self._process
        if process is not None:
            process.kill()

    def _keep(self) -> None:
        while not self._is_over.is_set():
            process = self._process = ChildProcess.start(self._name, self._command, self._log)
            self.starts += 1
            while not process.has_exited() and not self._is_over.wait(0.1):
                pass
            process.kill()


def standing(bootstrap: str) -> dict[int, int]:
    """Where the group stands in each partition of the source."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        asked = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
        return {each.partition: each.offset for each in consumer.committed(asked, 10.0)}
    except KafkaException:
        return {}
    finally:
        consumer.close()


@contextlib.contextmanager
def copiers(bootstrap: str, directory: Path) -> Iterator[list[Copier]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Copier(bootstrap, f"copier-{number}", directory / f"copier-{number}.log"))
            for number in range(COPIERS)
        ]


def test_every_record_is_copied_once_and_in_order_whoever_is_killed(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, chance: Random
) -> None:
    journal = Journal(tmp_path / "schedule.txt")
    with three_nodes(own_zookeeper, tmp_path, journal, SETTINGS) as nodes:
        for topic in (SOURCE, TARGET):
            create_topic(nodes.bootstrap, topic, {}, replicas=len(NODES))
        writer = Writer(nodes.bootstrap, SOURCE, codec="lz4", records_per_second=RECORDS_PER_SECOND)
        with copiers(nodes.bootstrap, tmp_path) as working:
            with writer:
                disturbance = Disturbance(chance, seconds=LONG_SECONDS)
                schedule = Schedule(chance, BREAKS)
                for _ in disturbance:
                    if chance.random() < 0.5:
                        chance.choice(working).kill()
                    if chance.random() < 0.5:
                        schedule.run(schedule.draw(), nodes, disturbance.pause)
            nodes.settle()
            source = read_all(nodes.bootstrap, SOURCE)
            ends = {partition: records[-1][0] + 1 for partition, records in source.items() if records}
            wait_until(lambda: standing(nodes.bootstrap).items() >= ends.items(), "all is copied")
        assert_written_once_and_in_order(writer.acknowledged, source)
        assert _numbers(read_all(nodes.bootstrap, TARGET)) == _numbers(source)
        assert sum(len(records) for records in source.values()) > 100
        journal.note(f"copiers were started {[copier.starts for copier in working]} times")


def _numbers(placed: Placed) -> dict[int, list[int]]:
    return {partition: [number for _, number in records] for partition, records in placed.items()}
