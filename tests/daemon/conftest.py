"""A daemon as a real process between real clusters."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from broker.types import HostPort
from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory, until
from tests.programs import Program, run_program, start_program

if TYPE_CHECKING:
    from tests.daemon.failover_pair import Pair

PATIENCE_SECONDS = 120.0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when `condition` holds; fail with `what` when it does not in time."""
    until(condition, what, seconds=seconds)


@dataclass
class MirrorProcess:
    """`mirrormaker VERB FILE`, started and stopped at will."""

    file: Path
    log: Path
    process: Program | None = None
    verb: str = "run"
    options: tuple[str, ...] = ()

    def start(self) -> None:
        arguments = (self.verb, str(self.file), *self.options)
        with self.log.open("ab") as log:
            self.process = start_program("mirrormaker", *arguments, output=log.fileno())

    @property
    def pid(self) -> int | None:
        """Of the process that was started last."""
        return self.process.pid if self.process is not None else None

    def kill(self) -> None:
        """As `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)

    def status(self) -> dict[str, Any]:
        """The first route as `status --output json` tells it."""
        done = mirrormaker("status", str(self.file), "--output", "json")
        route: dict[str, Any] = json.loads(done.stdout)["routes"][0]
        return route

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 3 * PATIENCE_SECONDS) -> None:
        """Return once `condition` holds; what it logged is told where that is not so in time."""
        try:
            wait_until(condition, what, seconds)
        except AssertionError:
            raise AssertionError(f"{what}\n{self.log.read_text()[-4000:]}") from None

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Ask for the status until `condition` holds of it; it does not of what is not told yet."""
        told: dict[str, Any] = {}

        def holds() -> bool:
            told.clear()
            told.update(self.status())
            try:
                return condition(told)
            except KeyError:
                return False

        try:
            wait_until(holds, what)
        except AssertionError:
            raise AssertionError(f"{what}: {told}\n{self.log.read_text()[-4000:]}") from None
        return told

    def wait_copied(self) -> dict[str, Any]:
        """Until nothing is left to copy."""
        return self.wait_for(lambda told: _is_copied(told), "everything copied")


def _is_copied(told: Mapping[str, Any]) -> bool:
    is_known = told["state"] == "running" and bool(told["partitions"])
    return is_known and bool(told["lag"]) and told["lag"]["messages"] == 0


def mirrormaker(*arguments: str, seconds: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, which comes in so many seconds."""
    return run_program("mirrormaker", *arguments, seconds=seconds)


@dataclass
class MirrorFactory:
    """Makes topologies of one route from `jfk` to `aggregate`."""

    folder: Path
    stack: contextlib.ExitStack
    made: int = field(default=0)

    def __call__(self, source: Brokers, destination: Brokers, **route: object) -> MirrorProcess:
        self.made += 1
        file = self.folder / f"topology-{self.made}.yaml"
        file.write_text(yaml.safe_dump(self._topology(source.bootstrap, destination.bootstrap, route)))
        return self.of_file(file)

    def of_file(self, file: Path, verb: str = "run", options: tuple[str, ...] = ()) -> MirrorProcess:
        """A process for a topology that is there already."""
        mirror = MirrorProcess(file, file.with_suffix(".log"), verb=verb, options=options)
        self.stack.callback(_end, mirror)
        return mirror

    def _topology(
        self, source: tuple[HostPort, ...], destination: tuple[HostPort, ...], route: Mapping[str, object]
    ) -> dict[str, Any]:
        return {
            "clusters": {
                "jfk": {"bootstrap": [str(address) for address in source]},
                "aggregate": {"bootstrap": [str(address) for address in destination]},
            },
            "routes": [
                {
                    "from": "jfk",
                    "to": "aggregate",
                    "topics": {"include": ["flights.*"]},
                    "refresh_interval_ms": 300,
                    "commit_interval_ms": 100,
                    **route,
                }
            ],
            "data_dir": f"data-{self.made}",
            "defaults": {"heartbeats": False},
        }


def _end(mirror: MirrorProcess) -> None:
    if mirror.process is not None and mirror.process.poll() is None:
        mirror.kill()


@pytest.fixture
def clusters(cluster: ClusterFactory) -> tuple[EmbeddedCluster, EmbeddedCluster]:
    """A source and a destination, of a node each."""
    return cluster("jfk"), cluster("aggregate")


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[MirrorFactory]:
    """Mirrors that end with the test."""
    with contextlib.ExitStack() as stack:
        yield MirrorFactory(tmp_path, stack)


@pytest.fixture
def pair(cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path) -> Iterator[Pair]:
    """A failover group whose daemon ends with the test, and well."""
    from tests.daemon.failover_pair import Pair  # which stands on this module

    pair = Pair(cluster, mirror, tmp_path)
    yield pair
    pair.end()
