"""A failover group between two real clusters, and the commands that people switch it by."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml
from confluent_kafka import Producer

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.embedded import EmbeddedCluster
from mirrormaker.plan.settings import FENCE
from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.test_carried_groups import read
from tests.daemon.test_mirror import _count, address, create, produce

TOPIC = "orders"
LIMIT, CLOSED = FENCE
KILLED = -signal.SIGKILL
SECONDS = 3 * PATIENCE_SECONDS
Clusters = Mapping[str, EmbeddedCluster]


def group_file(folder: Path, clusters: Mapping[str, Brokers], **route: Any) -> Path:
    """`route`: what all routes have."""
    file = folder / "recovery.yaml"
    topics = {"include": [TOPIC], "name": "{topic}"}
    topology = {
        "clusters": {
            name: {"bootstrap": [str(address) for address in each.bootstrap]}
            for name, each in clusters.items()
        },
        "defaults": {
            "failover_group": "orders",
            "refresh_interval_ms": 300,
            "commit_interval_ms": 100,
            "sync": {"groups": {"include": ["read.*"], "interval_ms": 200}},
            **route,
        },
        "routes": [
            {"name": "forth", "from": "primary", "to": "standby", "topics": topics},
            {"name": "back", "from": "standby", "to": "primary", "topics": topics, "enabled": False},
        ],
        "data_dir": "data",
    }
    file.write_text(yaml.safe_dump(topology))
    return file


def switch(verb: str, file: Path, *options: str) -> dict[str, Any]:
    """A rehearsal ends as the switch would."""
    done = mirrormaker(
        verb, str(file), "orders", "--output", "json", "--timeout", "30", *options, seconds=SECONDS
    )
    assert done.stdout, done.stderr
    assert '"event"' not in done.stderr, "logs stand between the lines"
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(told.get("refused")), done.stderr
    return told


def kill_at_write(number: int, verb: str, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The same, killed in place of one of its writes, if it has so many."""
    command = [sys.executable, "-m", "tests.daemon.killed_command", str(number), verb, str(file), "orders"]
    command += options
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode in (0, KILLED), done.stderr
    return done


@contextmanager
def stopped_at_write(number: int, verb: str, file: Path) -> Iterator[subprocess.Popen[str]]:
    """The same, stopped before that write; whoever has it goes on with SIGCONT."""
    command = [sys.executable, "-m", "tests.daemon.killed_command", str(number), verb, str(file), "orders"]
    environment = {**os.environ, "SIGNAL_AT_WRITE": str(int(signal.SIGSTOP))}
    with subprocess.Popen(command, text=True, stderr=subprocess.PIPE, env=environment) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            yield process
        finally:
            process.kill()


@contextmanager
def begun(verb: str, file: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A command at work."""
    command = [sys.executable, "-m", "mirrormaker.cli", verb, str(file), "orders", *options]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(verb: str, file: Path, *options: str) -> str:
    done = mirrormaker(verb, str(file), *options, seconds=SECONDS)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def ask(port: int, path: str, body: bytes | None = None) -> str:
    """GET, or POST with a body."""
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", data=body), timeout=60) as answer:
        text: bytes = answer.read()
        return text.decode()


def batch_limit(cluster: EmbeddedCluster) -> str | None:
    async def ask() -> str | None:
        async with Cluster(cluster.bootstrap) as asked:
            return (await Admin(asked).describe_topic_configs(TOPIC, [LIMIT]))[LIMIT].value

    return asyncio.run(ask())


def states(running: MirrorProcess) -> dict[str, str]:
    told = json.loads(mirrormaker("status", str(running.file), "--output", "json").stdout)
    return {route["name"]: route["state"] for route in told["routes"]}


def status_text(file: Path) -> str:
    return mirrormaker("status", str(file)).stdout


def wait_states(running: MirrorProcess, **wanted: str) -> None:
    wait_until(lambda: states(running) == wanted, f"{wanted}")


def records_at(cluster: Brokers) -> list[int]:
    return read(cluster, "look", TOPIC, _count(cluster, TOPIC, 1), start=0)


def wait_count(cluster: Brokers, count: int) -> None:
    wait_until(lambda: _count(cluster, TOPIC, 1) >= count, f"{count} records")


class Pair:
    """A primary and a standby, and a daemon between them."""

    def __init__(self, cluster: ClusterFactory, mirror: MirrorFactory, folder: Path) -> None:
        self.primary, self.standby = cluster("primary"), cluster("standby")
        self.clusters: Clusters = {"primary": self.primary, "standby": self.standby}
        self._mirror = mirror
        self._folder = folder
        self._running: MirrorProcess | None = None

    @property
    def running(self) -> MirrorProcess:
        """The daemon; see `prepare`."""
        assert self._running is not None
        return self._running

    @property
    def file(self) -> Path:
        """The topology file."""
        return self.running.file

    def prepare(self, numbers: Iterable[int], *, options: tuple[str, ...] = (), **route: Any) -> None:
        """The primary has these records. `options`: of the daemon, which is not started; `route`: what all
        routes have.
        """
        create(self.primary, TOPIC, 1)
        produce(self.primary, TOPIC, numbers, 1)
        self._running = self._mirror.of_file(
            group_file(self._folder, self.clusters, **route), options=options
        )

    def begin(self, count: int, *, options: tuple[str, ...] = (), **route: Any) -> None:
        """A daemon has copied so many records from the primary to the standby."""
        self.prepare(range(count), options=options, **route)
        self.running.start()
        wait_count(self.standby, count)

    def begin_beside(self, own: int, count: int) -> None:
        """The same, where the standby had so many records of its `own` before the first was copied."""
        create(self.standby, TOPIC, 1)
        produce(self.standby, TOPIC, range(own), 1)
        self.prepare(range(own, own + count))
        self.running.start()
        wait_count(self.standby, own + count)

    def end(self) -> None:
        """The daemon ends well, if it is at work."""
        process = None if self._running is None else self._running.process
        if process is not None and process.poll() is None:
            assert self.running.stop() == 0


def open_transaction(cluster: EmbeddedCluster, value: int) -> Producer:
    """A record whose transaction nobody has ended: it cannot be copied, so a switch waits for it."""
    producer = Producer({"bootstrap.servers": address(cluster), "transactional.id": "open", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, str(value).encode(), partition=0)
    producer.flush(30)
    return producer
