"""Audits by the ledger of source offsets that neither a page nor a note tells of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from tests.conftest import ClusterFactory
from tests.daemon.audits import audit, found
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, wait_until
from tests.daemon.failover_pair import group_file
from tests.daemon.killed_mirrors import address, end_of
from tests.daemon.test_audit import BASE_MS, KEPT, numbered, topology, write
from tests.daemon.test_mirror import create, producer

pytestmark = pytest.mark.timeout(300)
TOPIC = "moved"


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
def test_only_records_are_missing_where_a_position_was_moved(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path, is_committed: bool
) -> None:
    """Neither markers of transactions nor what was aborted."""
    sides = cluster("jfk"), cluster("aggregate")
    create(sides[0], TOPIC, 1, **KEPT)
    write(sides[0], TOPIC, numbered(range(5)))
    running = mirror.of_file(topology(tmp_path, sides, TOPIC))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    writer = producer(sides[0], **{"transactional.id": "writer"})
    writer.init_transactions(PATIENCE_SECONDS)

    def write_together(numbers: Sequence[int], *, is_committed: bool) -> None:
        writer.begin_transaction()
        for number in numbers:
            writer.produce(TOPIC, b"%d" % number, b"key", partition=0, timestamp=BASE_MS + number)
        assert writer.flush(PATIENCE_SECONDS) == 0
        (writer.commit_transaction if is_committed else writer.abort_transaction)(PATIENCE_SECONDS)

    write_together(range(5, 10), is_committed=is_committed)  # and offset 10 is of the marker
    admin = AdminClient({"bootstrap.servers": address(sides[0])})
    position = ConsumerGroupTopicPartitions(f"mirror/route-{TOPIC}", [TopicPartition(TOPIC, 0, 11)])

    def is_moved() -> bool:
        (moved,) = admin.alter_consumer_group_offsets([position]).values()
        return all(each.error is None for each in moved.result(PATIENCE_SECONDS).topic_partitions)

    wait_until(is_moved, "somebody moves the position")
    write_together(range(10, 15), is_committed=True)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    code, route = audit(running.file)
    assert (code, found(route)) == ((2, [("missing", 5, 5, 5)]) if is_committed else (0, []))
    assert route["equal"] == 10
    assert audit(running.file, "--deep")[0] == code


def test_what_a_killed_process_left_behind_an_open_transaction_is_not_lost(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """It was not written down, and cannot be read until the transaction ends: then it is there."""
    sides = cluster("jfk"), cluster("aggregate")
    create(sides[0], TOPIC, 1, **KEPT)
    most = {"delivery": "at_most_once", "commit_interval_ms": 60_000}
    running = mirror.of_file(topology(tmp_path, sides, TOPIC, **most))
    to = f"jfk.{TOPIC}"

    def copy_to(end: int, *, is_killed: bool = False) -> None:
        running.start()
        running.until(lambda: uncommitted_end_of(sides[1], to) == end, "copied")
        if is_killed:
            running.kill()
        else:
            assert running.stop() == 0

    write(sides[0], TOPIC, numbered(range(10)))
    copy_to(10)
    writer = producer(sides[1], **{"transactional.id": "open"})
    writer.init_transactions(PATIENCE_SECONDS)
    writer.begin_transaction()
    writer.produce(to, b"open", partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0
    write(sides[0], TOPIC, numbered(range(10, 20)))
    copy_to(21, is_killed=True)
    write(sides[0], TOPIC, numbered(range(20, 30)))
    copy_to(31)
    for options, equal in (((), 20), (("--deep",), 10)):
        code, route = audit(running.file, *options)
        pending = {"pending": 30 - equal}
        assert (code, found(route), route["equal"], route["outcomes"]) == (0, [], equal, pending), options
    writer.abort_transaction(PATIENCE_SECONDS)
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["equal"], route["outcomes"]) == (0, [], 30, {}), options


def test_the_last_marker_of_what_came_is_not_still_to_be_sent_back_while_that_way_rests(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    sides = {name: cluster(name) for name in ("primary", "standby")}
    create(sides["primary"], "orders", 1, **KEPT)
    write(sides["primary"], "orders", numbered(range(10)))
    file = group_file(tmp_path, sides, delivery="exactly_once", heartbeats=False)
    running = mirror.of_file(file)
    running.start()
    running.until(lambda: end_of(sides["standby"], "orders") == 11, "copied, and committed")
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(file, "--route", "back", *options)
        outcomes = {"returned": 10} | ({"others": 10} if options else {"left_out": 1})
        assert (code, found(route), route["outcomes"]) == (0, [], outcomes), options


def uncommitted_end_of(brokers: EmbeddedCluster, topic: str) -> int:
    """For all readers."""
    settings = {"group.id": "reader", "isolation.level": "read_uncommitted", "log_level": 0}
    reader = Consumer({"bootstrap.servers": address(brokers), **settings})
    try:
        return int(reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=5.0)[1])
    except KafkaException:
        return 0
    finally:
        reader.close()
