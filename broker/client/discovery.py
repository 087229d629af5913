"""Brokers found in ZooKeeper: their registrations below `/brokers/ids`, read and watched.

What is registered becomes the addresses that a `Cluster` asks first; who leads what comes from metadata,
which is asked for anew at every change, so that connections follow the brokers that come and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from broker.client.cluster import Cluster
from broker.coordination import paths
from broker.coordination.protocol import Coordination, SessionLostError
from broker.coordination.znodes import BrokerZnode
from broker.errors import BrokerError, ConnectionFailedError, CoordinationError
from broker.telemetry import logger
from broker.types import BrokerId, HostPort

_log = logger("discovery")


class Discovery:
    """The addresses of the brokers that are registered, by way of one session. Made by `discovered`."""

    def __init__(self, coordination: Coordination, security_protocol: str) -> None:
        self.addresses: Sequence[HostPort] = ()
        """As last read, in the order of the brokers' ids."""
        self._coordination = coordination
        self._security_protocol = security_protocol
        self._clusters: list[Cluster] = []
        self._changed = asyncio.Event()

    def follow(self, cluster: Cluster) -> None:
        """Keep telling a cluster of the brokers, from now on."""
        self._clusters.append(cluster)

    async def read(self) -> None:
        """Look at the registrations. Raises CoordinationError."""
        found: list[HostPort] = []
        for name in sorted(await self._coordination.children(paths.BROKER_IDS), key=_number):
            path = f"{paths.BROKER_IDS}/{name}"
            znode = await self._coordination.get(path)
            if znode is not None:
                found += [
                    endpoint.address
                    for endpoint in BrokerZnode.decode(znode.data, path).endpoints
                    if endpoint.security_protocol == self._security_protocol
                ]
        self.addresses = found

    def changed(self) -> None:
        """The registrations may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Follow the changes until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.read()
            except SessionLostError:
                continue  # told again when there is a session
            except CoordinationError as error:
                _log.warning("registrations_not_read", error=str(error))
                continue
            if self.addresses:
                await asyncio.gather(*(self._tell(cluster) for cluster in self._clusters))

    async def _tell(self, cluster: Cluster) -> None:
        cluster.use_bootstrap(self.addresses)
        try:
            await cluster.refresh(list(cluster.topics))
        except BrokerError as error:
            _log.info("metadata_not_refreshed", error=str(error))


@asynccontextmanager
async def discovered(
    coordination: Coordination, *, security_protocol: str = "PLAINTEXT"
) -> AsyncIterator[Discovery]:
    """What is registered with listeners of the protocol, followed until the end of the block.

    Raises CoordinationError, and ConnectionFailedError when there is no such broker.
    """
    discovery = Discovery(coordination, security_protocol)
    stop_watching = coordination.watch_children(paths.BROKER_IDS, discovery.changed)
    try:
        await discovery.read()
        if not discovery.addresses:
            raise ConnectionFailedError(
                f"no broker with a listener for {security_protocol} is registered in ZooKeeper"
            )
        following = asyncio.create_task(discovery.run(), name="broker discovery")
        try:
            yield discovery
        finally:
            following.cancel()
            await asyncio.wait([following])
    finally:
        stop_watching()


def _number(name: str) -> tuple[int, str]:
    return (BrokerId(int(name)), "") if name.isdecimal() else (-1, name)
