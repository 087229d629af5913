"""A route that has nothing in its hands ends at once, whatever it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.types import HostPort
from mirrormaker import clusters
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.daemon_identity import DaemonIdentity
from mirrormaker.flow.bandwidth.links import Links
from mirrormaker.reconcile.claims import DestinationClaims
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.routes import work_of
from mirrormaker.route_runner import GOOD_RUN_MS, RouteRunner, RouteState
from mirrormaker.route_surroundings import RouteSurroundings
from mirrormaker.state import StateDirectory
from mirrormaker.topology.loader import load_topology
from tests.client.running import until

PATIENCE_SECONDS = 60.0


def make_runner(folder: Path, address: HostPort, **identity: int) -> tuple[RouteRunner, ControlBoard]:
    file = folder / "topology.yaml"
    file.write_text(
        f"clusters: {{jfk: {{bootstrap: ['{address}']}}, aggregate: {{bootstrap: ['127.0.0.1:1']}}}}\n"
        "routes: [{from: jfk, to: aggregate, topics: {include: [flights]}}]\n"
    )
    (work,) = work_of(load_topology(file)).values()
    clock = SystemClock()
    board = ControlBoard(work.destination, clock)
    who = DaemonIdentity(daemon_id="d", host="h", generation=lambda: 0, **identity)
    ids = ClusterIds(StateDirectory(folder / "data"))
    around = RouteSurroundings(
        identity=who,
        board=board,
        claims=DestinationClaims(),
        links=Links("d", clock),
        cluster_ids=ids,
        clock=clock,
    )
    return RouteRunner(work, around), board


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[HostPort]:
    """A port that takes connections, and never says anything."""
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        yield HostPort("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.close()


def test_a_route_ends_before_its_control_topic_was_ever_read(tmp_path: Path) -> None:
    async def main() -> None:
        runner, _ = make_runner(tmp_path, HostPort("127.0.0.1", 2))
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(runner.run())
            await asyncio.sleep(0)
            await runner.stop(for_good=False)
            await running
        assert runner.state is RouteState.STOPPED

    asyncio.run(main())


def test_a_route_ends_while_a_cluster_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "OPEN_TIMEOUT_MS", 3_600_000)

    async def main() -> None:
        async with silent() as address:
            runner, board = make_runner(tmp_path, address)
            board._wishes = {}
            board._looked.set()
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
                running = tasks.create_task(runner.run())
                await until(lambda: runner.state is RouteState.STARTING)
                await runner.stop(for_good=False)
                await running
        assert runner.state is RouteState.STOPPED

    asyncio.run(main())


def test_failures_in_a_row_are_past_once_a_route_has_been_at_work_for_long(tmp_path: Path) -> None:
    runner, _ = make_runner(tmp_path, HostPort("127.0.0.1", 2))
    runner.failures, runner.state = 3, RouteState.RUNNING
    assert runner.describe()["failures"] == 3
    runner.started_ms -= GOOD_RUN_MS + 1
    assert runner.describe()["failures"] == 0
    runner.state = RouteState.FAILED
    assert runner.describe()["failures"] == 3
