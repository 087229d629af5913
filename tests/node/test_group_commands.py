"""`broker groups` against a real node, with groups of both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from broker.client.connection import Connection
from broker.embedded import EmbeddedCluster
from broker.types import HostPort
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.conftest import until
from tests.node.test_cli import broker, done


@pytest.fixture
def bootstrap(node: EmbeddedCluster) -> str:
    return f"--bootstrap-server={node.bootstrap[0]}"


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A member of librdkafka's that has all of the topic and has committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap.partition("=")[2],
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "reader",
        }
    )
    consumer.subscribe([topic])
    try:
        messages = []
        until(lambda: (message := consumer.poll(0.1)) is not None and messages.append(message) is None)
        consumer.commit(messages[0], asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_members_go_by_the_settings_of_their_group(bootstrap: str, topic: str) -> None:
    group = f"group/{topic}"
    of = ("--entity-type", "groups", "--entity-name", group, bootstrap)
    assert done("configs", "describe", *of).lines == []
    assert done("configs", "describe", *of, "--all").lines == [
        "consumer.heartbeat.interval.ms=5000\tdefault",
        "consumer.session.timeout.ms=45000\tdefault",
    ]
    done("configs", "alter", *of, "--add", "consumer.heartbeat.interval.ms=7000")
    assert done("configs", "describe", *of).lines == ["consumer.heartbeat.interval.ms=7000\tgroup"]
    assert heartbeat_interval_ms(bootstrap, group, topic) == 7_000
    refused = broker("configs", "alter", *of, "--add", "consumer.session.timeout.ms=7")
    assert refused.code == 1
    assert "INVALID_CONFIG: settings of" in refused.errors
    assert "consumer.session.timeout.ms: 7 is not from 45000 to 60000" in refused.errors
    done("configs", "alter", *of, "--delete", "consumer.heartbeat.interval.ms")
    assert done("configs", "describe", *of).lines == []
    assert heartbeat_interval_ms(bootstrap, f"{group}-2", topic) == 5_000
    default = ("--entity-type", "groups", "--entity-default", bootstrap)
    assert (
        "--entity-default: groups have no default of their own"
        in broker("configs", "describe", *default).errors
    )


def heartbeat_interval_ms(bootstrap: str, group: str, topic: str) -> int:
    """What a new member of the group is told."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )

    async def join() -> int:
        """0 while the coordinator is on its way."""
        async with await Connection.open(HostPort.parse(bootstrap.partition("=")[2])) as connection:
            await connection.request(FindCoordinatorRequest(coordinator_keys=[group]))
            return (await connection.request(request)).heartbeat_interval_ms

    told: list[int] = []
    until(lambda: told.append(asyncio.run(join())) is None and told[-1] > 0)
    return told[-1]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_either_protocol_are_listed_and_described(
    bootstrap: str, topic: str, protocol: str
) -> None:
    done("topics", "create", topic, bootstrap)
    done("produce", topic, bootstrap, stdin="one\ntwo\n")
    group = f"group-{topic}"
    with member(bootstrap, group, topic, protocol):
        assert f"{group}\tStable\t{protocol}" in done("groups", "list", bootstrap).lines
        assert done("groups", "list", "--type", protocol, "--state", "Empty", bootstrap).lines == []
        state = done("groups", "describe", group, "--state", bootstrap).lines
        assert len(state) == 1
        assert state[0].startswith(f"Group: {group}\tType: {protocol}\tState: Stable\tCoordinator: 1\t")
        shown = done("groups", "describe", group, bootstrap).lines
        assert [line.partition(":")[0] for line in shown] == ["Group", "Member", "Topic"]
        assert shown[1].endswith(f"Client: reader\tPartitions: {topic}-0")
        assert shown[2] == f"Topic: {topic}\tPartition: 0\tOffset: 1\tEnd: 2\tLag: 1"
        (line,) = done("groups", "describe", group, "--members", "--verbose", bootstrap).lines[1:]
        assert (f"Topics: {topic}" in line) == (protocol == "consumer")
        refused = broker("groups", "reset-offsets", group, "--all-topics", "--to-earliest", bootstrap)
        assert (refused.code, refused.lines) == (1, [])
        assert f"nobody is in the group: {group} is Stable" in refused.errors
        assert "NON_EMPTY_GROUP" in broker("groups", "delete", group, bootstrap).errors
    done("groups", "delete", group, bootstrap)
    assert not any(group in line for line in done("groups", "list", bootstrap).lines)


def test_a_group_that_does_not_exist_is_an_error(bootstrap: str) -> None:
    outcome = broker("groups", "describe", "nobody", bootstrap)
    assert (outcome.code, outcome.lines) == (1, [])
    assert "there is no group nobody" in outcome.errors


def test_offsets_are_moved_within_what_is_kept(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, "--partitions", "2", bootstrap)
    done("produce", topic, bootstrap, stdin="".join(f"{number}\n" for number in range(10)))
    group = f"group-{topic}"

    def reset(*where: str, what: tuple[str, ...] = ("--topic", topic)) -> list[int]:
        outcome = done("groups", "reset-offsets", group, *what, *where, bootstrap, "--output", "json")
        return [row["offset"] for row in outcome.json["offsets"]]

    ends = reset("--to-latest")
    assert sum(ends) == 10
    assert broker("groups", "describe", group, bootstrap).code == 1, "nothing was done yet"
    assert reset("--to-latest", "--execute") == ends
    assert reset("--shift-by", "-1", what=("--all-topics",)) == [max(end - 1, 0) for end in ends]
    assert reset("--to-offset", "99") == ends
    assert reset("--to-datetime", "2001-01-01T00:00:00Z") == [0, 0]
    assert reset("--by-duration", "PT1H") == [0, 0]
    assert reset("--to-earliest", "--execute", what=("--topic", f"{topic}:1")) == [0]
    assert reset("--shift-by", "0", what=("--all-topics",)) == [ends[0], 0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--topic", "missing", "--to-earliest"), "missing"),
        (("--topic", "t:x", "--to-earliest"), "'x' are no partitions"),
        (("--all-topics", "--to-datetime", "soon"), "'soon' is no time"),
        (("--all-topics", "--by-duration", "P"), "'P' is no duration"),
        (("--all-topics",), "required"),
    ],
)
def test_resets_that_cannot_be_done_say_why(bootstrap: str, options: tuple[str, ...], said: str) -> None:
    outcome = broker("groups", "reset-offsets", "g", *options, bootstrap)
    assert outcome.code != 0
    assert said in outcome.errors
