"""Circles: no daemon goes round in them, also where no file shows them, since two names mean one cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from tests.daemon.conftest import MirrorFactory, MirrorProcess
from tests.daemon.test_mirror import address, consume, create, produce


def told_of(daemon: MirrorProcess, route: str) -> dict[str, Any]:
    file = daemon.file.parent / "data/daemon/state.json"
    told: dict[str, Any] = json.loads(file.read_text())["routes"].get(route, {}) if file.exists() else {}
    return told


@pytest.mark.parametrize("far", [False, True], ids=["into itself", "by another cluster"])
def test_a_route_that_closes_a_circle_is_not_run(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, far: bool
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    named = {
        "jfk": address(source),
        "aggregate": address(destination),
        "again": address(source).replace("127.0.0.1", "[::ffff:127.0.0.1]"),
    }
    routes = [{"name": "back", "from": "aggregate" if far else "jfk", "to": "again"}]
    if far:
        routes.insert(0, {"name": "forth", "from": "jfk", "to": "aggregate"})
    file = mirror.folder / "mesh.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {name: {"bootstrap": [at]} for name, at in named.items()},
                "defaults": {"refresh_interval_ms": 500},
                "routes": [route | {"topics": {"include": [".*"]}} for route in routes],
            }
        )
    )
    daemon = mirror.of_file(file)
    daemon.start()
    expected = "topic 'x' would go in circles: " if far else "'jfk' and 'again' are one cluster"
    stands = {"back", "forth"} if far else {"back"}
    daemon.until(
        lambda: any(expected in str(told_of(daemon, name).get("error")) for name in stands),
        "a route is not run",
    )
    topics = AdminClient({"bootstrap.servers": address(source)}).list_topics(timeout=10).topics
    assert {name for name in topics if not name.startswith("__")} <= {"flights", "aggregate.jfk.flights"}
    assert daemon.stop() == 0


def test_a_topic_that_comes_later_and_would_go_in_a_circle_is_left_alone(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    """No name that is made up of the two patterns goes round."""
    source, destination = clusters
    create(source, "eux", 1)
    file = mirror.folder / "mesh.yaml"
    taken = {"forth": "(?=eu).*", "back": "(?=e.-).*"}
    ends = {"forth": ("jfk", "aggregate"), "back": ("aggregate", "jfk")}
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "jfk": {"bootstrap": [address(source)]},
                    "aggregate": {"bootstrap": [address(destination)]},
                },
                "defaults": {"refresh_interval_ms": 200},
                "routes": [
                    {"name": name, "from": first, "to": second}
                    | {"topics": {"include": [taken[name]], "name": "{topic}"}}
                    for name, (first, second) in ends.items()
                ],
            }
        )
    )
    daemon = mirror.of_file(file)
    daemon.start()
    daemon.until(lambda: told_of(daemon, "forth").get("state") == "running", "the route is run")
    create(source, "eu-flights", 1)
    produce(source, "eu-flights", range(3), 1)
    create(source, "eugates", 1)
    produce(source, "eugates", range(3), 1)
    daemon.until(
        lambda: (
            "topic 'eu-flights' would go in circles: jfk -> aggregate -> jfk"
            in told_of(daemon, "forth").get("obstacles", {}).get("eu-flights", "")
        ),
        "the topic is not copied",
    )
    there = AdminClient({"bootstrap.servers": address(destination)})
    daemon.until(lambda: "eugates" in there.list_topics(timeout=10).topics, "the other topic is")
    assert len(consume(destination, "eugates", 1, 3)) == 3
    assert "eu-flights" not in there.list_topics(timeout=10).topics
    assert daemon.stop() == 0
    daemon.start()
    daemon.until(
        lambda: (
            told_of(daemon, "forth").get("state") == "running"
            and "eu-flights" in told_of(daemon, "forth").get("obstacles", {})
        ),
        "the others are copied after a start too",
    )
    assert daemon.stop() == 0


def test_records_that_a_step_sends_into_a_circle_come_to_every_cluster_once(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "orders", 1)
    produce(source, "orders", range(10), 1)
    file = mirror.folder / "mesh.yaml"
    forth = {
        "topics": {"include": ["ord.*"]},
        "transforms": [{"route": {"to": "ord-eu", "when": {"key_prefix": "key"}}}],
    }
    back = {"topics": {"include": ["ord-.*"], "name": "{topic}"}}
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "jfk": {"bootstrap": [address(source)]},
                    "aggregate": {"bootstrap": [address(destination)]},
                },
                "defaults": {"refresh_interval_ms": 200},
                "routes": [
                    {"from": "jfk", "to": "aggregate"} | forth,
                    {"from": "aggregate", "to": "jfk"} | back,
                ],
            }
        )
    )
    daemon = mirror.of_file(file)
    daemon.start()
    daemon.until(lambda: _has(destination, "ord-eu"), "the step's topic is made")
    consume(destination, "ord-eu", 1, 10)
    produce(destination, "ord-eu", range(10, 11), 1)
    daemon.until(lambda: _has(source, "ord-eu"), "the topic is brought back")
    consume(source, "ord-eu", 1, 1)
    produce(source, "ord-eu", range(11, 12), 1)
    consume(destination, "ord-eu", 1, 12)
    produce(destination, "ord-eu", range(12, 13), 1)
    consume(source, "ord-eu", 1, 3)
    assert [message.value() for message in consume(source, "ord-eu", 1)] == [b"10", b"11", b"12"]
    there = [message.value() for message in consume(destination, "ord-eu", 1)]
    assert there == [b"%d" % number for number in range(13)]
    assert daemon.stop() == 0


def _has(cluster: EmbeddedCluster, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=10).topics
