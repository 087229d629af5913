"""Workers of one route: busy partitions move to whoever has less to do, and one that is killed stops nobody
else, however long another takes to come in its place. How long things took is logged (`-o log_cli=true
--log-cli-level=info`); nothing is judged by it, as that is the machine's business.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirror, wait_until
from tests.daemon.test_mirror import address, create, producer
from tests.daemon.test_workers import PARTITIONS, Daemon

__all__ = ["mirror"]

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]
log = logging.getLogger(__name__)
BUSY_BYTES, IDLE_BYTES = 8_000, 10
PATIENCE_SECONDS = 240
EVERYTHING = range(PARTITIONS)
pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS)


@pytest.fixture
def clusters(cluster: ClusterFactory) -> Clusters:
    return cluster("jfk"), cluster("aggregate")


@pytest.fixture
def daemon(clusters: Clusters, mirror: MirrorFactory) -> Daemon:
    """At work with two workers."""
    create(clusters[0], "flights", PARTITIONS)
    daemon = Daemon(mirror(*clusters, resources={"workers": 2}))
    daemon.start()
    daemon.wait_at_work(2)
    return daemon


class Traffic:
    """Records of rising numbers to every partition all the time, and what has come of them."""

    def __init__(self, clusters: Clusters, busy: Collection[int] = ()) -> None:
        self.written = dict.fromkeys(EVERYTHING, 0)
        self.came = dict.fromkeys(EVERYTHING, 0)
        self._source, self._destination = clusters
        self._busy = busy
        self._ending = Event()

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        threads = [Thread(target=self._write), Thread(target=self._read)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ending.set()
            for thread in threads:
                thread.join()

    def _write(self) -> None:
        writer = producer(self._source)
        while not self._ending.wait(0.01):
            for partition in EVERYTHING:
                is_busy = partition in self._busy
                for _ in range(8 if is_busy else 1):
                    self.written[partition] += 1
                    number = b"%d " % self.written[partition]
                    value = number.ljust(BUSY_BYTES if is_busy else IDLE_BYTES)
                    writer.produce("flights", value, partition=partition)
            writer.poll(0)
        writer.flush(20)

    def _read(self) -> None:
        reader = Consumer(
            {"bootstrap.servers": address(self._destination), "group.id": "watcher", "log_level": 0}
        )
        reader.assign([TopicPartition("jfk.flights", number, 0) for number in EVERYTHING])
        while not self._ending.is_set():
            for message in reader.consume(1_000, 0.01):
                self.came[message.partition() or 0] = int(message.value() or b"")
        reader.close()

    def wait_come(self, partitions: Collection[int], what: str) -> None:
        """Until what is written by now has come of these."""
        written, began = dict(self.written), time.monotonic()
        wait_until(lambda: all(self.came[n] >= written[n] for n in partitions), what, PATIENCE_SECONDS)
        log.info("%s: after %.2f s", what, time.monotonic() - began)


def owners(source: EmbeddedCluster) -> dict[int, str]:
    """Which member of the route's group has each partition."""
    admin = AdminClient({"bootstrap.servers": address(source)})
    (group,) = [each.group_id for each in admin.list_consumer_groups().result().valid]
    description = admin.describe_consumer_groups([group])[group].result()
    return {
        place.partition: member.group_instance_id
        for member in description.members
        for place in member.assignment.topic_partitions
    }


def shares(source: EmbeddedCluster) -> tuple[set[int], set[int]]:
    """Partitions of the first worker, and of the other."""
    now = owners(source)
    first = {number for number, name in now.items() if "/1/" in name}
    return first, now.keys() - first


@contextmanager
def killed(daemon: Daemon) -> Iterator[None]:
    """The first worker is, and the process that comes in its place stands still until the end of the
    `with`.
    """
    daemon.wait_for(lambda: bool(spares(daemon)), "a process stands ready")
    (successor,) = spares(daemon)
    successor.suspend()
    os.kill(daemon.pids()[1], signal.SIGKILL)
    try:
        yield
    finally:
        successor.resume()
    began = time.monotonic()
    daemon.wait_for(lambda: daemon.pids().get(1) == successor.pid and all(daemon.shares()), "replaced")
    log.info("replaced: %.2f s after it could be", time.monotonic() - began)


def spares(daemon: Daemon) -> list[psutil.Process]:
    """Processes of the daemon that stand ready to be any worker."""
    busy = {worker["pid"] for worker in daemon.told()["workers"]}
    return [each for each in psutil.Process(daemon.process.pid).children() if each.pid not in busy]


def generation(daemon: Daemon) -> int:
    told: Mapping[str, int] = daemon.told()["routes"]["jfk-to-aggregate"]
    return told["group_generation"]


def test_busy_partitions_part_by_measured_bytes_and_a_killed_worker_stops_nobody_else(
    clusters: Clusters, daemon: Daemon
) -> None:
    source, _ = clusters
    first = owners(source)
    busy, other = [number for number, name in sorted(first.items()) if name == first[0]][:2]
    with Traffic(clusters, (busy, other)).running() as traffic:

        def have_parted() -> bool:
            now = owners(source)
            return len(now) == PARTITIONS and now[busy] != now[other]

        began = time.monotonic()
        wait_until(have_parted, "the busy ones part", PATIENCE_SECONDS)
        log.info("busy partitions parted after %.0f s", time.monotonic() - began)
        daemon.wait_at_work(2)
        traffic.wait_come(EVERYTHING, "all partitions go on")
        before, now = generation(daemon), owners(source)
        _, others = shares(source)
        with killed(daemon):
            traffic.wait_come(others, "the others go on while nobody is in its place")
        traffic.wait_come(EVERYTHING, "all partitions go on")
        if generation(daemon) == before:  # it came before its session was over
            assert owners(source) == now, "nothing has moved"
    daemon.process.wait_copied()


def test_a_worker_whose_replacement_is_late_is_stood_in_for_and_gets_its_share_back(
    clusters: Clusters, daemon: Daemon
) -> None:
    source, _ = clusters
    with Traffic(clusters).running() as traffic:
        own, others = shares(source)
        traffic.wait_come(EVERYTHING, "all partitions go on")
        with killed(daemon):
            wait_until(lambda: shares(source) == (set(), own | others), "stood in for", PATIENCE_SECONDS)
            traffic.wait_come(EVERYTHING, "all partitions go on without it")
        wait_until(lambda: all(shares(source)), "both have a share", PATIENCE_SECONDS)
        traffic.wait_come(EVERYTHING, "all partitions go on")
    daemon.process.wait_copied()
