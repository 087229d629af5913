"""Two routes that take different records of one topic to one topic: what the ledger says is of either."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from mirrormaker.audit.completeness import read_completeness
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.topology.loader import load_topology
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirrormaker
from tests.daemon.test_mirror import consume, create, produce

TOPIC, ALL = "flights", "all.flights"
ROUTE = {"from": "jfk", "to": "aggregate", "refresh_interval_ms": 300, "commit_interval_ms": 100}


def clusters_of(source: EmbeddedCluster, destination: EmbeddedCluster) -> dict[str, object]:
    """As the file has them."""
    return {
        name: {"bootstrap": [str(address) for address in each.bootstrap]}
        for name, each in (("jfk", source), ("aggregate", destination))
    }


@pytest.mark.timeout(180)
def test_each_of_two_routes_from_one_topic_to_one_is_judged_by_its_own_part(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    create(destination, ALL, 1)
    topics = {"include": [TOPIC], "name": "all.{topic}", "merge": True}
    routes = [
        {**ROUTE, "name": verb, "topics": topics, "filters": [{verb: {"key_matches": "key-0"}}]}
        for verb in ("keep", "drop")
    ]
    file = tmp_path / "shared.yaml"
    clusters = clusters_of(source, destination)
    file.write_text(yaml.safe_dump({"clusters": clusters, "routes": routes, "data_dir": "data"}))
    running = mirror.of_file(file)
    running.start()
    for first in range(0, 300, 100):
        produce(source, TOPIC, range(first, first + 100), 1)
        running.until(lambda end=first + 100: len(consume(destination, ALL, 1)) == end, "all is there")  # type: ignore[misc]
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        done = mirrormaker("audit", str(file), *options, "--output", "json")
        told = json.loads(done.stdout)["routes"]
        assert (done.returncode, [each["equal"] for each in told]) == (0, [100, 200]), (options, told)
    assert late_routes(file) == set()

    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump({"clusters": clusters, "routes": routes[1:], "data_dir": "data"}))
    going_on = mirror.of_file(alone)
    going_on.start()
    produce(source, TOPIC, range(300, 400), 1)
    going_on.until(
        lambda: len(consume(destination, ALL, 1)) == 300 + 66, "what the other route takes is there"
    )
    going_on.wait_copied()
    assert going_on.stop() == 0
    assert late_routes(file) == {"keep"}


def test_a_topic_that_two_exactly_once_routes_take_is_copied_whole_by_the_first_and_told_of_by_the_other(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """Their patterns do not tell that."""
    source, destination = cluster("jfk"), cluster("aggregate")
    for topic in ("flights-b", "weather-b"):
        create(source, topic, 1)
        produce(source, topic, range(100), 1)
        create(destination, f"all.{topic}", 1)
    file = tmp_path / "overlap.yaml"
    topics = {"name": "all.{topic}", "merge": True}
    routes = [
        {**ROUTE, "name": name, "delivery": "exactly_once", "topics": {**topics, "include": [pattern]}}
        for name, pattern in (("first", "flights.*"), ("second", ".*-b"))
    ]
    clusters = clusters_of(source, destination)
    file.write_text(yaml.safe_dump({"clusters": clusters, "routes": routes, "data_dir": "data"}))
    planned = mirrormaker("plan", str(file))
    assert (
        "second: flights-b: is not copied: the route 'first' copies it to 'all.flights-b'" in planned.stdout
    )
    running = mirror.of_file(file)
    running.start()
    running.until(lambda: obstacles(file, "second") == {"flights-b"}, "the other tells of it")
    for copy in ("all.flights-b", "all.weather-b"):
        assert len({message.value() for message in consume(destination, copy, 1, 100)}) == 100
    assert running.stop() == 0
    assert mirrormaker("audit", str(file), "--route", "first").returncode == 0


def obstacles(file: Path, route: str) -> set[str]:
    """Topics that the route selects and does not copy."""
    told = json.loads(mirrormaker("status", str(file), route, "--output", "json").stdout)
    return set(told["routes"][0].get("obstacles", ()))


def late_routes(file: Path) -> set[str]:
    """Those that have not brought all that there is."""
    topology, whole = load_topology(file), TimeWindow(from_ms=0, to_ms=int(time.time() * 1000))
    found = asyncio.run(read_completeness(topology, "aggregate", [ALL], whole))
    return {each.route for each in found.sources if each.missing_offsets}
