"""Three nodes that crash, freeze, run out of disk and lose one another and ZooKeeper, while producers and
consumers are at work: whatever was acknowledged is read once and in order, and the replicas are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from broker.embedded import EmbeddedZooKeeper
from tests.chaos.conftest import AFTERMATH_SECONDS, LONG_SECONDS, NODE_SETTINGS
from tests.chaos.disturbance import Disturbance
from tests.chaos.faults import (
    Choice,
    Schedule,
    crash,
    cut_between_nodes,
    cut_from_zookeeper,
    freeze,
    full_disk,
    isolation,
    passing_topic,
    rolling_restart,
    zookeeper_away,
)
from tests.chaos.journal import Journal
from tests.chaos.load import wait_until
from tests.chaos.replicas import are_in_sync, assert_identical, have_one_size
from tests.chaos.three_nodes import NODES, ThreeNodes, three_nodes
from tests.chaos.traffic import Traffic, traffic_at
from tests.chaos.upkeep import assert_sound

pytestmark = pytest.mark.timeout(LONG_SECONDS + AFTERMATH_SECONDS)

TOPICS: Mapping[str, Mapping[str, str]] = {"cached": {}, "flushed": {"flush.messages": "1"}}
FREE_BYTES_MIN = (0, 8 << 20)
"""Nodes meet the end of their disks, or refuse producers before."""
CALM_PROBABILITY = 0.5
CLUSTER_SETTINGS = NODE_SETTINGS | {
    "replica.lag.time.max.ms": 3_000,
    "replica.socket.timeout.ms": 3_000,
    "replica.fetch.backoff.ms": 200,
    "leader.imbalance.check.interval.seconds": 10,
    "log.cleaner.enable": False,
}
EVERYTHING: dict[Choice, int] = {
    crash: 6,
    freeze: 4,
    full_disk: 2,
    cut_between_nodes: 4,
    cut_from_zookeeper: 3,
    isolation: 3,
    passing_topic: 3,
    zookeeper_away: 2,
    rolling_restart: 2,
}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """What is done to the cluster."""
    return Journal(tmp_path / "schedule.txt")


@pytest.mark.parametrize(
    ("in_sync_min", "choices"),
    [(2, EVERYTHING), (1, {crash: 1})],
    ids=["everything breaks", "processes crash, and one replica is enough"],
)
def test_what_was_acknowledged_is_read_once_and_in_order_and_all_replicas_are_the_same(
    own_zookeeper: EmbeddedZooKeeper,
    tmp_path: Path,
    journal: Journal,
    chance: Random,
    in_sync_min: int,
    choices: Mapping[Choice, int],
) -> None:
    settings = CLUSTER_SETTINGS | {
        "min.insync.replicas": in_sync_min,
        "log.dir.min.free.bytes": chance.choice(FREE_BYTES_MIN),
    }
    with three_nodes(own_zookeeper, tmp_path, journal, settings) as nodes:
        with traffic_at(nodes.bootstrap, TOPICS, chance, replicas=len(NODES), logs=tmp_path) as traffics:
            with contextlib.ExitStack() as writers:
                for traffic in traffics:
                    writers.enter_context(traffic.writer)
                _break(nodes, Schedule(chance, choices), Disturbance(chance, seconds=LONG_SECONDS), traffics)
            for traffic in traffics:
                traffic.wait_until_arrived()
        for traffic in traffics:
            traffic.check(nodes.bootstrap)
        wait_until(lambda: have_one_size(nodes.roots), "no replica lags")
        for broker_id in NODES:
            nodes.kill(broker_id)
        assert_identical(nodes.roots)
        for broker_id in NODES:
            nodes.start_soon(broker_id)
        nodes.settle()
        for traffic in traffics:
            traffic.check(nodes.bootstrap)
        for broker_id in NODES:
            nodes.cluster.stop_node(broker_id)
            assert_sound(nodes.root(broker_id))


def _break(
    nodes: ThreeNodes, schedule: Schedule, disturbance: Disturbance, traffics: Sequence[Traffic]
) -> None:
    """Let things break until the time is over; in between the cluster sometimes gets the time to recover."""
    for _ in disturbance:
        schedule.run(schedule.draw(), nodes, disturbance.pause)
        if disturbance.chance.random() < CALM_PROBABILITY:
            for traffic in traffics:
                traffic.wait_for_more()
            wait_until(lambda: are_in_sync(nodes.bootstrap), "all replicas are in sync")
            nodes.journal.note("all replicas are in sync")
