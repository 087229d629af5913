"""Heartbeats on real clusters: along a chain and back, while nothing else is copied."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_failure_policies import delete_records, delete_topic
from tests.daemon.test_mirror import address, consume, create, produce

TOPIC = "__mirrormaker_heartbeats"


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_heartbeats_travel_along_a_chain_and_end_where_they_have_been(
    cluster: ClusterFactory, tmp_path: Path, mirror: MirrorFactory, delivery: str
) -> None:
    clusters = {name: cluster(name) for name in ("plant", "region", "centre")}
    create(clusters["plant"], "silent", 1)
    quick = {"refresh_interval_ms": 300, "commit_interval_ms": 100, "delivery": delivery}
    named = {"include": [".*silent"], "name": "{topic}"}
    ways = [("plant", "region"), ("region", "plant"), ("region", "centre")]
    file = tmp_path / "chain.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {name: {"bootstrap": [address(each)]} for name, each in clusters.items()},
                "defaults": quick,
                "routes": [{"from": source, "to": to, "topics": named} for source, to in ways],
                "data_dir": "data",
            }
        )
    )
    process = mirror.of_file(file)
    process.start()

    def told() -> dict[str, Any]:
        status = json.loads(mirrormaker("status", str(file), "--output", "json").stdout)
        return {route["name"]: route for route in status["routes"]}

    def paths(name: str) -> dict[str, list[str]]:
        return {heard["name"]: heard["path"] for heard in told()[name]["heartbeats"].values()}

    expected = {"plant": ["plant-to-region", "region-to-centre"], "region": ["region-to-centre"]}
    wait_until(lambda: paths("region-to-centre") == expected, "heartbeats of both at the centre")
    assert paths("plant-to-region") == {"plant": ["plant-to-region"]}
    assert paths("region-to-plant") == {"region": ["region-to-plant"]}
    for route in told().values():
        assert route["counts"]["records"] == 0, "heartbeats are nobody's records"
        assert [partition["topic"] for partition in route["partitions"]] == ["silent"]
        for heard in route["heartbeats"].values():
            assert 0 <= heard["arrived_ms"] - heard["born_ms"] < 60_000
    kept = [json.loads(message.value() or b"") for message in consume(clusters["centre"], TOPIC, 1)]
    assert {beat["name"] for beat in kept} == {"plant", "region"}
    born = [beat["at_ms"] for beat in kept if beat["name"] == "plant"]
    assert born == sorted(set(born)), "each came once, in order"
    assert process.stop() == 0


def test_heartbeats_that_the_source_has_no_more_are_passed_over_and_fail_no_route(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    """As those that grew older than an hour while the route was paused, or whose topic was made anew."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    policies = {"source_gap": "fail", "topic_recreated": "fail"}
    running = mirror(source, destination, on=policies, heartbeats=True)
    running.start()

    def wait_newer() -> dict[str, Any]:
        """Those that are born from now on."""
        now_ms = time.time() * 1000
        return running.wait_for(
            lambda told: any(heard["born_ms"] > now_ms for heard in told["heartbeats"].values()),
            "newer heartbeats arrive",
        )

    wait_newer()
    assert mirrormaker("pause", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_for(lambda told: told["state"] == "paused", "the route rests")
    delete_records(source, -1, TOPIC)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    wait_newer()
    delete_topic(source, TOPIC)
    create(source, TOPIC, 1)
    produce(source, "flights", range(10, 20), 1)
    told = wait_newer()
    assert (told["state"], told["halts"]) == ("running", [])
    assert told["counts"]["troubles"] == {}
    assert told["counts"]["offsets_lost_at_source"] == 0
    running.wait_copied()
    assert running.stop() == 0
    log = running.log.read_text()
    assert not [name for name in ("trouble_met", "source_gap_met", "topic_recreated") if name in log]


def test_a_topic_of_heartbeats_that_is_deleted_is_made_anew_before_one_is_given_up(
    cluster: ClusterFactory, mirror: MirrorFactory
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, "flights", 1)
    running = mirror(source, destination, heartbeats=True)
    running.start()
    for place in (source, destination, source):
        running.wait_for(lambda told: bool(told["heartbeats"]), "heartbeats arrive")
        delete_topic(place, TOPIC)
        deleted_ms = time.time() * 1000
        running.wait_for(
            lambda told, since_ms=deleted_ms: any(
                heard["born_ms"] > since_ms for heard in told["heartbeats"].values()
            ),
            "newer heartbeats arrive",
        )
    assert running.stop() == 0
    log = running.log.read_text()
    assert "heartbeats_not_written" not in log
