"""Audits by the ledger of source offsets that neither a page nor a note tells of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import ClusterFactory
from tests.daemon.audits import audit, found
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, wait_until
from tests.daemon.killed_mirrors import address
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
