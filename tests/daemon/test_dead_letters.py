"""Dead letters where the route writes their topic for another reason, too, between real clusters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from broker.client.dead_letter_headers import ERROR_HEADER
from broker.embedded import EmbeddedCluster
from broker.records.record import Record
from broker.types import TopicPartition
from mirrormaker.flow.positions import transactional_id
from mirrormaker.flow.producers import ProducerKey
from tests.daemon.audits import audit, found_in
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker
from tests.daemon.killed_mirrors import end_of, read
from tests.daemon.tampered_logs import (
    Change,
    altered_header,
    altered_time,
    altered_value,
    dropped,
    records_of,
    reordered,
    tamper,
)
from tests.daemon.test_failure_policies import LOST, delete_topic
from tests.daemon.test_mirror import address, create, producer

Clusters = tuple[EmbeddedCluster, EmbeddedCluster]
COUNT = 100
PARK = {"record_error": "park"}
LETTERS, LETTERS_THERE = "orders.dead-letters", "jfk.orders.dead-letters"
AT = 4
"""The letter that something is done to, of the record at offset 9."""
CHANGES: Mapping[int, tuple[Change, str, int]] = {
    0: (altered_value, "altered", AT),
    1: (altered_header, "altered", AT),
    2: (altered_time, "altered", AT),
    3: (dropped, "missing", AT),
    4: (reordered, "reordered", AT + 1),
}
"""By partition, what is done to it, what that is, and at which letter it is told."""


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


def told_otherwise(records: list[Record], at: int) -> list[Record]:
    headers = [(name, b"bad" if name == ERROR_HEADER else value) for name, value in records[at].headers]
    assert headers != list(records[at].headers)
    return [*records[:at], records[at]._replace(headers=headers), *records[at + 1 :]]


def parked(
    clusters: Clusters,
    mirror: MirrorFactory,
    partitions: int = 1,
    steps: Sequence[object] = (),
    **route: object,
) -> MirrorProcess:
    """Twenty records in each partition of a topic, of which every second is no JSON, copied."""
    source, destination = clusters
    create(source, "orders", partitions)
    writer = producer(source, **{"linger.ms": 10_000})
    for partition in range(partitions):
        for each in range(20):
            value = b"no JSON %d" % each if each % 2 else json.dumps({"id": each}).encode()
            writer.produce("orders", value, b"key-%d" % each, partition=partition)
    writer.list_topics("orders", timeout=PATIENCE_SECONDS)  # so that each partition's are one batch
    assert writer.flush(PATIENCE_SECONDS) == 0
    steps = [{"drop": {"fields": ["secret"]}}, *steps]
    running = mirror(source, destination, topics={"include": ["orders"]}, transforms=steps, on=PARK, **route)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    return running


def test_letters_that_the_destination_has_lost_are_missing(clusters: Clusters, mirror: MirrorFactory) -> None:
    running = parked(clusters, mirror)
    destination = clusters[1]
    assert equal_records(running) == 20
    delete_topic(destination, "jfk.orders.dead-letters")
    for options in ((), ("--deep",)):
        code, told = audit(running.file, *options)
        assert (code, told["records"], told["equal"]) == (2, 20, 10), options
        assert told["differences"] == {"missing": 10}, options
        assert told["first_difference"]["offset"] == 1, options
    create(destination, "jfk.orders.dead-letters", 1)
    write(destination, "jfk.orders.dead-letters", [b"of a consumer"])
    assert audit(running.file)[1]["differences"] == {"missing": 9}
    code, told = audit(running.file, "--deep")
    assert (code, told["equal"], told["differences"]) == (2, 10, {"altered": 1, "missing": 9})


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_was_done_to_a_letter_is_named_by_reading(
    clusters: Clusters, mirror: MirrorFactory, delivery: str
) -> None:
    """Also in a topic that takes letters alone, where consumers may have theirs. Versions may tell errors in
    other words.
    """
    running = parked(clusters, mirror, len(CHANGES) + 1, delivery=delivery)
    assert equal_records(running) == 20 * (len(CHANGES) + 1)
    destination = clusters[1]
    letters = [TopicPartition(LETTERS_THERE, each) for each in range(len(CHANGES) + 1)]
    places = [  # a transaction that was given up before leaves a marker before them
        [record.offset for record in records_of(destination, letter)] for letter in letters
    ]
    changes: dict[TopicPartition, tuple[Change, int]] = {
        letters[each]: (change, places[each][AT]) for each, (change, _, _) in CHANGES.items()
    }
    changes[letters[-1]] = told_otherwise, places[-1][AT]
    tamper(destination, changes)
    writer = producer(destination)
    writer.produce(LETTERS_THERE, b"of a consumer", partition=len(CHANGES))
    assert writer.flush(PATIENCE_SECONDS) == 0
    code, told = audit(running.file, "--deep")
    assert code == 2
    for partition in told["partitions"]:
        expected = [
            (kind, 9, places[each][at], 1)
            for each, (_, kind, at) in CHANGES.items()
            if each == partition["partition"]
        ]
        assert found_in(partition) == expected, partition
    clean = next(each for each in told["partitions"] if each["partition"] == len(CHANGES))
    assert (clean["equal"], clean["outcomes"]) == (20, {"others": 1})
    code, told = audit(running.file)
    assert (code, told["differences"], told["outcomes"]) == (0, {}, {"others": 1})


@pytest.mark.parametrize("is_lossy", [True, False])
def test_letters_of_a_process_that_was_killed_are_there(
    clusters: Clusters, mirror: MirrorFactory, is_lossy: bool
) -> None:
    """It wrote none of them down; at least once, they are parked again."""
    source, destination = clusters
    delivery = "at_most_once" if is_lossy else "at_least_once"
    running = parked(clusters, mirror, delivery=delivery, commit_interval_ms=60_000)
    write(source, "orders", [b"no JSON, either %d" % each for each in range(10)])
    running.start()
    running.until(lambda: end_of(destination, LETTERS_THERE) == 20, "parked")
    running.kill()
    write(source, "orders", [b"no JSON at last"])
    running.start()
    running.until(lambda: end_of(destination, LETTERS_THERE) == (21 if is_lossy else 31), "parked")
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, told = audit(running.file, *options)
        assert (code, told["records"], told["equal"]) == (0, 31, 31), (options, told)
        assert told["outcomes"] == ({} if is_lossy else {"repeated": 10}), options


def test_without_a_ledger_letters_are_compared_by_content_and_order(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    running = parked(clusters, mirror)
    destination = clusters[1]
    delete_topic(destination, "__mirrormaker_ledger")
    code, told = audit(running.file, "--deep")
    assert (code, told["equal"], told["outcomes"]) == (0, 20, {}), told
    tamper(destination, {TopicPartition(LETTERS_THERE, 0): (altered_value, 4)})
    code, told = audit(running.file, "--deep")
    assert (code, told["equal"], told["first_difference"]["offset"]) == (2, 19, 9), told


def test_without_a_ledger_letters_are_missing_where_their_topic_is_gone(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    running = parked(clusters, mirror)
    for topic in ("__mirrormaker_ledger", LETTERS_THERE):
        delete_topic(clusters[1], topic)
    code, told = audit(running.file, "--deep")
    assert (code, told["records"], told["equal"], told["differences"]) == (2, 20, 10, {"missing": 10}), told
    assert told["first_difference"]["offset"] == 1


def test_a_topic_of_a_step_to_which_nothing_was_due_may_be_gone(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    never = {"route": {"to": "never", "when": {"key_prefix": "never"}}}
    running = parked(clusters, mirror, steps=[never])
    delete_topic(clusters[1], "never")
    assert equal_records(running) == 20


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


def test_letters_that_are_gone_beside_an_open_transaction_of_a_killed_process_keep_no_route_from_copying(
    clusters: Clusters, mirror: MirrorFactory
) -> None:
    """It would be ended by nobody but the route itself, or by its timeout. What is before it tells that there
    were some.
    """
    source, destination = clusters
    running = parked(clusters, mirror, delivery="exactly_once")
    name = transactional_id("jfk-to-aggregate", ProducerKey(0, 0, None))
    settings = {"transactional.id": name, "transaction.timeout.ms": 900_000}
    killed = producer(destination, **settings)
    killed.init_transactions(PATIENCE_SECONDS)
    killed.begin_transaction()
    for partition in killed.list_topics("__mirrormaker_ledger").topics["__mirrormaker_ledger"].partitions:
        killed.produce("__mirrormaker_ledger", b"", b"{}", partition=partition)
    assert killed.flush(PATIENCE_SECONDS) == 0
    delete_topic(destination, LETTERS_THERE)
    write(source, "orders", [b"no JSON at last"])
    running.start()
    running.wait_copied()
    lost = [each["details"] for each in running.status()["events"] if each["name"] == LOST]
    assert lost == [{"destination": LETTERS_THERE, "topics": ["orders"]}]
    assert running.stop() == 0
    assert values_at(destination, LETTERS_THERE, 1) == Counter([b"no JSON at last"])
