"""Audits of real clusters: what was tampered with is found and named, what can be explained is not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

from broker.client.group_offset_admin import ToOffset
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, iterate_batches
from broker.records.excerpt import excerpt, open_batch
from broker.types import TopicPartition
from mirrormaker.audit import route_view
from mirrormaker.audit.auditor import AuditOrder, audit_routes
from mirrormaker.audit.stored_positions import read_positions
from mirrormaker.control_access import pause, resume
from mirrormaker.seeking import seek
from mirrormaker.state import StateDirectory
from mirrormaker.topology.loader import load_topology
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec, forked
from tests.daemon import tampered_logs
from tests.daemon.audits import audit, found, found_in
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.killed_mirrors import address, end_of, events
from tests.daemon.tampered_logs import Change, altered_value, tamper
from tests.daemon.test_deep import grow
from tests.daemon.test_mirror import consume, create, produce, producer

pytestmark = pytest.mark.timeout(600)
BASE_MS = 1_357_000_000_000
KEPT = {"retention.ms": "-1"}
"""Records of that time are older than a week, and nodes look for such every five minutes."""
Sides = tuple[EmbeddedCluster, EmbeddedCluster]


@dataclass(frozen=True)
class Written:
    """A record to be written."""

    number: int
    value: bytes | None = None
    at_ms: int = BASE_MS


@pytest.fixture(scope="module")
def sides(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("audited")
    with contextlib.ExitStack() as stack:
        source, destination = (
            stack.enter_context(EmbeddedCluster(cluster_spec(zookeeper, folder, name), forked))
            for name in ("jfk", "aggregate")
        )
        yield source, destination


def write(cluster: Brokers, topic: str, records: Sequence[Written], **config: Any) -> None:
    """In one batch, if they fit in one."""
    writer = producer(cluster, **{"linger.ms": 10_000, **config})
    for each in records:
        value = b"%d" % each.number if each.value is None else each.value
        key = b"key-%d" % (each.number % 5)
        writer.produce(topic, value, key, partition=0, timestamp=each.at_ms + each.number)
    writer.list_topics(topic, timeout=PATIENCE_SECONDS)  # before it is known, a flush may find them in part
    assert writer.flush(PATIENCE_SECONDS) == 0


def numbered(numbers: Sequence[int]) -> list[Written]:
    return [Written(number) for number in numbers]


def topology(folder: Path, sides: Sides, topic: str, **route: object) -> Path:
    file = folder / "topology.yaml"
    names = ("jfk", "aggregate")
    document = {
        "clusters": {
            name: {"bootstrap": [str(address) for address in side.bootstrap]}
            for name, side in zip(names, sides, strict=True)
        },
        "routes": [
            {
                "name": f"route-{topic}",
                "from": "jfk",
                "to": "aggregate",
                "topics": {"include": [topic], **route.pop("topics", {})},
                "refresh_interval_ms": 300,
                "commit_interval_ms": 100,
                **route,
            }
        ],
        "data_dir": "data",
    }
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture
def copied(mirror: MirrorFactory, sides: Sides, tmp_path: Path) -> Callable[..., MirrorProcess]:
    """A topic of the source copied, and the mirror ended."""

    def copy(topic: str, records: Sequence[Written], **route: object) -> MirrorProcess:
        create(sides[0], topic, 1, **KEPT)
        write(sides[0], topic, records)
        running = mirror.of_file(topology(tmp_path, sides, topic, **route))
        running.start()
        running.wait_copied()
        assert running.stop() == 0
        return running

    return copy


def test_what_was_copied_is_equal_by_the_ledger_and_by_reading(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    running = copied("plain", numbered(range(500)))
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, route["result"], route["records"], route["equal"]) == (0, "equal", 500, 500), route
        assert found(route) == []
        (partition,) = route["partitions"]
        assert partition["ledger"]
        (window,) = partition["windows"]
        assert (window["copied"], window["offsets"], window["to_offsets"]) == (500, [0, 500], [0, 500])
        assert window["source_crc"] is not None
    text = mirrormaker("audit", str(running.file), "--window", "1h", "--topic", "plain")
    assert text.returncode == 0
    assert "500" in text.stdout
    part = audit(running.file, "--deep", "--from", str(BASE_MS + 100), "--to", str(BASE_MS + 150))[1]
    assert (part["records"], part["equal"]) == (50, 50)


def test_what_comes_to_a_topic_that_is_made_while_an_audit_looks_is_there(
    sides: Sides, mirror: MirrorFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is copied between what the audit asks of the clusters first, and the positions."""
    create(sides[0], "early", 1, **KEPT)
    write(sides[0], "early", numbered(range(50)))
    running = mirror.of_file(topology(tmp_path, sides, "early"))

    def copy() -> None:
        running.start()
        running.wait_copied()
        assert running.stop() == 0

    async def copy_and_read(*asked: Any) -> dict[TopicPartition, int]:
        await asyncio.to_thread(copy)
        return await read_positions(*asked)

    monkeypatch.setattr(route_view, "read_positions", copy_and_read)
    for is_deep in (True, False):
        (told,) = asyncio.run(audit_routes(load_topology(running.file), AuditOrder(is_deep=is_deep)))
        (partition,) = told.partitions
        assert (partition.findings.equal, partition.findings.differences) == (50, []), told


@pytest.mark.parametrize("start", ["latest", "offsets"])
def test_what_came_before_a_start_is_judged_also_where_nothing_has_come_since(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, start: str
) -> None:
    topic = f"silent-{start}"
    create(sides[0], topic, 1, **KEPT)
    write(sides[0], topic, numbered(range(20)))
    position = "latest" if start == "latest" else {"offsets": {topic: {0: 20}}}
    running = mirror.of_file(topology(tmp_path, sides, topic, start=position))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, route["result"], route["outcomes"]) == (0, "equal", {"before_start": 20}), options
    write(sides[0], topic, numbered(range(20, 25)))
    code, route = audit(running.file)
    assert (code, route["outcomes"]) == (0, {"before_start": 20, "pending": 5})
    topology(tmp_path, sides, topic)
    assert audit(running.file)[0] == 1, "a route from the oldest record on would have copied it"


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once", "exactly_once"])
def test_all_is_still_to_be_copied_where_a_route_has_not_begun(
    sides: Sides, tmp_path: Path, delivery: str, is_there: bool
) -> None:
    """Also where it spreads records over partitions."""
    topic = f"unbegun-{delivery}-{is_there}"
    create(sides[0], topic, 1, **KEPT)
    write(sides[0], topic, numbered(range(20)))
    if is_there:
        create(sides[1], f"jfk.{topic}", 2, **KEPT)
    for topics in ({}, {"partitions": "key"}):
        file = topology(tmp_path, sides, topic, delivery=delivery, topics=topics)
        for options in ((), ("--deep",)):
            code, route = audit(file, *options)
            assert (code, route["problem"], route["outcomes"]) == (0, None, {"pending": 20}), (
                topics,
                options,
            )


@pytest.mark.parametrize("is_idempotent", [False, pytest.param(True, marks=pytest.mark.long)])
def test_records_that_somebody_wrote_to_the_destination_are_named(
    sides: Sides, copied: Callable[..., MirrorProcess], is_idempotent: bool
) -> None:
    """Who is idempotent names a producer, as mirrors do."""
    topic = f"strange-{is_idempotent}"
    running = copied(topic, numbered(range(20)))
    strange = [Written(7), Written(99, b"from nowhere")]
    write(sides[1], f"jfk.{topic}", strange, **{"enable.idempotence": is_idempotent})
    code, route = audit(running.file)
    assert (code, found(route)) == (2, [("unexplained", 19, 20, 2)])
    code, route = audit(running.file, "--deep")
    assert code == 2, route
    assert route["first_difference"] == {
        "kind": "doubled",
        "topic": topic,
        "partition": 0,
        "offset": 7,
        "to_topic": f"jfk.{topic}",
        "to_partition": 0,
        "to_offset": 20,
        "count": 1,
    }
    assert found(route) == [("doubled", 7, 20, 1), ("unexplained", 19, 21, 1)]
    assert (route["records"], route["equal"]) == (20, 20)
    running.start()
    write(sides[0], topic, numbered(range(20, 40)))
    running.wait_copied()
    running.stop()
    assert found(audit(running.file)[1]) == [("unexplained", 19, 20, 2)], "also between what was copied"
    assert found(audit(running.file, "--deep")[1]) == found(route)


def test_what_somebody_wrote_before_the_route_came_to_it_is_not_what_a_crash_leaves(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    running = copied("forestalled", numbered(range(20)))
    write(sides[1], "jfk.forestalled", numbered(range(20, 23)), **{"enable.idempotence": True})
    write(sides[0], "forestalled", numbered(range(20, 40)))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    code, route = audit(running.file)
    assert (code, found(route)) == (2, [("unexplained", 19, 20, 3)])
    code, route = audit(running.file, "--deep")
    assert (code, found(route), route["equal"]) == (2, [("doubled", 20, 20, 3)], 40)


@pytest.mark.parametrize(
    ("name", "there", "differences"),
    [
        ("dropped", [*range(30), *range(31, 60)], [("missing", 30, None, 1)]),
        ("doubled", [*range(31), 30, *range(31, 60)], [("doubled", 30, 31, 1)]),
        ("reordered", [*range(30), 31, 30, *range(32, 60)], [("reordered", 30, 31, 1)]),
        ("late", [*range(60), 10], [("doubled", 10, 60, 1)]),
    ],
)
def test_without_a_ledger_records_are_compared_by_content_and_order(
    sides: Sides, tmp_path: Path, name: str, there: Sequence[int], differences: list[object]
) -> None:
    topic = f"bare-{name}"
    for side, at, numbers in ((sides[0], topic, range(60)), (sides[1], f"jfk.{topic}", there)):
        create(side, at, 1, **KEPT)
        write(side, at, numbered(numbers))
    file = topology(tmp_path, sides, topic)
    code, route = audit(file)
    assert code == 1, route
    assert "nothing of it is in the ledger" in route["partitions"][0]["problem"]
    code, route = audit(file, "--deep")
    assert (code, found(route)) == (2, differences)


def test_without_a_ledger_what_stands_behind_an_open_transaction_is_not_missing(
    sides: Sides, tmp_path: Path
) -> None:
    there = "jfk.bare-open"
    for side, topic, numbers in ((sides[0], "bare-open", range(30)), (sides[1], there, range(20))):
        create(side, topic, 1, **KEPT)
        write(side, topic, numbered(numbers))
    writer = producer(sides[1], **{"transactional.id": "bare-open"})
    writer.init_transactions(PATIENCE_SECONDS)
    writer.begin_transaction()
    writer.produce(there, b"open", partition=0)
    writer.flush(PATIENCE_SECONDS)
    write(sides[1], there, numbered(range(20, 30)))
    file = topology(tmp_path, sides, "bare-open")
    code, route = audit(file, "--deep")
    assert (code, found(route), route["equal"], route["outcomes"]) == (0, [], 20, {"pending": 10})
    writer.abort_transaction(PATIENCE_SECONDS)
    code, route = audit(file, "--deep")
    assert (code, found(route), route["equal"], route["outcomes"]) == (0, [], 30, {})


def test_an_altered_record_is_found_whatever_of_it_was_altered(sides: Sides, tmp_path: Path) -> None:
    create(sides[0], "altered", 1, **KEPT)
    create(sides[1], "jfk.altered", 1, **KEPT)
    write(sides[0], "altered", numbered(range(10)))
    write(
        sides[1],
        "jfk.altered",
        [
            *numbered(range(3)),
            Written(3, b"other"),
            *numbered(range(4, 7)),
            Written(7, at_ms=BASE_MS + 1_000),
            *numbered(range(8, 10)),
        ],
    )
    code, route = audit(topology(tmp_path, sides, "altered"), "--deep")
    assert (code, found(route)) == (2, [("altered", 3, 3, 1), ("altered", 7, 7, 1)])


def swapped(text: bytes, one: bytes, other: bytes) -> bytes:
    return text.replace(one, b"neither").replace(other, one).replace(b"neither", other)


def altered(batch: bytes) -> bytes:
    return batch.replace(b"value-33", b"VALUE-33")


def reordered(batch: bytes) -> bytes:
    return swapped(batch, b"value-33", b"value-38")  # these have one key and one time


def dropped(batch: bytes) -> bytes:
    ((_, header),) = iterate_batches(batch)
    opened = open_batch(batch, header, size_max=1 << 20)
    return bytes(excerpt(opened, [offset != 33 for offset in opened.columns.offsets]))


def rewrite(cluster: EmbeddedCluster, topic: str, change: Callable[[bytes], bytes]) -> None:
    """Change the only batch of a log while its node is down."""
    cluster.stop_node(1)
    (file,) = cluster.spec.directory.rglob(f"{topic}-0/*.log")
    changed = bytearray(change(file.read_bytes()))
    changed[CRC_POSITION:ATTRIBUTES_POSITION] = crc32c(changed[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    file.write_bytes(changed)
    cluster.start_node(1)


@pytest.mark.parametrize(
    ("change", "differences"),
    [
        (altered, [("altered", 33, 33, 1)]),
        (reordered, [("reordered", 33, 38, 1)]),
        (dropped, [("missing", 33, 33, 1)]),
    ],
)
def test_what_was_done_to_the_log_of_a_destination_is_found_beside_its_ledger(
    sides: Sides,
    copied: Callable[..., MirrorProcess],
    change: Callable[[bytes], bytes],
    differences: list[object],
) -> None:
    topic = f"log-{change.__name__}"
    running = copied(topic, [Written(each, b"value-%d" % each, BASE_MS - each) for each in range(40)])
    rewrite(sides[1], f"jfk.{topic}", change)
    code, route = audit(running.file, "--deep")
    assert [route["problem"], *(each["problem"] for each in route["partitions"])] == [None, None]
    assert (code, found(route)) == (2, differences)
    assert route["records"] - route["equal"] == len(differences)


def test_deep_copies_filters_and_changes_are_judged_by_what_the_route_does(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    records = [Written(each, json.dumps({"n": each, "secret": "x"}).encode()) for each in range(200)]
    running = copied(
        "changed",
        records,
        compression="zstd",
        filters=[{"drop": {"json": {"field": "n", "in": list(range(50))}}}],
        transforms=[{"mask": {"fields": ["secret"]}}],
    )
    code, route = audit(running.file, "--deep")
    assert (code, route["records"], route["equal"], route["outcomes"]["left_out"]) == (0, 150, 150, 50), route
    assert audit(running.file)[0] == 0
    write(sides[1], "jfk.changed", [records[100]])
    assert [each[0] for each in found(audit(running.file, "--deep")[1])] == ["unexplained"], (
        "it is not masked"
    )


def test_what_a_function_prints_is_not_among_what_an_audit_tells(
    sides: Sides, copied: Callable[..., MirrorProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "telling.py").write_text("def change(record):\n    print('seen')\n    return record\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    running = copied("telling", numbered(range(20)), transforms=[{"function": "telling:change"}])
    code, route = audit(running.file, "--deep")
    assert (code, route["equal"]) == (0, 20)
    told = mirrormaker("audit", str(running.file), "--deep")
    assert "seen" not in told.stdout
    assert told.stderr.count("seen") == 20


def wait_audited(
    running: MirrorProcess, condition: Callable[[dict[str, Any]], bool], what: str
) -> dict[str, Any]:
    """The picture of the only route, as the daemon keeps it, once `condition` holds of its audits."""
    state = StateDirectory(running.file.parent / "data")
    told: dict[str, Any] = {}

    def holds() -> bool:
        told.update(*((state.read() or {}).get("routes", {}).values() or [{}]))
        return "audit" in told and condition(told["audit"])

    wait_until(holds, what, 3 * PATIENCE_SECONDS)
    return told


def test_what_a_daemon_finds_by_itself_is_in_its_status(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    running = copied("watched", numbered(range(10)), objectives={"audit_window": "1s"})
    running.start()
    audited = wait_audited(running, lambda audit: audit["records"] == 10, "all audited")["audit"]
    assert (audited["equal"], audited["problem"]) == (10, None)
    write(sides[1], "jfk.watched", [Written(3)])
    told = wait_audited(running, lambda audit: audit["differences"]["unexplained"] == 1, "found")
    (event,) = [each for each in told["events"] if each["name"] == "audit_difference_found"]
    assert (event["details"]["destination"], event["details"]["to_offset"]) == ("jfk.watched-0", 10)
    write(sides[0], "watched", numbered(range(10, 15)))
    audits = told["audit"]["audits"]
    audited = wait_audited(
        running, lambda audit: audit["records"] == 15 and audit["audits"] > audits + 1, "audited on"
    )["audit"]
    assert audited["differences"]["unexplained"] == 1
    text = mirrormaker("status", str(running.file))
    assert "differs from its source: 1 unexplained" in text.stdout


def test_another_window_of_audits_is_in_force_with_the_file_that_has_it(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    running = copied("windowed", numbered(range(10)), objectives={"audit_window": "12h"})
    running.start()
    running.wait_copied()
    running.file.write_text(running.file.read_text().replace("12h", "1s"))
    wait_audited(running, lambda audit: audit["records"] == 10, "audited by the new window")
    assert running.stop() == 0


def test_audits_and_copying_go_on_where_a_topic_that_was_audited_rests(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    create(sides[0], "at-rest", 1, **KEPT)
    write(sides[0], "at-rest", numbered(range(10)))
    topics = {"include": ["at-work", "at-rest"]}
    running = copied("at-work", numbered(range(5)), topics=topics, objectives={"audit_window": "1s"})
    running.start()
    wait_audited(running, lambda audit: audit["records"] == 15, "both audited")
    pausing = ("route-at-work", "--topic", "at-rest")
    assert mirrormaker("pause", str(running.file), *pausing).returncode == 0
    told = wait_audited(running, lambda audit: audit["records"] == 5, "audited without the one that rests")
    assert told["state"] == "running", told["error"]
    assert mirrormaker("resume", str(running.file), *pausing).returncode == 0
    told = wait_audited(running, lambda audit: audit["records"] == 15, "both audited again")
    assert (told["audit"]["equal"], told["audit"]["problem"]) == (15, None)
    assert "route_failed" not in running.log.read_text()


@pytest.mark.parametrize(
    "delivery",
    [
        "at_least_once",
        pytest.param("exactly_once", marks=pytest.mark.long),
        pytest.param("at_most_once", marks=pytest.mark.long),
    ],
)
def test_what_stood_at_the_destination_before_the_route_is_counted_and_is_no_difference(
    sides: Sides, copied: Callable[..., MirrorProcess], delivery: str
) -> None:
    """Also records that the source has, from somebody who names a producer as mirrors do."""
    topic = f"taken-over-{delivery}"
    create(sides[1], f"jfk.{topic}", 1, **KEPT)
    write(sides[1], f"jfk.{topic}", numbered(range(100, 107)))
    write(sides[1], f"jfk.{topic}", numbered(range(5)), **{"enable.idempotence": True})
    added = {"existing": "append"}
    running = copied(topic, numbered(range(20)), delivery=delivery, topics=added)
    for options in (("--deep",), ("--deep", "--window", "1h")):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["outcomes"]) == (0, [], {"there_before": 12}), options
        assert (route["records"], route["equal"]) == (20, 20)
    ((window,),) = (each["read_windows"] for each in route["partitions"])
    assert (window["records"], window["to_records"]) == (20, 32)
    later = audit(running.file, "--deep", "--from", str(BASE_MS + 10))[1]
    assert (later["outcomes"], later["equal"]) == ({}, 10), "that is of the beginning"
    assert audit(running.file)[0] == 0
    text = mirrormaker("audit", str(running.file), "--deep").stdout
    assert "12 there before" in text
    write(sides[1], f"jfk.{topic}", [Written(99, b"from nowhere")])
    assert [each[0] for each in found(audit(running.file, "--deep")[1])] == ["unexplained"]


def test_copies_of_a_process_that_was_killed_before_it_wrote_them_down_are_repeated(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path
) -> None:
    """It left no page of the ledger; whose they are tells the note of its producer."""
    create(sides[0], "unwritten", 1, **KEPT)
    write(sides[0], "unwritten", numbered(range(20)))
    file = topology(tmp_path, sides, "unwritten", commit_interval_ms=60_000)
    running = mirror.of_file(file)
    running.start()
    running.until(lambda: end_of(sides[1], "jfk.unwritten") == 20, "copied")
    running.kill()
    running.start()
    running.until(lambda: end_of(sides[1], "jfk.unwritten") == 40, "copied again")
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(file, *options)
        assert (code, found(route), route["equal"]) == (0, [], 20), options
    assert route["outcomes"] == {"repeated": 20}
    running.start()
    write(sides[0], "unwritten", numbered(range(20, 40)))
    running.until(lambda: end_of(sides[1], "jfk.unwritten") == 60, "copied, and not written down")
    running.kill()
    running.start()
    running.until(lambda: end_of(sides[1], "jfk.unwritten") == 80, "copied again")
    assert running.stop() == 0
    for delivery in ("at_least_once", "exactly_once", "at_most_once"):  # whatever the route is now
        topology(tmp_path, sides, "unwritten", delivery=delivery)
        for options in ((), ("--deep",)):
            code, route = audit(file, *options)
            assert (code, found(route), route["equal"]) == (0, [], 40), (delivery, options)
            assert route["outcomes"]["repeated"] == (40 if options else 20), (delivery, options)
    write(sides[1], "jfk.unwritten", numbered([19]), **{"enable.idempotence": True})
    assert found(audit(file, "--deep")[1]) == [("doubled", 19, 80, 1)]


def test_what_at_most_once_wrote_without_telling_its_ledger_is_repeated_once_a_seek_had_it_copied_again(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path
) -> None:
    """Killed between what it wrote down, and behind all of it; then it is sent back."""
    topic = "untold"
    to, name = f"jfk.{topic}", f"route-{topic}"
    create(sides[0], topic, 1, **KEPT)
    file = topology(tmp_path, sides, topic, delivery="at_most_once", commit_interval_ms=60_000)
    running = mirror.of_file(file)
    for end, is_killed in ((20, False), (40, True), (50, False), (60, True)):
        write(sides[0], topic, numbered(range(end - (20 if end <= 40 else 10), end)))
        running.start()
        running.until(lambda end=end: end_of(sides[1], to) == end, "copied")  # type: ignore[misc]
        if is_killed:
            running.kill()
        else:
            assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(file, *options)
        assert (code, found(route), route["equal"], route["outcomes"]) == (0, [], 60, {}), options
    wait_until(lambda: mirrormaker("seek", str(file), name, "--to", "earliest").returncode == 0, "sent back")
    running.start()
    running.until(lambda: end_of(sides[1], to) == 120, "copied again")
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(file, *options)
        assert (code, found(route), route["equal"]) == (0, [], 60), options
        assert route["outcomes"] == {"repeated": 60}, options
    write(sides[1], to, numbered([25, 55]))
    assert found(audit(file)[1]) == [("unexplained", 59, 120, 2)]
    assert found(audit(file, "--deep")[1]) == [("doubled", 25, 120, 1), ("doubled", 55, 121, 1)]


def test_what_was_copied_before_a_filter_came_is_equal_and_what_was_copied_again_is_repeated(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path
) -> None:
    """The ledger has the copies, whatever the filters of the file let go since."""
    topic, often = "filtered-later", {"commit_interval_ms": 60_000}
    create(sides[0], topic, 1, **KEPT)
    write(sides[0], topic, numbered(range(20)))
    running = mirror.of_file(topology(tmp_path, sides, topic))
    running.start()
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == 20, "copied")
    assert running.stop() == 0
    topology(tmp_path, sides, topic, **often)
    running.start()
    write(sides[0], topic, numbered(range(20, 40)))
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == 40, "copied, and not written down")
    running.kill()
    running.start()
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == 60, "copied again")
    assert running.stop() == 0
    running.start()
    write(sides[0], topic, numbered(range(40, 50)))
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == 70, "copied, and not written down")
    running.kill()
    topology(tmp_path, sides, topic, filters=[{"drop": {"key_matches": "key-[01]"}}])
    running.start()
    write(sides[0], topic, numbered(range(50, 60)))
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == 70 + 12, "what the filter lets through")
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route)) == (0, []), (options, route)
        assert (route["equal"], route["outcomes"]) == (52, {"left_out": 8, "repeated": 30}), options
    write(sides[1], f"jfk.{topic}", numbered([5, 40, 7]), **{"enable.idempotence": True})
    assert found(audit(running.file)[1]) == [("unexplained", 59, 82, 3)]
    by_reading = [("doubled", 5, 82, 1), ("doubled", 7, 84, 1), ("unexplained", 59, 83, 1)]
    assert found(audit(running.file, "--deep")[1]) == by_reading


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("is_there", [True, False], ids=["there", "made anew"])
def test_what_a_route_passes_over_that_has_lost_its_position_is_not_still_to_come(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, delivery: str, is_there: bool
) -> None:
    """With `start: latest` nobody copies what came while it rested, if its copy is another topic by now."""
    topic = f"forgotten-{delivery}-{is_there}".lower()
    group = f"mirror/route-{topic}"
    create(sides[0], topic, 1, **KEPT)
    added = {"existing": "append"}
    file = topology(tmp_path, sides, topic, delivery=delivery, start="latest", topics=added)
    running = mirror.of_file(file)
    running.start()
    running.wait_copied()
    write(sides[0], topic, numbered(range(20)))
    running.wait_copied()
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == 20, "copied")
    assert running.stop() == 0
    write(sides[0], topic, numbered(range(20, 30)))
    admin = AdminClient({"bootstrap.servers": address(sides[0])})

    def is_forgotten() -> bool:
        (deleted,) = admin.delete_consumer_groups([group]).values()
        return deleted.exception(PATIENCE_SECONDS) is None

    wait_until(is_forgotten, "the group is forgotten")
    if not is_there:
        far = AdminClient({"bootstrap.servers": address(sides[1])})
        far.delete_topics([f"jfk.{topic}"])[f"jfk.{topic}"].result(PATIENCE_SECONDS)
    running.start()
    running.until(lambda: bool(events(running, "position_forgotten")), "it is known where it goes on")
    write(sides[0], topic, numbered(range(30, 35)))
    copied = 35 if is_there else 5
    running.until(lambda: end_of(sides[1], f"jfk.{topic}") == copied, "it goes on")
    assert running.stop() == 0
    passed_over = {} if is_there else {"noted": 10}
    for options in ((), ("--deep",)):
        code, route = audit(file, *options)
        if is_there:
            assert (code, found(route), route["equal"]) == (0, [], 35), options
        assert route["outcomes"] == passed_over, options


def test_what_stands_at_the_destination_of_a_partition_that_was_always_empty_was_there_before(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    create(sides[1], "jfk.idle", 1, **KEPT)
    write(sides[1], "jfk.idle", numbered(range(3)))
    running = copied("idle", (), topics={"existing": "append"})
    assert audit(running.file)[0] == 0
    code, route = audit(running.file, "--deep")
    assert (code, found(route), route["outcomes"]) == (0, [], {"there_before": 3})


@pytest.mark.parametrize("start", ["earliest", pytest.param("latest", marks=pytest.mark.long)])
def test_what_stands_in_a_topic_that_was_taken_over_was_there_before_also_without_a_ledger(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, start: str
) -> None:
    """Before the route is at work, and of a partition that has brought nothing since."""
    source, destination = sides
    topic = f"decided-{start}"
    create(source, topic, 2, **KEPT)
    create(destination, f"jfk.{topic}", 2, **KEPT)
    for each, name, numbers in (
        (source, topic, range(10, 15)),
        (destination, f"jfk.{topic}", range(3)),
    ):
        writer = producer(each)
        for number in numbers:
            for partition in (0, 1):
                writer.produce(name, b"%d" % number, b"key", partition, timestamp=BASE_MS + number)
        assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror.of_file(topology(tmp_path, sides, topic, start=start))
    assert mirrormaker("apply", str(running.file), "--force").returncode == 0
    route = audit(running.file, "--deep")[1]
    assert {each[0] for each in found(route)} <= {"missing"}, "nobody has copied anything"
    assert route["outcomes"]["there_before"] == 6
    running.start()
    running.wait_copied()
    write(source, topic, numbered(range(20, 25)))
    running.wait_for(lambda told: told["ledger"]["pages"] > 0, "in the ledger")
    running.wait_copied()
    assert running.stop() == 0
    code, route = audit(running.file, "--deep")
    assert (code, found(route), route["outcomes"]["there_before"]) == (0, [], 6), route
    assert route["equal"] == (15 if start == "earliest" else 5)


def test_a_destination_that_gives_batches_another_codec_has_changed_nothing(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    create(sides[1], "jfk.recoded", 1, **KEPT, **{"compression.type": "gzip"})
    running = copied("recoded", numbered(range(50)))
    code, route = audit(running.file, "--deep")
    assert (code, route["equal"]) == (0, 50)
    (partition,) = route["partitions"]
    assert (partition["headers"]["changed_source"], partition["headers"]["changed_destination"]) == ([], [])
    assert partition["headers"]["pages"] == 1


@pytest.mark.long
def test_what_a_seek_repeats_or_passes_over_is_explained(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    running = copied("sought", numbered(range(30)))
    topology, clock = load_topology(running.file), SystemClock()
    running.start()
    for to, end in ((10, 40), (45, 50)):
        asyncio.run(pause(topology, "route-sought", [], None, clock))
        running.wait_for(lambda told: told["state"] == "paused", "it rests")
        write(sides[0], "sought", numbered(range(end - 10, end)))
        asyncio.run(seek(topology, "route-sought", [], ToOffset(to)))
        asyncio.run(resume(topology, "route-sought", [], clock))
        running.wait_copied()
    assert running.stop() == 0
    code, route = audit(running.file, "--deep")
    assert (code, found(route)) == (0, [])
    assert route["outcomes"] == {"noted": 5, "repeated": 20}
    code, route = audit(running.file)
    assert (code, route["outcomes"]["noted"], route["outcomes"]["repeated"]) == (0, 5, 20)


@pytest.mark.parametrize(
    ("change", "differences"),
    [
        pytest.param(altered_value, [("altered", 33, 33, 1)], marks=pytest.mark.long),
        pytest.param(tampered_logs.reordered, [("reordered", 33, 34, 1)], marks=pytest.mark.long),
        (tampered_logs.dropped, [("missing", 33, 33, 1)]),
    ],
)
@pytest.mark.long
def test_what_was_copied_is_missed_also_where_a_seek_noted_it_as_passed_over(
    sides: Sides, copied: Callable[..., MirrorProcess], change: Change, differences: list[object]
) -> None:
    name = change.__name__.replace("_", "-")
    topic = f"passed-over-{name}"
    running = copied(topic, numbered(range(40)))
    topology, clock = load_topology(running.file), SystemClock()
    running.start()
    running.wait_copied()
    asyncio.run(pause(topology, f"route-{topic}", [], None, clock))
    running.wait_for(lambda told: told["state"] == "paused", "it rests")
    for to in (ToOffset(0), ToOffset(40)):
        asyncio.run(seek(topology, f"route-{topic}", [], to))
    assert running.stop() == 0
    assert audit(running.file, "--deep")[0] == 0
    tamper(sides[1], {TopicPartition(f"jfk.{topic}", 0): (change, 33)})
    code, route = audit(running.file, "--deep")
    assert (code, found(route)) == (2, differences), route["outcomes"]


@pytest.mark.long
def test_what_was_copied_is_missed_also_where_another_mirror_brought_it_to_the_source(
    mirror: MirrorFactory, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """As records that came from the destination would be, it is known by the producer that wrote it there."""
    changes = {"value": altered_value, "order": tampered_logs.reordered, "drop": tampered_logs.dropped}
    names = ("far", "near", "end")
    with contextlib.ExitStack() as stack:
        far, near, end = (
            stack.enter_context(EmbeddedCluster(cluster_spec(zookeeper, tmp_path, name), forked))
            for name in names
        )
        for name in ("clean", *changes):
            for cluster in (far, near, end):
                create(cluster, name, 1, **KEPT)
            write(far, name, numbered(range(40)))
        hop = {
            "topics": {"include": ["clean", *changes], "name": "{topic}", "merge": True},
            "provenance": True,
            "refresh_interval_ms": 300,
            "commit_interval_ms": 100,
        }
        document = {
            "clusters": {
                name: {"bootstrap": [str(address) for address in cluster.bootstrap]}
                for name, cluster in zip(names, (far, near, end), strict=True)
            },
            "routes": [{**hop, "from": "far", "to": "near"}, {**hop, "from": "near", "to": "end"}],
            "data_dir": "data",
        }
        file = tmp_path / "chain.yaml"
        file.write_text(yaml.safe_dump(document))
        running = mirror.of_file(file)
        running.start()
        running.until(
            lambda: all(len(consume(end, name, 1)) == 40 for name in ("clean", *changes)), "all is there"
        )
        assert running.stop() == 0
        tamper(end, {TopicPartition(name, 0): (change, 33) for name, change in changes.items()})
        done = mirrormaker("audit", str(file), "--deep", "--output", "json")
        first, second = json.loads(done.stdout)["routes"]
        assert (done.returncode, found(first)) == (2, [])
        assert {each["topic"]: found_in(each) for each in second["partitions"]} == {
            "clean": [],
            "value": [("altered", 33, 33, 1)],
            "order": [("reordered", 33, 34, 1)],
            "drop": [("missing", 33, 33, 1)],
        }


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_partitions_whose_records_go_to_some_places_only_are_equal_there_and_nothing_elsewhere(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, delivery: str
) -> None:
    """One has records of all keys, the second of one key, the third none."""
    source, destination = sides
    topic = f"uneven-{delivery}"
    create(source, topic, 3, **KEPT)
    create(destination, f"jfk.{topic}", 3, **KEPT)
    writer = producer(source)
    for number in range(60):
        for partition, key in ((0, number), (1, 0)):
            writer.produce(topic, b"%d" % number, b"key-%d" % key, partition, timestamp=BASE_MS + number)
    assert writer.flush(PATIENCE_SECONDS) == 0
    running = mirror.of_file(
        topology(tmp_path, sides, topic, delivery=delivery, topics={"partitions": "key"})
    )
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["problem"]) == (0, [], None), (options, route["partitions"])
        assert [each["equal"] for each in route["partitions"]] == [60, 60, 0]
        assert route["outcomes"].keys() <= {"left_out"}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_what_went_to_other_partitions_while_the_route_spread_records_is_there(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, delivery: str, partitions: int
) -> None:
    """The route spread records by their keys for a time, and does no more."""
    source, destination = sides
    topic, count = f"spread-{partitions}-{delivery}", 50
    to = f"jfk.{topic}"
    create(source, topic, partitions, **KEPT)
    create(destination, to, 3, **KEPT)
    running = mirror.of_file(topology(tmp_path, sides, topic, delivery=delivery))
    for turn, policy in enumerate(("same", "key", "same")):
        on = {"partition_mismatch": "skip_and_record"}
        topology(tmp_path, sides, topic, delivery=delivery, topics={"partitions": policy}, on=on)
        write(source, topic, numbered(range(turn * count, (turn + 1) * count)))
        running.start()
        running.wait_copied()
        assert running.stop() == 0
    copies = consume(destination, to, 3, 3 * count)
    assert len(copies) == 3 * count
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["problem"]) == (0, [], None), (options, route["partitions"])
        assert (route["equal"], route["outcomes"]) == (3 * count, {}), options
    elsewhere = next(each for each in copies if each.partition() != 0)
    place = TopicPartition(to, elsewhere.partition() or 0)
    tamper(destination, {place: (altered_value, elsewhere.offset() or 0)})
    code, route = audit(running.file, "--deep")
    kinds = [(kind, offset, to_offset) for kind, offset, to_offset, _ in found(route)]
    assert (code, kinds) == (2, [("altered", int(elsewhere.value() or b""), elsewhere.offset())])


@pytest.mark.parametrize("policy", [pytest.param("key", marks=pytest.mark.long), "round_robin"])
@pytest.mark.long
def test_what_is_copied_again_to_other_partitions_after_a_kill_is_repeated(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, policy: str
) -> None:
    """The destination gets partitions after a process died that had noted nothing of what it copied."""
    source, destination = sides
    topic, count = f"grown-{policy}", 100
    to = f"jfk.{topic}"
    create(source, topic, 1, **KEPT)
    create(destination, to, 2, **KEPT)
    write(source, topic, numbered(range(count)))
    spread = {"partitions": policy}
    running = mirror.of_file(topology(tmp_path, sides, topic, topics=spread))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    write(source, topic, numbered(range(count, 2 * count)))
    topology(tmp_path, sides, topic, topics=spread, commit_interval_ms=3_600_000)
    running.start()
    running.until(lambda: len(consume(destination, to, 2)) == 2 * count, "copied")
    running.kill()
    grow(destination, to, 4)
    topology(tmp_path, sides, topic, topics=spread)
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    assert len(consume(destination, to, 4)) == 3 * count
    code, route = audit(running.file, "--deep")
    (partition,) = route["partitions"]
    assert (code, found(route), partition["outcomes"]) == (0, [], {"repeated": count})
    assert partition["records"] == partition["equal"] == 2 * count


def seek_at_rest(running: MirrorProcess, topic: str, to: str) -> None:
    """Of a process that has ended; the group waits for it for a while, unless the route pauses."""
    for words in (("pause",), ("seek", "--to", to), ("resume",)):
        verb, *options = words
        done = mirrormaker(verb, str(running.file), f"route-{topic}", *options)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("delivery", "policy"),
    [
        ("exactly_once", "key"),
        pytest.param("exactly_once", "round_robin", marks=pytest.mark.long),
        pytest.param("at_least_once", "key", marks=pytest.mark.long),
    ],
)
def test_what_a_seek_has_copied_again_to_other_partitions_is_repeated(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path, delivery: str, policy: str
) -> None:
    """The destination has got partitions since: some records go where others that were there went before."""
    source, destination = sides
    topic, count, back_to = f"sought-{policy}-{delivery}", 200, 50
    to = f"jfk.{topic}"
    create(source, topic, 1, **KEPT)
    create(destination, to, 3, **KEPT)
    write(source, topic, numbered(range(count)))
    running = mirror.of_file(
        topology(tmp_path, sides, topic, delivery=delivery, topics={"partitions": policy})
    )
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    grow(destination, to, 5)
    seek_at_rest(running, topic, str(back_to))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    assert len(consume(destination, to, 5, 2 * count - back_to)) == 2 * count - back_to
    for options in ((), ("--deep",), ("--deep", "--window", "1h")):
        code, route = audit(running.file, *options)
        assert (code, found(route)) == (0, []), (options, route["partitions"])
        told = route["records"], route["equal"], route["outcomes"]
        assert told == (count, count, {"repeated": count - back_to}), options


def test_what_a_destination_has_that_was_made_anew_with_more_partitions_is_equal_and_the_rest_is_not_there(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path
) -> None:
    """The ledger has several records at its places, of partitions that lay among each other."""
    (source, destination), topic = sides, "remade"
    to, admin = f"jfk.{topic}", AdminClient({"bootstrap.servers": address(sides[1])})
    create(source, topic, 2, **KEPT)
    create(destination, to, 2, **KEPT)
    running = mirror.of_file(topology(tmp_path, sides, topic, topics={"partitions": "key"}))
    for first in (0, 150):
        produce(source, topic, range(first, first + 150), 2, **{"batch.size": 300})
        running.start()
        running.wait_copied()
        assert running.stop() == 0
    (deleted,) = admin.delete_topics([to]).values()
    deleted.result(PATIENCE_SECONDS)
    wait_until(lambda: to not in admin.list_topics(timeout=PATIENCE_SECONDS).topics, "it is gone")
    create(destination, to, 4, **KEPT)
    for first in (300, 500, 700):
        produce(source, topic, range(first, first + 200), 2, **{"batch.size": 300})
        running.start()
        running.wait_copied()
        assert running.stop() == 0
    assert len(consume(destination, to, 4)) == 600
    code, route = audit(running.file, "--deep")
    assert (code, route["records"], route["equal"], route["outcomes"]) == (2, 900, 600, {}), route
    differing = {
        (each["kind"], each["offset"] + at, each["partition"])
        for partition in route["partitions"]
        for each in partition["found"]
        for at in range(each["count"])
    }
    assert differing == {("missing", number // 2, number % 2) for number in range(300)}
    assert [each["headers"]["changed_destination"] for each in route["partitions"]] == [[], []]
    by_ledger = audit(running.file)[1]
    assert by_ledger["equal"] >= 600
    assert all("--deep says whether" in (each["problem"] or "") for each in by_ledger["partitions"])


@pytest.mark.long
def test_what_a_filter_left_out_before_a_seek_has_come_since(
    mirror: MirrorFactory, sides: Sides, tmp_path: Path
) -> None:
    source, _ = sides
    topic, count = "unfiltered", 90
    create(source, topic, 1, **KEPT)
    write(source, topic, numbered(range(count)))
    odd_keys = [{"keep": {"key_matches": ".*[13]"}}]
    running = mirror.of_file(topology(tmp_path, sides, topic, filters=odd_keys))
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    topology(tmp_path, sides, topic)
    seek_at_rest(running, topic, "earliest")
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    for options in ((), ("--deep",), ("--deep", "--window", "1h")):
        code, route = audit(running.file, *options)
        assert (code, found(route)) == (0, []), (options, route["partitions"])
        told = route["records"], route["equal"], route["outcomes"]
        assert told == (count, count, {"repeated": count * 2 // 5}), options
