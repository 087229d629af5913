"""`mirrormaker plan` and `apply` between our node and Apache Kafka, either way; access rules there."""

from __future__ import annotations

import asyncio
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
from tests.interop.apache import ApacheKafka

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


def create(bootstrap: Sequence[HostPort], name: str) -> None:
    async def run() -> None:
        async with Cluster(bootstrap) as cluster:
            topic = NewTopic(name=name, partitions=3, replication_factor=1, configs={"retention.ms": DAY})
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


def test_access_rules_are_added_and_read_back(authorising: ApacheKafka) -> None:
    rule = AccessRule(name="one.t", principal="User:a", host="*", operation=READ, permission=ALLOW)

    async def run() -> None:
        async with Cluster(authorising.bootstrap) as cluster:
            admin = AclAdmin(cluster)
            assert await admin.rules() == []
            assert await admin.add_rules([rule]) == [None]
            assert await admin.rules() == [rule]

    asyncio.run(run())
