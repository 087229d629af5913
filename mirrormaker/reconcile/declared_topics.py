"""Keeps the topics that a file asks for at its clusters (`clusters.*.topics`), whether a route writes them or
not: what is lacking is made, what differs is set unless data would be lost by it, and told. What a route is
to copy there is left to it to make, like its source's. Nothing is done while another daemon runs routes of
the file by a newer one, which may ask for something else. A task of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from broker.client.admin import Admin
from broker.client.operations import DESCRIBE, DESCRIBE_CONFIGS
from broker.errors import BrokerError, ProtocolError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.signal import Signal
from mirrormaker.missing_rights import explained, missing_right
from mirrormaker.plan.topics import compare_topic, declared_topic, select_topics
from mirrormaker.reconcile.observed_topics import topics_of
from mirrormaker.reconcile.repair import LoggedNews, Repairer
from mirrormaker.topology.further_topics import may_write
from mirrormaker.topology.model import ClusterName, ClusterSpec, SyncSpec, Topology
from mirrormaker.topology.naming import compile_naming

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
                topology = self._topology()
                looks = (self._look(topology, spec, self._places[name]) for name, spec in specs.items())
                await asyncio.gather(*looks)
            await self._due.wait(INTERVAL_MS)

    def describe(self) -> Mapping[str, Any]:
        """How it stands at each cluster that topics are asked for at, as plain data."""
        return {
            name: {"problem": place.problem, "drift": [one.describe() for one in place.repairer.drift]}
            for name, place in self._places.items()
        }

    async def _look(self, topology: Topology, spec: ClusterSpec, place: _Place) -> None:
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_MS / 1000):
                await _compare(topology, spec, place.repairer)
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


async def _compare(topology: Topology, spec: ClusterSpec, repairer: Repairer) -> None:
    async with open_cluster(spec) as cluster:
        metadata = await cluster.refresh(spec.topics)
        admin = Admin(cluster)
        there = [name for name, topic in topics_of(metadata).items() if not topic.error]
        answers = await admin.describe_topics_configs(there)
        hidden = [topic for topic in topics_of(metadata).values() if topic.is_hidden]
        refused = [missing_right(topic.error, spec.name, topic.name, DESCRIBE) for topic in hidden]
        refused += [
            explained(answer, spec.name, name, DESCRIBE_CONFIGS)
            for name, answer in answers.items()
            if isinstance(answer, ProtocolError)
        ]
        settings = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        known = topics_of(metadata, settings)
        left = await _left_to_routes(topology, spec.name, spec.topics.keys() - set(there))
        steps = [
            step
            for name, topic in spec.topics.items()
            if name not in left
            for step in compare_topic(spec.name, declared_topic(name, topic), known.get(name))
        ]
        await repairer.repair(
            admin, steps, _REPAIRED, is_unseen=lambda name: name in known and name not in settings
        )
        if refused:
            raise refused[0]


async def _left_to_routes(topology: Topology, cluster: ClusterName, missing: Collection[str]) -> set[str]:
    """Those that routes copy from topics of their sources, and make, or may, as far as a source is away."""
    left = set[str]()
    for route in topology.routes:
        naming = compile_naming(route.source, route.topics)
        makes = route.destination == cluster and route.may_run and route.sync.topics
        wanted = {name for name in missing if makes and may_write(route, naming, name)}
        if not wanted:
            continue
        try:
            async with open_cluster(topology.clusters[route.source]) as source:
                metadata = await source.refresh()
        except BrokerError:
            left |= wanted
        else:
            left |= wanted.intersection(select_topics(naming, metadata.topics.values()).values())
    return left
