"""Writes heartbeats at the sources of a topology: one a second at each cluster, however many routes begin
there; also at the side of a failover group where routes begin after a switch. A cluster where the mirror may
not write is told of, and goes without. A task of the daemon.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broker.client.cluster import Cluster
from broker.client.operations import WRITE
from broker.client.producer import Delivery, Producer, ProducerSettings
from broker.clock import Clock
from broker.errors import BrokerError, ProtocolError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC, Beat, encode_beat, encode_key
from mirrormaker.flow.side_topics import make_heartbeats_topic
from mirrormaker.flow.signal import Signal
from mirrormaker.missing_rights import explained
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import ClusterName, ClusterSpec, Topology

INTERVAL_MS = 1_000
RETRY_MS = 10_000
DELIVERY_TIMEOUT_MS = 10_000

_log = logger("heartbeats")


@dataclass(slots=True, eq=False)
class _Place:
    """One cluster."""

    spec: ClusterSpec
    task: asyncio.Task[None]
    written: int = 0
    problem: str | None = None


class HeartbeatWriters:
    """See the module. `topology` gives the one in force."""

    def __init__(self, topology: Callable[[], Topology], state: StateDirectory, clock: Clock) -> None:
        """`state` tells whose daemon it is."""
        self._topology = topology
        self._state = state
        self._host = socket.gethostname()
        self._clock = clock
        self._places: dict[ClusterName, _Place] = {}
        self._due = Signal()

    def look_again(self) -> None:
        """The file may name other sources now."""
        self._due.set()

    async def run(self) -> None:
        """Write, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                wanted = {spec.name: spec for spec in sources_of(self._topology())}
                for name, place in list(self._places.items()):
                    if wanted.get(name) != place.spec:
                        place.task.cancel()
                        del self._places[name]
                for name in wanted.keys() - self._places.keys():
                    task = tasks.create_task(self._keep(wanted[name]), name=f"heartbeats at {name}")
                    self._places[name] = _Place(wanted[name], task)
                await self._due.wait()

    async def _keep(self, spec: ClusterSpec) -> None:
        while True:
            try:
                async with open_cluster(spec, client_id="mirrormaker-heartbeats") as cluster:
                    await make_heartbeats_topic(cluster)
                    await self._beat(spec, cluster)
            except BrokerError as error:
                place = self._places[spec.name]
                if place.problem is None:
                    _log.warning("heartbeats_not_written", cluster=spec.name, error=str(error))
                place.problem = str(error)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _beat(self, spec: ClusterSpec, cluster: Cluster) -> None:
        """Raises BrokerError."""
        settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        cluster_id = cluster.cluster_id or spec.name
        place, daemon_id = self._places[spec.name], self._state.daemon_id()
        producer = Producer(cluster, settings=settings)
        await producer.start()
        try:
            while True:
                beat = Beat(
                    cluster=cluster_id,
                    name=spec.name,
                    daemon=daemon_id,
                    host=self._host,
                    at_ms=self._clock.now_ms(),
                )
                try:
                    sent = await producer.send(HEARTBEATS_TOPIC, encode_beat(beat), encode_key(cluster_id))
                    await _settle(cluster, sent)
                except ProtocolError as error:
                    raise explained(error, spec.name, HEARTBEATS_TOPIC, WRITE) from error
                place.written += 1
                place.problem = None
                await asyncio.sleep(INTERVAL_MS / 1000)
        finally:
            await producer.close(timeout_ms=0)  # nobody misses the last one

    def describe(self) -> dict[str, Any]:
        """How it stands at each source, as plain data."""
        return {
            name: {"written": place.written, "problem": place.problem} for name, place in self._places.items()
        }


async def _settle(cluster: Cluster, sent: Delivery) -> None:
    """Until it is written. What is not taken at once may lack its topic, as somebody has deleted that: the
    producer has looked for it by then, and goes on by itself once it is there again. Raises BrokerError.
    """
    while True:
        try:
            async with asyncio.timeout(INTERVAL_MS / 1000):
                await sent
                return
        except TimeoutError:
            if not cluster.partitions(HEARTBEATS_TOPIC):
                await make_heartbeats_topic(cluster)


def sources_of(topology: Topology) -> Iterator[ClusterSpec]:
    """The clusters where heartbeats are to be born: also where a switch would have routes begin."""
    names = dict.fromkeys(route.source for route in topology.routes if route.heartbeats and route.may_run)
    return (topology.clusters[name] for name in names)
