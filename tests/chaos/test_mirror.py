"""A mirror that crashes, and nodes that crash around a mirror, while data flows from one to the other."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import (
    NotInTimeError,
    Placed,
    Writer,
    assert_nothing_is_missing,
    assert_written_once_and_in_order,
    create_topic,
    read_all,
    wait_until,
)

TOPIC = "numbers"
MIRRORED = "source.numbers"


class Mirror:
    """`mirrormaker run` with one route."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._process: ChildProcess | None = None

    def start(self) -> None:
        """Start the daemon."""
        command = [sys.executable, "-m", "mirrormaker.cli", "run", str(self._file)]
        self._process = ChildProcess.start("mirror", command, self._file.with_suffix(".log"))

    def kill(self) -> None:
        """Kill it at once."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def has_exited(self) -> bool:
        """Whether it ended by itself."""
        return self._process is None or self._process.has_exited()

    def log_tail(self) -> str:
        """The end of its log."""
        return self._process.log_tail() if self._process is not None else ""


@pytest.fixture
def mirror(node: EmbeddedCluster, other_node: EmbeddedCluster, tmp_path: Path) -> Iterator[Mirror]:
    """A daemon that carries the numbers from the node to the other."""
    topology = {
        "clusters": {
            "source": {"bootstrap": [str(node.bootstrap[0])]},
            "destination": {"bootstrap": [str(other_node.bootstrap[0])]},
        },
        "routes": [
            {
                "from": "source",
                "to": "destination",
                "topics": {"include": [TOPIC], "name": "{cluster}.{topic}"},
            }
        ],
        "data_dir": str(tmp_path / "mirror"),
    }
    file = tmp_path / "topology.yaml"
    file.write_text(yaml.safe_dump(topology))
    mirror = Mirror(file)
    mirror.start()
    yield mirror
    mirror.kill()


@pytest.fixture
def source(node: EmbeddedCluster) -> str:
    """Address of the node that has the topic."""
    address = str(node.bootstrap[0])
    create_topic(address, TOPIC)
    return address


@pytest.fixture
def destination(other_node: EmbeddedCluster) -> str:
    """Address of the node that the topic is mirrored to."""
    return str(other_node.bootstrap[0])


def test_a_mirror_that_crashes_loses_and_reorders_nothing(
    source: str, destination: str, mirror: Mirror, disturbance: Disturbance
) -> None:
    with Writer(source, TOPIC, codec="snappy") as writer:
        for _ in disturbance:
            mirror.kill()
            mirror.start()
    assert_nothing_is_missing(writer.acknowledged, _mirrored(destination, writer.acknowledged, mirror))


def test_a_mirror_between_nodes_that_crash_loses_doubles_and_reorders_nothing(
    source: str,
    destination: str,
    node: EmbeddedCluster,
    other_node: EmbeddedCluster,
    mirror: Mirror,
    disturbance: Disturbance,
) -> None:
    with Writer(source, TOPIC, codec="lz4") as writer:
        for _ in disturbance:
            disturbance.crash(disturbance.chance.choice([node, other_node]))
    assert_written_once_and_in_order(writer.acknowledged, _mirrored(destination, writer.acknowledged, mirror))


def _mirrored(destination: str, acknowledged: Placed, mirror: Mirror) -> Placed:
    """What the destination holds once the mirror has had the time to bring everything."""
    placed: Placed = {}

    def is_complete() -> bool:
        assert not mirror.has_exited, mirror.log_tail()
        placed.update(read_all(destination, MIRRORED))
        return all(
            {number for _, number in placed[partition]}.issuperset(number for _, number in records)
            for partition, records in acknowledged.items()
        )

    with contextlib.suppress(NotInTimeError):
        wait_until(is_complete, "everything is mirrored")
    return placed
