"""The daemon: every route of a topology at work in one process, each under its own supervisor.

A route that fails is started again after a wait that grows; the others do not notice. `stop` lets every route
finish what is in flight, commit, and leave its group. The composition root of the process: clusters, clock
and state are made here.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from typing import Any

from broker.client.backoff import Backoff
from broker.clock import Clock, SystemClock
from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.copier import RouteCopier
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.reader import SourceReader
from mirrormaker.reconcile.topics import DestinationClaims, TopicReconciler
from mirrormaker.state import STATE_VERSION, StateDirectory
from mirrormaker.topology.model import ClusterName, ClusterSpec, RouteSpec, Topology

STATE_INTERVAL_MS = 1000
STOP_TIMEOUT_MS = 20_000
RESTART_BACKOFF = Backoff(initial_ms=500, max_ms=15_000)
GOOD_RUN_MS = 60_000
"""A route that ran so long starts its waits anew."""

_log = logger("daemon")


class RouteState(Enum):
    """What a route is doing as a whole; its partitions have states of their own."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """It waits to be started again."""
    STOPPED = "stopped"


class RouteRunner:
    """Supervises one route: runs a copier and a reconciler, and starts both again when they fail."""

    def __init__(
        self,
        route: RouteSpec,
        source: ClusterSpec,
        destination: ClusterSpec,
        claims: DestinationClaims,
        clock: Clock,
        *,
        instance_id: str,
    ) -> None:
        self.route = route
        self.state = RouteState.STARTING
        self.failures = 0
        self.error: str | None = None
        self._source = source
        self._destination = destination
        self._claims = claims
        self._clock = clock
        self._instance_id = instance_id
        self._stopping = asyncio.Event()
        self._copier: RouteCopier | None = None
        self._reconciler: TopicReconciler | None = None
        self._log = _log.bind(route=route.name)

    async def run(self) -> None:
        """Keep the route at work until `stop`."""
        while not self._stopping.is_set():
            started_ms = self._clock.monotonic_ms()
            try:
                await self._run_once()
            except Exception as error:  # noqa: BLE001 a supervisor: whatever fails is told and started again
                self._fail(error, self._clock.monotonic_ms() - started_ms)
                await self._wait(RESTART_BACKOFF.delay_ms(self.failures, random.random))
        self.state = RouteState.STOPPED

    async def stop(self) -> None:
        """End the route; what is in flight is finished and committed."""
        self._stopping.set()
        if self._copier is not None:
            await self._copier.close()

    async def _run_once(self) -> None:
        self.state = RouteState.STARTING
        client_id = f"mirrormaker-{self.route.name}"
        async with (
            open_cluster(self._source, client_id=client_id) as source,
            open_cluster(self._destination, client_id=client_id) as destination,
        ):
            copier = self._copier = RouteCopier(
                self.route, source, destination, self._clock, instance_id=self._instance_id
            )
            reconciler = self._reconciler = TopicReconciler(
                self.route, source, destination, self._claims, copier.set_topics
            )
            try:
                await reconciler.look()
                self.state, self.error = RouteState.RUNNING, None
                await self._copy(copier, reconciler)
            finally:
                self._copier = self._reconciler = None

    async def _copy(self, copier: RouteCopier, reconciler: TopicReconciler) -> None:
        """Both at work until the copier is closed."""
        async with asyncio.TaskGroup() as tasks:
            reconciling = tasks.create_task(reconciler.run(), name="reconcile")
            if self._stopping.is_set():
                await copier.close()
            await copier.run()
            reconciling.cancel()

    def _fail(self, error: Exception, ran_ms: int) -> None:
        self.failures = 1 if ran_ms > GOOD_RUN_MS else self.failures + 1
        self.state, self.error = RouteState.FAILED, describe_error(error)
        bug = None if _is_expected(error) else error
        self._log.warning("route_failed", failures=self.failures, error=self.error, exc_info=bug)

    async def _wait(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            return

    # ---- for `status`

    def describe(self) -> dict[str, Any]:
        """The route as plain data; times in milliseconds since the epoch."""
        copier, reconciler = self._copier, self._reconciler
        description: dict[str, Any] = {
            "state": self.state.value,
            "error": self.error,
            "failures": self.failures,
            "partitions": {},
            "events": [],
        }
        if copier is None or reconciler is None:
            return description
        description |= {
            "generation": copier.generation,
            "counts": _describe_counts(copier),
            "obstacles": dict(reconciler.obstacles),
            "reconcile_problem": reconciler.problem,
            "events": [
                {"at_ms": event.at_ms, "name": event.name, "details": dict(event.details)}
                for event in copier.events
            ],
        }
        if copier.machine is not None and copier.reader is not None:
            description["buffered_bytes"] = copier.machine.buffered_bytes
            description["partitions"] = {
                str(source): _describe_partition(partition, copier.reader, self._clock)
                for source, partition in copier.machine.partitions.items()
            }
        return description


class Daemon:
    """All routes of a topology. `run` until `stop`."""

    def __init__(self, topology: Topology, clock: Clock | None = None) -> None:
        self.topology = topology
        self._clock = clock or SystemClock()
        self._state = StateDirectory(topology.data_dir)
        self._stopping = asyncio.Event()
        self._runners: list[RouteRunner] = []
        self._started_ms = self._clock.now_ms()

    async def run(self) -> None:
        """Run until `stop` is called. Raises ConfigurationError when another daemon has the `data_dir`."""
        with self._state.locked():
            self._runners = self._make_runners(self._state.daemon_id())
            _log.info("daemon_started", routes=len(self._runners), data_dir=str(self.topology.data_dir))
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(self._tell_state(), name="state")
                running = [
                    tasks.create_task(runner.run(), name=runner.route.name) for runner in self._runners
                ]
                await self._stopping.wait()
                await self._stop_runners()
                for task in (*running, telling):
                    task.cancel()
            self._write_state()
            _log.info("daemon_stopped")

    def stop(self) -> None:
        """Ask `run` to end; may be called from a signal handler of the event loop."""
        self._stopping.set()

    def describe(self) -> dict[str, Any]:
        """The picture that `status` reads."""
        return {
            "version": STATE_VERSION,
            "pid": os.getpid(),
            "started_ms": self._started_ms,
            "at_ms": self._clock.now_ms(),
            "routes": {runner.route.name: runner.describe() for runner in self._runners},
        }

    def _make_runners(self, daemon_id: str) -> list[RouteRunner]:
        clusters = self.topology.clusters
        claims: Mapping[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
        return [
            RouteRunner(
                route,
                clusters[route.source],
                clusters[route.destination],
                claims[route.destination],
                self._clock,
                instance_id=f"{daemon_id}/{route.name}",
            )
            for route in self.topology.routes
        ]

    async def _stop_runners(self) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1000), asyncio.TaskGroup() as tasks:
                for runner in self._runners:
                    tasks.create_task(runner.stop(), name=f"stop {runner.route.name}")
        except TimeoutError:
            _log.warning("routes_not_drained", timeout_ms=STOP_TIMEOUT_MS)

    async def _tell_state(self) -> None:
        while True:
            self._write_state()
            await asyncio.sleep(STATE_INTERVAL_MS / 1000)

    def _write_state(self) -> None:
        try:
            self._state.write(self.describe())
        except OSError as error:
            _log.warning("state_not_written", error=str(error))


def describe_error(error: BaseException) -> str:
    """One line for an error, or for all that a group holds."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(describe_error(inner) for inner in error.exceptions))
    return str(error) or type(error).__name__


def _is_expected(error: BaseException) -> bool:
    """Whether the world failed, rather than this program."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(inner) for inner in error.exceptions)
    return isinstance(error, BrokerError)


def _describe_counts(copier: RouteCopier) -> dict[str, Any]:
    counts = copier.counts
    return {
        "batches": counts.batches,
        "bytes": counts.bytes,
        "records": counts.records,
        "requests": counts.requests,
        "repeated_chunks": counts.repeated_chunks,
        "deep_batches": {reason.value: count for reason, count in counts.deep_batches.items()},
        "control_batches_dropped": counts.control_batches_dropped,
        "aborted_batches_dropped": counts.aborted_batches_dropped,
        "offsets_lost_at_source": counts.offsets_lost_at_source,
        "errors": {code.name: count for code, count in counts.errors.items()},
    }


def _describe_partition(partition: Partition, reader: SourceReader, clock: Clock) -> dict[str, Any]:
    history = reader.histories.get(partition.source)
    known_since_ms = history.known_since_ms(partition.acknowledged) if history is not None else None
    wall_shift_ms = clock.now_ms() - clock.monotonic_ms()
    copied = partition.copied_offsets
    return {
        "destination": ", ".join(str(lane.destination) for lane in partition.lanes),
        "state": partition.condition,
        "error": partition.error.name if partition.error is not None else None,
        "source_problem": partition.source_problem,
        "failures": partition.attempts + partition.source_failures,
        "acknowledged": partition.acknowledged,
        "committed": partition.committed,
        "source_end": partition.source_end,
        "waiting_since_ms": None if known_since_ms is None else known_since_ms + wall_shift_ms,
        "bytes_per_offset": partition.copied_bytes / copied if copied else None,
        "last_timestamp_ms": partition.last_timestamp,
    }
