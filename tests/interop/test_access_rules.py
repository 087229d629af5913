"""Access rules that a daemon carries from Apache Kafka with ZooKeeper to one that keeps its own metadata."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from broker.client.access_rule import ALLOW, GROUP, LITERAL, PREFIXED, TOPIC, AccessRule
from broker.client.acl_admin import AclAdmin
from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets
from broker.client.operations import DESCRIBE, EVERYTHING, READ, WRITE
from broker.embedded import EmbeddedZooKeeper
from broker.types import HostPort, TopicPartition
from tests.daemon.conftest import MirrorFactory, MirrorProcess, mirror, wait_until
from tests.daemon.test_planning import plan
from tests.interop.apache import ApacheKafka
from tests.interop.kraft import KraftKafka

__all__ = ["mirror"]

TOPIC_NAME, READERS = "orders", "readers-of-orders"
SETTINGS = {"allow.everyone.if.no.acl.found": "true", "super.users": "User:ANONYMOUS"}
_T = TypeVar("_T")


@pytest.fixture
def source(kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ApacheKafka]:
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", **SETTINGS}
    chroot = zookeeper.connect_string(f"apache-{uuid.uuid4().hex[:8]}")
    folder = tmp_path / "source"
    folder.mkdir()
    with ApacheKafka(kafka_classpath, chroot, folder, settings=settings) as kafka:
        yield kafka


@pytest.fixture
def destination(newest_classpath: str, tmp_path: Path) -> Iterator[KraftKafka]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    folder = tmp_path / "destination"
    folder.mkdir()
    with KraftKafka(
        newest_classpath, folder, settings={"authorizer.class.name": authorizer, **SETTINGS}
    ) as kafka:
        yield kafka


def rule(name: str, operation: int, *, resource: int = TOPIC, pattern_type: int = LITERAL) -> AccessRule:
    return AccessRule(
        resource=resource,
        name=name,
        pattern_type=pattern_type,
        principal="User:a",
        host="*",
        operation=operation,
        permission=ALLOW,
    )


def at(bootstrap: Sequence[HostPort], work: Callable[[Cluster], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        async with Cluster(bootstrap) as cluster:
            return await work(cluster)

    return asyncio.run(run())


def add(bootstrap: Sequence[HostPort], *rules: AccessRule) -> None:
    assert at(bootstrap, lambda cluster: AclAdmin(cluster).add_rules(rules)) == [None] * len(rules)


def rules_at(bootstrap: Sequence[HostPort]) -> set[AccessRule]:
    return set(at(bootstrap, lambda cluster: AclAdmin(cluster).rules()))


async def prepare(cluster: Cluster) -> None:
    await Admin(cluster).create_topic(NewTopic(name=TOPIC_NAME, partitions=1, replication_factor=1))
    position = {TopicPartition(TOPIC_NAME, 0): OffsetAndMetadata(offset=0)}
    await commit_offsets(cluster, READERS, position, timeout_ms=20_000)


def rewrite(running: MirrorProcess, **sync: Any) -> None:
    """Put other words about what is kept alike in force."""
    document = yaml.safe_load(running.file.read_text())
    document["routes"][0]["sync"] |= sync
    running.file.write_text(yaml.safe_dump(document))
    assert running.process is not None
    running.process.send_signal(signal.SIGHUP)


def test_rules_are_told_carried_and_carried_whole_as_the_file_says(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    at(source.bootstrap, prepare)
    add(
        source.bootstrap,
        rule(TOPIC_NAME, READ),
        rule("ord", WRITE, pattern_type=PREFIXED),
        rule("*", DESCRIBE),
        rule("readers", READ, resource=GROUP, pattern_type=PREFIXED),
    )
    running = mirror(
        source,
        destination,
        topics={"include": [TOPIC_NAME], "name": "{topic}"},
        sync={
            "acls": True,
            "repair": ["topics"],
            "groups": {"include": ["readers.*"], "interval_ms": 500},
        },
    )
    running.start()
    told = running.wait_for(lambda told: bool(told["drift"]), "what is lacking is told")
    assert {each["kind"] for each in told["drift"]} == {"acls"}
    readers = {
        rule(TOPIC_NAME, READ),
        rule(TOPIC_NAME, DESCRIBE),
        rule(READERS, READ, resource=GROUP),
    }
    assert len(told["drift"]) == len(readers)
    assert rules_at(destination.bootstrap) == set()
    steps = plan(running.file)[1]["steps"]
    assert [step["kind"] for step in steps] == ["add_rules"]

    rewrite(running, repair=["topics", "acls"])
    wait_until(lambda: rules_at(destination.bootstrap) == readers, "rights to read are carried")
    add(source.bootstrap, rule(TOPIC_NAME, EVERYTHING))
    wait_until(lambda: len(rules_at(destination.bootstrap)) > len(readers), "what is new is carried too")
    assert all(each.operation not in (WRITE, EVERYTHING) for each in rules_at(destination.bootstrap))

    rewrite(running, write_acls=True)
    whole = {
        rule("ord", WRITE, pattern_type=PREFIXED),
        rule(TOPIC_NAME, EVERYTHING),
        rule("readers", READ, resource=GROUP, pattern_type=PREFIXED),
    }
    wait_until(lambda: whole <= rules_at(destination.bootstrap), "all rights are carried")
    running.wait_for(lambda told: not told["drift"], "nothing is lacking")
    wait_until(lambda: not plan(running.file)[1]["steps"], "the daemon has said that it runs the route so")
    assert running.stop() == 0
