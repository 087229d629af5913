"""What lies in ZooKeeper that no node wrote: it costs what it holds, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from broker.client.admin import NewTopic
from broker.embedded import EmbeddedZooKeeper
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from tests.conftest import until
from tests.node.raw_client import batch_of, connected, fetch, produce, values_of
from tests.node.three_nodes import ThreeNodes, three_nodes

BROKER = {"endpoints": ["PLAINTEXT://h:1"], "listener_security_protocol_map": {"PLAINTEXT": "ODD"}}
STATE = {"controller_epoch": 1, "leader": 1, "leader_epoch": 1, "isr": [1, 2]}
HUGE = 1 << 40
DAMAGED: dict[str, object] = {
    "/brokers/ids/7": "garbage",
    "/brokers/ids/8": BROKER,
    f"/brokers/ids/{HUGE}": BROKER,
    "/brokers/ids/two": BROKER,
    "/brokers/topics/garbage": "garbage",
    "/brokers/topics/array": [],
    "/brokers/topics/none": {},
    "/brokers/topics/empty": {"partitions": {"0": []}},
    "/brokers/topics/twice": {"partitions": {"0": [1, 1, 2]}},
    "/brokers/topics/gaps": {"partitions": {"0": [1], "2": [2]}},
    "/brokers/topics/dead": {"partitions": {"0": [7, 8]}},
    "/brokers/topics/huge": {"partitions": {"0": [HUGE], str(HUGE): [1]}},
    "/brokers/topics/adding": {"partitions": {"0": [1]}, "adding_replicas": {"0": [9], "5": [1]}},
    "/brokers/topics/no name": {"partitions": {"0": [1]}},
    f"/brokers/topics/{'long' * 100}": {"partitions": {"0": [1]}},
    "/config/topics/settings": "garbage",
    "/config/brokers/3": "garbage",
    "/config/brokers/<default>": [],
    "/config/clients/c": {"config": 5},
    "/config/users/u/clients/c": "garbage",
    "/config/ips/127.0.0.1": "garbage",
    "/config/changes/zzz": "garbage",
    "/isr_change_notification/isr_change_0000000099": {"partitions": [{"topic": "t", "partition": HUGE}]},
    "/isr_change_notification/with/children": "",
    "/log_dir_event_notification/with/children": "",
    "/admin/delete_topics/no-such-topic/child": "",
    "/admin/preferred_replica_election": {"partitions": [{"topic": 5}]},
    "/admin/reassign_partitions": {"partitions": [{"topic": "settings", "partition": 0}]},
}


def put(nodes: ThreeNodes, path: str, content: object) -> None:
    data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    if nodes.znodes.exists(path) is None:
        nodes.znodes.create(path, data, makepath=True)
    else:
        nodes.znodes.set(path, data)


def works(nodes: ThreeNodes, name: str) -> bool:
    """Whether a topic can be made, and written to."""
    nodes.create_topic(name, [1, 2, 3])
    until(lambda: nodes.are_in_sync(name))

    def is_stored() -> bool:
        with connected(nodes.cluster.bootstrap[nodes.state(name)["leader"] - 1]) as client:
            return produce(client, name, batch_of(b"a")).error_code == 0

    until(is_stored)
    return True


def test_damaged_znodes_stop_neither_the_controller_nor_nodes_that_start(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    with three_nodes(zookeeper, tmp_path) as nodes:
        nodes.create_topic("settings", [3])
        for path, content in DAMAGED.items():
            put(nodes, path, content)
        assert works(nodes, "before")
        put(nodes, "/controller_epoch", "garbage")
        nodes.znodes.delete("/controller")
        assert works(nodes, "after")
        nodes.cluster.kill_node(3)
        nodes.cluster.start_node(3)
        assert works(nodes, "started")
        told = {event["path"] for node in (1, 2, 3) for event in nodes.events(node, "znode_unreadable")}
        damaged = {"garbage", "array", "empty", "twice", "huge", "no name", "long" * 100}
        assert told >= {f"/brokers/topics/{name}" for name in damaged}
        assert told >= {f"/brokers/ids/{name}" for name in ("7", "8", "two", HUGE)}
        assert nodes.events(3, "topic_config_unreadable")
        settings = {event["path"] for event in nodes.events(3, "entity_config_unreadable")}
        assert settings == {path for path in DAMAGED if path.startswith("/config/") and "changes" not in path}
        assert any(nodes.events(node, "controller_epoch_recovered") for node in (1, 2, 3))
        assert nodes.znodes.exists("/admin/reassign_partitions") is None
        assert nodes.cluster.dead_nodes() == {}


def test_a_partition_whose_state_is_damaged_is_served_on_until_its_leader_ends(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    with three_nodes(zookeeper, tmp_path) as nodes:
        works(nodes, "t")
        path = "/brokers/topics/t/partitions/0/state"
        state = nodes.znodes.get(path)[0]
        leader = nodes.state("t")["leader"]
        damages = ("garbage", STATE | {"isr": [1, 1]}, STATE | {"leader_epoch": HUGE}, {})
        for number, damage in enumerate(damages):
            put(nodes, path, damage)
            nodes.znodes.delete("/controller")
            assert works(nodes, f"beside-{number}")
            with connected(nodes.cluster.bootstrap[leader - 1]) as client:
                assert produce(client, "t", batch_of(b"b")).error_code == 0
        nodes.znodes.set(path, state)
        nodes.cluster.kill_node(leader)
        until(lambda: nodes.state("t")["leader"] not in (leader, -1))
        with connected(nodes.cluster.bootstrap[nodes.state("t")["leader"] - 1]) as client:
            until(lambda: values_of(fetch(client, "t", 0).records) == [b"a", *[b"b"] * 4])


def test_what_names_nodes_that_are_not_there_is_refused(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with three_nodes(zookeeper, tmp_path) as nodes:
        nodes.create_topic("t", [1, 2])

        def refusal(**wanted: object) -> ErrorCode:
            try:
                nodes.ask(lambda admin: admin.create_topic(NewTopic(name="new", **wanted)))
            except ProtocolError as error:
                return error.code
            return ErrorCode.NONE

        assert refusal(assignments={0: [1, 9]}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert refusal(assignments={0: [1, 1]}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert refusal(assignments={0: [1], 2: [2]}) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert refusal(partitions=1, replication_factor=4) is ErrorCode.INVALID_REPLICATION_FACTOR
        for target in ([1, 9], [], [2, 2]):
            (moved,) = nodes.ask(
                lambda admin, target=target: admin.reassign({TopicPartition("t", 0): target})
            ).values()
            assert moved.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert nodes.read("/brokers/topics/t")["partitions"] == {"0": [1, 2]}
