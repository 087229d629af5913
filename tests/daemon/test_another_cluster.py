"""Another cluster takes the place of one that a daemon writes to: at the same addresses, while it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import ClusterFactory, cluster_spec
from tests.daemon.conftest import MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_mirror import _count, address, create, produce

FLIGHTS, COPY = "flights", "jfk.flights"


def topics_of(cluster: EmbeddedCluster) -> set[str]:
    return set(AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=10).topics)


def id_of(cluster: EmbeddedCluster) -> str:
    told = AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=10).cluster_id
    assert isinstance(told, str)
    return told


def test_a_cluster_of_another_id_than_the_file_says_is_not_touched_though_it_comes_later(
    zookeeper: EmbeddedZooKeeper, cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    source = cluster("jfk")
    create(source, FLIGHTS, 1)
    produce(source, FLIGHTS, range(10), 1)
    spec = cluster_spec(zookeeper, tmp_path, "aggregate")
    other = replace(
        spec,
        zookeeper_connect=cluster_spec(zookeeper, tmp_path, "other").zookeeper_connect,
        directory=tmp_path / "other",
    )
    with EmbeddedCluster(spec) as right:
        running = mirror(source, right)
        known = yaml.safe_load(running.file.read_text())
        expected = known["clusters"]["aggregate"]["cluster_id"] = id_of(right)
        running.file.write_text(yaml.safe_dump(known))
        running.start()
        wait_until(lambda: _count(right, COPY, 1) == 10, "copied")
    with EmbeddedCluster(other) as wrong:
        create(wrong, COPY, 1)
        produce(source, FLIGHTS, range(10, 20), 1)

        problem = f"this is the cluster {id_of(wrong)!r}, not {expected!r}"
        wait_until(lambda: problem in mirrormaker("status", str(running.file)).stdout, "told")
        produce(source, FLIGHTS, range(20, 30), 1)
        assert _count(wrong, COPY, 1) == 0
        assert topics_of(wrong) == {COPY}
    with EmbeddedCluster(spec) as right:
        wait_until(lambda: _count(right, COPY, 1) == 30, "all copied once the right one is back")
    assert running.stop() == 0
