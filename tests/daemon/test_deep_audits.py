"""Deep audits of every kind of route, on real clusters: what is as it should be is equal, what was done to a
log is named. All topics are copied by one daemon, and changed while a node is down once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.records.record import Record
from broker.types import TopicPartition
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.audits import found_in
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.tampered_logs import (
    Change,
    altered_header,
    altered_key,
    altered_time,
    altered_value,
    dropped,
    records_of,
    reordered,
    tamper,
)
from tests.daemon.test_mirror import address, producer

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BASE_MS = 1_357_000_000_000
COUNT, AT = 40, 34
"""Records of a topic, and the one that something is done to."""
TABLE_COUNT = 2_000
DOUBLED, CLEAN = "doubled", "clean"
CHANGES: Mapping[str, Change] = {
    "value": altered_value,
    "key": altered_key,
    "header": altered_header,
    "time": altered_time,
    "dropped": dropped,
    "reordered": reordered,
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4000"}
CLEANER = {"log.cleaner.backoff.ms": 50, "log.cleaner.min.cleanable.ratio": 0.01}


@dataclass(frozen=True)
class Kind:
    """A kind of route."""

    settings: Mapping[str, object]
    records: int = COUNT
    """That it has of a topic."""
    partitions: int = 1
    """Of its destinations."""


SECRETS = {
    "filters": [{"drop": {"json": {"field": "n", "in": list(range(10))}}}],
    "transforms": [{"mask": {"fields": ["secret"]}}],
}
KINDS = {
    "once": Kind({"delivery": "exactly_once"}),
    "most": Kind({"delivery": "at_most_once"}),
    "changed": Kind(SECRETS, COUNT - 10),
    "robin": Kind({"topics": {"partitions": "round_robin"}}, partitions=3),
    "keyed": Kind({"delivery": "exactly_once", "topics": {"partitions": "key"}}, partitions=3),
}
MADE = {kind: [CLEAN, DOUBLED, *CHANGES] for kind in KINDS if kind != "keyed"} | {"keyed": [CLEAN]}
CUTS = ["once-cut-here", "once-cut-there"]
TOPICS = [f"{kind}-{made}" for kind, makes in MADE.items() for made in makes] + CUTS
NAMES = ("jfk", "aggregate", "lake")
Clusters = Mapping[str, EmbeddedCluster]


def topology(folder: Path, clusters: Clusters, *, is_whole: bool) -> Path:
    """`is_whole`: with the route that leads on from the aggregate."""
    hops = [("jfk", "aggregate", f"{kind}-.*", kind, each.settings) for kind, each in KINDS.items()]
    hops.append(("jfk", "lake", "once-.*", "fan-out", {}))
    hops.append(("jfk", "aggregate", "table", "table", {}))
    if is_whole:
        hops.append(("aggregate", "lake", r"jfk\.once-.*", "onward", {}))
    document = {
        "clusters": {
            name: {"bootstrap": [str(each) for each in cluster.bootstrap]}
            for name, cluster in clusters.items()
        },
        "defaults": {"heartbeats": False, "refresh_interval_ms": 300, "commit_interval_ms": 100},
        "routes": [
            {
                "name": name,
                "from": source,
                "to": to,
                **settings,
                "topics": {"include": [topics], **settings.get("topics", {})},  # type: ignore[attr-defined]
            }
            for source, to, topics, name, settings in hops
        ],
        "data_dir": "data",
        "generation": 2 if is_whole else 1,
    }
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def create_all(clusters: Clusters) -> None:
    for name, topics in (
        ("jfk", [*(NewTopic(each, 1, 1) for each in TOPICS), NewTopic("table", 1, 1, config=COMPACTED)]),
        (
            "aggregate",
            [
                *(NewTopic(f"jfk.{each}", KINDS[each.split("-")[0]].partitions, 1) for each in TOPICS),
                NewTopic("jfk.table", 1, 1, config=COMPACTED),
            ],
        ),
    ):
        admin = AdminClient({"bootstrap.servers": address(clusters[name])})
        for created in admin.create_topics(topics).values():
            created.result(PATIENCE_SECONDS)


def fill(cluster: Brokers) -> None:
    writer = producer(cluster, **{"linger.ms": 10_000})
    for topic in TOPICS:
        for number in range(COUNT):
            value = json.dumps({"n": number, "secret": f"s{number}"})
            headers = [("origin", b"%d" % number)]
            key = b"key-%d" % (number % 5)
            writer.produce(topic, value, key, partition=0, timestamp=BASE_MS + number, headers=headers)
    for number in range(TABLE_COUNT):
        writer.produce("table", b"%d" % number, b"key-%d" % (number % 7), partition=0)
    assert writer.flush(PATIENCE_SECONDS) == 0


def copy(running: MirrorProcess) -> None:
    """Run the daemon until everything is at its destination, and in the ledger."""
    running.start()

    def is_done() -> bool:
        told = mirrormaker("status", str(running.file), "--output", "json", seconds=120)
        routes = json.loads(told.stdout)["routes"]
        return all(
            route["partitions"]
            and route["lag"]
            and route["lag"]["messages"] == 0
            and route["ledger"].get("pending_pages") == 0
            for route in routes
        )

    running.until(is_done, "everything is copied")
    assert running.stop() == 0


def place_of(cluster: EmbeddedCluster, topic: str, number: int = AT) -> Record:
    """The copy of a record in the first partition."""
    records = records_of(cluster, TopicPartition(topic, 0))
    (record,) = [each for each in records if ("origin", b"%d" % number) in each.headers]
    return record


def kept_at(cluster: EmbeddedCluster, topic: str) -> int:
    """Records in the log of its first partition."""
    try:
        return sum(1 for _ in records_of(cluster, TopicPartition(topic, 0)))
    except FileNotFoundError:
        return TABLE_COUNT  # a segment has just given way to its compacted successor


def double(cluster: EmbeddedCluster, topic: str) -> None:
    """Write its copy there once more."""
    record = place_of(cluster, topic)
    writer = producer(cluster)
    writer.produce(
        topic, record.value, record.key, 0, timestamp=record.timestamp, headers=list(record.headers)
    )
    assert writer.flush(PATIENCE_SECONDS) == 0


def cut(cluster: EmbeddedCluster, topic: str) -> None:
    """Delete its first ten records."""
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    until = place_of(cluster, topic, 10).offset
    for deleted in admin.delete_records([Position(topic, 0, until)]).values():
        deleted.result(PATIENCE_SECONDS)


@dataclass(frozen=True)
class Audited:
    """What was found, by route and topic of its source."""

    code: int
    routes: Mapping[str, Mapping[str, Any]]
    partitions: Mapping[tuple[str, str], Mapping[str, Any]]
    hops: list[Mapping[str, Any]]
    places: Mapping[str, int]
    """By topic of jfk, where the record is at the aggregate that something was done to, or its double."""
    file: Path


@pytest.fixture(scope="module")
def audited(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("deep-audits")
    with contextlib.ExitStack() as stack:
        clusters = {
            name: stack.enter_context(
                EmbeddedCluster(cluster_spec(zookeeper, folder, name, settings=CLEANER))
            )
            for name in NAMES
        }
        create_all(clusters)
        fill(clusters["jfk"])
        mirrors = MirrorFactory(folder, stack)
        copy(mirrors.of_file(topology(folder, clusters, is_whole=False)))
        aggregate = clusters["aggregate"]
        wait_until(lambda: kept_at(aggregate, "jfk.table") < TABLE_COUNT, "the table is compacted")
        changed = {each: each.split("-")[1] for each in TOPICS if each.split("-")[1] in [DOUBLED, *CHANGES]}
        places = {topic: place_of(aggregate, f"jfk.{topic}").offset for topic in changed}
        tamper(
            aggregate,
            {
                TopicPartition(f"jfk.{topic}", 0): (CHANGES[made], places[topic])
                for topic, made in changed.items()
                if made in CHANGES
            },
        )
        for topic in [each for each in TOPICS if each.endswith(DOUBLED)]:
            double(aggregate, f"jfk.{topic}")
            places[topic] = max(
                each.offset for each in records_of(aggregate, TopicPartition(f"jfk.{topic}", 0))
            )
        cut(clusters["jfk"], CUTS[0])
        cut(aggregate, f"jfk.{CUTS[1]}")
        file = topology(folder, clusters, is_whole=True)
        copy(mirrors.of_file(file))
        yield deep_audit(file, places)


def deep_audit(file: Path, places: Mapping[str, int], *options: str) -> Audited:
    done = mirrormaker("audit", str(file), "--deep", "--output", "json", *options, seconds=120)
    told = json.loads(done.stdout)
    return Audited(
        code=done.returncode,
        routes={route["name"]: route for route in told["routes"]},
        partitions={
            (route["name"], partition["topic"]): partition
            for route in told["routes"]
            for partition in route["partitions"]
        },
        hops=told["hops"],
        places=places,
        file=file,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_as_it_should_be_is_equal(audited: Audited, kind: str) -> None:
    told = audited.partitions[kind, f"{kind}-{CLEAN}"]
    assert (told["problem"], told["differences"]) == (None, {})
    assert told["records"] == told["equal"] == KINDS[kind].records
    assert told["headers"]["changed_source"] == told["headers"]["changed_destination"] == []


@pytest.mark.parametrize(
    ("kind", "made"), [(kind, made) for kind, makes in MADE.items() for made in makes if made != CLEAN]
)
def test_what_was_done_to_one_record_is_named(audited: Audited, kind: str, made: str) -> None:
    place = audited.places[f"{kind}-{made}"]
    told = audited.partitions[kind, f"{kind}-{made}"]
    expected = {
        DOUBLED: ("doubled", AT, place, 1),
        "dropped": ("missing", AT, place, 1),
        "reordered": ("reordered", AT, place + 1, 1),
    }
    assert found_in(told) == [expected.get(made, ("altered", AT, place, 1))], told["outcomes"]
    assert told["headers"]["changed_source"] == []
    has_changed = bool(told["headers"]["changed_destination"])
    assert has_changed == (made != DOUBLED), "a double stands beside what was copied"


def test_it_ends_as_documented_and_names_the_first_difference(audited: Audited) -> None:
    assert audited.code == 2
    first = audited.routes["once"]["first_difference"]
    assert (first["kind"], first["topic"], first["offset"]) == ("doubled", "once-doubled", AT)
    clean = [option for kind in KINDS for option in ("--topic", f"{kind}-{CLEAN}")]
    assert deep_audit(audited.file, {}, *clean).code == 0


def test_another_destination_of_the_same_source_is_judged_by_itself(audited: Audited) -> None:
    fan_out = audited.routes["fan-out"]
    assert (fan_out["differences"], fan_out["problem"]) == ({}, None)
    for topic in (each for each in TOPICS if each.startswith("once") and each not in CUTS):
        told = audited.partitions["fan-out", topic]
        assert (told["records"], told["equal"]) == (COUNT, COUNT)


def test_a_log_that_changed_between_two_hops_is_named_though_the_second_copied_it_as_it_was(
    audited: Audited,
) -> None:
    onward = audited.routes["onward"]
    assert (onward["differences"], onward["problem"]) == ({}, None), "it has what its source has"
    differing = {hop["topic"] for hop in audited.hops if hop["differing"]}
    assert differing == {f"jfk.once-{made}" for made in CHANGES if made != "dropped"}, (
        "of what was dropped, the second copied fewer"
    )
    agreeing = {hop["topic"] for hop in audited.hops if not hop["differing"]}
    assert {f"jfk.once-{CLEAN}"} <= agreeing
    (hop,) = [hop for hop in audited.hops if hop["topic"] == "jfk.once-value"]
    assert (hop["cluster"], hop["written_by"], hop["read_by"]) == ("aggregate", ["once"], "onward")
    (found,) = hop["found"]
    first, end = found["offsets"]
    assert (end - first, found["records"]) == (COUNT, COUNT)


@pytest.mark.parametrize(("topic", "records"), [(CUTS[0], COUNT - 10), (CUTS[1], COUNT)])
def test_what_either_side_has_deleted_is_no_difference(audited: Audited, topic: str, records: int) -> None:
    told = audited.partitions["once", topic]
    assert (told["differences"], told["problem"]) == ({}, None)
    assert (told["records"], told["equal"]) == (records, COUNT - 10)


def test_compacted_logs_are_equal_as_far_as_both_have_records(audited: Audited) -> None:
    told = audited.partitions["table", "table"]
    assert (told["differences"], told["problem"]) == ({}, None)
    gone = told["outcomes"].get("gone_at_destination", 0)
    assert told["equal"] + gone == told["records"]
    assert told["equal"] < TABLE_COUNT


def test_windows_have_the_same_checksums_along_a_chain(audited: Audited) -> None:
    topics = ("--topic", f"once-{CLEAN}", "--topic", f"jfk.once-{CLEAN}", "--window", "10ms")
    told = deep_audit(audited.file, {}, *topics)
    assert told.code == 0, [route["problem"] for route in told.routes.values()]
    chain = [told.partitions["once", f"once-{CLEAN}"], told.partitions["onward", f"jfk.once-{CLEAN}"]]
    sums = [
        [(each["from_ms"], each[f"{side}records"], each[f"{side}checksum"]) for each in hop["read_windows"]]
        for hop in chain
        for side in ("", "to_")
    ]
    assert all(each == sums[0] for each in sums)
    assert [count for _, count, _ in sums[0]] == [10] * (COUNT // 10)
