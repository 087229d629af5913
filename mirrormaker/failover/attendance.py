"""Who is at work on the routes of a failover group: members of their groups, in any process on any host."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from broker.client.group_descriptions import DEAD
from mirrormaker.failover.partitions import PartitionPlace, read_places
from mirrormaker.failover.sides import FailoverError, Sides
from mirrormaker.reconcile.control import RouteWishes
from mirrormaker.reconcile.switches import Side
from mirrormaker.route_groups import route_group
from mirrormaker.topology.model import RouteName

LOOK_MS = 200
JOIN_MS = 20_000
"""So long a daemon is waited for: one that has just started, or whose routes have just been let go on, takes
a moment to come to work.
"""
_EMPTY = frozenset({"Empty", DEAD, ""})


class Attendance:
    """Of one run of a command."""

    def __init__(self, sides: Sides, timeout_ms: int, tell: Callable[[str], None]) -> None:
        """`timeout_ms`: for processes to leave. `tell` is given a line where others are waited for."""
        self._sides = sides
        self._timeout_ms = timeout_ms
        self._tell = tell

    async def check_daemons(self, side: Side) -> None:
        """Return once every route has a daemon that is to copy what is left at `side`. Raises FailoverError
        where none comes in time.
        """
        sides = self._sides
        places = await read_places(sides, side)
        if (why := why_paused(sides, places)) is not None:
            raise FailoverError(why)
        waiting = dict.fromkeys(place.route.name for place in places if not place.is_copied)
        wait_ms = min(JOIN_MS, self._timeout_ms)
        name = ""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                for name in waiting:
                    await self._comes(side, name)
        except TimeoutError:
            raise FailoverError(
                f"no daemon runs the route {name!r}, none has come in {wait_ms} ms, and not everything is"
                " copied: start one"
            ) from None

    async def await_nobody(self, side: Side) -> None:
        """Until routes from `side` rest in every process. Raises FailoverError."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                for route in self._sides.leaving(side):
                    while await self._members(side, route.name):  # noqa: ASYNC110 clusters are asked
                        await asyncio.sleep(LOOK_MS / 1000)
        except TimeoutError:
            raise FailoverError(
                f"processes did not leave routes from {self._sides.name(side)!r} within"
                f" {self._timeout_ms} ms: run the same command again"
            ) from None

    async def _comes(self, side: Side, name: str) -> None:
        """Until a process is at work on the route."""
        is_told = False
        while not await self._members(side, name):
            if not is_told:
                self._tell(f"waiting for a daemon that runs the route {name!r}")
                is_told = True
            await asyncio.sleep(LOOK_MS / 1000)

    async def _members(self, side: Side, name: str) -> int:
        sides = self._sides
        route = next(route for route in sides.leaving(side) if route.name == name)
        spec = sides.topology.clusters[sides.name(side)]
        async with route_group(route, spec, sides.cluster(side)) as admin:
            found = (await admin.describe_groups([route.group]))[route.group]
        return 0 if found.state in _EMPTY else max(len(found.members), 1)


def why_paused(sides: Sides, places: Iterable[PartitionPlace]) -> str | None:
    """Why what is left to copy at these places would not be; None where nothing of it pauses."""
    left: defaultdict[RouteName, set[str]] = defaultdict(set)
    for place in places:
        if not place.is_copied:
            left[place.route.name].add(place.source.topic)
    for route, topics in left.items():
        if (what := _paused(route, sides.wishes.get(route), topics)) is not None:
            return f"{what} is paused and has not copied everything: resume it"
    return None


def _paused(route: RouteName, wishes: RouteWishes | None, topics: Collection[str]) -> str | None:
    """What of these topics pauses."""
    if wishes is None:
        return None
    if wishes.pause is not None:
        return f"route {route!r}"
    paused = min(wishes.topics.keys() & topics, default=None)
    return None if paused is None else f"topic {paused!r} of route {route!r}"
