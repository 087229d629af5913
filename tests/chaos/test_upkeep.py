"""A node that rolls, deletes, compacts, archives and moves while it crashes and its settings change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from tests.chaos.conftest import NODE_SETTINGS
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import (
    PARTITIONS,
    Follower,
    Writer,
    create_topic,
    read_all,
    wait_until,
)
from tests.chaos.upkeep import (
    Footprint,
    Operator,
    archived,
    assert_kept_or_deleted,
    assert_newest_of_each_key,
    assert_numbered,
    assert_sound,
)
from tests.conftest import cluster_spec

DELETED = "deleted"
COMPACTED = "compacted"
BOTH = "compacted-and-deleted"
POLICIES = {DELETED: "delete", COMPACTED: "compact", BOTH: "compact,delete"}
CODECS = ("none", "snappy", "zstd")
RECORDS_PER_SECOND = 300
BATCH_SIZE = 15_000
SEGMENT_SIZES = (20_000, 50_000, 200_000)
RETENTION_SIZES = (100_000, 300_000, 1_000_000)
RETENTION_TIMES_MS = (500, 3_000, 60_000)
DESCRIPTORS_MAX = 1_000
RESIDENT_BYTES_MAX = 400 << 20


class TwoRoots(ClusterSpec):
    """One node with two data directories."""

    @property
    def roots(self) -> tuple[Path, Path]:
        return (self.directory / "a", self.directory / "b")

    def node_settings(self, index: int) -> dict[str, object]:
        return super().node_settings(index) | {"log.dirs": ",".join(map(str, self.roots))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The node, what breaks it, and whoever alters its topics."""

    cluster: EmbeddedCluster
    spec: TwoRoots
    zookeeper: EmbeddedZooKeeper
    operator: Operator
    disturbance: Disturbance
    archive: Path
    footprint: Footprint

    @property
    def bootstrap(self) -> str:
        return str(self.cluster.bootstrap[0])


@pytest.fixture
def scene(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, disturbance: Disturbance) -> Iterator[Scene]:
    archive = tmp_path / "archive"
    settings = NODE_SETTINGS | {
        "log.segment.bytes": 50_000,
        "log.retention.check.interval.ms": 200,
        "log.segment.delete.delay.ms": 500,
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.delete.retention.ms": 300,
        "log.archive.url": str(archive),
    }
    plain = cluster_spec(own_zookeeper, tmp_path, "node", settings=settings)
    spec = TwoRoots(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    with EmbeddedCluster(spec) as cluster:
        yield Scene(
            cluster=cluster,
            spec=spec,
            zookeeper=own_zookeeper,
            operator=Operator(cluster.bootstrap[0]),
            disturbance=disturbance,
            archive=archive,
            footprint=Footprint(),
        )


@pytest.fixture
def writers(scene: Scene, chance: Random) -> dict[str, Writer]:
    """One for each of the topics, which are made."""
    for topic, policy in POLICIES.items():
        config = {"cleanup.policy": policy, "archive.enable": str(topic != COMPACTED).lower()}
        create_topic(scene.bootstrap, topic, config)
    return {
        topic: Writer(
            scene.bootstrap,
            topic,
            codec=chance.choice(CODECS),
            keyed=topic != DELETED,
            records_per_second=RECORDS_PER_SECOND,
            batch_size=BATCH_SIZE,
        )
        for topic in POLICIES
    }


def test_what_was_acknowledged_is_in_the_log_or_archived_whatever_happens(
    scene: Scene, writers: dict[str, Writer]
) -> None:
    with Follower(scene.bootstrap, DELETED, "followers") as follower:
        with contextlib.ExitStack() as stack:
            for writer in writers.values():
                stack.enter_context(writer)
            for _ in scene.disturbance:
                _disturb(scene, writers)
                scene.footprint.look(scene.cluster.pids[1])
        for topic in POLICIES:
            scene.operator.alter(topic, retention_ms=-1, retention_bytes=-1)
        assert scene.cluster.dead_nodes() == {}
        _assert_all_is_there(scene, writers)
        left = read_all(scene.bootstrap, DELETED)
        wait_until(lambda: follower.has_seen(left), "the group has read what is left")
    assert scene.footprint.descriptors < DESCRIPTORS_MAX
    assert scene.footprint.resident_bytes < RESIDENT_BYTES_MAX
    assert scene.cluster.stop_node(1) == 0
    for root in scene.spec.roots:
        assert_sound(root)
    scene.cluster.start_node(1)
    _assert_all_is_there(scene, writers)


def _assert_all_is_there(scene: Scene, writers: dict[str, Writer]) -> None:
    """Reads the log first, then the archive: what goes from one to the other is seen."""
    for topic, writer in writers.items():
        log, archive = read_all(scene.bootstrap, topic), archived(scene.archive, topic)
        for partition, answered in writer.acknowledged.items():
            written = assert_numbered(answered)
            if topic == DELETED:
                deleted_below = scene.operator.deleted.get((topic, partition), 0)
                assert_kept_or_deleted(written, log[partition], archive[partition], deleted_below)
            else:
                assert_newest_of_each_key(written, log[partition], archive[partition])


def _disturb(scene: Scene, writers: dict[str, Writer]) -> None:
    """One of the things that happen."""
    chance, operator = scene.disturbance.chance, scene.operator
    topic, partition = chance.choice(list(POLICIES)), chance.randrange(PARTITIONS)
    match chance.randrange(10):
        case 0 | 1 | 2:
            scene.disturbance.crash(scene.cluster)
        case 3:
            scene.disturbance.freeze(scene.cluster.pids[1], 0.1, 5.0)
        case 4:
            scene.zookeeper.stop()
            scene.disturbance.pause(0.0, 4.0)
            scene.zookeeper.start()
        case 5:
            operator.alter(topic, segment_bytes=chance.choice(SEGMENT_SIZES))
        case 6:
            operator.alter(chance.choice([DELETED, BOTH]), **_retention(chance))
        case 7:
            operator.alter(COMPACTED, cleanup_policy=chance.choice(["compact", "delete", "compact,delete"]))
        case 8:
            operator.move(topic, partition, chance.choice(scene.spec.roots))
        case _:
            written = writers[DELETED].acknowledged[partition]
            if written:
                offset = max(0, written[-1][0] - chance.randrange(500))
                operator.delete_records(DELETED, partition, offset)


def _retention(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {"retention_bytes": chance.choice(RETENTION_SIZES)}
    return {"retention_ms": chance.choice(RETENTION_TIMES_MS)}
