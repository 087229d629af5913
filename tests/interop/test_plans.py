"""`mirrormaker plan` and `apply` between our node and Apache Kafka, either way; access rules there."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from broker.client.access_rule import ALLOW, AccessRule
from broker.client.acl_admin import AclAdmin
from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.operations import READ
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.types import HostPort
from tests.daemon.test_planning import mirrormaker, plan
from tests.interop.apache import ApacheKafka, kafka_jars

DAY = "86400000"


@pytest.fixture
def authorising(kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ApacheKafka]:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
    }
    chroot = zookeeper.connect_string(f"apache-{uuid.uuid4().hex[:8]}")
    with ApacheKafka(kafka_classpath, chroot, tmp_path, settings=settings) as kafka:
        yield kafka


def create(bootstrap: Sequence[HostPort], name: str, **configs: str) -> None:
    async def run() -> None:
        async with Cluster(bootstrap) as cluster:
            topic = NewTopic(
                name=name, partitions=3, replication_factor=1, configs={"retention.ms": DAY, **configs}
            )
            await Admin(cluster).create_topic(topic)

    asyncio.run(run())


@pytest.mark.parametrize("toward_apache", [True, False])
def test_a_plan_is_made_and_applied_to_apache_kafka_and_from_it(
    apache_kafka: ApacheKafka, node: EmbeddedCluster, tmp_path: Path, toward_apache: bool
) -> None:
    ends: list[Sequence[HostPort]] = [node.bootstrap, apache_kafka.bootstrap]
    source, destination = ends if toward_apache else reversed(ends)
    name = f"planned-{uuid4().hex[:8]}"
    create(source, name)
    file = tmp_path / "topology.yaml"
    clusters = {"one": source, "other": destination}
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {key: {"bootstrap": [str(at) for at in ats]} for key, ats in clusters.items()},
                "routes": [{"from": "one", "to": "other", "topics": {"include": [name]}}],
            }
        )
    )
    code, told = plan(file)
    assert code == 2
    assert told["notices"] == []
    assert [(step["name"], step["partitions"], step["config"]["retention.ms"]) for step in told["steps"]] == [
        (f"one.{name}", 3, DAY)
    ]
    assert told["routes"][0]["bytes_per_day"] == 0
    assert mirrormaker("apply", str(file)).returncode == 0
    assert plan(file)[0] == 0


def test_a_topic_that_keeps_no_times_hides_nothing_of_the_others(
    node: EmbeddedCluster, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """Kafka before 3 refuses to look by time in a log of the format that has none."""
    classpath = kafka_jars("2.8.2", tmp_path / "jars")
    connect = zookeeper.connect_string(f"old-{uuid.uuid4().hex[:8]}")
    with ApacheKafka(classpath, connect, tmp_path) as kafka:
        create(kafka.bootstrap, "untimed", **{"message.format.version": "0.9.0"})
        create(kafka.bootstrap, "timed")
        file = tmp_path / "topology.yaml"
        document = {
            "clusters": {
                "old": {"bootstrap": [str(kafka.address)]},
                "new": {"bootstrap": [str(at) for at in node.bootstrap]},
            },
            "routes": [
                {
                    "name": name,
                    "from": "old",
                    "to": "new",
                    "topics": {"include": [name], "name": f"{uuid4()}.{{topic}}"},
                }
                for name in ("timed", "untimed")
            ],
        }
        file.write_text(yaml.safe_dump(document))
        for name in ("untimed", "timed"):
            command = ["kcat", "-P", "-b", str(kafka.address), "-t", name, "-p", "0"]
            subprocess.run(command, input=b"one", check=True)
        _, told = plan(file)
    assert [notice["message"] for notice in told["notices"]] == [
        "offsets by time of 3 partitions: UNSUPPORTED_FOR_MESSAGE_FORMAT: untimed-0: the message format of "
        "the log does not support the request"
    ]
    timed, untimed = told["routes"]
    assert timed["bytes_per_day"] == timed["bytes_behind"] > 0
    assert untimed["bytes_per_day"] is None
    assert untimed["bytes_behind"] > 0


def test_access_rules_are_added_and_read_back(authorising: ApacheKafka) -> None:
    rule = AccessRule(name="one.t", principal="User:a", host="*", operation=READ, permission=ALLOW)

    async def run() -> None:
        async with Cluster(authorising.bootstrap) as cluster:
            admin = AclAdmin(cluster)
            assert await admin.rules() == []
            assert await admin.add_rules([rule]) == [None]
            assert await admin.rules() == [rule]

    asyncio.run(run())
