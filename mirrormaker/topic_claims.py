"""Has the daemons of a file agree on which route writes a topic that several could. A task of the daemon.

Nothing is asked, and no topic is made for it, as long as no route wants such a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from broker.clock import Clock
from mirrormaker.reconcile.claim_board import ClaimBoard
from mirrormaker.reconcile.claims import Decision
from mirrormaker.reconcile.topic_owners import Contenders, Topics, destinations_of_several
from mirrormaker.route_host import RouteHost
from mirrormaker.topology.model import ClusterName, ClusterSpec, RouteName, Topology

LOOK_INTERVAL_MS = 250


class TopicClaims:
    """See the module. `desire` before the routes of a topology run."""

    def __init__(
        self,
        host: RouteHost,
        daemon_id: str,
        on_change: Callable[[], None],
        clock: Clock,
        *,
        superseded: Callable[[], Collection[RouteName]],
    ) -> None:
        """`on_change`: workers may have to be told. `superseded`: routes that another daemon runs by a newer
        file. Where they lead it decides about topics, and this one has no say.
        """
        self._host = host
        self._daemon_id = daemon_id
        self._on_change = on_change
        self._clock = clock
        self._superseded = superseded
        self._topology: Topology | None = None
        self._contenders: dict[ClusterName, Contenders] = {}
        self._boards: dict[ClusterName, tuple[ClaimBoard, asyncio.Task[None]]] = {}
        self._asked: dict[ClusterName, tuple[dict[RouteName, Topics], dict[str, RouteName]]] = {}
        """What was asked for last, and what of it is contended."""

    def desire(self, topology: Topology) -> None:
        """Decide about the routes of this from now on."""
        self._topology = topology
        self._contenders = {name: Contenders(topology, name) for name in destinations_of_several(topology)}
        self._asked.clear()
        self._decide()

    async def run(self) -> None:
        """Agree, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._look(tasks)
                await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    def _look(self, tasks: asyncio.TaskGroup) -> None:
        assert self._topology is not None
        superseded = self._superseded()
        for name in [*self._boards]:
            board, task = self._boards[name]
            if name not in self._contenders or board.spec != self._topology.clusters[name]:
                task.cancel()
                del self._boards[name]
        for name, contenders in self._contenders.items():
            asked = dict(self._host.claims[name].all())
            wanted = self._wanted(name, asked)
            if wanted and name not in self._boards:
                spec = self._topology.clusters[name]
                board = ClaimBoard(
                    spec,
                    self._daemon_id,
                    self._clock,
                    self._decide,
                    lambda route, spec=spec: self._is_of_others(spec, route),  # type: ignore[misc]
                )
                self._boards[name] = board, tasks.create_task(board.run(), name=f"claims at {name}")
            if name not in self._boards:
                continue
            if any(route in contenders.routes for route in superseded):
                self._boards[name][0].stand_back()
            else:
                self._boards[name][0].ask(wanted, asked, contenders.routes)

    def _is_of_others(self, destination: ClusterSpec, route: RouteName) -> bool:
        """Whether a daemon runs it by a file that is not older than this one, which does not have it; so it
        is taken to be until that is known.
        """
        assert self._topology is not None
        board = self._host.board(destination)
        if not board.is_read:
            return True
        claim = board.known_wishes(route).claim
        return (
            claim is not None
            and claim.daemon != self._daemon_id
            and claim.generation >= self._topology.generation
        )

    def _wanted(self, name: ClusterName, asked: dict[RouteName, Topics]) -> dict[str, RouteName]:
        """Who is to have each contended topic that nobody has; worked out where something has changed."""
        known = self._asked.get(name)
        if known is None or known[0] != asked:
            known = self._asked[name] = asked, self._contenders[name].wanted(asked)
        return known[1]

    def _decide(self) -> None:
        """Put in force what is agreed on; where that cannot be, this daemon decides by itself."""
        decisions: dict[ClusterName, Decision] = {}
        for name, contenders in self._contenders.items():
            board = self._boards[name][0] if name in self._boards else None
            if board is not None and board.is_refused:
                continue
            decisions[name] = Decision(
                granted=contenders.granted(board.owners if board is not None else {}),
                sharing=contenders.sharing,
                is_about=contenders.rivals,
            )
        self._host.decide(decisions)
        self._on_change()
