"""How routes keep up, on real clusters: latency, promises about lag, what the source is about to delete."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.embedded import EmbeddedCluster
from tests.daemon.conftest import PATIENCE_SECONDS, mirrormaker, wait_until
from tests.daemon.test_limits import fill
from tests.daemon.test_mirror import create, produce, producer
from tests.daemon.test_reconciling import Mesh, mesh, route

__all__ = ["mesh"]


def samples(mesh: Mesh) -> dict[str, list[tuple[dict[str, str], float]]]:
    _, text, _ = mesh.ask("/metrics")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def told_route(mesh: Mesh, name: str) -> dict[str, Any]:
    found: dict[str, Any] = mesh.told()["routes"].get(name, {})
    return found


def events(mesh: Mesh, name: str) -> list[str]:
    return [event["name"] for event in told_route(mesh, name).get("events", [])]


@pytest.mark.long
def test_what_is_late_is_told_and_so_is_what_will_be_lost_until_both_have_passed(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh
) -> None:
    source, _ = clusters
    create(source, "slow", 2, **{"retention.ms": "120000"})
    fill(source, "slow", 10)
    late = route("late", "slow", objectives={"lag_seconds": 1, "retention_margin": "10m"})
    mesh.write(late)
    mesh.mirror.start()
    mesh.mirror.wait_copied()
    mesh.write({**late, "resources": {"windows": [{"bytes_per_second": 0}]}}, generation=2)
    wait_until(lambda: told_route(mesh, "late").get("link", {}).get("limit") == 0, "the limit told")
    fill(source, "slow", 60)
    wait_until(lambda: "lag_objective_breached" in events(mesh, "late"), "the breach told")
    told = mesh.mirror.status()
    assert told["objective"]["state"] == "breached"
    assert told["lag"]["seconds"] > 1
    assert all(each["retention"]["deleted_by"] == "retention.ms" for each in told["partitions"])
    assert all(0 < each["retention"]["seconds"] < 120 for each in told["partitions"])
    planned = mirrormaker("plan", str(mesh.file))
    assert "'objectives.lag_seconds' is 1" in planned.stdout
    metrics = samples(mesh)
    assert metrics["mirrormaker_lag_objective_breached"] == [({"route": "late"}, 1.0)]
    assert metrics["mirrormaker_route_lag_seconds"][0][1] > 1
    assert len(metrics["mirrormaker_partition_retention_seconds"]) == 2
    mesh.write(late, generation=3)
    wait_until(lambda: "lag_objective_recovered" in events(mesh, "late"), "the recovery told")
    told = mesh.mirror.status()
    assert (told["objective"]["state"], told["objective"]["breaches"]) == ("kept", 1)
    assert all(each["retention"] is None for each in told["partitions"])
    assert mesh.mirror.stop() == 0


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_what_has_come_to_a_paused_route_waits_since_then_whatever_its_producer_says(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, workers: int
) -> None:
    source, _ = clusters
    create(source, "old", 2)
    produce(source, "old", range(20), 2)
    mesh.write(route("rests", "old", resources={"workers": workers} if workers else {}))
    mesh.mirror.start()
    mesh.wait_copied("rests", 20)
    assert mesh.ask("/routes/rests/pause", "")[0] == 200
    wait_until(lambda: told_route(mesh, "rests").get("state") == "paused", "paused")
    writer = producer(source)
    for partition in range(2):
        writer.produce("old", b"of 1970", partition=partition, timestamp=1)
    assert writer.flush(PATIENCE_SECONDS) == 0
    told = mesh.mirror.wait_for(
        lambda told: (told["state"], told["lag"]["messages"]) == ("paused", 2), "what came meanwhile told"
    )
    assert 0 <= told["lag"]["seconds"] < 3 * PATIENCE_SECONDS
    assert mesh.mirror.stop() == 0


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_latencies_are_measured_by_the_times_that_records_have(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, delivery: str
) -> None:
    source, _ = clusters
    create(source, "created", 2)
    create(source, "appended", 2, **{"message.timestamp.type": "LogAppendTime"})
    mesh.write(route("timed", "created|appended", delivery=delivery))
    mesh.mirror.start()
    wait_until(
        lambda: (
            [
                (each["source_end"], each["timestamps"])
                for _, each in sorted(told_route(mesh, "timed").get("partitions", {}).items())
            ]
            == [(0, "append")] * 2 + [(0, "create")] * 2
        ),
        "all looked at",
    )
    for topic in ("created", "appended"):
        produce(source, topic, range(100), 2)

    def counted() -> dict[str, int]:
        kinds = told_route(mesh, "timed").get("timing", {}).get("latency", {})
        return {basis: kind["records"] for basis, kind in kinds.items()}

    wait_until(lambda: counted() == {"create": 100, "append": 100}, "all counted")
    summary = mesh.mirror.status()["latency"]
    assert (summary["basis"], summary["records"]) == ("mixed", 200)
    assert 0 < summary["p50_seconds"] <= summary["p99_seconds"] <= summary["p999_seconds"]
    metrics = samples(mesh)
    counts = {labels["basis"]: count for labels, count in metrics["mirrormaker_latency_seconds_count"]}
    assert counts == {"create": 100.0, "append": 100.0}
    assert mesh.mirror.stop() == 0


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_what_comes_to_a_new_topic_waits_since_then_whatever_its_producer_says(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mesh: Mesh, workers: int
) -> None:
    source, _ = clusters
    create(source, "known", 1)
    produce(source, "known", range(10), 1)
    several = {"workers": workers} if workers else {}
    shut = {**several, "windows": [{"bytes_per_second": 0}]}
    mesh.write(route("new", "known|loaded", resources=shut, objectives={"lag_seconds": 86_400}))
    mesh.mirror.start()
    mesh.mirror.wait_for(
        lambda told: "copying" in {each["state"] for each in told["partitions"]}, "the topics looked at"
    )
    create(source, "loaded", 2)
    writer = producer(source)
    for partition in range(2):
        writer.produce("loaded", b"of 1970", partition=partition, timestamp=1)
    assert writer.flush(PATIENCE_SECONDS) == 0
    mesh.mirror.wait_for(
        lambda told: told["lag"]["messages"] == 12 and 0 <= told["lag"]["seconds"] < 3 * PATIENCE_SECONDS,
        "since when what came to the new topic waits",
    )
    assert "lag_objective_breached" not in events(mesh, "new")
