"""Failover groups between our nodes and Apache Kafka, which is fenced, written to and read on both sides."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker.client.access_rule import ALLOW, DENY, LITERAL, AccessRule
from broker.client.access_rule import TOPIC as TOPIC_KIND
from broker.client.operations import ALTER_CONFIGS, DESCRIBE, EVERYTHING, READ
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from mirrormaker.reconcile.control import CONTROL_TOPIC
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import MirrorFactory, mirror, wait_until  # noqa: F401 a fixture
from tests.daemon.failover_pair import TOPIC, group_file, refused, switch, wait_states
from tests.daemon.switch_drill import Drill
from tests.daemon.test_mirror import create
from tests.interop.apache import ApacheKafka
from tests.interop.test_access_rules import add
from tests.interop.test_own_client import cluster  # noqa: F401 a fixture


@pytest.fixture
def node(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """One of our nodes."""
    with EmbeddedCluster(cluster_spec(zookeeper, tmp_path, "ours")) as node:
        yield node


@pytest.fixture
def guarded(kafka_classpath: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ApacheKafka]:
    """Apache Kafka with access rules, and nobody above them."""
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    chroot = zookeeper.connect_string(f"apache-{uuid.uuid4().hex[:8]}")
    folder = tmp_path / "guarded"
    folder.mkdir()
    with ApacheKafka(kafka_classpath, chroot, folder, settings=settings) as kafka:
        yield kafka


@pytest.mark.timeout(400)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("home", ["ours", "Apache Kafka"])
def test_a_group_switches_between_our_nodes_and_apache_kafka_and_has_every_record_once(
    node: EmbeddedCluster,
    cluster,  # type: ignore[no-untyped-def]  # noqa: F811
    mirror: MirrorFactory,  # noqa: F811
    tmp_path: Path,
    home: str,
    delivery: str,
) -> None:
    kafka = cluster()
    ends = (node, kafka) if home == "ours" else (kafka, node)
    clusters: Mapping[str, Brokers] = dict(zip(("primary", "standby"), ends, strict=True))
    create(clusters["primary"], TOPIC, 1)
    running = mirror.of_file(group_file(tmp_path, clusters, delivery=delivery))
    running.start()
    drill = Drill(clusters, running)
    drill.begin()
    drill.switch("failover", kill_at=0)
    drill.switch("failback", kill_at=3)
    drill.switch("failover", kill_at=0)
    drill.end()
    assert running.stop() == 0


def rule(topic: str, operation: int, permission: int = ALLOW) -> AccessRule:
    return AccessRule(
        resource=TOPIC_KIND,
        name=topic,
        pattern_type=LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission=permission,
    )


@pytest.mark.timeout(400)
def test_rights_that_are_missing_are_told_before_anything_is_changed(
    node: EmbeddedCluster,
    guarded: ApacheKafka,
    mirror: MirrorFactory,  # noqa: F811
    tmp_path: Path,
) -> None:
    create(guarded, TOPIC, 1)
    running = mirror.of_file(group_file(tmp_path, {"primary": guarded, "standby": node}))
    running.start()
    drill = Drill({"primary": guarded, "standby": node}, running)
    drill.begin()
    add(guarded.bootstrap, rule(TOPIC, EVERYTHING), rule(TOPIC, ALTER_CONFIGS, DENY))
    wait_until(
        lambda: (
            "'primary' cannot be fenced, the right to alter the settings of its topics is needed"
            in refused("failover", running.file, "orders")
        ),
        "the rule is in force",
    )
    rehearsed = switch("failover", running.file, "--dry-run")
    assert rehearsed["planned"]
    assert "the switch would be refused: primary cannot be fenced" in "\n".join(rehearsed["notes"])
    wait_states(running, forth="running", back="standing by")
    add(guarded.bootstrap, rule(CONTROL_TOPIC, READ), rule(CONTROL_TOPIC, DESCRIBE))
    wait_until(
        lambda: (
            "cluster 'primary': the switch cannot be recorded there"
            in refused("failover", running.file, "orders")
        ),
        "nothing can be recorded at the primary",
    )
    rehearsed = switch("failover", running.file, "--dry-run")
    assert not rehearsed["planned"]
    assert "the right to write to" in rehearsed["problem"]
    assert running.stop() == 0
