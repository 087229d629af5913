"""The daemon looks by itself for records that only the idle side of a failover group has: late ones, of
producers that have not heard of a switch, and those of a lost side that is back. It says so (status, metric,
events `failover_tail_found`, `lost_side_is_back`), and consumer groups are carried no further than to the
first of them. It changes nothing else: what becomes of them is for people to decide.

Each look goes on where the one before ended; a switch begins anew, and so does a topic that was made anew. A
task of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from broker.client.offsets import earliest_offsets
from broker.clock import Clock
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicId, TopicPartition
from mirrormaker.failover.sides import Sides, open_sides
from mirrormaker.failover.tail import Tail, find_tails
from mirrormaker.flow.signal import Signal
from mirrormaker.reconcile.active_sides import read_switch
from mirrormaker.reconcile.switches import IdleTail, Side, Stage
from mirrormaker.topology.failover_groups import FailoverGroup, failover_groups
from mirrormaker.topology.model import ClusterName, Topology

LOOK_MS = 30_000
AWAY_LOOK_MS = 5_000
"""While a side is lost, and nothing is copied until it is back."""
_WATCHED = frozenset({Stage.SETTLED, Stage.AWAY})

_log = logger("failover")


@dataclass(slots=True, kw_only=True)
class _Watched:
    """What is known of one group."""

    idle: ClusterName | None = None
    revision: int = -1
    """Of the switch that it was looked at under."""
    stage: Stage = Stage.SETTLED
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    """Of the topics of the idle side when they were looked at last."""
    looked_to: dict[TopicPartition, int] = field(default_factory=dict)
    tails: dict[TopicPartition, Tail] = field(default_factory=dict)
    problem: str | None = None
    looked_at_ms: int | None = None

    @property
    def found(self) -> IdleTail:
        return IdleTail(
            revision=self.revision, first={source: tail.first for source, tail in self.tails.items()}
        )

    def heed_topics(self, topic_ids: dict[str, TopicId]) -> None:
        """Forget what was known of topics that are others now, or gone."""
        gone = {name for name, known in self.topic_ids.items() if topic_ids.get(name) != known}
        self.looked_to = {at: to for at, to in self.looked_to.items() if at.topic not in gone}
        self.tails = {at: tail for at, tail in self.tails.items() if at.topic not in gone}
        self.topic_ids = topic_ids

    def describe(self, *, is_former: bool) -> dict[str, Any]:
        tails = {} if is_former else self.tails
        return {
            "idle": self.idle,
            "tail": [tail.describe() for _, tail in sorted(tails.items())],
            "tail_records": sum(tail.records for tail in tails.values()),
            "problem": self.problem,
            "looked_at_ms": self.looked_at_ms,
        }


class TailWatch:
    """See the module."""

    def __init__(
        self,
        topology: Callable[[], Topology],
        clock: Clock,
        on_look: Callable[[Mapping[str, IdleTail]], None],
    ) -> None:
        """`topology` gives the one in force; `on_look` takes what is known after each look, by group."""
        self._topology = topology
        self._clock = clock
        self._on_look = on_look
        self._groups: dict[str, _Watched] = {}
        self._due = Signal()

    def look_again(self) -> None:
        """The file may have other groups now."""
        self._due.set()

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            topology = self._topology()
            groups = failover_groups(topology)
            for name in self._groups.keys() - groups.keys():
                del self._groups[name]
            await asyncio.gather(*(self._look(topology, group) for group in groups.values()))
            self._on_look({name: watched.found for name, watched in self._groups.items() if watched.tails})
            await self._wait()

    async def _wait(self) -> None:
        is_away = any(each.stage is Stage.AWAY for each in self._groups.values())
        try:
            async with asyncio.timeout((AWAY_LOOK_MS if is_away else LOOK_MS) / 1000):
                await self._due.wait()
        except TimeoutError:
            return

    async def _look(self, topology: Topology, group: FailoverGroup) -> None:
        watched = self._groups.setdefault(group.name, _Watched())
        try:
            async with open_sides(topology, group, self._clock) as sides:
                await self._look_at(sides, watched)
        except BrokerError as error:
            watched.problem = str(error)

    async def _look_at(self, sides: Sides, watched: _Watched) -> None:
        """Raises BrokerError."""
        switch, idle = sides.switch, sides.switch.side.other
        if switch.revision != watched.revision:
            fresh = _Watched(idle=sides.name(idle), revision=switch.revision, stage=switch.stage)
            self._groups[sides.group.name] = watched = fresh
        if switch.stage not in _WATCHED or not sides.leaving(idle):
            watched.problem = None  # a command is at work, or there is no way back
            return
        for side in Side:
            sides.cluster(side)
        topics = (await sides.cluster(idle).refresh()).topics
        watched.heed_topics({name: topic.topic_id for name, topic in topics.items()})
        found, ends = await find_tails(sides, idle, watched.looked_to)
        starts = await earliest_offsets(sides.cluster(idle), watched.tails)
        if (await read_switch(sides.topology, sides.group)).revision != switch.revision:
            return  # sides were switched meanwhile: it is no tail that was seen
        is_back = switch.stage is Stage.AWAY and watched.looked_at_ms is None
        watched.problem, watched.looked_at_ms = None, self._clock.now_ms()
        watched.looked_to |= ends
        gone = [
            source
            for source, start in starts.items()
            if not start <= watched.tails[source].last < ends.get(source, 0)
        ]
        for source in gone:  # deleted there meanwhile, or lost with the end of the log
            del watched.tails[source]
        if is_back:
            _log.warning("lost_side_is_back", group=sides.group.name, cluster=sides.name(idle))
        for tail in found:
            watched.tails[tail.source] = _joined(watched.tails.get(tail.source), tail)
            _tell(sides, idle, tail)

    def describe(self, revisions: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """For `status`, by group. `revisions` of the switches that are known of: what was found under an
        earlier one has been dealt with.
        """
        if any(watched.revision < revisions.get(name, -1) for name, watched in self._groups.items()):
            self._due.set()
        return {
            name: watched.describe(is_former=watched.revision < revisions.get(name, -1))
            for name, watched in sorted(self._groups.items())
        }


def _joined(before: Tail | None, tail: Tail) -> Tail:
    if before is None:
        return tail
    return replace(
        tail,
        first=before.first,
        first_ms=before.first_ms,
        records=before.records + tail.records,
        bytes=before.bytes + tail.bytes,
    )


def _tell(sides: Sides, idle: Side, tail: Tail) -> None:
    _log.warning(
        "failover_tail_found",
        group=sides.group.name,
        cluster=sides.name(idle),
        partition=str(tail.source),
        records=tail.records,
        first=tail.first,
        last=tail.last,
    )
