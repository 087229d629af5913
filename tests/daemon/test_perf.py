"""`mirrormaker perf`: records of its own through a route that a daemon runs."""

from __future__ import annotations

import json
from typing import Any

from broker.embedded import EmbeddedCluster
from tests.daemon.conftest import MirrorFactory, MirrorProcess, mirrormaker
from tests.daemon.test_mirror import create, produce

ROUTE = "jfk-to-aggregate"


def measured(running: MirrorProcess, *options: str) -> dict[str, Any]:
    done = mirrormaker("perf", str(running.file), ROUTE, "flights-perf", "--output", "json", *options)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_records_are_sent_through_a_route_and_their_copies_counted(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights-perf", 2)
    running = mirror(source, destination)
    running.start()
    told = measured(running, "--count", "3000", "--size", "100")
    assert (told["records"], told["bytes"], told["missing"], told["doubled"]) == (3000, 300_000, 0, 0)
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99.9"] <= told["latency_ms"]["max"]
    produce(source, "flights-perf", range(50), 2)
    again = measured(running, "--count", "200", "--rate", "1000", "--compression", "zstd")
    assert (again["records"], again["bytes"], again["missing"]) == (200, 200 * 1024, 0)
    assert again["seconds"] >= 199 / 1000
    assert running.stop() == 0


def test_records_that_do_not_come_are_an_error_and_bad_input_names_itself(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights-perf", 1)
    file = str(mirror(source, destination).file)
    lost = mirrormaker("perf", file, ROUTE, "flights-perf", "--count", "10", "--timeout-ms", "300")
    assert (lost.returncode, lost.stdout.splitlines()[0][:10]) == (1, "0 records,")
    assert lost.stderr.startswith("10 of 10 records did not come: nothing did for 300 ms;")
    for arguments, complaint in (
        ((ROUTE, "flights-gone"), "the cluster 'jfk' has no topic 'flights-gone': create one for this"),
        ((ROUTE, "orders"), "the route 'jfk-to-aggregate' does not take the topic 'orders'"),
        (("jfk-to-agregate", "flights-perf"), "there is no route 'jfk-to-agregate'; did you mean"),
        ((ROUTE, "flights-perf", "--size", "19"), "19 bytes do not hold a record's number: 20 do"),
    ):
        refused = mirrormaker("perf", file, *arguments)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert complaint in refused.stderr
