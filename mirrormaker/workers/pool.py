"""The workers of a daemon, as many as its topology asks for; what they tell is told as one.

Owned by the daemon's event loop; each worker is one task (`workers/keeper`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from broker.clock import Clock
from mirrormaker.flow.bandwidth.statements import Statement, decode_statements
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.reconcile.switches import IdleTail
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.route_description import starting_route
from mirrormaker.route_runner import RouteState
from mirrormaker.topology.model import RouteName, Topology
from mirrormaker.workers.keeper import Process, WorkerKeeper
from mirrormaker.workers.link_pictures import Ends, past_links, totals_of_links
from mirrormaker.workers.orders import Hear, Heed, Hold, Run
from mirrormaker.workers.pictures import (
    RouteTotal,
    merge_routes,
    past_kinds,
    totals_of_routes,
    with_past,
)
from mirrormaker.workers.placement import count_workers, works_of_worker
from mirrormaker.workers.places import give_places_up
from mirrormaker.workers.process import WorkerProcess
from mirrormaker.workers.shared_claims import SharedClaims
from mirrormaker.workers.spare import Spare
from mirrormaker.workers.totals import PastTotals


class WorkerPool:
    """See the module. `tasks` runs the workers; `close` before it ends."""

    def __init__(
        self,
        daemon_id: str,
        log_level: str,
        claims: SharedClaims,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._claims = claims
        self._heed = Heed(claims={})
        self._topology: Topology | None = None
        self._daemon_id = daemon_id
        self._log_level = log_level
        self._clock = clock
        self._tasks = tasks
        self._works: dict[int, Mapping[RouteName, RouteWork]] = {}
        """What each worker is to run."""
        self._digest = ""
        self._keepers: dict[int, WorkerKeeper] = {}
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._spare = Spare(self._start_process, clock, tasks)
        self._past_routes: PastTotals[RouteTotal] = PastTotals()
        self._past_links: PastTotals[Ends] = PastTotals()
        self._is_closed = False

    def desire(self, topology: Topology, source: TopologyText) -> None:
        """Have the workers run their part of this from now on; nothing is done once `close` was called."""
        if self._is_closed:
            return
        numbers = range(1, count_workers(topology) + 1)
        self._works = {number: works_of_worker(topology, number) for number in numbers}
        self._digest = source.digest
        self._topology = topology
        order = Run(source=source)
        for number in numbers:
            if (keeper := self._keepers.get(number)) is not None:
                keeper.order(order)
            else:
                self._keepers[number] = self._make(number, order)
        for number in [number for number in self._keepers if number not in self._works]:
            self._let_go(number, for_good=True)
        self._past_routes.keep(past_kinds(self._names()))
        self._past_links.keep(self._ends())
        if not numbers:
            self._spare.want(False)

    async def _start_process(self) -> WorkerProcess:
        return await WorkerProcess.start(self._daemon_id, self._log_level)

    def _take_picture(self) -> None:
        """A worker has told of itself; once all have, there is time to see to what may come."""
        self.share_claims()
        if self._keepers and all(keeper.picture is not None for keeper in self._keepers.values()):
            self._spare.want(True)

    def share_claims(self) -> None:
        """Who has what may be other than it was: all workers are told, where that is new."""
        if self._topology is None:
            return
        pictures = [keeper.picture for keeper in self._keepers.values() if keeper.picture is not None]
        self._claims.take(self._topology, pictures)
        heed = Heed(claims=self._claims.lists(self._topology))
        if heed != self._heed:
            self._heed = heed
            for keeper in self._keepers.values():
                keeper.tell(heed)

    def hear_limits(self, statements: Sequence[Statement]) -> None:
        """Have the workers go by what processes tell of the limits that they share."""
        order = Hear(statements=statements)
        for keeper in self._keepers.values():
            keeper.tell(order)

    def heed_tails(self, tails: Mapping[str, IdleTail]) -> None:
        """Have the workers go by what was found at the idle sides of failover groups."""
        for keeper in self._keepers.values():
            keeper.tell(Hold(tails=tails))

    def tell_limits(self) -> list[Statement]:
        """What the workers tell of them."""
        pictures = [keeper.picture for keeper in self._keepers.values() if keeper.picture is not None]
        return decode_statements(told for picture in pictures for told in picture.get("limits", ()))

    async def close(self) -> None:
        """End every worker; the next start is to find the routes where they were."""
        self._is_closed = True
        for number in list(self._keepers):
            self._let_go(number, for_good=False)
        await self._spare.close()
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    def _make(self, number: int, order: Run) -> WorkerKeeper:
        async def start() -> Process:
            return await self._spare.take(number)

        async def on_absence() -> None:
            await give_places_up(self._works.get(number, {}).values(), self._daemon_id, number)

        keeper = WorkerKeeper(
            number,
            order,
            start=start,
            on_absence=on_absence,
            on_picture=self._take_picture,
            clock=self._clock,
        )
        keeper.tell(self._heed)
        self._tasks.create_task(self._keep(keeper, self._leaving.get(number)), name=f"worker {number}")
        return keeper

    async def _keep(self, keeper: WorkerKeeper, predecessor: asyncio.Task[None] | None) -> None:
        """Run a worker once the one of its number before it has gone: they go by the same name."""
        if predecessor is not None:
            await asyncio.wait([predecessor])
        await keeper.run()

    def _let_go(self, number: int, *, for_good: bool) -> None:
        keeper = self._keepers.pop(number)
        self._past_routes.take(number, {})
        self._past_links.take(number, {})
        before = self._leaving.get(number)

        async def end() -> None:
            if before is not None:
                await asyncio.wait([before])
            await keeper.stop(for_good=for_good)

        self._leaving[number] = self._tasks.create_task(end(), name=f"stop worker {number}")

    # ---- what they tell

    @property
    def is_ready(self) -> bool:
        """Whether every worker runs what it is to run."""
        return all(
            keeper.picture is not None
            and keeper.picture["digest"] == self._digest
            and self._works[number].keys() <= keeper.picture["routes"].keys()
            for number, keeper in self._keepers.items()
        )

    def describe_routes(self) -> dict[str, dict[str, Any]]:
        """What each route has to tell, by name, whichever workers run it."""
        told: dict[str, list[Mapping[str, Any]]] = {}
        for number, works in self._works.items():
            routes = self._told(number).get("routes", {})
            self._past_routes.take(
                number, totals_of_routes({name: routes[name] for name in works if name in routes})
            )
            for name in works:
                told.setdefault(name, []).append(routes.get(name) or starting_route())
        return {
            name: with_past(name, merge_routes(pictures), self._past_routes)
            for name, pictures in told.items()
        }

    def describe_standing(self) -> dict[str, Mapping[str, Any]]:
        """Of what each route has to tell, whether its workers run it; nothing of those that have not told."""
        told: dict[str, Mapping[str, Any]] = {}
        for number, works in self._works.items():
            routes = self._told(number).get("routes", {})
            for name in works:
                if name in routes and told.get(name, {}).get("state") != RouteState.SUPERSEDED.value:
                    told[name] = routes[name]
        return told

    def describe_links(self) -> list[list[dict[str, Any]]]:
        """What each worker tells of its links, and what those sent that are gone."""
        told = {number: self._told(number).get("links", []) for number in self._keepers}
        ends = self._ends()
        for number, links in told.items():
            totals = totals_of_links(links)
            self._past_links.take(number, {each: totals[each] for each in totals.keys() & ends})
        return [*told.values(), past_links(ends, self._past_links)]

    def _told(self, number: int) -> Mapping[str, Any]:
        """The picture of a worker; nothing of one that has not told yet."""
        keeper = self._keepers.get(number)
        return {} if keeper is None or keeper.picture is None else keeper.picture

    def _names(self) -> set[str]:
        return {name for works in self._works.values() for name in works}

    def _ends(self) -> set[Ends]:
        """Of the links that routes of workers are on."""
        return {
            (work.route.source, work.route.destination)
            for works in self._works.values()
            for work in works.values()
        }

    def describe(self) -> list[dict[str, Any]]:
        """Each worker as plain data; times in milliseconds since the epoch."""
        return [keeper.describe() for keeper in self._keepers.values()]
