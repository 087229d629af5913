"""What the daemon finds at the idle side of a failover group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.failover.tail_watch import TailWatch
from mirrormaker.reconcile.switches import IdleTail
from mirrormaker.topology.loader import load_topology
from tests.client.running import run
from tests.conftest import ClusterFactory
from tests.daemon.failover_pair import TOPIC, group_file
from tests.daemon.test_failure_policies import delete_topic
from tests.daemon.test_mirror import create, produce


@dataclass
class Watched:
    """A group at home, whose standby has five records of its own, and what looks at that."""

    standby: EmbeddedCluster
    watch: TailWatch
    looks: asyncio.Queue[Mapping[str, IdleTail]]


@pytest.fixture
def watched(cluster: ClusterFactory, tmp_path: Path) -> Watched:
    clusters = {"primary": cluster("primary"), "standby": cluster("standby")}
    for each in clusters.values():
        create(each, TOPIC, 1)
    produce(clusters["standby"], TOPIC, range(5), 1)
    topology = load_topology(group_file(tmp_path, clusters))
    looks: asyncio.Queue[Mapping[str, IdleTail]] = asyncio.Queue()
    watch = TailWatch(lambda: topology, SystemClock(), looks.put_nowait)
    return Watched(clusters["standby"], watch, looks)


def test_what_is_deleted_at_the_idle_side_holds_no_group_any_more(watched: Watched) -> None:
    watch, looks, at = watched.watch, watched.looks, TopicPartition(TOPIC, 0)

    async def main() -> None:
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(30), Cluster(watched.standby.bootstrap) as standby:
            assert await looks.get() == {"orders": IdleTail(revision=0, first={at: 0})}
            await Admin(standby).delete_records({at: 5})
            watch.look_again()
            assert await looks.get() == {}
        assert watch.describe({})["orders"]["tail_records"] == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main)


def test_of_a_topic_that_was_made_anew_at_the_idle_side_all_is_looked_at_again(watched: Watched) -> None:
    watch, looks = watched.watch, watched.looks

    def make_anew(count: int) -> None:
        delete_topic(watched.standby, TOPIC)
        create(watched.standby, TOPIC, 1)
        produce(watched.standby, TOPIC, range(count), 1)

    async def main() -> None:
        task = asyncio.create_task(watch.run())
        async with asyncio.timeout(60):
            await looks.get()
            for count in (3, 7, 0):
                await asyncio.to_thread(make_anew, count)
                watch.look_again()
                await looks.get()
                told = watch.describe({})["orders"]
                assert (told["problem"], told["tail_records"]) == (None, count)
                assert [each["first"] for each in told["tail"]] == [0] * (count > 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main)
