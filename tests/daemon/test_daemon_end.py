"""A daemon that is asked to end does: whatever comes meanwhile has no route begin again."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from mirrormaker import daemon as daemon_module
from mirrormaker.daemon import Daemon
from mirrormaker.pipelines.pool import PipelinePool
from mirrormaker.reconcile.claims import DestinationClaims
from mirrormaker.reconcile.topology_file import TopologyFile
from mirrormaker.state import StateDirectory
from mirrormaker.workers.pool import WorkerPool
from mirrormaker.workers.shared_claims import SharedClaims
from tests.client.running import until

PATIENCE_SECONDS = 60.0
TOPOLOGY = """\
clusters:
  jfk: {bootstrap: ["127.0.0.1:1"]}
  aggregate: {bootstrap: ["127.0.0.1:2"]}
routes:
  - {from: jfk, to: aggregate, topics: {include: [flights]}, resources: {workers: 2}}
pipelines:
  - {name: job, job: "package.module:run", schedule: {every: 1h}}
"""
ROUTES = TOPOLOGY.partition("pipelines:")[0].replace(", resources: {workers: 2}", "")
"""What of it this process does itself."""


def test_no_topology_comes_into_force_and_nothing_is_wished_while_a_daemon_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(ROUTES)

    async def main() -> None:
        daemon = Daemon(file)
        running = asyncio.create_task(daemon.run())
        await until(lambda: bool(daemon.describe()["routes"]))
        host, drained = daemon._host, asyncio.Event()
        assert host is not None
        close = host.close

        async def close_late() -> None:
            await drained.wait()
            await close()

        monkeypatch.setattr(host, "close", close_late)
        daemon.stop()
        file.write_text(ROUTES.replace("[flights]", "[planes]"))
        daemon.request_reload()
        with pytest.raises(ConfigurationError, match="the daemon is ending"):
            await daemon.live.reload()
        with pytest.raises(ConfigurationError, match="the daemon is ending"):
            daemon.board(daemon.topology.routes[0])
        assert daemon.live.reloads == 0
        drained.set()
        await running

    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


def test_workers_and_pipelines_are_not_begun_once_they_were_ended(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY)
    source = TopologyFile(file).read()
    topology, clock = source.parse(), SystemClock()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            claims = SharedClaims(defaultdict(DestinationClaims))
            workers = WorkerPool("d", "info", claims, clock, tasks)
            pipelines = PipelinePool("d", clock, "info", tasks)
            await workers.close()
            await pipelines.close()
            workers.desire(topology, source)
            pipelines.desire(topology, source)
            assert (workers.describe(), pipelines.describe()) == ([], {})

    asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


def test_what_routes_had_come_to_is_kept_as_a_daemon_ends_that_ran_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[list[str]] = []

    class Ends:
        def __init__(self, directory: object) -> None: ...

        def keep(self, topology: object, routes: Mapping[str, Mapping[str, Any]], at_ms: int) -> None:
            kept.append([told["state"] for told in routes.values()])

    async def main() -> None:
        daemon = Daemon(file)
        running = asyncio.create_task(daemon.run())
        await until(lambda: bool(kept and daemon.describe()["routes"]))
        kept.clear()
        daemon.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)

    file = tmp_path / "topology.yaml"
    file.write_text(ROUTES)
    monkeypatch.setattr(daemon_module, "LastKnownEnds", Ends)
    monkeypatch.setattr(daemon_module, "STATE_INTERVAL_MS", 600_000)
    asyncio.run(main())
    assert (len(kept), len(kept[0])) == (2, 1)
    assert kept[0] != ["stopped"]


def test_routes_end_while_a_disk_has_the_state_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released = threading.Event(), threading.Event()

    def write(directory: StateDirectory, told: object) -> None:
        begun.set()
        assert released.wait(PATIENCE_SECONDS / 2)

    async def main() -> None:
        daemon = Daemon(file)
        running = asyncio.create_task(daemon.run())
        await until(lambda: begun.is_set() and bool(daemon.describe()["routes"]))
        daemon.stop()
        await until(lambda: not daemon.describe()["routes"])
        assert not running.done()
        released.set()
        await asyncio.wait_for(running, PATIENCE_SECONDS)

    file = tmp_path / "topology.yaml"
    file.write_text(ROUTES)
    monkeypatch.setattr(StateDirectory, "write", write)
    try:
        asyncio.run(main())
    finally:
        released.set()


def test_a_disk_that_has_the_state_wait_holds_back_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released = threading.Event(), threading.Event()

    def write(directory: StateDirectory, told: object) -> None:
        begun.set()
        assert released.wait(PATIENCE_SECONDS / 4)

    async def main() -> None:
        daemon = Daemon(file)
        running = asyncio.create_task(daemon.run())
        await until(begun.is_set)
        released.set()
        daemon.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)

    file = tmp_path / "topology.yaml"
    file.write_text(ROUTES)
    monkeypatch.setattr(StateDirectory, "write", write)
    asyncio.run(main())
