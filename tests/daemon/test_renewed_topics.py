"""A topic of the destination that is made anew with other partitions while a route copies to it."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, wait_until
from tests.daemon.killed_mirrors import (
    COPY,
    PARTITIONS,
    SteadyWriter,
    address,
    create_topic,
    events,
    numbers_at,
    read,
    write,
)

IN_FLIGHT = 5
RECORDS_A_BATCH = 100
"""More than the writer puts into one."""


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_nothing_is_sent_to_a_topic_that_was_made_anew_with_more_partitions(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    """However long it is until the route looks at its topics again."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    running = mirror(source, destination, refresh_interval_ms=60_000, delivery=delivery)
    running.start()
    admin = AdminClient({"bootstrap.servers": address(destination)})
    with SteadyWriter(source):
        wait_until(lambda: numbers_at(destination).total() > 100, "it copies")
        delete_copy(admin)
        wait_until(lambda: bool(events(running, "sending_failed")), "it is missed")
        create_copy(admin)
        told = running.wait_for(lambda told: bool(told["obstacles"]), "its shape is told of")
    assert "has 5 partitions at the destination, the source 3" in told["obstacles"]["flights"]
    assert numbers_at(destination, partitions=PARTITIONS + 2).total() == 0
    assert running.stop() == 0


def test_nothing_is_sent_to_a_topic_that_was_missing_when_a_transaction_was_to_begin(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    running = mirror(source, destination, refresh_interval_ms=60_000, delivery="exactly_once")
    running.start()
    admin = AdminClient({"bootstrap.servers": address(destination)})
    write(source, range(100))
    wait_until(lambda: numbers_at(destination).total() == 100, "it copies")
    running.wait_copied()
    delete_copy(admin)
    write(source, range(100, 200))
    wait_until(lambda: bool(events(running, "sending_failed")), "it is missed")
    create_copy(admin)
    running.wait_for(lambda told: bool(told["obstacles"]), "its shape is told of")
    assert numbers_at(destination, partitions=PARTITIONS + 2).total() == 0
    assert running.stop() == 0


@pytest.mark.parametrize(("delivery", "batches"), [("at_least_once", IN_FLIGHT), ("exactly_once", 0)])
def test_of_what_comes_to_a_topic_that_was_made_anew_at_once_only_what_was_in_flight_stays(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str, batches: int
) -> None:
    """Nothing is missed there, as the mirror stands still meanwhile: lower offsets tell it from the former
    one.
    """
    source, destination = cluster("jfk"), cluster("aggregate")
    create_topic(source)
    running = mirror(source, destination, refresh_interval_ms=60_000, delivery=delivery)
    running.start()
    admin = AdminClient({"bootstrap.servers": address(destination)})
    with SteadyWriter(source):
        wait_until(lambda: numbers_at(destination).total() > 1_000, "it copies")
        os.kill(pid := running.pid or 0, signal.SIGSTOP)
        try:
            delete_copy(admin)
            create_copy(admin)
        finally:
            os.kill(pid, signal.SIGCONT)
        running.wait_for(lambda told: bool(told["obstacles"]), "its shape is told of")
    found = Counter(
        message.partition() for message in read(destination, COPY, "read_committed", PARTITIONS + 2)
    )
    assert all(count <= batches * RECORDS_A_BATCH for count in found.values())
    assert running.stop() == 0


def delete_copy(admin: AdminClient) -> None:
    (deleted,) = admin.delete_topics([COPY]).values()
    deleted.result(PATIENCE_SECONDS)


def create_copy(admin: AdminClient) -> None:
    (created,) = admin.create_topics([NewTopic(COPY, PARTITIONS + 2, 1)]).values()
    created.result(PATIENCE_SECONDS)
