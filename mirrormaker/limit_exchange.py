"""Has the processes that share limits hear of each other: those of this daemon by way of it, those of others
by a topic at the destination (`reconcile/limit_board`), where there are others. A task of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from broker.clock import Clock
from mirrormaker.flow.bandwidth.lending import LOAN_MS
from mirrormaker.flow.bandwidth.shared_limits import processes_by_limit
from mirrormaker.flow.bandwidth.statements import LimitName, Statement, place_of
from mirrormaker.reconcile.limit_board import LimitBoard
from mirrormaker.topology.model import ClusterName, Topology

EXCHANGE_MS = 500
PUBLISH_MS = 1_000
"""What other daemons are told is no more recent than this."""
SETTLED_MS = 3_000
"""So long other daemons have to be known of before they are told anything: processes learn of an edit one by
one, and some still speak by the file before.
"""


class Teller(Protocol):
    """Processes of this daemon: itself, or its workers."""

    def tell_limits(self) -> list[Statement]: ...

    def hear_limits(self, statements: list[Statement]) -> None: ...


class LimitExchange:
    """See the module. `topology` gives the one in force."""

    def __init__(
        self, topology: Callable[[], Topology], daemon_id: str, tellers: Iterable[Teller], clock: Clock
    ) -> None:
        self._topology = topology
        self._daemon_id = daemon_id
        self._tellers = tuple(tellers)
        self._clock = clock
        self._here: dict[tuple[ClusterName, str], tuple[Statement, int]] = {}
        """The last of each place of this daemon, and when it came: a process that ended may have lent."""
        self._now: Sequence[Statement] = ()
        """Of the processes that there are."""
        self._known_since: dict[ClusterName, int] = {}
        """Other daemons that share limits there."""
        self._boards: dict[ClusterName, tuple[LimitBoard, asyncio.Task[None]]] = {}
        self._published_ms = 0

    async def run(self) -> None:
        """Pass on what is told, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._gather()
                self._publish(tasks)
                self._spread()
                await asyncio.sleep(EXCHANGE_MS / 1000)

    def _gather(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._now = [told for teller in self._tellers for told in teller.tell_limits()]
        for told in self._now:
            key = told.destination, place_of(told.member)
            known = self._here.get(key)
            if known is None or (known[0].member, known[0].number) != (told.member, told.number):
                self._here[key] = told, now_ms
        self._here = {key: each for key, each in self._here.items() if now_ms < each[1] + LOAN_MS}

    def _spread(self) -> None:
        heard = [statement for statement, _ in self._here.values()]
        heard += [statement for board, _ in self._boards.values() for statement in board.heard]
        if heard:
            for teller in self._tellers:
                teller.hear_limits(heard)

    def _publish(self, tasks: asyncio.TaskGroup) -> None:
        """Tell other daemons, at destinations where there are any."""
        topology, now_ms = self._topology(), self._clock.monotonic_ms()
        shared = topology.clusters.keys() & _with_others(self._now, processes_by_limit(topology))
        self._known_since = {name: self._known_since.get(name, now_ms) for name in shared}
        for name in [*self._boards]:
            board, task = self._boards[name]
            if name not in shared or board.spec != topology.clusters[name]:
                task.cancel()
                del self._boards[name]
        for name, since_ms in self._known_since.items():
            if name not in self._boards and now_ms >= since_ms + SETTLED_MS:
                board = LimitBoard(topology.clusters[name], self._daemon_id, self._clock, self._spread)
                self._boards[name] = board, tasks.create_task(board.run(), name=f"limits at {name}")
        if now_ms >= self._published_ms + PUBLISH_MS:
            self._published_ms = now_ms
            for name, (board, _) in self._boards.items():
                board.tell([each for each, _ in self._here.values() if each.destination == name])


def _with_others(statements: Iterable[Statement], processes: Mapping[LimitName, int]) -> set[ClusterName]:
    """Destinations with a limit that more share than these processes, by what they say. Nobody shares a limit
    that is gone.
    """
    return {
        statement.destination
        for statement in statements
        if any(
            limit in processes and stake.need.members > processes[limit]
            for limit, stake in statement.stakes.items()
        )
    }
