"""A route whose positions are not taken for a while, since whoever keeps its group is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import PARTITIONS, TOPIC, address, committed, numbers_at, write
from tests.daemon.test_ledger import ledgers_at

GROUP = "mirror/jfk-to-aggregate"


@pytest.fixture
def source(cluster: ClusterFactory) -> EmbeddedCluster:
    """Another node has the topic than the one that keeps the positions."""
    settings = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}
    made = cluster("jfk", brokers=2, settings=settings)
    other = min(made.pids.keys() - {keeper_of(made)})
    topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[other]] * PARTITIONS)
    admin = AdminClient({"bootstrap.servers": address(made)})
    (created,) = admin.create_topics([topic]).values()
    created.result(PATIENCE_SECONDS)
    return made


def keeper_of(cluster: EmbeddedCluster) -> int:
    """The node that keeps positions of groups."""
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    found: list[int] = []

    def is_told() -> bool:
        (described,) = admin.describe_consumer_groups([GROUP]).values()
        try:
            found.append(described.result(PATIENCE_SECONDS).coordinator.id)
        except KafkaException:
            return False
        return True

    wait_until(is_told, "somebody keeps positions")
    return found[0]


@contextmanager
def away(cluster: EmbeddedCluster) -> Iterator[None]:
    """Whoever keeps positions."""
    keeper = keeper_of(cluster)
    cluster.kill_node(keeper)
    yield
    cluster.start_node(keeper)


def copied_untold(source: EmbeddedCluster, destination: EmbeddedCluster, running: MirrorProcess) -> None:
    """30 records and their positions, and 60 more of which no position could be stored."""
    write(source, range(30))
    running.start()
    running.wait_copied()
    wait_until(lambda: positions_at(source) == [10] * PARTITIONS, "stored")
    with away(source):
        write(source, range(30, 90))
        wait_until(lambda: numbers_at(destination).total() == 90, "copied")
        wait_until(lambda: is_written_to(destination, 30), "written into the ledger")
        running.kill()
    wait_until(lambda: positions_at(source) == [10] * PARTITIONS, "the source knows of no more")


def positions_at(source: EmbeddedCluster) -> list[int]:
    """Nothing while whoever keeps them reads them again."""
    try:
        return list(committed(source, GROUP, TOPIC, range(PARTITIONS)).values())
    except KafkaException:
        return []


def is_written_to(destination: EmbeddedCluster, offset: int) -> bool:
    ledgers = ledgers_at(destination)
    return [ledgers[each].next for each in range(PARTITIONS) if each in ledgers] == [offset] * PARTITIONS


def test_what_was_copied_while_no_position_was_stored_is_not_copied_again(
    source: EmbeddedCluster, cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    destination = cluster("aggregate")
    running = mirror(source, destination)
    copied_untold(source, destination, running)
    write(source, range(90, 93))
    running.start()
    wait_until(lambda: set(range(90, 93)) <= numbers_at(destination).keys(), "what came since")
    assert numbers_at(destination) == Counter(range(93))
    wait_until(lambda: positions_at(source) == [31] * PARTITIONS, "the group is told")
    assert running.stop() == 0
    audited = mirrormaker("audit", str(running.file), "--deep")
    assert audited.returncode == 0, audited.stdout + audited.stderr


def test_a_seek_counts_however_far_the_ledger_reaches(
    source: EmbeddedCluster, cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    destination = cluster("aggregate")
    running = mirror(source, destination)
    copied_untold(source, destination, running)
    moved = mirrormaker("seek", str(running.file), "jfk-to-aggregate", "--to", "10")
    assert moved.returncode == 0, moved.stderr
    running.start()
    wait_until(lambda: numbers_at(destination).total() == 90 + 60, "copied again, as it was sent there")
    assert numbers_at(destination) == Counter(range(90)) + Counter(range(30, 90))
