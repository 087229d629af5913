"""The control topic of a route's destination for commands, which come and go: read it, write to it.

Daemons heed what stands there wherever they run, also those that start later.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from broker.clock import Clock
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.reconcile.control import CONTROL_TOPIC, Pause, RouteWishes, read_wishes
from mirrormaker.reconcile.control_board import TIMEOUT_MS
from mirrormaker.reconcile.control_records import read_control_records
from mirrormaker.reconcile.halts import Release
from mirrormaker.reconcile.pauses import find_route, pause_records, resume_records
from mirrormaker.topology.model import ClusterSpec, RouteName, Topology


async def read_control(destination: ClusterSpec) -> dict[RouteName, RouteWishes]:
    """What is said of the routes to a destination. Raises BrokerError."""
    return read_wishes(await read_control_records(destination))


async def pause(
    topology: Topology, name: str, topics: Collection[str], reason: str | None, clock: Clock
) -> None:
    """Have a route pause, or topics of it. Raises ConfigurationError, BrokerError."""
    route = find_route(topology, name, topics)
    wish = Pause(at_ms=clock.now_ms(), by=this_user(), reason=reason)
    async with _control_of(topology.clusters[route.destination]) as topic:
        await topic.put(pause_records(route.name, topics, wish))


async def resume(
    topology: Topology, name: str, topics: Collection[str], clock: Clock, partition: int | None = None
) -> int:
    """Have a route go on, or topics of it, or one partition of them. Returns how many pauses that ended.

    Raises ConfigurationError, BrokerError.
    """
    route = find_route(topology, name, topics)
    async with _control_of(topology.clusters[route.destination]) as topic:
        await topic.read_to_end()
        wishes = read_wishes(topic.entries()).get(route.name, RouteWishes())
        release = Release(at_ms=clock.now_ms(), by=this_user())
        records = resume_records(route.name, topics, wishes, release, partition)
        await topic.put(records)
        return len(records)


def this_user() -> str:
    """Who wishes, as others know them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


@asynccontextmanager
async def _control_of(destination: ClusterSpec) -> AsyncIterator[KeptTopic]:
    async with (
        open_cluster(destination) as cluster,
        KeptTopic(cluster, CONTROL_TOPIC, timeout_ms=TIMEOUT_MS) as topic,
    ):
        yield topic
