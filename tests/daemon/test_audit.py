"""Audits of real clusters: what was tampered with is found and named, what can be explained is not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker
from tests.daemon.test_mirror import create, producer

BASE_MS = 1_357_000_000_000
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
            stack.enter_context(EmbeddedCluster(cluster_spec(zookeeper, folder, name)))
            for name in ("jfk", "aggregate")
        )
        yield source, destination


def write(cluster: Brokers, topic: str, records: Sequence[Written], **config: Any) -> None:
    writer = producer(cluster, **config)
    for each in records:
        value = b"%d" % each.number if each.value is None else each.value
        key = b"key-%d" % (each.number % 5)
        writer.produce(topic, value, key, partition=0, timestamp=each.at_ms + each.number)
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
        create(sides[0], topic, 1)
        write(sides[0], topic, records)
        running = mirror.of_file(topology(tmp_path, sides, topic, **route))
        running.start()
        running.wait_copied()
        assert running.stop() == 0
        return running

    return copy


def audit(file: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and what is said of the only route."""
    done = mirrormaker("audit", str(file), "--output", "json", *options)
    assert done.returncode in (0, 1, 2), done.stderr
    assert done.stdout, done.stderr
    (route,) = json.loads(done.stdout)["routes"]
    return done.returncode, route


def found(route: dict[str, Any]) -> list[tuple[str, int | None, int | None, int]]:
    return [
        (each["kind"], each["offset"], each["to_offset"], each["count"])
        for partition in route["partitions"]
        for each in partition["found"]
    ]


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


def test_records_that_somebody_wrote_to_the_destination_are_named(
    sides: Sides, copied: Callable[..., MirrorProcess]
) -> None:
    running = copied("strange", numbered(range(20)))
    write(sides[1], "jfk.strange", [Written(7), Written(99, b"from nowhere")])
    code, route = audit(running.file)
    assert (code, found(route)) == (2, [("unexplained", 19, 20, 2)])
    code, route = audit(running.file, "--deep")
    assert code == 2
    assert route["first_difference"] == {
        "kind": "doubled",
        "topic": "strange",
        "partition": 0,
        "offset": 7,
        "to_topic": "jfk.strange",
        "to_partition": 0,
        "to_offset": 20,
        "count": 1,
    }
    assert found(route) == [("doubled", 7, 20, 1), ("unexplained", 19, 21, 1)]
    assert (route["records"], route["equal"]) == (20, 20)
    running.start()
    write(sides[0], "strange", numbered(range(20, 40)))
    running.wait_copied()
    running.stop()
    assert found(audit(running.file)[1]) == [("unexplained", 19, 20, 2)], "also between what was copied"
    assert found(audit(running.file, "--deep")[1]) == found(route)


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
        create(side, at, 1)
        write(side, at, numbered(numbers))
    file = topology(tmp_path, sides, topic)
    code, route = audit(file)
    assert code == 1
    assert "nothing of it is in the ledger" in route["partitions"][0]["problem"]
    code, route = audit(file, "--deep")
    assert (code, found(route)) == (2, differences)


def test_an_altered_record_is_found_whatever_of_it_was_altered(sides: Sides, tmp_path: Path) -> None:
    create(sides[0], "altered", 1)
    create(sides[1], "jfk.altered", 1)
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
