"""Real nodes that are killed and started again, with a session that ZooKeeper would keep for long."""

from __future__ import annotations

import asyncio
import shutil
import stat
from pathlib import Path

from broker.coordination import paths
from broker.coordination.zookeeper import ZooKeeper
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.storage.filenames import SESSION_FILE
from broker.types import BrokerId
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import batch_of, connected, create_topic, fetch, produce, values_of
from tests.node.test_life import settings_of, start, started

LONG_SESSION_MS = 60_000
"""More than a test waits for a node: ZooKeeper grants 20 of its ticks, 40 seconds."""


def owner_of_registration(running: EmbeddedCluster) -> int:
    """The session that node 1 is registered by."""

    async def look() -> int:
        session = ZooKeeper(running.spec.zookeeper_connect, session_timeout_ms=4_000)
        await session.start(timeout_ms=10_000)
        try:
            znode = await session.get(paths.broker(BrokerId(1)))
            return znode.ephemeral_owner if znode else 0
        finally:
            await session.close()

    return asyncio.run(look())


def test_a_killed_node_does_not_wait_for_its_old_session(cluster: ClusterFactory, tmp_path: Path) -> None:
    running = cluster(settings={"zookeeper.session.timeout.ms": LONG_SESSION_MS})
    note = tmp_path / "cluster" / "node-1" / SESSION_FILE
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        assert produce(client, "t", batch_of(b"kept")).error_code == 0
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    for _ in range(2):
        before = owner_of_registration(running)
        running.kill_node(1)
        assert owner_of_registration(running) == before
        running.start_node(1)
        assert owner_of_registration(running) not in (0, before)
        with connected(running.bootstrap[0]) as client:
            assert values_of(fetch(client, "t", 0).records) == [b"kept"]
    assert running.stop_node(1) == 0
    assert not note.exists()


def test_a_copy_of_a_live_nodes_directory_does_not_end_its_session(
    cluster: ClusterFactory, tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    running = cluster()
    before = owner_of_registration(running)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "cluster" / "node-1", copy)
    settings = settings_of(
        zookeeper,
        tmp_path,
        zookeeper_connect=running.spec.zookeeper_connect,
        log_dirs=str(copy),
        zookeeper_session_timeout_ms=1000,
    )
    start(tmp_path, settings).assert_one_message("broker id 1", str(running.bootstrap[0]))
    assert owner_of_registration(running) == before


def test_a_node_starts_where_the_noted_session_is_long_gone(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    settings = settings_of(zookeeper, tmp_path, zookeeper_session_timeout_ms=1000)
    note, kept = tmp_path / "data" / SESSION_FILE, tmp_path / "kept"
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        shutil.copy2(note, kept)
        process.terminate()
        assert process.wait(60) == 0
    shutil.copy2(kept, note)
    with started(tmp_path, settings) as (process, log):
        until(lambda: "node_started" in log.read_text())
        assert "former_session_not_ended" in log.read_text()
        process.terminate()
        assert process.wait(60) == 0
