"""Audits of topics that others write too: what a mirror wrote once more is told from what is of others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirrormaker
from tests.daemon.killed_mirrors import end_of
from tests.daemon.tampered_logs import append_again
from tests.daemon.test_mirror import create, producer

pytestmark = pytest.mark.timeout(300)
TOPIC, ALL = "flights", "all.flights"
BASE_MS = 1_357_000_000_000
KEPT = {"retention.ms": "-1"}


def write(cluster: EmbeddedCluster, topic: str, numbers: Sequence[int]) -> None:
    """By a producer that names itself, as mirrors do."""
    writer = producer(cluster, **{"linger.ms": 100, "enable.idempotence": True})
    for number in numbers:
        writer.produce(topic, b"%d" % number, b"key", partition=0, timestamp=BASE_MS + number)
    assert writer.flush(PATIENCE_SECONDS) == 0


def merging(folder: Path, sources: dict[str, EmbeddedCluster], to: EmbeddedCluster, **route: object) -> Path:
    """Every source has a route to one topic of the destination."""
    file = folder / "merging.yaml"
    places = {**sources, "aggregate": to}
    document = {
        "clusters": {
            name: {"bootstrap": [str(address) for address in each.bootstrap]} for name, each in places.items()
        },
        "routes": [
            {
                "name": name,
                "from": name,
                "to": "aggregate",
                "topics": {"include": [TOPIC], "name": "all.{topic}", "merge": True},
                "refresh_interval_ms": 300,
                "commit_interval_ms": 100,
                **route,
            }
            for name in sources
        ],
        "data_dir": "data",
        "defaults": {"heartbeats": False},
    }
    file.write_text(yaml.safe_dump(document))
    return file


def audits(file: Path) -> dict[str, dict[str, Any]]:
    """Of each route, by reading."""
    done = mirrormaker("audit", str(file), "--deep", "--output", "json")
    return {route["name"]: route for route in json.loads(done.stdout)["routes"]}


def test_what_a_killed_mirror_repeats_among_records_of_others_is_told_from_those(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """Others write the same records there, to the last bit, and another mirror brings its own."""
    sources, to = {name: cluster(name) for name in ("jfk", "lga")}, cluster("aggregate")
    for each, topic in ((sources["jfk"], TOPIC), (sources["lga"], TOPIC), (to, ALL)):
        create(each, topic, 1, **KEPT)
    write(sources["jfk"], TOPIC, range(20))
    running = mirror.of_file(merging(tmp_path, sources, to))
    running.start()
    running.until(lambda: end_of(to, ALL) == 20, "the first ones are there")
    write(sources["lga"], TOPIC, range(100, 110))
    running.until(lambda: end_of(to, ALL) == 30, "those of the other as well")
    assert running.stop() == 0
    write(to, ALL, range(5))
    merging(tmp_path, sources, to, commit_interval_ms=60_000)
    write(sources["jfk"], TOPIC, range(20, 40))
    running.start()
    running.until(lambda: end_of(to, ALL) == 55, "copied, and not written down")
    running.kill()
    running.start()
    running.until(lambda: end_of(to, ALL) == 75, "copied again")
    assert running.stop() == 0
    found = audits(running.file)
    told = {name: (each["result"], each["equal"], each["outcomes"]) for name, each in found.items()}
    assert told == {
        "jfk": ("equal", 40, {"others": 5, "repeated": 20}),
        "lga": ("equal", 10, {"others": 25}),
    }


def test_what_an_exactly_once_route_has_doubled_among_records_of_others_is_found(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, to = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1, **KEPT)
    create(to, ALL, 1, **KEPT)
    write(source, TOPIC, range(20))
    running = mirror.of_file(merging(tmp_path, {"jfk": source}, to, delivery="exactly_once"))
    running.start()
    running.until(lambda: end_of(to, ALL) > 20, "copied")
    assert running.stop() == 0
    write(to, ALL, range(5))
    at = append_again(to, TopicPartition(ALL, 0))
    (found,) = audits(running.file).values()
    (difference,) = (each for partition in found["partitions"] for each in partition["found"])
    assert (difference["kind"], difference["offset"], difference["to_offset"]) == ("doubled", 0, at)
    assert (found["equal"], found["outcomes"]["others"], difference["count"]) == (20, 5, 20)
