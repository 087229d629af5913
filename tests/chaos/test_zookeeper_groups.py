"""A group that meets in ZooKeeper whose members join, leave, freeze and are killed, and whose ZooKeeper comes
and goes, while a producer is at work.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import PARTITIONS, Placed, Writer, create_topic, wait_until
from tests.node.group_processes import Group

TOPIC = "numbers"
MEMBERS_MAX = 5
RECORDS_PER_SECOND = 200


def test_no_record_is_lost_and_every_partition_has_one_owner_in_the_end(
    node: EmbeddedCluster, own_zookeeper: EmbeddedZooKeeper, disturbance: Disturbance, tmp_path: Path
) -> None:
    bootstrap = str(node.bootstrap[0])
    create_topic(bootstrap, TOPIC)
    with (
        Group(
            bootstrap=bootstrap,
            zookeeper=node.spec.zookeeper_connect,
            directory=tmp_path,
            pattern=TOPIC,
        ) as group,
        Writer(bootstrap, TOPIC, codec="lz4", records_per_second=RECORDS_PER_SECOND) as writer,
    ):
        group.join()
        for _ in disturbance:
            _disturb(group, own_zookeeper, disturbance)
        if not group.living:
            group.join()
        wait_until(lambda: group.is_shared_out({TOPIC: PARTITIONS}), "every partition has an owner")
        acknowledged = {partition: list(placed) for partition, placed in writer.acknowledged.items()}
        wait_until(lambda: _has_read(group, acknowledged), "every record was read")


def _disturb(group: Group, zookeeper: EmbeddedZooKeeper, disturbance: Disturbance) -> None:
    living = group.living
    member = disturbance.chance.choice(living) if living else None
    draw = disturbance.chance.random()
    if member is None or (draw < 0.35 and len(living) < MEMBERS_MAX):
        group.join(streams=disturbance.chance.randint(1, 3))
    elif draw < 0.5:
        member.stop()
    elif draw < 0.7:
        member.kill()
    elif draw < 0.9:
        disturbance.freeze(member.pid, 0.1, 6.0)
    else:
        _restart(zookeeper, disturbance)


def _restart(zookeeper: EmbeddedZooKeeper, disturbance: Disturbance) -> None:
    if zookeeper.pid is not None and disturbance.chance.random() < 0.5:
        os.kill(zookeeper.pid, signal.SIGKILL)
    zookeeper.stop()
    disturbance.pause(0.0, 5.0)
    zookeeper.start()


def _has_read(group: Group, acknowledged: Placed) -> bool:
    """Whether every one of these records was read by somebody, and never another at its offset."""
    read = {(entry.partition.partition, entry.offset, int(entry.value)) for entry in group.entries()}
    written = {
        (partition, offset, number) for partition, placed in acknowledged.items() for offset, number in placed
    }
    return written <= read
