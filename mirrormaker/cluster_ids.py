"""Which real cluster each name of the topology means: its id, as the cluster told it last.

Routes need the ids of clusters that they do not lead to, to know the origins of what they carry; these may be
away just then. So what was seen once is kept in the daemon's folder. One for each process of a daemon.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import ClusterId, ClusterName, ClusterSpec

_log = logger("cluster_ids")


class ClusterIds:
    """See the module."""

    def __init__(self, state: StateDirectory | None = None) -> None:
        """`state`: where they are kept, once that is known."""
        self._state = state
        self._ids: dict[ClusterName, ClusterId] = {} if state is None else state.kept_cluster_ids()
        self._asking: defaultdict[ClusterName, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._begun: Counter[ClusterName] = Counter()
        """How often each was asked."""
        self._silent: set[ClusterName] = set()
        """Those that did not answer when they were asked last."""

    def keep_in(self, state: StateDirectory) -> None:
        """Keep them there from now on."""
        if self._state is None:
            self._ids = state.kept_cluster_ids() | self._ids
        self._state = state

    def known(self, names: Collection[ClusterName]) -> dict[ClusterName, ClusterId]:
        """The ids of these clusters, as far as known."""
        return {name: self._ids[name] for name in names if name in self._ids}

    def see(self, name: ClusterName, cluster_id: str | None) -> None:
        """The cluster itself told its id, or None when it does not."""
        before = self._ids.get(name)
        if cluster_id is None or before == cluster_id:
            return
        if before is not None:
            _log.warning("cluster_is_another", cluster=name, id_before=before, id_now=cluster_id)
        self._ids[name] = ClusterId(cluster_id)
        if self._state is None:
            return
        try:
            self._state.keep_cluster_ids(self._state.kept_cluster_ids() | self._ids)  # workers keep them too
        except OSError as error:
            _log.warning("cluster_ids_not_kept", error=str(error))

    async def look_up(self, clusters: Iterable[ClusterSpec]) -> set[ClusterName]:
        """Ask these clusters; returns those that did not answer. Several who want to know at once ask
        together.
        """
        specs = list(clusters)
        async with asyncio.TaskGroup() as tasks:
            for spec in specs:
                tasks.create_task(self._ask(spec), name=f"id of {spec.name}")
        return {spec.name for spec in specs} & self._silent

    async def _ask(self, spec: ClusterSpec) -> None:
        begun = self._begun[spec.name]
        async with self._asking[spec.name]:
            if self._begun[spec.name] == begun:
                self._begun[spec.name] += 1
                await self._ask_alone(spec)

    async def _ask_alone(self, spec: ClusterSpec) -> None:
        try:
            async with open_cluster(spec, client_id="mirrormaker") as cluster:
                self.see(spec.name, cluster.cluster_id)
            self._silent.discard(spec.name)
        except BrokerError as error:
            self._silent.add(spec.name)
            _log.info("cluster_id_not_told", cluster=spec.name, error=str(error))
