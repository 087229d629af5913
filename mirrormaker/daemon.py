"""The daemon: every route of a topology at work in one process, in step with the file while it runs.

The file is followed (`reconcile/live_topology`); what it says is compared with what runs, and only routes
that differ are touched (`reconcile/loop`). `stop` lets every route finish what is in flight, commit, and
leave its group. The composition root of the process: clock, state and routes are made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from mirrormaker.reconcile.control import Verdict
from mirrormaker.reconcile.control_board import ControlBoard, ControlBoards
from mirrormaker.reconcile.live_topology import LiveTopology, LoadedTopology
from mirrormaker.reconcile.loop import RouteLoop
from mirrormaker.reconcile.routes import RouteSteps, RouteWork, work_of
from mirrormaker.reconcile.topics import DestinationClaims
from mirrormaker.reconcile.topology_file import TopologyFile
from mirrormaker.route_runner import DaemonIdentity, RouteRunner, RouteState
from mirrormaker.state import STATE_VERSION, StateDirectory
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology

STATE_INTERVAL_MS = 1000
FIRST_LOOK_TIMEOUT_MS = 5_000
"""How long a start waits for what destinations say of its routes."""

_UNREADY = frozenset({RouteState.STARTING, RouteState.FAILED})

_log = logger("daemon")


class Daemon:
    """All routes of a topology file. `run` until `stop`."""

    def __init__(self, file: Path, clock: Clock | None = None, *, keeps_clusters: bool = False) -> None:
        """`keeps_clusters`: this process runs the embedded clusters too, as they are in the file now.

        Raises ConfigurationError with every problem of the file.
        """
        self._clock = clock or SystemClock()
        topology_file = TopologyFile(file)
        source = topology_file.read()
        loaded = LoadedTopology(topology=source.parse(), source=source)
        self.live = LiveTopology(loaded, topology_file, self, self._clock)
        self._keeps_clusters = keeps_clusters
        self._state = StateDirectory(loaded.topology.data_dir)
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()
        self._routes: RouteLoop[RouteRunner] | None = None
        self._claims: Mapping[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
        self._daemon_id = ""
        self._generation = loaded.topology.generation
        self._boards: ControlBoards | None = None
        self._started_ms = self._clock.now_ms()

    @property
    def topology(self) -> Topology:
        """The one in force."""
        return self.live.loaded.topology

    async def run(self) -> None:
        """Run until `stop` is called. Raises ConfigurationError when another daemon has the `data_dir`."""
        with self._state.locked():
            self._daemon_id = self._state.daemon_id()
            _log.info(
                "daemon_started", routes=len(self.topology.routes), data_dir=str(self.topology.data_dir)
            )
            refusals: list[str] = []
            async with asyncio.TaskGroup() as tasks:
                self._boards = ControlBoards(tasks)
                refusals = await self._find_refusals()
                if not refusals:
                    await self._serve(tasks)
                self._boards.close()
            if refusals:
                raise ConfigurationError(refusals)
            self._write_state()
            _log.info("daemon_stopped")

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        """Run routes until `stop`."""
        self._routes = RouteLoop(self._make_runner, tasks)
        self._routes.desire(work_of(self.topology))
        helpers = [
            tasks.create_task(self._tell_state(), name="state"),
            tasks.create_task(self.live.follow(), name="follow the file"),
            tasks.create_task(self._heed_reloads(), name="reload"),
        ]
        await self._stopping.wait()
        await self._routes.close()
        for helper in helpers:
            helper.cancel()

    async def _find_refusals(self) -> list[str]:
        """Why this daemon may not start: routes that another one runs by a newer file. A destination that
        does not tell in time keeps nobody from starting; its routes will see.
        """
        runners = [self._make_runner(work) for work in work_of(self.topology).values()]
        verdicts: list[Verdict] = []
        try:
            async with asyncio.timeout(FIRST_LOOK_TIMEOUT_MS / 1000):
                for runner in runners:
                    with contextlib.suppress(BrokerError):
                        verdicts.append(await runner.verdict())
        except TimeoutError:
            _log.warning("destinations_not_asked", timeout_ms=FIRST_LOOK_TIMEOUT_MS)
        return [verdict.reason for verdict in verdicts if verdict.reason is not None]

    def stop(self) -> None:
        """Ask `run` to end; may be called from a signal handler of the event loop."""
        self._stopping.set()

    def request_reload(self) -> None:
        """Put the file as it is now in force soon; may be called from a signal handler of the event loop."""
        self._reloading.set()

    # ---- the topology

    def check(self, topology: Topology) -> None:
        """Raises ConfigurationError when it cannot come into force while this process runs."""
        now, file = self.topology, self.live.loaded.source.file
        problems: list[str] = []
        if self._routes is None:
            problems.append(f"{file}: the daemon has not started yet")
        if topology.data_dir != now.data_dir:
            problems.append(f"{file}: data_dir: stays {now.data_dir} while the daemon runs: start it anew")
        if topology.generation < now.generation:
            problems.append(
                f"{file}: generation: {topology.generation} is older than {now.generation}, which is in force"
            )
        if self._keeps_clusters and _embedded(topology) != _embedded(now):
            problems.append(
                f"{file}: clusters: embedded ones stay as they are while `up` runs: start it anew"
            )
        if problems:
            raise ConfigurationError(problems)

    def apply(self, topology: Topology) -> RouteSteps:
        """Run its routes, and those alone; what has not changed is not touched."""
        assert self._routes is not None, "checked before"
        assert self._boards is not None, "checked before"
        self._boards.sweep()
        self._generation = topology.generation
        steps = self._routes.desire(work_of(topology))
        for runner in self._runners():
            runner.look_again()  # the generation may be another
        return steps

    async def _heed_reloads(self) -> None:
        while True:
            await self._reloading.wait()
            self._reloading.clear()
            try:
                await self.live.reload()
            except ConfigurationError:
                continue  # told by the live topology

    def board(self, route: RouteSpec) -> ControlBoard:
        """That of the route's destination. Raises ConfigurationError before the daemon runs."""
        if self._boards is None:
            raise ConfigurationError(["the daemon has not started yet"])
        return self._boards.of(self.topology.clusters[route.destination])

    def _make_runner(self, work: RouteWork) -> RouteRunner:
        assert self._boards is not None, "made before the daemon runs"
        identity = DaemonIdentity(
            daemon_id=self._daemon_id,
            host=socket.gethostname(),
            generation=lambda: self._generation,
        )
        board = self._boards.of(work.destination)
        return RouteRunner(work, identity, board, self._claims[work.destination.name], self._clock)

    # ---- for `status`

    @property
    def is_ready(self) -> bool:
        """Whether every route has come to work, or is at rest as it should be."""
        if self._routes is None:
            return False
        return all(runner.state not in _UNREADY for runner in self._runners())

    def describe(self) -> dict[str, Any]:
        """The picture that `status` reads."""
        live = self.live
        return {
            "version": STATE_VERSION,
            "pid": os.getpid(),
            "started_ms": self._started_ms,
            "at_ms": self._clock.now_ms(),
            "topology": {
                "generation": live.loaded.topology.generation,
                "digest": live.loaded.source.digest,
                "applied_at_ms": live.applied_at_ms,
                "problem": live.problem,
                "reloads": live.reloads,
                "reload_failures": live.failures,
            },
            "routes": {runner.work.name: runner.describe() for runner in self._runners()},
        }

    def _runners(self) -> list[RouteRunner]:
        return list(self._routes.runners) if self._routes is not None else []

    async def _tell_state(self) -> None:
        while True:
            self._write_state()
            await asyncio.sleep(STATE_INTERVAL_MS / 1000)

    def _write_state(self) -> None:
        try:
            self._state.write(self.describe())
            self._state.keep_topology(self.live.loaded.source.text)
        except OSError as error:
            _log.warning("state_not_written", error=str(error))


def _embedded(topology: Topology) -> dict[ClusterName, object]:
    return {name: cluster.embedded for name, cluster in topology.clusters.items() if cluster.embedded}
