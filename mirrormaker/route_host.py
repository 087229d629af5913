"""The routes that one process runs, be it the daemon or a worker of it: who runs them, the control topics
that they heed, and what they claim of their destinations.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from secrets import token_hex
from typing import Any

from broker.clock import Clock
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.daemon_identity import DaemonIdentity
from mirrormaker.flow.bandwidth.links import Links
from mirrormaker.flow.bandwidth.statements import Statement, member_name
from mirrormaker.reconcile.claims import Decision, DestinationClaims
from mirrormaker.reconcile.control_board import ControlBoard, ControlBoards
from mirrormaker.reconcile.loop import RouteLoop
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.reconcile.switch_board import SwitchBoard
from mirrormaker.reconcile.switches import IdleTail
from mirrormaker.route_description import starting_route
from mirrormaker.route_runner import RouteRunner
from mirrormaker.route_surroundings import RouteSurroundings
from mirrormaker.topology.model import ClusterName, ClusterSpec, RouteName, Topology


class RouteHost:
    """See the module. `tasks` runs what is started here; `close` before it ends."""

    def __init__(
        self, identity: DaemonIdentity, cluster_ids: ClusterIds, clock: Clock, tasks: asyncio.TaskGroup
    ) -> None:
        self._identity = identity
        self._cluster_ids = cluster_ids
        self._clock = clock
        self._boards = ControlBoards(tasks, clock)
        place = f"{identity.daemon_id}/{identity.worker or 0}"
        self._links = Links(member_name(place, token_hex(4)), clock)
        self._tails: Mapping[str, IdleTail] = {}
        self.claims: Mapping[ClusterName, DestinationClaims] = defaultdict(DestinationClaims)
        """Who writes which topic of which destination."""
        self._routes: RouteLoop[RouteRunner] = RouteLoop(self.make_runner, tasks)

    @property
    def runners(self) -> Collection[RouteRunner]:
        """The routes at work."""
        return self._routes.runners

    def desire(self, works: Mapping[RouteName, RouteWork], topology: Topology) -> None:
        """Run these of the topology from now on, and no others; what has not changed is not touched."""
        self._boards.sweep()
        before = set(self.runners)
        self._links.configure(topology)
        self._routes.desire(works)
        for runner in before.intersection(self.runners):
            runner.start_over()  # the generation may be another

    def decide(self, decisions: Mapping[ClusterName, Decision]) -> None:
        """Topics of these destinations are claimed by routes of other processes too: this is who has what."""
        for name in self.claims.keys() | decisions.keys():
            self.claims[name].decide(decisions.get(name))
        for runner in self.runners:
            runner.look_at_topics()

    def heed_tails(self, tails: Mapping[str, IdleTail]) -> None:
        """What was found at the idle sides of failover groups: consumer groups are carried no further."""
        self._tails = tails

    def board(self, destination: ClusterSpec) -> ControlBoard:
        """What the control topic of a destination says."""
        return self._boards.of(destination)

    def make_runner(self, work: RouteWork) -> RouteRunner:
        """One that may be asked for its verdict, or run."""
        board, claims = self._boards.of(work.destination), self.claims[work.destination.name]
        switch = None
        if work.failover is not None:
            name, source = work.failover.name, self._boards.of(work.source)
            switch = SwitchBoard(
                work.failover, work.route, source, board, self._clock, lambda: self._tails.get(name)
            )
        around = RouteSurroundings(
            identity=self._identity,
            board=board,
            claims=claims,
            links=self._links,
            cluster_ids=self._cluster_ids,
            clock=self._clock,
            switch=switch,
        )
        return RouteRunner(work, around)

    async def close(self, *, for_good: bool = False) -> None:
        """End every route. `for_good`: other processes of their groups get their partitions at once."""
        await self._routes.close(for_good=for_good)
        self._boards.close()

    def tell_limits(self) -> list[Statement]:
        """What other processes are to know of the limits that this one shares with them."""
        return self._links.tell()

    def hear_limits(self, statements: Iterable[Statement]) -> None:
        """What other processes tell of theirs."""
        self._links.hear(statements)

    def describe_links(self) -> list[dict[str, Any]]:
        """The links of these routes, and how they are used."""
        return self._links.describe()

    def describe(self) -> dict[str, dict[str, Any]]:
        """What each route has to tell, by name, also of those that are to start anew."""
        waiting = {name: starting_route() for name in self._routes.awaited}
        return waiting | {runner.work.name: runner.describe() for runner in self.runners}

    def describe_standing(self) -> dict[str, Mapping[str, Any]]:
        """Of what each route has to tell, whether it is run here."""
        return {runner.work.name: runner.describe_standing() for runner in self.runners}
