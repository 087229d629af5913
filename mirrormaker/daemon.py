"""The daemon: every route of a topology at work, in step with the file while it runs.

The file is followed (`reconcile/live_topology`); what it says is compared with what runs, and only routes
that differ are touched (`reconcile/loop`). Routes run in this process (`route_host`), those with several
workers in processes of their own (`workers/pool`). `stop` lets every route finish what is in flight, commit,
and leave its group. The composition root of the process: clock, state and routes are made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.daemon_identity import DaemonIdentity
from mirrormaker.failover.last_known import LastKnownEnds
from mirrormaker.failover.tail_watch import TailWatch
from mirrormaker.heartbeat_writers import HeartbeatWriters
from mirrormaker.limit_exchange import LimitExchange
from mirrormaker.pipelines.pool import PipelinePool
from mirrormaker.process_figures import cpu_seconds, resident_bytes
from mirrormaker.reconcile.control import Rest, Verdict
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.declared_topics import DeclaredTopics
from mirrormaker.reconcile.live_topology import LiveTopology, LoadedTopology
from mirrormaker.reconcile.routes import RouteSteps, compare_routes, work_of
from mirrormaker.reconcile.switches import IdleTail
from mirrormaker.reconcile.topology_file import TopologyFile
from mirrormaker.route_host import RouteHost
from mirrormaker.route_runner import RouteState
from mirrormaker.state import STATE_VERSION, AskedDirectory, StateDirectory
from mirrormaker.superseding import SupersededRoutes
from mirrormaker.topic_claims import TopicClaims
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, Topology
from mirrormaker.workers.link_pictures import merge_links
from mirrormaker.workers.placement import works_of_daemon
from mirrormaker.workers.pool import WorkerPool
from mirrormaker.workers.shared_claims import SharedClaims

STATE_INTERVAL_MS = 1000
FIRST_LOOK_TIMEOUT_MS = 5_000
"""How long a start waits for what destinations say of its routes."""

_ENDING = "the daemon is ending"
_UNREADY = frozenset({RouteState.STARTING.value, RouteState.FAILED.value})

_log = logger("daemon")


class Daemon:
    """All routes of a topology file. `run` until `stop`."""

    def __init__(
        self,
        file: Path,
        clock: Clock | None = None,
        *,
        keeps_clusters: bool = False,
        log_level: str = "info",
    ) -> None:
        """`keeps_clusters`: this process runs the embedded clusters too, as they are in the file now.
        `log_level`: that of its workers.

        Raises ConfigurationError with every problem of the file.
        """
        self._clock = clock or SystemClock()
        topology_file = TopologyFile(file)
        source = topology_file.read()
        loaded = LoadedTopology(topology=source.parse(), source=source)
        self.live = LiveTopology(loaded, topology_file, self, self._clock)
        self._keeps_clusters = keeps_clusters
        self._state = StateDirectory(loaded.topology.data_dir)
        self._asked = AskedDirectory(loaded.topology.data_dir)
        self._ends = LastKnownEnds(self._state)
        self._pictures = self._kept_picture = 0
        """How many have been asked for, and which of them is kept."""
        self._keeping = threading.Lock()
        self._stopping = asyncio.Event()
        self._looking: asyncio.Timeout | None = None
        """Of the first look at destinations."""
        self._reloading = asyncio.Event()
        self._log_level = log_level
        self._host: RouteHost | None = None
        self._workers: WorkerPool | None = None
        """As the host, there while the daemon runs."""
        self._pipelines: PipelinePool | None = None
        """The same."""
        self._claims: TopicClaims | None = None
        """The same."""
        self._in_force = loaded.topology
        """What routes run by; `live` follows."""
        self._superseded = SupersededRoutes()
        self._declared = DeclaredTopics(
            lambda: self._in_force, lambda: next(iter(self._superseding().values()), None)
        )
        self._heartbeats = HeartbeatWriters(lambda: self._in_force, self._state, self._clock)
        self._tails = TailWatch(lambda: self._in_force, self._clock, self._heed_tails)
        self._started_ms = self._clock.now_ms()

    @property
    def topology(self) -> Topology:
        """The one in force."""
        return self.live.loaded.topology

    async def run(self) -> None:
        """Run until `stop` is called. Raises ConfigurationError when another daemon has the `data_dir`."""
        with self._state.locked(), contextlib.closing(self._asked):
            daemon_id = self._state.daemon_id()
            _log.info(
                "daemon_started", routes=len(self.topology.routes), data_dir=str(self.topology.data_dir)
            )
            async with asyncio.TaskGroup() as tasks:
                identity = DaemonIdentity(
                    daemon_id=daemon_id,
                    host=socket.gethostname(),
                    generation=lambda: self._in_force.generation,
                    topology=lambda: self._in_force,
                )
                host = RouteHost(identity, ClusterIds(self._state), self._clock, tasks)
                refusals = await self._find_refusals(host)
                if refusals:
                    await host.close()
                else:
                    claims = SharedClaims(host.claims)
                    workers = WorkerPool(daemon_id, self._log_level, claims, self._clock, tasks)
                    await self._serve(host, workers, tasks)
            if refusals:
                raise ConfigurationError(refusals)
            await self._write_state()
            _log.info("daemon_stopped")

    async def _serve(self, host: RouteHost, workers: WorkerPool, tasks: asyncio.TaskGroup) -> None:
        """Run routes until `stop`."""
        self._host, self._workers = host, workers
        self._pipelines = pipelines = PipelinePool(
            self._state.daemon_id(), self._clock, self._log_level, tasks
        )
        self._claims = claims = TopicClaims(
            host,
            self._state.daemon_id(),
            workers.share_claims,
            self._clock,
            superseded=self._superseding,
        )
        limits = LimitExchange(lambda: self._in_force, self._state.daemon_id(), (host, workers), self._clock)
        self._run_routes(self.live.loaded)
        followers = [
            tasks.create_task(self.live.follow(), name="follow the file"),
            tasks.create_task(self._heed_reloads(), name="reload"),
            tasks.create_task(claims.run(), name="claims"),  # it asks boards, which the host makes and ends
        ]
        helpers = [
            tasks.create_task(self._tell_state(), name="state"),
            tasks.create_task(self._declared.run(), name="declared topics"),
            tasks.create_task(self._heartbeats.run(), name="heartbeats"),
            tasks.create_task(limits.run(), name="limits"),
            tasks.create_task(self._tails.run(), name="tails"),
        ]
        await self._stopping.wait()
        for follower in followers:
            follower.cancel()
        # the state first, while there are routes that tell something: nothing waits for a disk that hangs
        await asyncio.gather(self._write_state(), pipelines.close(), workers.close(), host.close())
        for helper in helpers:
            helper.cancel()

    def _heed_tails(self, tails: Mapping[str, IdleTail]) -> None:
        for each in (self._host, self._workers):
            if each is not None:
                each.heed_tails(tails)

    def _run_routes(self, loaded: LoadedTopology) -> None:
        assert self._host is not None
        assert self._workers is not None
        assert self._pipelines is not None
        assert self._claims is not None
        self._in_force = loaded.topology
        self._claims.desire(loaded.topology)
        self._host.desire(works_of_daemon(loaded.topology), loaded.topology)
        self._workers.desire(loaded.topology, loaded.source)
        self._pipelines.desire(loaded.topology, loaded.source)

    async def _find_refusals(self, host: RouteHost) -> list[str]:
        """Why this daemon may not start: routes that another one runs by a newer file. A destination that
        does not tell in time keeps nobody from starting; its routes will see.
        """
        runners = [host.make_runner(work) for work in work_of(self.topology).values()]
        verdicts: list[Verdict] = []
        try:
            async with asyncio.timeout(FIRST_LOOK_TIMEOUT_MS / 1000) as self._looking:
                for runner in runners:
                    with contextlib.suppress(BrokerError):
                        verdicts.append(await runner.verdict())
        except TimeoutError:
            _log.warning("destinations_not_asked", timeout_ms=FIRST_LOOK_TIMEOUT_MS)
        finally:
            self._looking = None
        return [verdict.reason or "" for verdict in verdicts if verdict.rest is Rest.SUPERSEDED]

    def stop(self) -> None:
        """Ask `run` to end; may be called from a signal handler of the event loop."""
        self._stopping.set()
        if self._looking is not None:
            self._looking.reschedule(asyncio.get_running_loop().time())

    def request_reload(self) -> None:
        """Put the file as it is now in force soon; may be called from a signal handler of the event loop."""
        self._reloading.set()

    # ---- the topology

    def check(self, topology: Topology) -> None:
        """Raises ConfigurationError when it cannot come into force while this process runs."""
        now, file = self.topology, self.live.loaded.source.file
        problems: list[str] = []
        if self._host is None:
            problems.append(f"{file}: the daemon has not started yet")
        if self._stopping.is_set():
            problems.append(f"{file}: {_ENDING}")
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

    def apply(self, loaded: LoadedTopology) -> RouteSteps:
        """Run its routes, and those alone; what has not changed is not touched."""
        steps = compare_routes(work_of(loaded.topology), work_of(self._in_force))
        self._superseding()  # as routes stand: those that start anew have to find out again
        self._run_routes(loaded)
        self._declared.look_again()
        self._heartbeats.look_again()
        self._tails.look_again()
        return steps

    async def _heed_reloads(self) -> None:
        while True:
            await self._reloading.wait()
            self._reloading.clear()
            try:
                await self.live.reload()
            except ConfigurationError:
                continue  # told by the live topology

    def _superseding(self) -> Mapping[RouteName, str]:
        """Routes of the topology that somebody runs by a newer one, and who."""
        return self._superseded.take(self._in_force, self._describe_standing())

    def board(self, route: RouteSpec) -> ControlBoard:
        """That of the route's destination. Raises ConfigurationError unless the daemon runs."""
        if self._host is None:
            raise ConfigurationError(["the daemon has not started yet"])
        if self._stopping.is_set():
            raise ConfigurationError([_ENDING])
        return self._host.board(self.topology.clusters[route.destination])

    # ---- for `status`

    @property
    def is_ready(self) -> bool:
        """Whether every route has come to work, or is at rest as it should be."""
        if self._workers is None or not self._workers.is_ready:
            return False
        return all(route["state"] not in _UNREADY for route in self._describe_routes().values())

    def describe(self) -> dict[str, Any]:
        """The picture that `status` reads."""
        live, routes = self.live, self._describe_routes()
        switches = [told["switch"] for told in routes.values() if told.get("switch") is not None]
        return {
            "version": STATE_VERSION,
            "pid": os.getpid(),
            "started_ms": self._started_ms,
            "at_ms": self._clock.now_ms(),
            "topology": {
                "generation": live.loaded.topology.generation,
                "file": str(live.loaded.source.file.absolute()),
                "digest": live.loaded.source.digest,
                "applied_at_ms": live.applied_at_ms,
                "problem": live.problem,
                "reloads": live.reloads,
                "reload_failures": live.failures,
            },
            "resident_bytes": resident_bytes(),
            "cpu_seconds": round(cpu_seconds(), 3),
            "workers": self._workers.describe() if self._workers is not None else [],
            "clusters": self._declared.describe(),
            "heartbeats": self._heartbeats.describe(),
            "failover_groups": self._tails.describe({told["group"]: told["revision"] for told in switches}),
            "links": self._describe_links(),
            "routes": routes,
            "pipelines": self._pipelines.describe() if self._pipelines is not None else {},
        }

    def _describe_links(self) -> list[dict[str, Any]]:
        """As the daemon and its workers use them together."""
        if self._host is None or self._workers is None:
            return []
        return merge_links([self._host.describe_links(), *self._workers.describe_links()])

    def _describe_routes(self) -> dict[str, dict[str, Any]]:
        """In the order of the file."""
        if self._host is None or self._workers is None:
            return {}
        told = self._host.describe() | self._workers.describe_routes()
        return {route.name: told[route.name] for route in self._in_force.routes if route.name in told}

    def _describe_standing(self) -> dict[str, Mapping[str, Any]]:
        """As far as `superseding` goes by it: that is asked for often."""
        if self._host is None or self._workers is None:
            return {}
        return self._host.describe_standing() | self._workers.describe_standing()

    async def _tell_state(self) -> None:
        while True:
            await self._write_state()
            await asyncio.sleep(STATE_INTERVAL_MS / 1000)

    async def _write_state(self) -> None:
        """In a thread: a file that takes the place of another waits for a disk that is busy."""
        self._pictures += 1
        text, asked = self.live.loaded.source.text, self.live.asked.data_dir
        await asyncio.to_thread(self._keep, self._pictures, self.describe(), self._in_force, text, asked)

    def _keep(self, number: int, told: dict[str, Any], topology: Topology, text: str, asked: Path) -> None:
        with self._keeping:
            if number < self._kept_picture:
                return  # who asked for it has been cancelled, and there is a newer one
            self._kept_picture = number
            try:
                self._state.write(told)
                self._ends.keep(topology, told["routes"], told["at_ms"])
                self._state.keep_topology(text)
            except OSError as error:
                _log.warning("state_not_written", error=str(error))
            self._asked.keep(asked, told, text)


def _embedded(topology: Topology) -> dict[ClusterName, object]:
    return {name: cluster.embedded for name, cluster in topology.clusters.items() if cluster.embedded}
