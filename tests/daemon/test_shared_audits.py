"""Audits of topics that others write too: what a mirror wrote once more is told from what is of others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.state import StateDirectory
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirrormaker
from tests.daemon.killed_mirrors import end_of
from tests.daemon.tampered_logs import append_again
from tests.daemon.test_mirror import create, producer
from tests.daemon.test_planning import alter

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


def both_ways(folder: Path, source: EmbeddedCluster, to: EmbeddedCluster, **route: object) -> Path:
    """Two routes that lead to each other and keep names."""
    file = folder / "both-ways.yaml"
    document = {
        "clusters": {
            name: {"bootstrap": [str(address) for address in each.bootstrap]}
            for name, each in (("jfk", source), ("aggregate", to))
        },
        "routes": [
            {"name": name, "from": one, "to": other, "topics": {"include": [TOPIC], "name": "{topic}"}}
            for name, one, other in (("there", "jfk", "aggregate"), ("back", "aggregate", "jfk"))
        ],
        "data_dir": "data",
        "defaults": {
            "heartbeats": False,
            "refresh_interval_ms": 300,
            "commit_interval_ms": 100,
            "objectives": {"audit_window": "1s"},
            **route,
        },
    }
    file.write_text(yaml.safe_dump(document))
    return file


def audits(file: Path, *, deep: bool = True) -> dict[str, dict[str, Any]]:
    """Of each route; `deep`: by reading."""
    done = mirrormaker("audit", str(file), *(["--deep"] if deep else []), "--output", "json")
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


def test_copies_behind_a_transaction_that_is_open_at_the_destination_are_not_missing(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """Two ways with names kept, and a producer at one end that takes its time."""
    source, to = cluster("jfk"), cluster("aggregate")
    for each in (source, to):
        create(each, TOPIC, 1, **KEPT)
    running = mirror.of_file(both_ways(tmp_path, source, to))
    running.start()
    running.wait_copied()
    write(source, TOPIC, range(20))
    running.until(lambda: end_of(to, TOPIC) == 20, "the first ones are there")
    writer = producer(to, **{"transactional.id": "slow"})
    writer.init_transactions(PATIENCE_SECONDS)
    writer.begin_transaction()
    writer.produce(TOPIC, b"open", b"key", partition=0)
    writer.flush(PATIENCE_SECONDS)
    write(source, TOPIC, range(20, 50))
    state = StateDirectory(tmp_path / "data")

    def audited() -> dict[str, Any]:
        told: dict[str, Any] = ((state.read() or {}).get("routes") or {}).get("there", {}).get("audit", {})
        return told

    running.until(lambda: audited().get("records") == 50, "audited by the daemon")
    assert audited()["differences"]["missing"] == 0
    assert audited()["equal"] == 50
    by_ledger, by_reading = audits(running.file, deep=False)["there"], audits(running.file)["there"]
    assert (by_ledger["result"], by_ledger["equal"]) == ("equal", 50), by_ledger
    assert (by_reading["result"], by_reading["equal"]) == ("equal", 20), by_reading
    assert by_reading["outcomes"] == {"pending": 30}
    writer.commit_transaction(PATIENCE_SECONDS)
    by_reading = audits(running.file)["there"]
    assert by_reading["result"] == "equal", by_reading
    assert by_reading["equal"] in (50, 51), "the one of the transaction may have come to the source, and back"
    assert running.stop() == 0


def test_what_two_ends_sent_each_other_and_a_killed_daemon_did_not_write_down_is_in_its_order(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """At most once nothing of it is copied again. Each end has its own records before those of the other."""
    source, to = cluster("jfk"), cluster("aggregate")
    for each in (source, to):
        create(each, TOPIC, 1, **KEPT)
    rarely = {"delivery": "at_most_once", "commit_interval_ms": 60_000}
    running = mirror.of_file(both_ways(tmp_path, source, to, **rarely))
    for first, next_, is_killed in ((0, 5, False), (5, 25, True), (25, 27, False)):
        write(source, TOPIC, range(first, next_))
        write(to, TOPIC, range(100 + first, 100 + next_))
        for each in (source, to) if is_killed else ():  # or it is written down before the kill
            alter(each, LEDGER_TOPIC, **{"min.insync.replicas": "2"})
        running.start()
        running.until(partial(have_all, (source, to), 2 * next_), "both have all")
        if is_killed:
            running.kill()
            for each in (source, to):
                alter(each, LEDGER_TOPIC, **{"min.insync.replicas": "1"})
        else:
            assert running.stop() == 0
    by_reading = audits(running.file)
    for each in by_reading.values():
        assert (each["result"], each["equal"], each["outcomes"]) == (
            "equal",
            27,
            {"others": 27, "returned": 27},
        )
    for each in audits(running.file, deep=False).values():
        assert (each["result"], each["equal"], each["outcomes"].get("lost")) == ("equal", 7, None), each
        assert each["outcomes"]["unrecorded"] == 20, "it was sent, for all that the ledger can say"


def have_all(clusters: tuple[EmbeddedCluster, ...], end: int) -> bool:
    return all(end_of(each, TOPIC) == end for each in clusters)
