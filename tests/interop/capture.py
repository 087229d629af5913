"""Data directories that real brokers of Apache Kafka wrote, made into captures.

A capture holds one broker's directory twice: as a `kill -9` left it, and after the start, the further
records and the clean stop that followed; what the broker itself served and DumpLogSegments printed each time;
and what it kept in ZooKeeper. `python -m tests.interop.capture [VERSION ...]` makes those under tests/golden
anew.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from broker.embedded import EmbeddedZooKeeper
from tests.captured import GOLDEN, State
from tests.conftest import until
from tests.interop.apache import JAVA, ApacheKafka, kafka_jars
from tests.interop.workload import DEADLINE_SECONDS, Workload, features_of

VERSIONS = ("0.8.2.2", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1")
"""The last with ZooKeeper, the last that stores magic 0 or 1 where a topic asks for it, and older ones: the
first stores magic 0, the second 1, and the third is the first that stores 2.
"""
SETTINGS: Mapping[str, object] = {
    "log.index.interval.bytes": 200,
    "log.index.size.max.bytes": 4000,
    "log.segment.bytes": 3000,
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.delete.retention.ms": 10**10,
    "log.cleaner.dedupe.buffer.size": 2_000_000,
    "log.retention.hours": 1_000_000,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.segment.bytes": 20_000,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": 20_000,
    "zookeeper.session.timeout.ms": 6000,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "num.recovery.threads.per.data.dir": 1,
}
"""Small segments and dense indexes."""


class Recording:
    """One broker at work, and what is written down of it."""

    def __init__(self, version: str, classpath: str, zookeeper: EmbeddedZooKeeper, directory: Path) -> None:
        features = features_of(version)
        directory.mkdir()
        self._data = directory / "data"
        connect = zookeeper.connect_string(f"kafka-{version}")
        with warnings.catch_warnings(action="ignore"):  # that the chroot is not there yet
            self._tree = KazooClient(hosts=connect)
            self._tree.start()
            self._tree.ensure_path("/")
        self.kafka = ApacheKafka(
            classpath,
            connect,
            directory,
            settings=SETTINGS,
            knows_versions=features.knows_versions,
        )
        self.workload = Workload(str(self.kafka.address), features)

    def create_topics(self) -> None:
        """Make the topics as the oldest tools did: in ZooKeeper."""
        for topic, config in self.workload.features.topics.items():
            document = json.dumps({"version": 1, "config": config}).encode()
            self._tree.create(f"/config/topics/{topic}", document, makepath=True)
            partitions = {"version": 1, "partitions": {"0": [1], **({"1": [1]} if topic == "plain" else {})}}
            self._tree.create(f"/brokers/topics/{topic}", json.dumps(partitions).encode())
        expected = len(self.workload.features.topics) + 1
        until(lambda: len(list(self._data.glob("*-[0-9]"))) >= expected, seconds=DEADLINE_SECONDS)

    def wait_for_the_cleaner(self) -> None:
        """Return once compaction has done what it can: nothing changes any more."""
        seen: object = None
        since = time.monotonic()
        deadline = since + DEADLINE_SECONDS
        while time.monotonic() < since + 3:
            time.sleep(0.2)  # nothing tells that the cleaner is idle
            assert time.monotonic() < deadline, "compaction does not come to an end"
            now = sorted((str(path), path.stat().st_size) for path in self._data.glob("*compacted-0/*"))
            if now != seen:
                seen, since = now, time.monotonic()

    def znodes(self) -> dict[str, str]:
        """What lasts in ZooKeeper, by path."""
        return dict(self._walk("/"))

    def _walk(self, path: str) -> Iterator[tuple[str, str]]:
        data, stat = self._tree.get(path)
        if stat.ephemeralOwner == 0:
            yield path, (data or b"").decode()
            for child in sorted(self._tree.get_children(path)):
                yield from self._walk(f"{path.rstrip('/')}/{child}")

    def copy(self, place: Path) -> None:
        """Copy the data directory as it is."""
        shutil.copytree(self._data, place)
        (place / ".lock").unlink(missing_ok=True)

    def close(self) -> None:
        """End everything."""
        self.kafka.kill()
        self._tree.stop()
        self._tree.close()


def capture(
    version: str, classpath: str, tools: str, zookeeper: EmbeddedZooKeeper, directory: Path
) -> dict[State, Path]:
    """Run a broker of `version` and write down what it leaves; the directory of each state, below
    `directory`. `tools` is the classpath of the Kafka whose DumpLogSegments prints the files.
    """
    places = {state: directory / state.value for state in State}
    recording = Recording(version, classpath, zookeeper, directory / "broker")
    served: dict[State, dict[str, Any]] = {}
    try:
        recording.kafka.start()
        recording.create_topics()
        recording.workload.produce(0)
        recording.workload.commit(0)
        recording.workload.trim()
        recording.wait_for_the_cleaner()
        served[State.CRASHED] = recording.workload.served()
        recording.kafka.kill()
        recording.copy(places[State.CRASHED])
        recording.kafka.start()
        recording.workload.produce(100)
        recording.workload.commit(10)
        recording.workload.trim()
        recording.wait_for_the_cleaner()
        served[State.CLEAN] = recording.workload.served()
        znodes = recording.znodes()
        recording.kafka.stop()
        recording.copy(places[State.CLEAN])
    finally:
        recording.close()
    for state, place in places.items():
        document = {"version": version, "znodes": znodes, **served[state]}
        (directory / f"{state.value}.json").write_text(json.dumps(document, indent=1, sort_keys=True))
        (directory / f"{state.value}.dump").write_text(dump_log_segments(tools, place, state))
    return places


def dump_log_segments(classpath: str, place: Path, state: State) -> str:
    """What Kafka's own tool prints of the files of a data directory, their names relative to it.

    The indexes of a crash are left out: their ends are not written yet.
    """
    indexes = ("*/*.index", "*/*.timeindex", "*/*.txnindex") if state is State.CLEAN else ()
    internal, others = ("__*/*.log", "*/*.snapshot", *indexes), ("[!_]*/*.log",)
    runs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
        (internal, ()),
        (others, ("--print-data-log",)),
    )
    printed = ""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(place, copy, dirs_exist_ok=True)  # the tool opens indexes for writing
        for patterns, flags in runs:
            files = [path for pattern in patterns for path in sorted(Path(copy).glob(pattern))]
            names = ",".join(str(path.relative_to(copy)) for path in files if path.stat().st_size)
            command = [*JAVA, "-cp", classpath, "kafka.tools.DumpLogSegments", "--files", names]
            printed += subprocess.run(
                [*command, "--deep-iteration", *flags],
                cwd=copy,
                capture_output=True,
                text=True,
                timeout=600,
                check=True,
            ).stdout
    return printed


def pack(directory: Path, archive: Path) -> None:
    """Put a capture into an archive."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for state in State:
            for suffix in ("", ".json", ".dump"):
                packed.add(directory / f"{state.value}{suffix}", f"{state.value}{suffix}", filter=_nobodys)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(versions: list[str]) -> None:
    """Make captures anew."""
    with tempfile.TemporaryDirectory(prefix="captures-") as temporary:
        directory = Path(temporary)
        tools = kafka_jars("3.9.1", directory / "tools")
        with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
            for version in versions or VERSIONS:
                place = directory / version
                place.mkdir()
                capture(version, kafka_jars(version, directory / f"jars-{version}"), tools, zookeeper, place)
                pack(place, GOLDEN / f"kafka-{version}.tar.xz")
                sys.stdout.write(f"{version} is captured\n")


if __name__ == "__main__":
    main(sys.argv[1:])
