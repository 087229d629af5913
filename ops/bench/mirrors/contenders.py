"""The mirrors that are compared, each as a process of its own on the mirror's core.

MirrorMaker 2 runs as its own documentation's dedicated process, with heap and collector of its script, and is
tuned as those advise who run it for many bytes (Strimzi's documentation, Klarrio): large batches, a linger,
large fetches and polls, the codec of the source. Whatever is not copying (heartbeats, checkpoints, offset
syncs, settings and rights of topics) is switched off.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from broker.child_process import ChildProcess
from broker.records.batch import Codec
from broker.types import HostPort
from ops.bench.comparison.servers import JVM

MIRROR_CORE = 1
STOP_TIMEOUT_MS = 20_000
OURS, THEIRS = "ours", "MirrorMaker 2"
MIRRORMAKER2_HEAP = ("-Xms256M", "-Xmx2G")
"""What connect-mirror-maker.sh gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The clusters, and a folder for what a mirror writes on this machine."""

    source: HostPort
    destination: HostPort
    folder: Path
    source_pid: int
    destination_pid: int


class Contender(Protocol):
    """A kind of mirror."""

    @property
    def name(self) -> str: ...

    @property
    def warm_up_seconds(self) -> float:
        """How long it copies before anything counts."""
        ...

    def copy_of(self, topic: str) -> str:
        """What the topic is called at the destination."""
        ...

    def running(self, ends: Ends, topic: str, codec: Codec) -> Iterator[ChildProcess]:
        """A process that copies the topic, while the generator is open."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OurMirror:
    """The daemon, with the defaults of a route, or gathering batches up to a size."""

    gather_kibibytes: int | None = None
    name: str = OURS
    warm_up_seconds: float = 0.0

    def copy_of(self, topic: str) -> str:
        """See `Contender`."""
        return f"ours.{topic}"

    def running(self, ends: Ends, topic: str, codec: Codec) -> Iterator[ChildProcess]:
        """See `Contender`."""
        home = _home(ends, f"ours-{topic}")
        file = home / "topology.yaml"
        route: dict[str, Any] = {
            "name": topic,
            "from": "ours",
            "to": "destination",
            "topics": {"include": [topic]},
        }
        if self.gather_kibibytes is not None:
            route["batch"] = {"bytes": self.gather_kibibytes << 10}
        file.write_text(
            yaml.safe_dump(
                {
                    "clusters": {
                        "ours": {"bootstrap": [str(ends.source)]},
                        "destination": {"bootstrap": [str(ends.destination)]},
                    },
                    "routes": [route],
                    "data_dir": str(home / "data"),
                }
            )
        )
        daemon = [sys.executable, "-m", "mirrormaker.cli", "--log-level", "warning", "run", str(file)]
        child = ChildProcess.start("mirror", [*on_cores(MIRROR_CORE), *daemon], home / "mirror.log")
        try:
            yield child
        finally:
            child.stop(timeout_ms=STOP_TIMEOUT_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorMaker2:
    """Apache Kafka's, of these jars. It may start on all cores: `pin` then."""

    classpath: str
    warm_up_seconds: float
    linger_ms: int
    tasks: int
    name: str = THEIRS

    def copy_of(self, topic: str) -> str:
        """See `Contender`."""
        return f"mm2-{topic}.{topic}"

    def running(self, ends: Ends, topic: str, codec: Codec) -> Iterator[ChildProcess]:
        """See `Contender`. Its alias for the source is its own for each topic: so are its internal topics."""
        home = _home(ends, f"mm2-{topic}")
        alias = f"mm2-{topic}"
        route = f"{alias}->destination"
        settings = {
            "clusters": f"{alias}, destination",
            f"{alias}.bootstrap.servers": ends.source,
            "destination.bootstrap.servers": ends.destination,
            f"{route}.enabled": "true",
            f"{route}.topics": topic,
            f"destination->{alias}.enabled": "false",
            "tasks.max": self.tasks,
            "replication.factor": 1,
            **{
                f"{internal}.replication.factor": 1
                for internal in (
                    "checkpoints.topic",
                    "heartbeats.topic",
                    "config.storage",
                    "offset.storage",
                    "status.storage",
                )
            },
            "offset.storage.partitions": 1,
            "status.storage.partitions": 1,
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "emit.offset-syncs.enabled": "false",
            "sync.group.offsets.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "sync.topic.configs.enabled": "false",
            "refresh.groups.enabled": "false",
            "destination.producer.compression.type": codec.name.lower(),
            "destination.producer.batch.size": 327_680,
            "destination.producer.linger.ms": self.linger_ms,
            "destination.producer.buffer.memory": 64 << 20,
            "destination.producer.max.request.size": 4 << 20,
            f"{route}.consumer.fetch.max.bytes": 50 << 20,
            f"{route}.consumer.max.partition.fetch.bytes": 4 << 20,
            f"{route}.consumer.max.poll.records": 5_000,
            f"{route}.consumer.receive.buffer.bytes": 1 << 20,
        }
        file = home / "mm2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        java = [shutil.which("java") or "java", *MIRRORMAKER2_HEAP, *JVM, "-cp", self.classpath]
        command = [*on_cores(0, MIRROR_CORE), *java, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
        child = ChildProcess.start("MirrorMaker 2", command, home / "mirror.log")
        try:
            yield child
        finally:
            child.kill()


def pin(pid: int, core: int) -> None:
    """Keep a running process, all its threads, on one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def running(contender: Contender, ends: Ends, topic: str, codec: Codec) -> Iterator[ChildProcess]:
    """A mirror at work."""
    yield from contender.running(ends, topic, codec)


def _home(ends: Ends, name: str) -> Path:
    home = ends.folder / name
    home.mkdir(parents=True)
    return home


def on_cores(*cores: int) -> list[str]:
    """The words that keep a command on these cores."""
    return [shutil.which("taskset") or "taskset", "-c", ",".join(map(str, cores))]
