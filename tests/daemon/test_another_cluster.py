"""Another cluster takes the place of one that a daemon writes to: at the same addresses, while it runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import ClusterFactory, cluster_spec, forked
from tests.daemon.conftest import MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_mirror import _count, address, create, produce
from tests.daemon.test_provenance import PARTITIONS, TOPIC, TWO, is_copied, mesh, numbers_at, routes_of

FLIGHTS, COPY = "flights", "jfk.flights"


def topics_of(cluster: EmbeddedCluster) -> set[str]:
    return set(AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=10).topics)


def id_of(cluster: EmbeddedCluster) -> str:
    told = AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=10).cluster_id
    assert isinstance(told, str)
    return told


def in_place_of(spec: ClusterSpec, zookeeper: EmbeddedZooKeeper, folder: Path) -> ClusterSpec:
    """Another cluster at the same port."""
    other = cluster_spec(zookeeper, folder, "other")
    return replace(other, port=spec.port)


def test_a_cluster_of_another_id_than_the_file_says_is_not_touched_though_it_comes_later(
    zookeeper: EmbeddedZooKeeper, cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    source = cluster("jfk")
    create(source, FLIGHTS, 1)
    produce(source, FLIGHTS, range(10), 1)
    spec = cluster_spec(zookeeper, tmp_path, "aggregate")
    with EmbeddedCluster(spec, forked) as right:
        running = mirror(source, right)
        known = yaml.safe_load(running.file.read_text())
        expected = known["clusters"]["aggregate"]["cluster_id"] = id_of(right)
        running.file.write_text(yaml.safe_dump(known))
        running.start()
        wait_until(lambda: _count(right, COPY, 1) == 10, "copied")
    with EmbeddedCluster(in_place_of(spec, zookeeper, tmp_path), forked) as wrong:
        create(wrong, COPY, 1)
        produce(source, FLIGHTS, range(10, 20), 1)

        problem = f"this is the cluster {id_of(wrong)!r}, not {expected!r}"
        wait_until(lambda: problem in mirrormaker("status", str(running.file)).stdout, "told")
        produce(source, FLIGHTS, range(20, 30), 1)
        assert _count(wrong, COPY, 1) == 0
        assert topics_of(wrong) == {COPY}
    with EmbeddedCluster(spec, forked) as right:
        wait_until(lambda: _count(right, COPY, 1) >= 30, "all copied once the right one is back", seconds=40)
    assert running.stop() == 0


def test_what_is_born_in_a_cluster_that_was_made_anew_does_not_come_back_to_it(
    zookeeper: EmbeddedZooKeeper, cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """Both routes go by the id that it has now, also where only one of them would have been started anew."""
    a = cluster("a")
    create(a, TOPIC, PARTITIONS)
    spec = cluster_spec(zookeeper, tmp_path, "b")
    folder, goes_on = tmp_path / "mesh", {"topic_recreated": "skip_and_record"}
    with EmbeddedCluster(spec, forked) as b:
        running = mirror.of_file(mesh(folder, {"a": a, "b": b}, TWO, on=goes_on))
        running.start()
        produce(a, TOPIC, range(50), PARTITIONS)
        wait_until(lambda: _count(b, TOPIC, PARTITIONS) == 50, "copied")
    with EmbeddedCluster(in_place_of(spec, zookeeper, tmp_path), forked) as b:
        create(b, TOPIC, PARTITIONS)
        produce(b, TOPIC, range(100, 200), PARTITIONS)
        wait_until(lambda: _count(a, TOPIC, PARTITIONS) == 150, "copied from the new one")
        edited = yaml.safe_load(running.file.read_text())
        edited["routes"][1]["isolation"] = "read_uncommitted"
        running.file.write_text(yaml.safe_dump(edited))
        running.until(lambda: '"restarted": ["b-to-a"]' in running.log.read_text(), "one route starts anew")
        wait_until(lambda: all(each["state"] == "running" for each in routes_of(running)), "at work")
        produce(b, TOPIC, range(200, 300), PARTITIONS)
        wait_until(lambda: _count(a, TOPIC, PARTITIONS) >= 250, "copied")
        wait_until(lambda: is_copied(running), "nothing is left to copy")
        for each in (a, b):  # the first ones may have come again, to a cluster that did not have them
            found = [number for numbers in numbers_at(each).values() for number in numbers if number >= 100]
            assert sorted(found) == list(range(100, 300))
        assert running.stop() == 0


def test_what_is_born_in_a_cluster_of_three_that_was_made_anew_comes_to_the_others_once(
    zookeeper: EmbeddedZooKeeper, cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """Routes that do not lead there hear of its new id, too."""
    a, b = cluster("a"), cluster("b")
    for each in (a, b):
        create(each, TOPIC, PARTITIONS)
    spec = cluster_spec(zookeeper, tmp_path, "c")
    goes_on, lines = {"topic_recreated": "skip_and_record"}, list(permutations("abc", 2))
    with EmbeddedCluster(spec, forked) as c:
        create(c, TOPIC, PARTITIONS)
        running = mirror.of_file(mesh(tmp_path / "mesh", {"a": a, "b": b, "c": c}, lines, on=goes_on))
        running.start()
        produce(c, TOPIC, range(50), PARTITIONS)
        wait_until(lambda: all(_count(each, TOPIC, PARTITIONS) == 50 for each in (a, b)), "copied")
    with EmbeddedCluster(in_place_of(spec, zookeeper, tmp_path), forked) as c:
        create(c, TOPIC, PARTITIONS)
        produce(c, TOPIC, range(100, 200), PARTITIONS)
        for each in (a, b):
            wait_until(lambda each=each: _count(each, TOPIC, PARTITIONS) >= 150, "copied from the new one")
        produce(a, TOPIC, range(200, 300), PARTITIONS)
        wait_until(lambda: _count(c, TOPIC, PARTITIONS) >= 200, "copied to the new one")
        wait_until(lambda: is_copied(running), "nothing is left to copy")
        for each in (a, b, c):  # the first ones may have come again, to a cluster that did not have them
            found = [number for numbers in numbers_at(each).values() for number in numbers if number >= 100]
            assert sorted(found) == list(range(100, 300))
        assert running.stop() == 0
