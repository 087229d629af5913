"""Two routes that take different records of one topic to one topic: what the ledger says is of either."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
import yaml

from mirrormaker.audit.completeness import read_completeness
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.topology.loader import load_topology
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirrormaker
from tests.daemon.test_mirror import consume, create, produce

TOPIC, ALL = "flights", "all.flights"


@pytest.mark.timeout(180)
def test_each_of_two_routes_from_one_topic_to_one_is_judged_by_its_own_part(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    create(destination, ALL, 1)
    route = {"from": "jfk", "to": "aggregate", "refresh_interval_ms": 300, "commit_interval_ms": 100}
    topics = {"include": [TOPIC], "name": "all.{topic}", "merge": True}
    routes = [
        {**route, "name": verb, "topics": topics, "filters": [{verb: {"key_matches": "key-0"}}]}
        for verb in ("keep", "drop")
    ]
    file = tmp_path / "shared.yaml"
    clusters = {
        name: {"bootstrap": [str(address) for address in each.bootstrap]}
        for name, each in (("jfk", source), ("aggregate", destination))
    }
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


def late_routes(file: Path) -> set[str]:
    """Those that have not brought all that there is."""
    topology, whole = load_topology(file), TimeWindow(from_ms=0, to_ms=int(time.time() * 1000))
    found = asyncio.run(read_completeness(topology, "aggregate", [ALL], whole))
    return {each.route for each in found.sources if each.missing_offsets}
