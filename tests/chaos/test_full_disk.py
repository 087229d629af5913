"""A node whose disk fills up and gets room again, now and then with a crash in between."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.chaos.conftest import NODE_SETTINGS
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import PARTITIONS, Writer, create_topic, read_all, wait_until
from tests.chaos.upkeep import Operator, assert_kept_or_deleted, assert_numbered, assert_sound
from tests.conftest import cluster_spec
from tests.node.file_systems import mounted_tmpfs

TOPIC = "numbers"
SIZE = 48 << 20
MINIMUM = 6 << 20
SEGMENT_BYTES = 500_000
KEPT_RECORDS = 2_000
LITTLE_BYTES = 2 << 20
"""Less than a log's next segment and its indexes may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallNode:
    """A node on a small disk, and the file that takes the room."""

    cluster: EmbeddedCluster
    root: Path
    ballast: Path
    refuses_early: bool

    def fill(self, left: int) -> None:
        """Take all room but so many bytes."""
        self.ballast.unlink(missing_ok=True)
        used = sum(path.stat().st_size for path in self.root.rglob("*") if path.is_file())
        with contextlib.suppress(OSError), self.ballast.open("wb") as file:
            file.write(bytes(max(0, SIZE - used - left)))

    def make_room(self) -> None:
        """Give the room back."""
        self.ballast.unlink(missing_ok=True)


@pytest.fixture(params=[MINIMUM, 0], ids=["refuses early", "meets the end of the disk"])
def small(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[SmallNode]:
    settings = NODE_SETTINGS | {
        "log.segment.bytes": SEGMENT_BYTES,
        "log.segment.delete.delay.ms": 100,
        "log.retention.check.interval.ms": 200,
        "log.dir.min.free.bytes": request.param,
        "offsets.topic.num.partitions": 1,
    }
    spec = cluster_spec(own_zookeeper, tmp_path, "node", settings=settings)
    with mounted_tmpfs(spec.directory / "node-1", size=SIZE) as root, EmbeddedCluster(spec) as cluster:
        yield SmallNode(cluster=cluster, root=root, ballast=root / "ballast", refuses_early=request.param > 0)


def test_a_disk_that_fills_up_costs_nothing(
    small: SmallNode, disturbance: Disturbance, chance: Random
) -> None:
    cluster, bootstrap = small.cluster, str(small.cluster.bootstrap[0])
    create_topic(bootstrap, TOPIC, {"retention.ms": "-1"})
    operator = Operator(cluster.bootstrap[0])
    with Writer(bootstrap, TOPIC, codec="none", batch_size=100_000) as writer:
        for _ in disturbance:
            left = chance.choice([0, chance.randrange(LITTLE_BYTES), chance.randrange(MINIMUM * 2)])
            small.fill(left)
            disturbance.pause(0.5, 3.0)
            if chance.random() < 0.3:
                disturbance.crash(cluster)
            small.make_room()
            if chance.random() < 0.2:
                disturbance.crash(cluster)
            for partition in range(PARTITIONS):
                operator.delete_records(TOPIC, partition, _old(writer, partition))
            acknowledged = writer.acknowledged_count
            wait_until(lambda count=acknowledged: writer.acknowledged_count > count, "there is room again")
    assert cluster.dead_nodes() == {}
    placed = read_all(bootstrap, TOPIC)
    for partition, answered in writer.acknowledged.items():
        deleted_below = operator.deleted.get((TOPIC, partition), 0)
        assert_kept_or_deleted(assert_numbered(answered), placed[partition], (), deleted_below)
    assert cluster.stop_node(1) == 0
    assert_sound(small.root)
    events = (cluster.spec.directory / "node-1.log").read_text()
    assert '"log_directory_full"' in events
    assert '"log_directory_offline"' not in events
    cluster.start_node(1)
    assert read_all(bootstrap, TOPIC) == placed


def _old(writer: Writer, partition: int) -> int:
    """The offset up to which records make room for new ones."""
    return max(0, len(writer.acknowledged[partition]) - KEPT_RECORDS)
