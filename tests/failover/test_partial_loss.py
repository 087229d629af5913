"""Switches while a side answers in part: some of its partitions have no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.client.offsets import LATEST, list_offsets
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.failover import carried_groups, lost_copies, partitions
from mirrormaker.failover.commands import describe_switched, rehearse_switch, switch_group
from mirrormaker.failover.settling import Terms
from mirrormaker.failover.sides import FailoverError
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.ledger.group_mark import GroupMark, GroupMarkId
from mirrormaker.ledger.lane_id import LEDGER_TOPIC, LaneId
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.reconcile.switches import Side, Stage
from mirrormaker.topology.loader import load_topology
from tests.client.running import run
from tests.conftest import ClusterFactory
from tests.daemon.failover_pair import TOPIC, group_file
from tests.daemon.test_mirror import address, create

pytestmark = pytest.mark.timeout(120)
LOST, KEPT = TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 0)
PATIENCE_MS = 60_000
WHOLE = {"offsets.topic.replication.factor": 2}
FORCED = Terms(timeout_ms=5_000, force=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "READ_TIMEOUT_MS", 2_000)
    monkeypatch.setattr(carried_groups, "TIMEOUT_MS", 2_000)
    monkeypatch.setattr(lost_copies, "TIMEOUT_MS", 2_000)


def place(cluster: EmbeddedCluster, replicas: Sequence[int]) -> None:
    """The topic, each partition at one of these nodes."""
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    wanted = NewTopic(TOPIC, len(replicas), replica_assignment=[[node] for node in replicas])
    for created in admin.create_topics([wanted]).values():
        created.result(30)


def make_kept(cluster: EmbeddedCluster) -> None:
    """The topics of commands, daemons and groups, at all nodes."""

    async def main() -> None:
        async with Cluster(cluster.bootstrap) as there:
            await fetch_offsets(there, "readers", timeout_ms=PATIENCE_MS)
            for name in (CONTROL_TOPIC, LEDGER_TOPIC):
                async with KeptTopic(there, name):
                    pass

    run(main)


def lose_node(cluster: EmbeddedCluster, node: int) -> None:
    """Killed; what the other one has too is led from there once this returns."""
    cluster.kill_node(node)

    async def main() -> None:
        async with Cluster(cluster.bootstrap) as there:
            wanted = {TopicPartition(name, 0): LATEST for name in (CONTROL_TOPIC, LEDGER_TOPIC)}
            await list_offsets(there, wanted, timeout_ms=PATIENCE_MS)
            await fetch_offsets(there, "readers", timeout_ms=PATIENCE_MS)

    asyncio.run(main())


def test_a_primary_of_which_a_partition_is_lost_counts_as_away(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    primary, standby = cluster("primary", brokers=2, settings=WHOLE), cluster("standby")
    place(primary, [1, 2])
    create(standby, TOPIC, 2)
    make_kept(primary)
    lose_node(primary, 2)
    topology = load_topology(group_file(tmp_path, {"primary": primary, "standby": standby}))
    told: list[str] = []

    async def refused() -> None:
        rehearsal = await rehearse_switch(topology, "orders", Side.STANDBY, SystemClock())
        assert not rehearsal.is_planned
        assert "cluster 'primary' cannot be read in full" in str(rehearsal.problem)
        with pytest.raises(FailoverError, match=r"cannot be read in full.*then say --force"):
            await switch_group(
                topology, "orders", Side.STANDBY, replace(FORCED, force=False), SystemClock(), told.append
            )

    async def switched() -> None:
        done = await switch_group(topology, "orders", Side.STANDBY, FORCED, SystemClock(), told.append)
        assert (done.switch.side, done.switch.stage) == (Side.STANDBY, Stage.AWAY)
        with pytest.raises(FailoverError, match="still away: cluster 'primary' cannot be read in full"):
            await switch_group(topology, "orders", Side.STANDBY, FORCED, SystemClock(), told.append)

    run(refused)
    run(switched)


def test_partitions_of_the_standby_that_are_lost_or_gone_hold_up_no_forced_switch(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    primary, standby = cluster("primary"), cluster("standby", brokers=2, settings=WHOLE)
    create(primary, TOPIC, 3)
    place(standby, [1, 2])
    make_kept(standby)
    topology = load_topology(group_file(tmp_path, {"primary": primary, "standby": standby}))
    told: list[str] = []

    async def carried() -> None:
        """As a daemon has noted it; of a third partition too, that is not there any more."""
        async with Cluster(standby.bootstrap) as there, KeptTopic(there, LEDGER_TOPIC) as ledger:
            positions = {each: OffsetAndMetadata(offset=0) for each in (KEPT, LOST)}
            await commit_offsets(there, "readers", positions, timeout_ms=30_000)
            mark = GroupMark(source=4, to=0, before=None).value()
            lanes = [LaneId("away", TOPIC, None, number, TOPIC, number) for number in range(3)]
            await ledger.put([(GroupMarkId("readers", lane).key(), mark) for lane in lanes])

    async def main() -> None:
        done = await switch_group(topology, "orders", Side.STANDBY, FORCED, SystemClock(), told.append)
        assert (done.switch.side, done.switch.stage) == (Side.STANDBY, Stage.AWAY)
        places = describe_switched(topology, "orders", done)["rehearsal"]["groups"]
        found = {each["partition"]: (each["continues_at"], each["read_again"]) for each in places}
        assert found == {0: (0, 0), 1: (0, None), 2: (None, None)}

    run(carried)
    primary.kill_node(1)
    lose_node(standby, 2)
    run(main)
