"""One route under supervision: a copier and a reconciler at work, both started again when they fail.

What a route of this process is to do comes from the topology (`change`, `stop`) and from the control topic of
its destination: it rests while somebody wishes that, or while another daemon runs it by a newer file. A route
that fails is tried again after a wait that grows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from enum import Enum
from typing import Any

from broker.client.backoff import Backoff
from broker.client.cluster import Cluster
from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.cluster_identities import check_circles
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.origin_registry import OriginRegistry
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.timing.route_timing import RouteTiming
from mirrormaker.group_rights import GroupRights
from mirrormaker.reconcile.control import (
    Claim,
    Pause,
    Rest,
    RouteWishes,
    Verdict,
    claim_key,
    judge,
)
from mirrormaker.reconcile.halts import describe_halts
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.route_groups import meeting_place
from mirrormaker.route_surroundings import RouteSurroundings
from mirrormaker.working_route import RouteConnections, WorkingRoute

RESTART_BACKOFF = Backoff(initial_ms=500, max_ms=15_000)
GOOD_RUN_MS = 60_000
"""A route that ran so long starts its waits anew."""
CLAIM_RETRY_MS = 1_000


class RouteState(Enum):
    """What a route is doing as a whole; its partitions have states of their own."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """It waits to be started again; after a failure policy, to be resumed."""
    PAUSED = "paused"
    """As somebody wishes."""
    SUPERSEDED = "superseded"
    """A daemon with a newer file runs it."""
    STANDING_BY = "standing by"
    """Its failover group is at work in the other direction."""
    STOPPED = "stopped"


_RESTING = {
    Rest.PAUSED: RouteState.PAUSED,
    Rest.FAILED: RouteState.FAILED,
    Rest.SUPERSEDED: RouteState.SUPERSEDED,
    Rest.STANDING_BY: RouteState.STANDING_BY,
}


class RouteRunner:
    """See the module. Owned by the daemon's event loop."""

    def __init__(self, work: RouteWork, around: RouteSurroundings) -> None:
        self.work = work
        self._around = around
        self._identity, self._board, self._switch = around.identity, around.board, around.switch
        self._clock = around.clock
        self.state = RouteState.STARTING
        self.failures = 0
        self.started_ms = self._clock.now_ms()
        """When it last began to work."""
        self.error: str | None = None
        self._stopping = asyncio.Event()
        self._turn = Signal()
        """Something may be other than it was: look what is to be done."""
        self._leaves_for_good = False
        self._starts_over = False
        """Halts that stop the route do so no longer."""
        self._owes_word = False
        """The destination has not been told yet what it should be of a route that rests."""
        self._working: WorkingRoute | None = None
        self._books: dict[str, Any] = {}
        """What the route knew of what has been copied, when it last ended."""
        self._events = RouteEvents(work.name, self._clock)
        self._rights = GroupRights(self._events)
        self._timing = RouteTiming(work.route, self._clock, self._events)
        self._log = logger("route").bind(route=work.name)

    async def run(self) -> None:
        """Keep the route at work until `stop`."""
        link = self._around.links.of(self.work.source.name, self.work.destination.name)
        async with asyncio.TaskGroup() as tasks:
            timing = tasks.create_task(self._timing.run(), name="timing")
            with link.hosting(self.work.name):
                await self._keep_at_work()
            timing.cancel()

    async def _keep_at_work(self) -> None:
        self._board.listen(self.work.name, self.look_again, self._events)
        if self._switch is not None:
            self._switch.listen(self.work.name, self.look_again, self._events)
        try:
            while not self._stopping.is_set():
                started_ms = self._clock.monotonic_ms()
                try:
                    await self._run_until_stopped()
                except Exception as error:  # noqa: BLE001 a supervisor: whatever fails is told and started again
                    self._fail(error, self._clock.monotonic_ms() - started_ms)
                    await self._rights.meet(error, self.work.route, self._around.halts_of(self.work))
                    await self._wait(RESTART_BACKOFF.delay_ms(self.failures, random.random))
            self.state = RouteState.STOPPED
        finally:
            self._board.forget(self.work.name)
            if self._switch is not None:
                self._switch.forget(self.work.name)
            self._around.claims.claim(self.work.name, frozenset())

    async def _run_until_stopped(self) -> None:
        """Run once; what only looks, or is on its way to work, ends at once when it is to stop, whatever it
        waits for.
        """
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._run_once(), name="run")
            stopping = tasks.create_task(self._stopping.wait(), name="stop")
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if self._working is None or not self._working.copier.takes_part:
                running.cancel()
            await asyncio.wait([running])
            stopping.cancel()

    def look_again(self) -> None:
        """Something of what decides about the route may have changed."""
        self._turn.set()

    def look_at_topics(self) -> None:
        """Who writes which topics may have been decided otherwise."""
        if self._working is not None:
            self._working.reconciler.look_soon()

    def start_over(self) -> None:
        """The file has been put in force again: a route that a failure policy stopped has another try."""
        self._starts_over = True
        self.look_again()

    def change(self, work: RouteWork) -> None:
        """Go on with other topics, bounds and intervals; whatever is copied goes on being copied."""
        self.work = work
        self._timing.change(work.route)
        if self._switch is not None and work.failover is not None:
            self._switch.group = work.failover
        if self._working is not None:
            self._working.change(work)
        self.look_again()

    async def stop(self, *, for_good: bool) -> None:
        """End the route; what is in flight is finished and committed. `for_good`: other processes of its
        group get its partitions at once.
        """
        self._leaves_for_good = for_good
        self._stopping.set()
        self.look_again()
        if self._working is not None:
            await self._working.close(for_good=for_good)

    async def verdict(self) -> Verdict:
        """What is to be done about the route. Raises BrokerError when the destination has never told."""
        verdict = judge(
            self.work.name,
            self._own_claim(),
            await self._board.wishes(self.work.name),
            worker_since_ms=self._identity.worker_since_ms,
        )
        if self._switch is not None and verdict.rest in (None, Rest.PAUSED) and not await self._switch.runs():
            return replace(verdict, rest=Rest.STANDING_BY)
        return verdict

    def _own_claim(self) -> Claim:
        return Claim(
            generation=self._identity.generation(),
            digest=self.work.digest,
            daemon=self._identity.daemon_id,
            host=self._identity.host,
            at_ms=self._clock.now_ms(),
        )

    async def _run_once(self) -> None:
        """Run, or rest, until there is a reason to look again."""
        verdict = await self._decide()
        if verdict.rest is None:
            self.state = RouteState.STARTING
            await self._work()
            return
        before = self.state, self.error
        self.state, self.error = _RESTING[verdict.rest], verdict.reason
        if before != (self.state, self.error) or not self._owes_word:
            self._log.info("route_rests", state=self.state.value, reason=verdict.reason)
            if verdict.rest is Rest.STANDING_BY and self._switch is not None:
                switch = self._switch.known
                self._events.note_end("standing_by", side=switch.side.value, stage=switch.stage.value)
        await self._turn.wait(CLAIM_RETRY_MS if self._owes_word else None)

    async def _decide(self) -> Verdict:
        """The verdict; where that is to be said at the destination, it is. Raises BrokerError where it cannot
        be, unless somebody wishes that the route rest: it does so meanwhile.
        """
        verdict = await self.verdict()
        try:
            if self._starts_over and await self._take_halts_back():
                verdict = await self.verdict()
            if verdict.claims:
                await self._board.put([(claim_key(self.work.name), asdict(self._own_claim()))])
                self._log.info("route_claimed", generation=self._identity.generation())
        except BrokerError as error:
            if verdict.rest in (None, Rest.FAILED):
                raise
            if not self._owes_word:
                self._log.warning("route_not_claimed", error=str(error))
            self._owes_word = True
        else:
            self._owes_word = False
        return verdict

    async def _take_halts_back(self) -> bool:
        """Those that stop the route; whether there were any. Raises BrokerError."""
        halts = (await self._board.wishes(self.work.name)).halts
        stopping = [source for source, halt in halts.items() if halt.stops_route]
        if stopping:
            await self._board.take_back_halts(self.work.name, stopping)
        self._starts_over = False
        return bool(stopping)

    async def _work(self) -> None:
        """Work until the route is to rest, to stop, or to be started anew."""
        client_id = f"mirrormaker-{self.work.name}"
        async with (
            open_cluster(self.work.source, client_id=client_id, stays=True) as source,
            open_cluster(self.work.destination, client_id=client_id, stays=True) as destination,
            self._open_origins(source, destination) as origins,
            meeting_place(self.work.route, self.work.source, source) as coordination,
        ):
            connections = RouteConnections(
                source=source, destination=destination, origins=origins, coordination=coordination
            )
            working = WorkingRoute(self.work, connections, self._around, self._events, self._timing)
            self._working = working
            try:
                await working.begin()
                self.started_ms = self._clock.now_ms()
                self.state, self.error = RouteState.RUNNING, None
                await self._run(working)
            finally:
                self._working, self._books = None, _at_rest(working.describe_books())

    async def _run(self, working: WorkingRoute) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._heed(working), name="heed"),
                tasks.create_task(
                    self._rights.watch(working.copier, self._around.halts_of(self.work)), name="group"
                ),
            ]
            if self._stopping.is_set():
                await working.close(for_good=self._leaves_for_good)
            await working.run()
            for task in beside:
                task.cancel()

    @asynccontextmanager
    async def _open_origins(
        self, source: Cluster, destination: Cluster
    ) -> AsyncIterator[OriginRegistry | None]:
        """The registries of where records have been, for a route with provenance. Raises ConfigurationError
        for one that leads in a circle, by what clusters really are, or cannot tell them apart.
        """
        self._around.cluster_ids.see(self.work.source.name, source.cluster_id)
        self._around.cluster_ids.see(self.work.destination.name, destination.cluster_id)
        topology = self._identity.topology()
        if topology is not None:
            known = self._around.cluster_ids.known(topology.clusters)
            await check_circles(topology, self.work.name, known)
        if not self.work.route.provenance:
            yield None
            return
        ids, on_begun_anew = self._around.cluster_ids, self._events.note_begun_anew
        async with OriginRegistry(source, destination, ids, on_begun_anew) as origins:
            yield origins

    async def _heed(self, working: WorkingRoute) -> None:
        """Do what is wished meanwhile, and give way to a daemon with a newer file."""
        while True:
            await self._turn.wait()
            try:
                verdict = await self._decide()
            except BrokerError as error:
                self._log.warning("route_not_claimed", error=str(error))
                await asyncio.sleep(CLAIM_RETRY_MS / 1000)
                self.look_again()
                continue
            if verdict.rest is not None:
                await working.close(for_good=True)
                return
            working.heed_wishes()

    @property
    def _wishes(self) -> RouteWishes:
        return self._board.known_wishes(self.work.name)

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

    def describe_standing(self) -> dict[str, Any]:
        """Whether it is run here, as plain data."""
        return {"state": self.state.value, "error": self.error, "control_problem": self._board.problem}

    def describe(self) -> dict[str, Any]:
        """The route as plain data; times in milliseconds since the epoch."""
        runs_well = self.state is RouteState.RUNNING and self._clock.now_ms() - self.started_ms > GOOD_RUN_MS
        stopping = self._rights.trouble or self._wishes.stopping(self.work.digest)
        trouble = stopping if self.state is RouteState.FAILED else None
        description: dict[str, Any] = {
            **self.describe_standing(),
            "reason": None if trouble is None else trouble.kind.value,
            "failures": 0 if runs_well else self.failures,
            "started_ms": self.started_ms,
            "pause": _described(self._wishes.pause),
            "paused_topics": {topic: _described(pause) for topic, pause in self._wishes.topics.items()},
            "halts": describe_halts(self._wishes.halts),
            "partitions": {},
            "events": self._events.describe(),
            "begun_anew": dict(self._events.begun_anew),
            "timing": self._timing.describe(),
            "left": self._timing.describe_left(),
        }
        if self._switch is not None:
            description["switch"] = self._switch.describe()
        if self._working is None:
            return description | self._books
        return description | self._working.describe() | self._working.describe_books()


def _at_rest(books: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What was in the way of the work is told no more while there is none."""
    return {name: told | {"problem": None} if "problem" in told else told for name, told in books.items()}


def _described(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else asdict(pause)


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
