"""`plan` and `apply` against real clusters, and what a daemon makes of differences."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.embedded import EmbeddedCluster
from broker.loopback import free_ports
from mirrormaker.control_access import read_control
from mirrormaker.topology.model import ClusterName, ClusterSpec, RouteName
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_mirror import address, consume, create, produce

WEEK, DAY, HOUR = str(7 * 86_400_000), str(86_400_000), str(3_600_000)


@pytest.mark.parametrize(
    "keys",
    [
        {"transforms": [{"rename": {"fields": {"id": "number"}}}]},
        {"transforms": [{"rename": {"headers": {"a": "b"}}}, {"mask": {"fields": ["name"]}}]},
        {"start": {"offsets": {"flights": {0: 3}}}},
    ],
)
def test_a_route_is_planned_whatever_it_does_to_records_and_wherever_it_starts(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], tmp_path: Path, keys: Mapping[str, Any]
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    file = write(tmp_path, {"jfk": reached(source), "aggregate": reached(destination)}, keys)
    code, planned = plan(file)
    assert (code, [step["kind"] for step in planned["steps"]]) == (2, ["create_topic"])


APPENDED = {"include": ["flights.*"], "existing": "append"}


def write(
    folder: Path,
    clusters: Mapping[str, Mapping[str, Any]],
    *routes: Mapping[str, Any],
    name: str = "planned.yaml",
) -> Path:
    file = folder / name
    listed = [
        {"from": "jfk", "to": "aggregate", "topics": {"include": ["flights.*"]}, **keys} for keys in routes
    ]
    for route in listed:
        route |= {"refresh_interval_ms": 200}
    file.write_text(yaml.safe_dump({"clusters": clusters, "routes": listed, "data_dir": "data"}))
    return file


def reached(cluster: EmbeddedCluster, **keys: Any) -> dict[str, Any]:
    return {"bootstrap": [str(at) for at in cluster.bootstrap], **keys}


def plan(file: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = mirrormaker("plan", str(file), "--output", "json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def setting(cluster: EmbeddedCluster, topic: str, name: str) -> str | None:
    async def ask() -> str | None:
        async with Cluster(cluster.bootstrap) as asked:
            return (await Admin(asked).describe_topic_configs(topic, [name]))[name].value

    return asyncio.run(ask())


def alter(cluster: EmbeddedCluster, topic: str, **changes: str) -> None:
    async def change() -> None:
        async with Cluster(cluster.bootstrap) as asked:
            named = {name.replace("_", "."): value for name, value in changes.items()}
            await Admin(asked).alter_topic_configs(topic, named)

    asyncio.run(change())


def partitions_of(cluster: EmbeddedCluster, topic: str) -> int:
    topics = AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=10).topics
    return len(topics[topic].partitions) if topic in topics else 0


def test_a_plan_is_shown_saved_applied_once_and_then_empty(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 3, **{"retention.ms": DAY})
    produce(source, "flights", range(300), 3)
    declared = {"orders": {"partitions": 2, "config": {"cleanup.policy": "compact"}}}
    file = write(tmp_path, {"jfk": reached(source), "aggregate": reached(destination, topics=declared)}, {})
    saved = tmp_path / "plan.json"

    code, told = plan(file, "--out", str(saved))
    assert code == 2
    assert [(step["kind"], step["name"]) for step in told["steps"]] == [
        ("create_topic", "jfk.flights"),
        ("create_topic", "orders"),
    ]
    assert told["steps"][0]["partitions"] == 3
    assert told["steps"][0]["config"] == {
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "retention.ms": DAY,
    }
    (estimate,) = told["routes"]
    assert estimate["bytes_behind"] == estimate["bytes_per_day"] > 300
    assert told["notices"] == []
    text = mirrormaker("plan", str(file))
    assert text.stdout.splitlines()[:4] == [
        "+ aggregate: topic jfk.flights, 3 partitions, 1 replica",
        "    + compression.type = producer",
        "    + message.timestamp.type = CreateTime",
        f"    + retention.ms = {DAY}",
    ]

    create(destination, "orders", 2, **{"cleanup.policy": "compact"})  # as if one was cut off half way
    done = mirrormaker("apply", str(file), "--plan", str(saved))
    assert done.returncode == 0, done.stderr
    assert "+ aggregate: topic jfk.flights, 3 partitions, 1 replica: done" in done.stdout
    assert setting(destination, "jfk.flights", "retention.ms") == DAY
    assert plan(file)[0] == 0
    assert mirrormaker("plan", str(file)).stdout.endswith("nothing to do\n")

    alter(source, "flights", retention_ms=WEEK)
    done = mirrormaker("apply", str(file), "--plan", str(saved))
    assert done.returncode == 1
    assert "this is to be done now, and was not then" in done.stderr
    assert setting(destination, "jfk.flights", "retention.ms") == DAY
    assert mirrormaker("apply", str(file)).returncode == 0
    assert setting(destination, "jfk.flights", "retention.ms") == WEEK


def test_a_topic_is_copied_though_its_cluster_does_not_take_one_of_its_settings(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1, **{"retention.ms": DAY})
    produce(source, "flights", range(10), 1)
    declared = {"jfk.flights": {"config": {"no.such": "1"}}}
    ends = {"jfk": reached(source), "aggregate": reached(destination, topics=declared)}
    file = write(tmp_path, ends, {})
    running = mirror.of_file(file)
    running.start()
    running.wait_copied()
    told = running.wait_for(lambda told: bool(told["drift"]), "what was refused")
    assert [(each["kind"], each["topic"]) for each in told["drift"]] == [("config", "jfk.flights")]
    assert "no.such: INVALID_CONFIG: " in told["drift"][0]["line"]
    assert setting(destination, "jfk.flights", "retention.ms") == DAY
    assert running.stop() == 0
    done = mirrormaker("apply", str(file))
    assert done.returncode == 1
    assert "1 setting: no.such: " in done.stdout


def test_a_copy_that_the_file_asks_for_is_made_like_its_source(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], tmp_path: Path, mirror: MirrorFactory
) -> None:
    """By its route: whoever keeps what is asked for at a cluster knows nothing of the source."""
    source, destination = clusters
    create(source, "flights", 3, **{"retention.ms": DAY})
    running = mirror(source, destination)
    text = yaml.safe_load(running.file.read_text())
    declared = {"jfk.flights": {"config": {"segment.ms": HOUR}}, "jfk.none": {"partitions": 2}}
    text["clusters"]["aggregate"]["topics"] = declared
    running.file.write_text(yaml.safe_dump(text))
    running.start()
    wait_until(lambda: partitions_of(destination, "jfk.none") == 2, "what no route copies is made")
    wait_until(lambda: partitions_of(destination, "jfk.flights") > 0, "the copy is made")
    assert partitions_of(destination, "jfk.flights") == 3
    assert setting(destination, "jfk.flights", "retention.ms") == DAY
    assert setting(destination, "jfk.flights", "segment.ms") == HOUR
    wait_until(lambda: plan(running.file)[0] == 0, "nothing is left to do")
    assert running.stop() == 0


def test_what_would_delete_records_wants_force(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1, **{"retention.ms": DAY})
    create(destination, "jfk.flights", 1)
    file = write(tmp_path, {"jfk": reached(source), "aggregate": reached(destination)}, {})
    refused = mirrormaker("apply", str(file))
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"aggregate: topic jfk.flights: retention.ms {WEEK} -> {DAY}: records are deleted sooner",
        "nothing was done: --force does it all the same",
    ]
    assert setting(destination, "jfk.flights", "retention.ms") == WEEK
    assert mirrormaker("apply", str(file), "--force").returncode == 0
    assert setting(destination, "jfk.flights", "retention.ms") == DAY


def test_a_cluster_that_is_away_is_part_of_the_plan(cluster: ClusterFactory, tmp_path: Path) -> None:
    source = cluster("jfk")
    create(source, "flights", 1)
    (port,) = free_ports(1)
    away = {"bootstrap": [f"127.0.0.1:{port}"]}
    declared = reached(source, topics={"orders": {"partitions": 2}})
    file = write(tmp_path, {"jfk": declared, "aggregate": away}, {})
    code, told = plan(file)
    assert code == 1
    assert [step["name"] for step in told["steps"]] == ["orders"]
    assert [(notice["kind"], notice["about"]) for notice in told["notices"]] == [("unreachable", "aggregate")]


def test_one_cluster_under_two_names_is_seen(cluster: ClusterFactory, tmp_path: Path) -> None:
    source = cluster("jfk")
    create(source, "flights", 1)
    (at,) = source.bootstrap
    file = write(
        tmp_path,
        {"jfk": reached(source), "aggregate": {"bootstrap": [f"127.1:{at.port}"]}},
        {},
    )
    code, told = plan(file)
    assert code == 1
    assert "one_cluster" in [notice["kind"] for notice in told["notices"]]


def test_another_cluster_than_the_file_expects_is_not_touched(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    file = write(
        tmp_path, {"jfk": reached(source), "aggregate": reached(destination, cluster_id="another")}, {}
    )
    code, told = plan(file)
    assert code == 1
    (notice,) = told["notices"]
    assert "clusters.aggregate.cluster_id: at these addresses is the cluster" in notice["message"]
    assert told["steps"] == []


def test_settings_are_carried_over_and_what_would_delete_records_is_told_as_drift(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 2, **{"retention.ms": WEEK})
    create(destination, "jfk.flights", 1, **{"retention.ms": DAY, "segment.bytes": "1048576"})
    file = write(tmp_path, {"jfk": reached(source), "aggregate": reached(destination)}, {})
    running = mirror.of_file(file)
    running.start()
    wait_until(lambda: setting(destination, "jfk.flights", "retention.ms") == WEEK, "carried over")
    assert partitions_of(destination, "jfk.flights") == 2
    assert setting(destination, "jfk.flights", "segment.bytes") == "1048576"

    alter(source, "flights", retention_ms=DAY)
    told = running.wait_for(lambda told: told["drift"], "drift")
    (drift,) = told["drift"]
    assert (drift["kind"], drift["topic"]) == ("config", "jfk.flights")
    assert "`mirrormaker apply --force` does it" in drift["line"]
    assert setting(destination, "jfk.flights", "retention.ms") == WEEK

    assert mirrormaker("apply", str(file), "--force").returncode == 0
    told = running.wait_for(lambda told: not told["drift"], "no drift")
    names = [event["name"] for event in told["events"]]
    assert names.index("drift_found") < names.index("drift_gone")
    log = running.log.read_text()
    assert "drift_found" in log
    assert "drift_gone" in log
    assert running.stop() == 0


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_a_topic_that_holds_records_is_taken_over_by_decision_and_a_route_that_ran_is_known(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    source, destination = clusters
    for cluster, topic in ((source, "flights"), (destination, "jfk.flights")):
        create(cluster, topic, 1)
        produce(cluster, topic, range(10), 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    file = write(tmp_path, ends, {"delivery": delivery})
    refused = mirrormaker("apply", str(file))
    assert refused.returncode == 1
    assert refused.stderr.startswith("aggregate: topic jfk.flights: it holds records already, and the route")
    assert mirrormaker("apply", str(file), "--force").returncode == 0
    assert plan(file)[0] == 0
    running = mirror.of_file(file)
    running.start()
    running.wait_copied()
    wait_until(lambda: not _decisions(destination), "the decision done with")
    assert running.stop() == 0
    assert plan(file)[0] == 0


@pytest.mark.parametrize(
    "delivery",
    ["at_least_once", pytest.param("at_most_once", marks=pytest.mark.long), "exactly_once"],
)
def test_a_route_whose_copies_are_to_go_elsewhere_asks_about_the_topic_there(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    source, destination = clusters
    for cluster, topic in ((source, "flights"), (destination, "other.flights")):
        create(cluster, topic, 1)
        produce(cluster, topic, range(10), 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    keys = {"name": "renamed", "delivery": delivery}
    running = mirror.of_file(write(tmp_path, ends, keys))
    running.start()
    running.wait_copied()
    file = write(tmp_path, ends, {**keys, "topics": {"include": ["flights"], "name": "other.{topic}"}})
    told = running.wait_for(lambda told: bool(told["obstacles"]), "refused")
    assert told["obstacles"]["flights"].startswith("'other.flights' holds records already")
    planned = plan(file)[1]
    assert [step["name"] for step in planned["steps"]] == ["other.flights"]
    (moved,) = [notice for notice in planned["notices"] if notice["kind"] == "moved"]
    assert moved["message"].startswith("was copied to 'jfk.flights' so far, and goes on where it was")
    applied = mirrormaker("apply", str(file), "--force")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    running.wait_for(lambda told: not told["obstacles"], "taken over")
    produce(source, "flights", range(10, 15), 1)
    running.wait_copied()
    copied = [b"%d" % number for number in range(15)]
    assert [message.value() for message in consume(destination, "other.flights", 1, 15)] == copied
    code, planned = plan(file)
    assert code == 0
    assert not [notice for notice in planned["notices"] if notice["kind"] == "moved"]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_copy_that_was_deleted_while_no_daemon_ran_is_told(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    file = write(tmp_path, ends, {"delivery": delivery})
    running = mirror.of_file(file)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    admin = AdminClient({"bootstrap.servers": address(destination)})
    admin.delete_topics(["jfk.flights"])["jfk.flights"].result(PATIENCE_SECONDS)
    (gone,) = [notice for notice in plan(file)[1]["notices"] if notice["kind"] == "gone"]
    assert gone["message"].startswith("the copy 'jfk.flights' is gone")
    assert "up to 10 offsets will be missing there" in gone["message"]


def test_an_exactly_once_route_under_a_new_name_asks_about_its_topics_and_goes_on_where_it_is(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    running = mirror.of_file(write(tmp_path, ends, {"name": "before", "delivery": "exactly_once"}))
    running.start()
    running.wait_copied()
    file = write(tmp_path, ends, {"name": "after", "delivery": "exactly_once"})
    told = running.wait_for(lambda told: bool(told["obstacles"]), "refused")
    assert told["obstacles"]["flights"].startswith("'jfk.flights' holds records already")
    assert plan(file)[1]["dangers"]
    assert mirrormaker("apply", str(file), "--force").returncode == 0
    running.wait_for(lambda told: not told["obstacles"], "decided")
    produce(source, "flights", range(10, 15), 1)
    running.wait_copied()
    produce(destination, "jfk.flights", range(99, 100), 1)
    copied = [int(message.value() or b"") for message in consume(destination, "jfk.flights", 1, 16)]
    assert copied == [*range(15), 99]
    assert plan(file)[0] == 0


def test_a_route_goes_on_in_the_topic_that_it_made_under_another_name(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    running = mirror.of_file(write(tmp_path, ends, {"name": "renamed"}))
    running.start()
    running.wait_copied()
    write(tmp_path, ends, {"name": "renamed", "topics": {"include": ["flights"], "name": "other.{topic}"}})
    running.wait_for(lambda told: "copies_go_elsewhere" in [each["name"] for each in told["events"]], "told")
    produce(source, "flights", range(10, 15), 1)
    running.wait_copied()
    assert [message.value() for message in consume(destination, "other.flights", 1, 5)] == [
        str(number).encode() for number in range(10, 15)
    ]
    running.kill()
    running.start()
    produce(source, "flights", range(15, 20), 1)
    running.wait_copied()
    assert len(consume(destination, "other.flights", 1, 10)) == 10


def test_a_file_of_a_lower_generation_than_a_route_is_run_by_is_applied_with_force_alone(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    older = write(tmp_path, ends, {"name": "a", "topics": {"include": ["flights"], "name": "old.{topic}"}})
    newer = tmp_path / "newer.yaml"
    newer.write_text(older.read_text().replace("old.", "new.") + "generation: 2\ndata_dir: newer\n")
    newer.write_text(newer.read_text().replace("data_dir: data\n", ""))
    running = mirror.of_file(newer)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    applied = mirrormaker("apply", str(older))
    assert applied.returncode == 1
    assert "runs it by generation 2 of the topology, this file is 1" in applied.stderr
    assert plan(older)[1]["dangers"]
    forced = mirrormaker("apply", str(older), "--force")
    assert forced.returncode == 0, forced.stderr
    assert "topic old.flights, 1 partition, 1 replica: done" in forced.stdout
    assert mirrormaker("apply", str(newer)).returncode == 0


def _decisions(destination: EmbeddedCluster) -> Mapping[str, object]:
    """What is noted at the destination of topics taken over."""
    spec = ClusterSpec(name=ClusterName("aggregate"), bootstrap=destination.bootstrap)
    return asyncio.run(read_control(spec))[RouteName("jfk-to-aggregate")].take_overs


@pytest.mark.parametrize(
    ("delivery", "name"),
    [
        ("at_least_once", "jfk.flights"),
        pytest.param("at_least_once", "routed", marks=pytest.mark.long),
        pytest.param("exactly_once", "jfk.flights", marks=pytest.mark.long),
    ],
)
def test_the_daemon_waits_for_the_decision_and_copies_the_others(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    tmp_path: Path,
    delivery: str,
    name: str,
) -> None:
    """`name`: where copies go, be it by a step."""
    source, destination = clusters
    for cluster, topic in ((source, "flights"), (source, "flights-new"), (destination, name)):
        create(cluster, topic, 1)
        produce(cluster, topic, range(10), 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    steps = [{"route": {"to": "routed"}, "topics": ["flights"]}] if name == "routed" else []
    file = write(tmp_path, ends, {"delivery": delivery, "transforms": steps})
    running = mirror.of_file(file)
    running.start()
    told = running.wait_for(
        lambda told: bool(told["obstacles"]) and bool(told["counts"].get("records")),
        "one copied, one refused",
    )
    assert told["obstacles"].keys() == {"flights"}
    assert told["obstacles"]["flights"].startswith(f"'{name}' holds records already")
    met = [event["details"]["topic"] for event in told["events"] if event["name"] == "topic_not_copied"]
    assert met == ["flights"]
    assert len(consume(destination, name, 1, 10)) == 10
    running.kill()
    running.start()
    running.wait_for(lambda told: bool(told["obstacles"]) and told["state"] == "running", "as it was")
    if delivery == "exactly_once":
        write(tmp_path, ends, {"delivery": delivery, "topics": APPENDED})
    else:
        forced = mirrormaker("apply", str(file), "--force")
        assert forced.returncode == 0, forced.stdout + forced.stderr
    told = running.wait_for(lambda told: told["obstacles"] == {} and told["lag"]["messages"] == 0, "decided")
    assert len(consume(destination, name, 1, 20)) == 20
    assert told["events"][-1]["name"] == "topic_obstacle_gone"
    assert running.stop() == 0


def test_topics_that_the_file_asks_for_are_kept_by_the_daemon(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(destination, "planes", 1, **{"retention.ms": WEEK})
    topics = {
        "orders": {"partitions": 2, "replication": 1, "config": {"retention.ms": int(DAY)}},
        "planes": {"partitions": 3, "config": {"retention.ms": int(DAY)}},
    }
    file = write(tmp_path, {"jfk": reached(source), "aggregate": reached(destination, topics=topics)}, {})
    running = mirror.of_file(file)
    running.start()
    wait_until(lambda: partitions_of(destination, "orders") == 2, "created")
    wait_until(lambda: partitions_of(destination, "planes") == 3, "grown")
    assert setting(destination, "orders", "retention.ms") == DAY
    clusters_told: dict[str, Any] = {}

    def is_told() -> bool:
        told = json.loads(mirrormaker("status", str(file), "--output", "json").stdout)
        clusters_told.update(told["clusters"])
        return "aggregate" in clusters_told

    wait_until(is_told, "what was found is told")
    told = clusters_told["aggregate"]
    assert told["problem"] is None
    assert [one["topic"] for one in told["drift"]] == ["planes"]
    assert "aggregate: differs: ~ aggregate: topic planes" in mirrormaker("status", str(file)).stdout
    assert setting(destination, "planes", "retention.ms") == WEEK
    assert running.stop() == 0


def test_what_the_file_leaves_to_people_is_told_and_not_done(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    produce(source, "flights", range(10), 1)
    file = write(
        tmp_path, {"jfk": reached(source), "aggregate": reached(destination)}, {"sync": {"repair": []}}
    )
    running = mirror.of_file(file)
    running.start()
    told = running.wait_for(lambda told: told["drift"], "drift")
    assert told["obstacles"] == {"flights": "'sync.repair' leaves it to `mirrormaker apply`"}
    assert partitions_of(destination, "jfk.flights") == 0
    assert mirrormaker("apply", str(file)).returncode == 0
    running.wait_copied()
    assert running.stop() == 0


def test_a_plan_tells_what_the_daemon_will_do_about_its_routes(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    ends = {"jfk": reached(source), "aggregate": reached(destination)}
    file = write(tmp_path, ends, {"name": "one"}, {"name": "two", "topics": {"include": ["planes"]}})
    running = mirror.of_file(file)
    running.start()
    running.wait_for(lambda told: told["state"] == "running", "running")
    wait_until(lambda: plan(file)[0] == 0, "nothing to do")
    three = {"name": "three", "topics": {"include": ["trains"]}}
    new = write(tmp_path, ends, {"name": "one", "commit_interval_ms": 70}, three, name="new.yaml")
    _, told = plan(new)
    kinds = {step["route"]: step["kind"] for step in told["steps"] if "route" in step}
    assert kinds == {"one": "change_route", "two": "stop_route", "three": "start_route"}
    done = mirrormaker("apply", str(new))
    assert done.returncode == 1
    assert f"the daemon here follows {file}" in done.stdout

    new.replace(file)  # it takes the file by itself; `apply` waits for that
    done = mirrormaker("apply", str(file))
    assert done.returncode == 0, done.stdout
    wait_until(lambda: plan(file)[0] == 0, "nothing to do")
    assert running.stop() == 0
