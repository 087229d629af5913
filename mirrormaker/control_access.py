"""The control topic of a route's destination for commands, which come and go: read it, write to it.

Daemons heed what stands there wherever they run, also those that start later.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.clock import Clock
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.reconcile.control import Pause, Resumption, RouteWishes, read_wishes, resumption_record
from mirrormaker.reconcile.control_records import control_of, read_control_records, this_user
from mirrormaker.reconcile.halts import Release
from mirrormaker.reconcile.pauses import (
    find_pause,
    find_route,
    name_resumed,
    pause_records,
    require_resumable,
    resume_records,
)
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
    async with control_of(topology.clusters[route.destination]) as topic:
        await topic.put(pause_records(route.name, topics, wish))


async def resume(
    topology: Topology, name: str, topics: Collection[str], clock: Clock, partition: int | None = None
) -> tuple[list[str], str | None]:
    """Have a route go on, or topics of it, or one partition of them. Returns the names of what does, and what
    holds it all the same, if anything does.

    Raises ConfigurationError, BrokerError.
    """
    route = find_route(topology, name, topics)
    async with control_of(topology.clusters[route.destination]) as topic:
        resumption = Resumption(
            release=Release(at_ms=clock.now_ms(), by=this_user()),
            topics=frozenset(topics),
            partition=partition,
        )
        await topic.read_to_end()
        require_resumable(route.name, _wishes(topic, route.name), resumption)
        await topic.put([resumption_record(route.name, resumption)])
        await topic.read_to_end()
        wishes = _wishes(topic, route.name)
        records = resume_records(route.name, wishes, resumption)
        await topic.put(records)
        names = [name_resumed(key) or name for key, _ in records]
        return names, find_pause(route.name, wishes, resumption)


def _wishes(control: KeptTopic, route: RouteName) -> RouteWishes:
    """What is said of a route, as far as it was read."""
    return read_wishes(control.entries()).get(route, RouteWishes())
