"""Keeps the topics that a file asks for at its clusters (`clusters.*.topics`), whether a route writes them or
not: what is lacking is made, what differs is set unless data would be lost by it, and told. Nothing is while
another daemon runs routes of the file by a newer one, which may ask for something else. A task of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.client.admin import Admin
from broker.errors import BrokerError, ProtocolError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.signal import Signal
from mirrormaker.plan.topics import compare_topic, declared_topic
from mirrormaker.reconcile.observed_topics import topics_of
from mirrormaker.reconcile.repair import LoggedNews, Repairer
from mirrormaker.topology.model import ClusterName, ClusterSpec, SyncSpec, Topology

INTERVAL_MS = 5_000
LOOK_TIMEOUT_MS = 30_000
_REPAIRED = SyncSpec()

_log = logger("declared")


@dataclass(slots=True)
class _Place:
    """One cluster."""

    repairer: Repairer
    problem: str | None = None


class DeclaredTopics:
    """See the module. `topology` gives the one in force, `superseding` why that is not to change anything;
    None where it is.
    """

    def __init__(self, topology: Callable[[], Topology], superseding: Callable[[], str | None]) -> None:
        self._topology = topology
        self._superseding = superseding
        self._places: dict[ClusterName, _Place] = {}
        self._due = Signal()

    def look_again(self) -> None:
        """The file may ask for something else now."""
        self._due.set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            specs = {name: spec for name, spec in self._topology().clusters.items() if spec.topics}
            if (problem := self._superseding()) is not None:
                self._places = {name: _place_of(name, problem) for name in specs}
            else:
                self._places = {name: self._places.get(name) or _place_of(name) for name in specs}
                await asyncio.gather(*(self._look(spec, self._places[name]) for name, spec in specs.items()))
            await self._due.wait(INTERVAL_MS)

    def describe(self) -> Mapping[str, Any]:
        """How it stands at each cluster that topics are asked for at, as plain data."""
        return {
            name: {"problem": place.problem, "drift": [one.describe() for one in place.repairer.drift]}
            for name, place in self._places.items()
        }

    async def _look(self, spec: ClusterSpec, place: _Place) -> None:
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_MS / 1000):
                await _compare(spec, place.repairer)
        except (BrokerError, TimeoutError) as error:
            problem = str(error) or f"cluster {spec.name!r}: no answer within {LOOK_TIMEOUT_MS} ms"
            if place.problem is None:
                _log.warning("declared_topics_not_compared", cluster=spec.name, error=problem)
            place.problem = problem
        else:
            place.problem = None


def _place_of(name: ClusterName, problem: str | None = None) -> _Place:
    log = _log.bind(cluster=name)
    return _Place(Repairer(log, LoggedNews(log)), problem)


async def _compare(spec: ClusterSpec, repairer: Repairer) -> None:
    async with open_cluster(spec) as cluster:
        metadata = await cluster.refresh(spec.topics)
        admin = Admin(cluster)
        there = [name for name, topic in topics_of(metadata).items() if not topic.error]
        answers = await admin.describe_topics_configs(there)
        refused = [answer for answer in answers.values() if isinstance(answer, ProtocolError)]
        settings = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        known = topics_of(metadata, settings)
        steps = [
            step
            for name, topic in spec.topics.items()
            for step in compare_topic(spec.name, declared_topic(name, topic), known.get(name))
        ]
        await repairer.repair(admin, steps, _REPAIRED, saw_settings=True)
        if refused:
            raise refused[0]
