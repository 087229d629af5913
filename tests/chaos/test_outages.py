"""Three nodes that lose ZooKeeper, together and alone, and nodes that come back to what changed meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from broker.child_process import ChildProcess
from broker.client.admin import Admin, NewTopic
from broker.coordination.znodes import TopicZnode
from broker.embedded import EmbeddedZooKeeper
from broker.errors import ErrorCode, ProtocolError
from broker.loopback import accepts, free_ports
from broker.storage.filenames import HIGH_WATERMARK_FILE
from broker.types import BrokerId, HostPort, TopicId, TopicPartition
from tests.chaos.load import Follower, Writer, assert_written_once_and_in_order, read_all
from tests.conftest import until
from tests.node.raw_client import batch_of, connected, fetch, produce, produce_request, values_of
from tests.node.three_nodes import ThreeNodes, three_nodes

EVERYWHERE = [1, 2, 3]
LOAD = ([1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2])
SHORT_MS = 500


@pytest.fixture
def nodes(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ThreeNodes]:
    with three_nodes(zookeeper, tmp_path) as running:
        yield running


def leader_of(nodes: ThreeNodes, topic: str) -> int:
    return int(nodes.state(topic)["leader"])


def write(nodes: ThreeNodes, topic: str, *values: bytes) -> None:
    """Have all of the in-sync set store these values, one by one."""
    for value in values:
        until(lambda value=value: _is_stored(nodes, topic, value))


def _is_stored(nodes: ThreeNodes, topic: str, value: bytes) -> bool:
    leader = leader_of(nodes, topic)
    if leader not in nodes.cluster.pids:
        return False
    with connected(nodes.cluster.bootstrap[leader - 1]) as client:
        return produce(client, topic, batch_of(value)).error_code == 0


def read(nodes: ThreeNodes, topic: str) -> list[bytes | None]:
    """What the leader shows to consumers."""
    with connected(nodes.cluster.bootstrap[leader_of(nodes, topic) - 1]) as client:
        return values_of(fetch(client, topic, 0).records)


def log_bytes(root: Path, partition: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / partition).glob("*.log")))


def serves(nodes: ThreeNodes, node: int, topic: str) -> bool:
    """Whether it answers those who read the topic's first partition, as its leader does."""
    with connected(nodes.cluster.bootstrap[node - 1]) as client:
        return fetch(client, topic, 0).error_code == 0


# ZooKeeper away


def test_clients_go_on_while_all_sessions_expire_and_changes_are_refused_until_zookeeper_is_back(
    nodes: ThreeNodes,
) -> None:
    nodes.create_topic("t", *LOAD)
    until(lambda: nodes.are_in_sync("t"))
    with Follower(nodes.bootstrap, "t", "g") as reader, Writer(nodes.bootstrap, "t", codec="none") as writer:
        until(lambda: writer.acknowledged_count > 1_000)
        for door in nodes.doors.values():
            door.shut()
        until(lambda: not nodes.znodes.get_children("/brokers/ids"))
        before = writer.acknowledged_count
        with pytest.raises(ProtocolError) as refused:
            nodes.ask(lambda admin: admin.create_topic(NewTopic(name="new", partitions=1)))
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "ZooKeeper" in refused.value.message
        until(lambda: writer.acknowledged_count > before + 2_000)
        for door in nodes.doors.values():
            door.open()
        until(lambda: len(nodes.znodes.get_children("/brokers/ids")) == 3)
        until(lambda: nodes.are_in_sync("t"))
        before = writer.acknowledged_count
        until(lambda: writer.acknowledged_count > before + 1_000)
        nodes.create_topic("new", EVERYWHERE)
    assert_written_once_and_in_order(writer.acknowledged, read_all(nodes.bootstrap, "t"))
    assert not reader.failures
    assert [len(nodes.events(node, "log_directory_loaded")) for node in EVERYWHERE] == [1, 1, 1]


def test_a_leader_whose_session_expired_commits_nothing_that_its_successor_lacks(nodes: ThreeNodes) -> None:
    nodes.create_topic("t", EVERYWHERE)
    until(lambda: nodes.are_in_sync("t"))
    write(nodes, "t", b"common")
    zombie = leader_of(nodes, "t")
    with connected(nodes.cluster.bootstrap[zombie - 1]) as client:
        nodes.doors[zombie].shut()
        until(lambda: leader_of(nodes, "t") not in (zombie, -1))
        until(lambda: serves(nodes, leader_of(nodes, "t"), "t"))  # until then it follows the zombie
        unanswered = produce_request("t", batch_of(b"not committed"))
        unanswered.timeout_ms = SHORT_MS
        (answer,) = client.request(unanswered).responses[0].partition_responses
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        (answer,) = (
            client.request(produce_request("t", batch_of(b"the leader's alone"), acks=1))
            .responses[0]
            .partition_responses
        )
        assert answer.error_code == 0
        assert values_of(fetch(client, "t", 0).records) == [b"common"]
    write(nodes, "t", b"of the new leader")
    nodes.doors[zombie].open()
    until(lambda: nodes.are_in_sync("t"))
    assert len(nodes.events(zombie, "follower_cut")) == 1
    assert read(nodes, "t") == [b"common", b"of the new leader"]
    assert len({log_bytes(nodes.root(node), "t-0") for node in EVERYWHERE}) == 1


def test_a_node_whose_registration_is_removed_or_overwritten_by_hand_registers_again(
    nodes: ThreeNodes,
) -> None:
    nodes.create_topic("t", EVERYWHERE)
    for spoil in (nodes.znodes.delete, lambda path: nodes.znodes.set(path, b"garbage")):
        before = registration(nodes, 2)
        spoil("/brokers/ids/2")
        until(lambda before=before: registration(nodes, 2) not in (None, before))
        until(lambda: nodes.are_in_sync("t"))
        write(nodes, "t", b"value")


def registration(nodes: ThreeNodes, node: int) -> int | None:
    """The epoch in which a node is registered."""
    znode = nodes.znodes.exists(f"/brokers/ids/{node}")
    return None if znode is None else int(znode.czxid)


# Nodes that come back


def test_all_nodes_are_killed_and_everything_is_there_again(nodes: ThreeNodes) -> None:
    nodes.create_topic("t", *LOAD)
    until(lambda: nodes.are_in_sync("t"))
    with Writer(nodes.bootstrap, "t", codec="none") as writer:
        until(lambda: writer.acknowledged_count > 3_000)
        for node in EVERYWHERE:
            nodes.cluster.kill_node(node)
        before = writer.acknowledged_count
        nodes.cluster.start()
        until(lambda: writer.acknowledged_count > before + 1_000)
    until(lambda: nodes.are_in_sync("t"))
    assert_written_once_and_in_order(writer.acknowledged, read_all(nodes.bootstrap, "t"))


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 1, 3)])
def test_of_nodes_that_lost_power_together_the_one_that_lost_nothing_leads(
    nodes: ThreeNodes, order: tuple[int, ...]
) -> None:
    nodes.create_topic("t", [1, 2, 3])
    until(lambda: nodes.are_in_sync("t"))
    write(nodes, "t", b"a", b"b")
    for node in EVERYWHERE:
        nodes.cluster.kill_node(node)
    for node in (1, 2):
        (nodes.root(node) / "boot-id").write_bytes(b"of a former start of the machine")
        (nodes.root(node) / "t-0" / f"{0:020d}.log").write_bytes(b"")
    for node in order:
        nodes.cluster.start_node(node)
    until(lambda: nodes.are_in_sync("t"))
    assert read(nodes, "t") == [b"a", b"b"]
    assert len({log_bytes(nodes.root(node), "t-0") for node in EVERYWHERE}) == 1
    assert nodes.state("t")["leader"] == 3


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
def test_of_nodes_that_were_killed_together_one_that_lacks_records_does_not_lead(
    nodes: ThreeNodes, damage: str
) -> None:
    nodes.create_topic("t", [1, 2, 3])
    nodes.create_topic("u", [1, 2, 3])
    until(lambda: nodes.are_in_sync("t") and nodes.are_in_sync("u"))
    write(nodes, "t", b"a", b"b", b"c")
    write(nodes, "u", b"a")
    marks = nodes.root(1) / HIGH_WATERMARK_FILE
    until(lambda: marks.exists() and "t 0 3" in marks.read_text())
    for node in EVERYWHERE:
        nodes.cluster.kill_node(node)
    log = nodes.root(1) / "t-0" / f"{0:020d}.log"
    stored = log.read_bytes()
    match damage:
        case "flipped":
            log.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        case "cut":
            log.write_bytes(stored[: len(stored) // 3])
        case _:
            shutil.rmtree(log.parent)
    for node in EVERYWHERE:
        nodes.cluster.start_node(node)
    until(lambda: nodes.are_in_sync("t") and nodes.are_in_sync("u"))
    assert read(nodes, "t") == [b"a", b"b", b"c"]
    assert read(nodes, "u") == [b"a"]
    assert len({log_bytes(nodes.root(node), "t-0") for node in EVERYWHERE}) == 1


@contextmanager
def another_node(nodes: ThreeNodes, node: int, root: Path) -> Iterator[ChildProcess]:
    """A node with the id of one of the three, elsewhere: on another port, with another data directory."""
    address = HostPort("127.0.0.1", free_ports(1)[0])
    settings = nodes.cluster.spec.node_settings(node - 1)
    settings |= {"listeners": f"PLAINTEXT://{address}", "log.dirs": str(root)}
    path = root.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(settings))
    process = ChildProcess.start("another", nodes.command(path), root.with_suffix(".log"))
    try:
        process.wait_until(lambda: accepts(address), timeout_ms=30_000)
        yield process
    finally:
        process.stop(timeout_ms=10_000)


def test_an_id_comes_back_elsewhere_with_an_empty_disk_and_catches_up(
    nodes: ThreeNodes, tmp_path: Path
) -> None:
    nodes.create_topic("t", [1, 2, 3])
    until(lambda: nodes.are_in_sync("t"))
    write(nodes, "t", b"a", b"b")
    nodes.cluster.kill_node(1)
    with another_node(nodes, 1, tmp_path / "elsewhere"):
        until(lambda: nodes.are_in_sync("t"))
        assert leader_of(nodes, "t") != 1
        assert read(nodes, "t") == [b"a", b"b"]
        assert log_bytes(tmp_path / "elsewhere", "t-0") == log_bytes(nodes.root(2), "t-0")


def test_an_empty_disk_does_not_lead_those_that_have_records(nodes: ThreeNodes, tmp_path: Path) -> None:
    nodes.create_topic("t", [1, 2])
    nodes.create_topic("alone", [1])
    until(lambda: nodes.are_in_sync("t") and nodes.are_in_sync("alone"))
    write(nodes, "t", b"a")
    write(nodes, "alone", b"a")
    nodes.cluster.kill_node(2)
    until(lambda: nodes.state("t")["isr"] == [1])
    nodes.cluster.kill_node(1)
    nodes.cluster.start_node(2)
    for _ in range(2):
        with another_node(nodes, 1, tmp_path / "elsewhere"):
            until(lambda: leader_of(nodes, "alone") == 1)
            until(lambda: leader_of(nodes, "t") == -1)
    with another_node(nodes, 1, tmp_path / "elsewhere"):
        until(lambda: leader_of(nodes, "alone") == 1)
        until(lambda: elected(nodes, "t", 0))
        until(lambda: nodes.are_in_sync("t"))
        assert leader_of(nodes, "t") == 2
        assert read(nodes, "t") == [b"a"]
        assert log_bytes(tmp_path / "elsewhere", "t-0") == log_bytes(nodes.root(2), "t-0")


def elected(nodes: ThreeNodes, topic: str, partition: int) -> bool:
    """Whether an unclean election, asked for now, gave the partition a leader."""
    asked = TopicPartition(topic, partition)
    (error,) = nodes.ask(lambda admin: admin.elect_leaders([asked], unclean=True)).values()
    return error is None


# Logs without a role


def test_a_replica_that_was_moved_away_while_its_node_was_away_is_deleted(nodes: ThreeNodes) -> None:
    nodes.create_topic("t", [1, 2, 3], file_delete_delay_ms="0")
    until(lambda: nodes.are_in_sync("t"))
    write(nodes, "t", b"a")
    nodes.cluster.kill_node(3)
    nodes.ask(lambda admin: admin.reassign({TopicPartition("t", 0): [1, 2]}))
    until(lambda: nodes.read("/brokers/topics/t")["partitions"] == {"0": [1, 2]})
    nodes.cluster.start_node(3)
    until(lambda: bool(nodes.events(3, "log_deleted")))
    assert [event["reason"] for event in nodes.events(3, "log_deleted")] == ["the replicas are [1, 2]"]
    assert not (nodes.root(3) / "t-0").exists()
    assert read(nodes, "t") == [b"a"]


def test_the_logs_of_a_topic_that_was_made_anew_meanwhile_are_set_aside(nodes: ThreeNodes) -> None:
    nodes.create_topic("t", EVERYWHERE)
    nodes.create_topic("gone", EVERYWHERE)
    until(lambda: nodes.are_in_sync("t") and nodes.are_in_sync("gone"))
    write(nodes, "t", b"of the old topic")
    write(nodes, "gone", b"of a topic that is gone")
    nodes.cluster.kill_node(3)
    for topic in ("t", "gone"):
        nodes.znodes.delete(f"/brokers/topics/{topic}", recursive=True)
        nodes.znodes.delete(f"/config/topics/{topic}")
    until(lambda: all("t" not in nodes.ask(Admin.list_topics, node) for node in (1, 2)))
    topic = TopicZnode(topic_id=TopicId(uuid4()), partitions={0: tuple(map(BrokerId, EVERYWHERE))})
    nodes.znodes.create("/brokers/topics/t", topic.encode())  # no node makes one on a node that is away
    until(lambda: nodes.znodes.exists("/brokers/topics/t/partitions/0/state") is not None)
    write(nodes, "t", b"of the new one")
    nodes.cluster.start_node(3)
    until(lambda: nodes.are_in_sync("t"))
    assert read(nodes, "t") == [b"of the new one"]
    assert len({log_bytes(nodes.root(node), "t-0") for node in EVERYWHERE}) == 1
    until(lambda: len(nodes.events(3, "log_set_aside")) == 2)
    kept = {event["partition"]: Path(event["path"]) for event in nodes.events(3, "log_set_aside")}
    assert b"of the old topic" in (kept["t-0"] / f"{0:020d}.log").read_bytes()
    assert b"of a topic that is gone" in (kept["gone-0"] / f"{0:020d}.log").read_bytes()
    nodes.cluster.kill_node(3)
    nodes.cluster.start_node(3)
    assert all(path.name.endswith("-stray") and path.exists() for path in kept.values())


def test_nothing_is_put_away_where_the_topic_cannot_be_read_or_counts_on_the_node(nodes: ThreeNodes) -> None:
    for topic in ("unreadable", "rewritten"):
        nodes.create_topic(topic, [3])
        write(nodes, topic, b"a")
    nodes.create_topic("moved", EVERYWHERE)
    nodes.cluster.kill_node(3)
    saved = nodes.znodes.get("/brokers/topics/unreadable")[0]
    nodes.znodes.set("/brokers/topics/unreadable", b"garbage")
    rewritten = nodes.read("/brokers/topics/rewritten")
    nodes.znodes.set("/brokers/topics/rewritten", json.dumps(rewritten | {"partitions": {"0": [1]}}).encode())
    nodes.ask(lambda admin: admin.reassign({TopicPartition("moved", 0): [1, 2]}), 1, 2)
    until(lambda: nodes.read("/brokers/topics/moved")["partitions"] == {"0": [1, 2]})
    nodes.cluster.start_node(3)
    until(lambda: not (nodes.root(3) / "moved-0").exists())
    assert {"unreadable-0", "rewritten-0"} <= {path.name for path in nodes.root(3).iterdir()}
    nodes.znodes.set("/brokers/topics/unreadable", saved)
    nodes.znodes.set("/brokers/topics/rewritten", json.dumps(rewritten).encode())
    for topic in ("unreadable", "rewritten"):
        until(lambda topic=topic: leader_of(nodes, topic) == 3)
        write(nodes, topic, b"b")
        assert read(nodes, topic) == [b"a", b"b"]


def test_what_was_set_aside_can_be_given_its_name_back(nodes: ThreeNodes) -> None:
    nodes.create_topic("t", [3])
    write(nodes, "t", b"a")
    topic = nodes.znodes.get("/brokers/topics/t")[0]
    state = nodes.znodes.get("/brokers/topics/t/partitions/0/state")[0]
    nodes.cluster.kill_node(3)
    nodes.znodes.delete("/brokers/topics/t", recursive=True)
    nodes.cluster.start_node(3)
    until(lambda: nodes.events(3, "log_set_aside") != [])
    nodes.cluster.stop_node(3)
    shutil.move(nodes.events(3, "log_set_aside")[0]["path"], nodes.root(3) / "t-0")
    nodes.znodes.create("/brokers/topics/t/partitions/0/state", state, makepath=True)
    nodes.znodes.set("/brokers/topics/t", topic)
    nodes.cluster.start_node(3)
    until(lambda: leader_of(nodes, "t") == 3)
    write(nodes, "t", b"b")
    assert read(nodes, "t") == [b"a", b"b"]
