"""A node that crashes, freezes and loses ZooKeeper while producers and consumers are at work."""

from __future__ import annotations

import os
import signal
from random import Random

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import (
    Follower,
    Writer,
    assert_written_once_and_in_order,
    create_topic,
    read_all,
    wait_until,
)

TOPIC = "numbers"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def bootstrap(node: EmbeddedCluster) -> str:
    """Address of the node, which has the topic."""
    address = str(node.bootstrap[0])
    create_topic(address, TOPIC)
    return address


@pytest.fixture
def codec(chance: Random) -> str:
    """One of the codecs."""
    return chance.choice(CODECS)


def test_crashes_lose_double_and_reorder_nothing(
    node: EmbeddedCluster, bootstrap: str, codec: str, disturbance: Disturbance
) -> None:
    with Follower(bootstrap, TOPIC, "followers") as follower:
        with Writer(bootstrap, TOPIC, codec=codec) as writer:
            for _ in disturbance:
                disturbance.crash(node)
        assert writer.acknowledged_count > 1000
        assert_written_once_and_in_order(writer.acknowledged, read_all(bootstrap, TOPIC))
        wait_until(lambda: follower.has_seen(writer.acknowledged), "the group has read everything")


def test_freezes_lose_double_and_reorder_nothing(
    node: EmbeddedCluster, bootstrap: str, codec: str, disturbance: Disturbance
) -> None:
    """Some are longer than the node's session, which it has to replace, and than its clients wait."""
    with Follower(bootstrap, TOPIC, "followers") as follower:
        with Writer(bootstrap, TOPIC, codec=codec) as writer:
            for _ in disturbance:
                disturbance.freeze(node.pids[1], 0.1, 6.0)
        assert node.dead_nodes() == {}
        assert_written_once_and_in_order(writer.acknowledged, read_all(bootstrap, TOPIC))
        wait_until(lambda: follower.has_seen(writer.acknowledged), "the group has read everything")


def test_work_goes_on_while_zookeeper_comes_and_goes(
    node: EmbeddedCluster,
    own_zookeeper: EmbeddedZooKeeper,
    bootstrap: str,
    codec: str,
    disturbance: Disturbance,
) -> None:
    with Follower(bootstrap, TOPIC, "followers") as follower:
        with Writer(bootstrap, TOPIC, codec=codec) as writer:
            for _ in disturbance:
                _restart(own_zookeeper, disturbance)
            acknowledged = writer.acknowledged_count
            wait_until(lambda: writer.acknowledged_count > acknowledged + 1000, "records are written again")
        assert node.dead_nodes() == {}
        assert_written_once_and_in_order(writer.acknowledged, read_all(bootstrap, TOPIC))
        wait_until(lambda: follower.has_seen(writer.acknowledged), "the group has read everything")
    create_topic(bootstrap, "afterwards")


def _restart(zookeeper: EmbeddedZooKeeper, disturbance: Disturbance) -> None:
    """Stop or kill ZooKeeper, and start it after a while; sessions may have ended by then."""
    if zookeeper.pid is not None and disturbance.chance.random() < 0.5:
        os.kill(zookeeper.pid, signal.SIGKILL)
    zookeeper.stop()
    disturbance.pause(0.0, 5.0)
    zookeeper.start()
