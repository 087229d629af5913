"""Limits of links and routes, on real clusters: what passes, what does not, and that the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from mirrormaker.reconcile.limit_board import LIMITS_TOPIC
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import end_of
from tests.daemon.test_mirror import address, consume, create, producer
from tests.daemon.test_reconciling import Mesh, route

VALUE = bytes(1_000)


@pytest.fixture
def mesh(clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory) -> Mesh:
    source, destination = clusters
    file = mirror.folder / "mesh.yaml"
    process: MirrorProcess = mirror.of_file(file)
    return Mesh(file, process, {"jfk": address(source), "aggregate": address(destination)}, 0)


def write(mesh: Mesh, *routes: Mapping[str, Any], links: list[dict[str, Any]], generation: int = 1) -> None:
    document = yaml.safe_load(mesh.text(*routes, generation=generation))
    aside = mesh.file.with_suffix(".new")
    aside.write_text(yaml.safe_dump(document | {"links": links}))
    aside.replace(mesh.file)


def fill(cluster: EmbeddedCluster, topic: str, count: int, partitions: tuple[int, ...] = (0, 1)) -> None:
    writer = producer(cluster, **{"batch.size": 20_000})
    for number in range(count):
        writer.produce(topic, VALUE, partition=partitions[number % len(partitions)])
    assert writer.flush(30) == 0


def records(mesh: Mesh, name: str) -> int:
    return int(mesh.told()["routes"].get(name, {}).get("counts", {}).get("records", 0))


def way(mesh: Mesh, name: str) -> dict[str, Any]:
    told: dict[str, Any] = mesh.told()["routes"].get(name, {}).get("link", {})
    return told


def test_a_window_of_zero_stops_its_route_alone_until_the_file_says_otherwise(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    for topic in ("held", "free"):
        create(clusters[0], topic, 2)
        fill(clusters[0], topic, 100)
    held, free = route("held", "held"), route("free", "free")
    mesh.write({**held, "resources": {"windows": [{"bytes_per_second": 0}]}}, free)
    mesh.mirror.start()
    mesh.wait_copied("free", 100)
    wait_until(lambda: way(mesh, "held").get("limit") == 0, "the limit told")
    assert records(mesh, "held") == 0
    assert way(mesh, "free")["limit"] is None
    wait_until(lambda: "1" in way(mesh, "free")["round_trip_ms"]["destination"], "round trip measured")
    mesh.write(held, free)
    mesh.wait_copied("held", 100)
    assert mesh.mirror.stop() == 0


def test_routes_of_a_link_share_its_limit_and_no_more_passes(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    limit, count = 200_000, 250
    for topic in ("one", "other"):
        create(clusters[0], topic, 2)
        fill(clusters[0], topic, count)
    links = [{"from": "jfk", "to": "aggregate", "bytes_per_second": limit}]
    write(mesh, route("one", "one", resources={"priority": 9}), route("other", "other"), links=links)
    started = time.monotonic()
    mesh.mirror.start()
    wait_until(lambda: records(mesh, "one") + records(mesh, "other") == 2 * count, "everything copied")
    elapsed = time.monotonic() - started
    (link,) = mesh.told()["links"]
    assert link["bytes"] >= 2 * count * len(VALUE)
    assert link["bytes"] <= limit * (elapsed + 1), "more than the limit, a burst and a piece"
    assert way(mesh, "one")["throttled_ms"] + way(mesh, "other")["throttled_ms"] > 0
    assert mesh.mirror.stop() == 0


def test_a_topic_of_many_partitions_gets_no_more_of_a_limit_than_one_of_a_single_partition(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, destination = clusters
    for topic, partitions in (("busy", 8), ("small", 1)):
        create(source, topic, partitions)
        create(destination, f"both.{topic}", partitions)
    fill(source, "busy", 4000, tuple(range(8)))
    fill(source, "small", 800, (0,))
    mesh.write(route("both", "busy|small", resources={"bytes_per_second": 500_000}))
    mesh.mirror.start()
    wait_until(lambda: end_of(destination, "both.small") == 800, "all of the small topic copied")
    copied = len(consume(destination, "both.busy", 8))
    assert copied < 2 * 800, "about as much, and what was under way"
    assert mesh.mirror.stop() == 0


def share_of(mesh: Mesh, *names: str) -> list[float]:
    """Of the limit that they have together, what each uses just now."""
    return [way(mesh, name).get("share_of_limit") or 0.0 for name in names]


def test_workers_and_their_destination_may_go_while_limits_are_told_of(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, cluster: ClusterFactory
) -> None:
    """The processes of one daemon need no topic to hear of each other."""
    lax = cluster("lax")
    both = mesh.clusters
    for topic in ("shared", "other"):
        create(clusters[0], topic, 2)
        fill(clusters[0], topic, 10)
    other = route("other", "other")
    shared = {**route("shared", "shared"), "to": "lax"}
    mesh.clusters = {**both, "lax": address(lax)}
    links = [{"from": "jfk", "to": "lax", "bytes_per_second": 1_000_000}]
    write(mesh, {**shared, "resources": {"workers": 2}}, other, links=links)
    mesh.mirror.start()
    mesh.wait_copied("shared", 10)
    wait_until(lambda: 2 in [link["members"] for link in mesh.told()["links"]], "the limit shared")
    write(mesh, shared, other, links=links)
    wait_until(lambda: not mesh.told()["workers"], "the daemon runs it")
    fill(clusters[0], "shared", 10)
    assert len(consume(lax, "shared.shared", 2, 20)) == 20
    mesh.clusters = both
    mesh.write(other)
    wait_until(lambda: "shared" not in mesh.told()["routes"], "the route is gone")
    before = records(mesh, "other")
    fill(clusters[0], "other", 10)
    mesh.wait_copied("other", before + 10)
    assert mesh.mirror.stop() == 0
    topics = AdminClient({"bootstrap.servers": address(lax)}).list_topics(timeout=10).topics
    assert "shared.shared" in topics
    assert LIMITS_TOPIC not in topics


@pytest.mark.long
def test_what_an_idle_route_leaves_of_a_link_goes_to_the_other_and_comes_back_when_it_is_wanted(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    limit = 100_000
    for topic in ("one", "other"):
        create(clusters[0], topic, 2)
    fill(clusters[0], "one", 6_000)
    links = [{"from": "jfk", "to": "aggregate", "bytes_per_second": limit}]
    write(mesh, route("one", "one"), route("other", "other"), links=links)
    mesh.mirror.start()
    wait_until(lambda: share_of(mesh, "one", "other")[0] > 0.85, "all of the limit for the one that wants it")
    before = records(mesh, "one")
    fill(clusters[0], "other", 600)
    wait_until(lambda: all(share > 0.35 for share in share_of(mesh, "one", "other")), "half for each of two")
    wait_until(lambda: records(mesh, "other") == 600, "the other has what it wanted")
    assert records(mesh, "one") - before >= 500, "it had no more than its half"
    wait_until(lambda: share_of(mesh, "one", "other")[0] > 0.85, "all of it once more")
    (link,) = mesh.told()["links"]
    assert link["limit"] == limit
    mesh.mirror.kill()


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_paused_route_leaves_of_a_link_goes_to_the_other_until_it_is_resumed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, workers: int
) -> None:
    """Also where the one that pauses has processes of its own."""
    limit = 100_000
    for topic in ("one", "other"):
        create(clusters[0], topic, 2)
        fill(clusters[0], topic, 12_000)
    links = [{"from": "jfk", "to": "aggregate", "bytes_per_second": limit}]
    paused = route("other", "other", resources={"workers": workers})
    write(mesh, route("one", "one"), paused, links=links)

    def uses(name: str) -> float:
        return float(way(mesh, name).get("rate") or 0) / limit

    mesh.mirror.start()
    mesh.mirror.until(lambda: min(uses("one"), uses("other")) > 0.3, "something for each of two")
    assert mirrormaker("pause", str(mesh.file), "other").returncode == 0
    mesh.mirror.until(lambda: uses("one") > 0.85, "all of the limit for the one that goes on")
    assert mirrormaker("resume", str(mesh.file), "other").returncode == 0
    mesh.mirror.until(lambda: uses("one") < 0.7 and uses("other") > 0.3, "something for each of two")
    mesh.mirror.kill()


@pytest.mark.long
def test_what_an_idle_worker_leaves_of_a_limit_goes_to_the_other_and_comes_back_when_it_is_wanted(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    limit = 100_000
    create(clusters[0], "one", 2)
    fill(clusters[0], "one", 6_000, (0,))
    links = [{"from": "jfk", "to": "aggregate", "bytes_per_second": limit}]
    workers = route("one", "one", buckets=2, resources={"workers": 2, "bytes_per_second": limit})
    write(mesh, workers, links=links)
    mesh.mirror.start()

    def uses_all() -> bool:
        """Of the link, and no more than there is."""
        (link,) = mesh.told().get("links") or [{"limit": None}]
        is_known = link["limit"] is not None and link["members"] == 2
        return is_known and link["limit"] <= 1.001 * limit and link["rate"] > 0.85 * limit

    def copied() -> list[int]:
        """Of either partition, each by a worker of its own."""
        partitions = mesh.told()["routes"]["one"]["partitions"]
        return [partition["acknowledged"] for _, partition in sorted(partitions.items())]

    mesh.mirror.until(uses_all, "all of the limit for the one that wants it")
    fill(clusters[0], "one", 600, (1,))
    before, _ = copied()
    mesh.mirror.until(lambda: copied()[1] == 600, "the other has what it wanted")
    after, _ = copied()
    assert after - before >= 500, "it had no more than its half"
    mesh.mirror.until(uses_all, "all of it once more")
    mesh.mirror.kill()
