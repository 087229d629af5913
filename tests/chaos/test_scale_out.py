"""Workers of one route: busy partitions move to whoever has less to do, and one that is killed stops nobody
else. How long things took is logged (`-o log_cli=true --log-cli-level=info`).
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

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
BUSY_VALUE, IDLE_VALUE = bytes(8_000), bytes(10)
PATIENCE_SECONDS = 240
WATCHED_SECONDS = 6


@pytest.fixture
def clusters(cluster: ClusterFactory) -> Clusters:
    return cluster("jfk"), cluster("aggregate")


@contextmanager
def writing(source: EmbeddedCluster, busy: tuple[int, ...]) -> Iterator[None]:
    """Records to every partition all the time, many to busy ones."""
    ending = Event()

    def write() -> None:
        writer = producer(source)
        while not ending.wait(0.01):
            for partition in range(PARTITIONS):
                for _ in range(8 if partition in busy else 1):
                    value = BUSY_VALUE if partition in busy else IDLE_VALUE
                    writer.produce("flights", value, partition=partition)
            writer.poll(0)
        writer.flush(20)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


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


@contextmanager
def watching(destination: EmbeddedCluster) -> Iterator[Callable[[int], float]]:
    """Gives the longest time in which nothing came of a partition, since this began."""
    ending = Event()
    came: dict[int, list[float]] = {number: [time.monotonic()] for number in range(PARTITIONS)}

    def watch() -> None:
        reader = Consumer({"bootstrap.servers": address(destination), "group.id": "watcher", "log_level": 0})
        ends = [
            reader.get_watermark_offsets(TopicPartition("jfk.flights", number), timeout=20)[1]
            for number in range(PARTITIONS)
        ]
        reader.assign([TopicPartition("jfk.flights", number, end) for number, end in enumerate(ends)])
        while not ending.is_set():
            for message in reader.consume(1_000, 0.01):
                came[message.partition() or 0].append(time.monotonic())
        reader.close()

    thread = Thread(target=watch)
    thread.start()
    try:
        yield lambda number: max(
            later - sooner for sooner, later in zip(came[number][1:], came[number][2:], strict=False)
        )
    finally:
        ending.set()
        thread.join()


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_busy_partitions_part_by_measured_bytes_and_a_killed_worker_stops_nobody_else(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", PARTITIONS)
    daemon = Daemon(mirror(source, destination, resources={"workers": 2}))
    daemon.start()
    daemon.wait_at_work(2)
    first = owners(source)
    busy, other = [number for number, name in sorted(first.items()) if name == first[0]][:2]
    with writing(source, (busy, other)):

        def have_parted() -> bool:
            now = owners(source)
            return len(now) == PARTITIONS and now[busy] != now[other]

        started = time.monotonic()
        wait_until(have_parted, "the busy ones part", PATIENCE_SECONDS)
        log.info("busy partitions parted after %.0f s", time.monotonic() - started)
        daemon.wait_at_work(2)
        now = owners(source)
        killed = next(name for name in now.values() if "/1/" in name)
        others = [number for number, name in now.items() if name != killed]
        with watching(destination) as longest_pause:
            time.sleep(WATCHED_SECONDS)
            usual = {number: longest_pause(number) for number in now}
        with watching(destination) as longest_pause:
            time.sleep(WATCHED_SECONDS / 3)
            pid = daemon.pids()[1]
            os.kill(pid, signal.SIGKILL)
            daemon.wait_for(lambda: daemon.pids().get(1, pid) != pid and all(daemon.shares()), "replaced")
            time.sleep(WATCHED_SECONDS)
            pauses = {number: longest_pause(number) for number in now}
        assert owners(source) == now, "nothing has moved"
    for what, numbers in (("of others", others), ("of the killed", sorted(now.keys() - set(others)))):
        told = ", ".join(
            f"{number}: {pauses[number]:.2f} s (before: {usual[number]:.2f})" for number in numbers
        )
        log.info("longest pause %s: %s", what, told)
    daemon.process.wait_copied()
