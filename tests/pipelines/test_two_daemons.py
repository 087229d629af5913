"""Daemons on two hosts with one pipeline, as real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunState
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import PipelineName
from tests.conftest import ClusterFactory, until
from tests.daemon.conftest import MirrorProcess
from tests.daemon.test_mirror import create

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
NAME = PipelineName("work")


class Daemon:
    """One of the two."""

    def __init__(self, folder: Path, number: int, topology: dict[str, Any]) -> None:
        self.data = folder / f"data-{number}"
        file = folder / f"topology-{number}.yaml"
        file.write_text(yaml.safe_dump(topology | {"data_dir": self.data.name}))
        self.process = MirrorProcess(file, folder / f"daemon-{number}.log")
        self.process.start()

    @property
    def is_waiting(self) -> bool:
        """Whether a run of its waits for its window."""
        run = PipelineFolder(self.data, NAME).last_run()
        return run is not None and run.state is RunState.WAITING

    def told(self) -> dict[str, Any]:
        """What it says of the pipeline."""
        told = (StateDirectory(self.data).read() or {}).get("pipelines", {}).get(NAME, {})
        assert isinstance(told, dict)
        return told


@contextmanager
def two_daemons(folder: Path, node: EmbeddedCluster, **pipeline: object) -> Iterator[list[Daemon]]:
    """At work; one of them has the pipeline, and runs it first within a minute and a half."""
    cron = f"{datetime.fromtimestamp(time.time() + 90, UTC).minute} * * * *"
    clusters = {
        "aggregate": {"bootstrap": [str(node.bootstrap[0])]},
        "jfk": {"bootstrap": ["127.0.0.1:1"]},  # nobody is there
    }
    topology = {
        "clusters": clusters,
        "routes": [
            {"from": "jfk", "to": "aggregate", "topics": {"include": ["flights"]}, "enabled": False},
        ],
        "pipelines": [
            {"name": NAME, "cluster": "aggregate", "schedule": {"cron": cron}, "master": "local[1]"}
            | pipeline
        ],
    }
    daemons = [Daemon(folder, number, topology) for number in (1, 2)]
    try:
        yield daemons
    finally:
        for daemon in daemons:
            if daemon.process.process is not None and daemon.process.process.poll() is None:
                daemon.process.kill()


def test_a_run_of_a_daemon_that_is_killed_is_run_by_the_other(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node, begun = cluster("aggregate"), tmp_path / "begun"
    begun.mkdir()
    job = {"job": "tests.pipelines.waiting_job:run", "arguments": {"folder": str(begun)}}
    with two_daemons(tmp_path, node, **job) as daemons:
        until(lambda: any(begun.iterdir()), seconds=240)
        (first,) = begun.iterdir()
        daemons.sort(key=lambda daemon: first.name.startswith(f"{daemon.data.name}."))
        other, killed = daemons
        killed.process.kill()
        until(lambda: any(begun.glob(f"{other.data.name}.*")), seconds=240)
        (begun / "GO").touch()
        folder = PipelineFolder(other.data, NAME)
        until(lambda: (run := folder.last_run()) is not None and run.state is RunState.SUCCEEDED)
        assert len(list(begun.glob("data-*"))) == 2, "one run each"
        assert other.process.stop() == 0


def test_the_run_of_a_daemon_that_stands_still_ends_itself_before_another_begins(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    """It waits for a window that never comes: what it does makes no difference."""
    node = cluster("aggregate")
    create(node, "jfk.flights", 1)
    load = {
        "topics": {"include": ["jfk.flights"]},
        "sinks": [{"parquet": str(tmp_path / "out")}],
        "checkpoint": str(tmp_path / "checkpoint"),
        "require": "complete",
        "patience": "1h",
    }
    with two_daemons(tmp_path, node, **load) as daemons:
        until(lambda: any(daemon.is_waiting and daemon.told().get("pid") for daemon in daemons), seconds=240)
        daemons.sort(key=lambda daemon: daemon.is_waiting)
        other, still = daemons
        assert not other.is_waiting
        run = psutil.Process(still.told()["pid"])
        assert still.process.pid is not None
        os.kill(still.process.pid, signal.SIGSTOP)
        try:
            until(lambda: other.is_waiting, seconds=240)
            assert run.status() == psutil.STATUS_ZOMBIE, "it has ended, and nobody has asked how"
        finally:
            os.kill(still.process.pid, signal.SIGCONT)
        until(lambda: still.told().get("state") == "standing_by", seconds=240)
        assert not run.is_running()
        assert other.is_waiting
        assert [daemon.process.stop() for daemon in daemons] == [0, 0]
