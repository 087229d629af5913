"""Dead letters where the route writes their topic for another reason, too, between real clusters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from broker.embedded import EmbeddedCluster
from tests.daemon.audits import audit
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker
from tests.daemon.killed_mirrors import end_of, read
from tests.daemon.test_failure_policies import LOST, delete_topic
from tests.daemon.test_mirror import address, clusters, create, producer

__all__ = ["clusters"]

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]
COUNT = 100
PARK = {"record_error": "park"}
LETTERS = "orders.dead-letters"


def write(cluster: EmbeddedCluster, topic: str, values: list[bytes]) -> None:
    writer = producer(cluster)
    for number, value in enumerate(values):
        writer.produce(topic, value, b"key-%d" % number, partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0


def values_at(cluster: EmbeddedCluster, topic: str, partitions: int) -> Counter[bytes]:
    return Counter(each.value() or b"" for each in read(cluster, topic, "read_committed", partitions))


def equal_records(running: MirrorProcess) -> int:
    """That a deep audit finds; nor does one by the ledger find a difference."""
    assert audit(running.file)[0] == 0
    code, told = audit(running.file, "--deep")
    assert code == 0, told
    return sum(partition["equal"] for partition in told["partitions"])


@pytest.mark.parametrize(
    ("delivery", "partitions"),
    [
        ("exactly_once", "same"),
        pytest.param("at_least_once", "same", marks=pytest.mark.long),
        ("at_least_once", "key"),
    ],
)
def test_a_step_may_send_records_to_the_topic_for_dead_letters(
    clusters: Clusters, mirror: MirrorFactory, delivery: str, partitions: str
) -> None:
    source, destination = clusters
    create(source, "orders", 2)
    named = [json.dumps({"id": number, "secret": 1}).encode() for number in range(COUNT)]
    nameless = [json.dumps({"number": number}).encode() for number in range(COUNT)]
    broken = [b"no JSON %d" % number for number in range(COUNT)]
    write(source, "orders", named + nameless + broken)
    running = mirror(
        source,
        destination,
        topics={"include": ["orders"], "partitions": partitions},
        transforms=[
            {"drop": {"fields": ["secret"]}},
            {
                "route": {
                    "to": "{cluster}.{topic}.dead-letters",
                    "when": {"not": {"json": {"field": "id"}}},
                }
            },
        ],
        on=PARK,
        delivery=delivery,
    )
    running.start()
    running.wait_copied()
    copied = [json.loads(each) for each in values_at(destination, "jfk.orders", 2).elements()]
    assert sorted(each["id"] for each in copied) == list(range(COUNT))
    assert values_at(destination, "jfk.orders.dead-letters", 2) == Counter(nameless + broken)
    assert running.stop() == 0
    assert equal_records(running) == 3 * COUNT


@pytest.mark.parametrize(
    "delivery", ["at_least_once", "exactly_once", pytest.param("at_most_once", marks=pytest.mark.long)]
)
def test_a_copied_topic_may_have_the_name_of_the_topic_for_dead_letters(
    clusters: Clusters, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create(source, "orders", 1)
    create(source, "orders.dead-letters", 1)
    broken = [b"no JSON %d" % number for number in range(COUNT)]
    letters = [b"of a consumer %d" % number for number in range(COUNT)]
    write(source, "orders", broken)
    write(source, "orders.dead-letters", letters)
    running = mirror(
        source,
        destination,
        topics={"include": ["orders.*"]},
        transforms=[{"drop": {"fields": ["secret"]}, "topics": ["orders"]}],
        on=PARK,
        delivery=delivery,
        buckets=1,
    )
    running.start()
    running.wait_copied()
    assert values_at(destination, "jfk.orders.dead-letters", 1) == Counter(broken + letters)
    assert running.stop() == 0
    assert equal_records(running) == 2 * COUNT


@pytest.mark.parametrize(
    ("delivery", "partitions"),
    [
        ("exactly_once", "same"),
        ("at_least_once", "key"),
        pytest.param("at_most_once", "round_robin", marks=pytest.mark.long),
    ],
)
def test_two_clusters_that_bring_each_other_all_topics_have_dead_letters_of_no_dead_letters(
    clusters: Clusters, mirror: MirrorFactory, tmp_path: Path, delivery: str, partitions: str
) -> None:
    """Each letter stays where it was parked, or where a consumer's was copied to."""
    here, there = clusters
    route = {
        "topics": {"include": [".*"], "name": "{topic}", "partitions": partitions},
        "transforms": [{"drop": {"fields": ["secret"]}}],
        "on": PARK,
        "delivery": delivery,
        "refresh_interval_ms": 200,
        "commit_interval_ms": 100,
    }
    file = tmp_path / "both-ways.yaml"
    named = {"one": here, "other": there}
    topology = {
        "clusters": {name: {"bootstrap": [address(each)]} for name, each in named.items()},
        "routes": [{"from": "one", "to": "other"} | route, {"from": "other", "to": "one"} | route],
        "data_dir": "data",
    }
    file.write_text(yaml.safe_dump(topology))
    broken: dict[str, list[bytes]] = {}
    for name, each in named.items():
        create(each, "orders", 2)
        broken[name] = [b"no JSON of %s %d" % (name.encode(), number) for number in range(COUNT)]
        good = [json.dumps({"from": name, "id": number}).encode() for number in range(COUNT)]
        write(each, "orders", good + broken[name])
    create(here, LETTERS, 2)
    consumers = [b"of a consumer %d" % number for number in range(COUNT)]
    write(here, LETTERS, consumers)
    running = mirror.of_file(file)
    running.start()
    expected = {"one": Counter(consumers + broken["other"]), "other": Counter(consumers + broken["one"])}

    def is_there(name: str) -> bool:
        copied = values_at(named[name], "orders", 2).total() == 3 * COUNT
        return copied and values_at(named[name], LETTERS, 2) == expected[name]

    for name in named:
        running.until(lambda name=name: is_there(name), "all is there")  # type: ignore[misc]
    assert mirrormaker("plan", str(file)).returncode == 0, "nothing is made any more"
    assert running.stop() == 0
    for name, each in named.items():
        assert is_there(name)
        topics = AdminClient({"bootstrap.servers": address(each)}).list_topics(timeout=5).topics
        assert {topic for topic in topics if not topic.startswith("__")} == {"orders", LETTERS}
    for options in ((), ("--deep",)):
        done = mirrormaker("audit", str(file), "--output", "json", *options)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("delivery", "is_routed"), [("at_most_once", True), ("at_most_once", False), ("at_least_once", True)]
)
def test_what_a_killed_process_left_there_and_did_not_write_down_is_told_of_each_topic_that_leads_there(
    clusters: Clusters, mirror: MirrorFactory, delivery: str, is_routed: bool
) -> None:
    """Before all that the ledger knows, and behind records of the other topic."""
    source, destination = clusters
    further = {
        "route": {"to": "{cluster}.{topic}.dead-letters", "when": {"not": {"json": {"field": "id"}}}},
        "topics": ["orders"],
    }
    create(source, "orders", 1)
    create(source, "orders.dead-letters", 1)
    running = mirror(
        source,
        destination,
        topics={"include": ["orders.*"]},
        transforms=[
            {"drop": {"fields": ["secret"]}, "topics": ["orders"]},
            *([further] if is_routed else []),
        ],
        on=PARK,
        delivery=delivery,
        commit_interval_ms=60_000,
    )
    is_lossy = delivery == "at_most_once"
    count, end, step = 0, 0, 30 if is_routed else 20
    for is_killed in (True, False, True, False):
        numbers = range(count, count + 10)
        if is_routed:
            write(source, "orders", [json.dumps({"number": number}).encode() for number in numbers])
        write(source, "orders", [b"no JSON %d" % number for number in numbers])
        write(source, "orders.dead-letters", [b"of a consumer %d" % number for number in numbers])
        count += 10
        end += step if is_lossy or is_killed else 2 * step
        running.start()
        running.until(lambda end=end: end_of(destination, "jfk.orders.dead-letters") == end, "copied")  # type: ignore[misc]
        if is_killed:
            running.kill()
        else:
            assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, told = audit(running.file, *options)
        assert (code, told["records"], told["equal"]) == (0, 4 * step, 4 * step), (options, told)
        outcomes = {} if is_lossy else {"repeated": 60 if options else 30}
        assert told["outcomes"] == outcomes, options
    for options in ((), ("--deep",)):
        judged = [
            audit(running.file, *options, "--topic", each) for each in ("orders", "orders.dead-letters")
        ]
        assert [code for code, _ in judged] == [0, 0], (options, judged)
        assert sum(told["equal"] for _, told in judged) == 4 * step, options


def test_letters_that_the_destination_has_lost_are_missing(clusters: Clusters, mirror: MirrorFactory) -> None:
    """Nothing of them is compared: their topic takes no other records."""
    source, destination = clusters
    create(source, "orders", 1)
    values = [b"no JSON %d" % each if each % 2 else json.dumps({"id": each}).encode() for each in range(20)]
    write(source, "orders", values)
    drop = [{"drop": {"fields": ["secret"]}}]
    running = mirror(source, destination, topics={"include": ["orders"]}, transforms=drop, on=PARK)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    assert equal_records(running) == 10
    delete_topic(destination, "jfk.orders.dead-letters")
    for options in ((), ("--deep",)):
        code, told = audit(running.file, *options)
        assert (code, told["equal"], told["differences"]) == (2, 10, {"missing": 10}), options
    create(destination, "jfk.orders.dead-letters", 1)
    write(destination, "jfk.orders.dead-letters", [b"of a consumer"])
    for options in ((), ("--deep",)):
        code, told = audit(running.file, *options)
        assert (code, told["equal"], told["differences"]) == (2, 10, {"missing": 9}), options


@pytest.mark.parametrize(
    "delivery",
    [
        "at_least_once",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("at_most_once", "exactly_once")),
    ],
)
def test_further_topics_that_are_deleted_while_nobody_runs_are_told_as_lost_where_something_was_in_them(
    clusters: Clusters, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = clusters
    create(source, "orders", 2)
    broken = [b"no JSON %d" % number for number in range(COUNT)]
    write(source, "orders", [b'{"number": 1}', *broken])
    nameless: Mapping[str, Any] = {"not": {"json": {"field": "id"}}}
    running = mirror(
        source,
        destination,
        topics={"include": ["orders"]},
        transforms=[
            {"drop": {"fields": ["secret"]}},
            {"route": {"to": "nameless", "when": nameless}},
            {"route": {"to": "never", "when": {"key_prefix": "never"}}},
        ],
        on=PARK,
        delivery=delivery,
    )

    def lost() -> list[dict[str, Any]]:
        return [each["details"] for each in running.status()["events"] if each["name"] == LOST]

    running.start()
    running.wait_copied()
    assert lost() == []
    assert running.stop() == 0
    for topic in ("nameless", "never", "jfk.orders.dead-letters"):
        delete_topic(destination, topic)
    running.start()
    told = [{"destination": name, "topics": ["orders"]} for name in ("jfk.orders.dead-letters", "nameless")]
    running.wait_for(lambda _: lost() == told, "told of")
    write(source, "orders", broken)
    running.wait_copied()
    assert values_at(destination, "jfk.orders.dead-letters", 2) == Counter(broken)
    assert running.stop() == 0
    running.start()
    running.wait_copied()
    assert lost() == [], "none is lost since"
    assert running.stop() == 0
