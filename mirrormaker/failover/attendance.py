"""Who is at work on the routes of a failover group: members of their groups, in any process on any host."""

from __future__ import annotations

import asyncio

from broker.client.group_descriptions import DEAD
from mirrormaker.failover.partitions import read_places
from mirrormaker.failover.sides import FailoverError, Sides
from mirrormaker.reconcile.switches import Side
from mirrormaker.route_groups import route_group

LOOK_MS = 200
JOIN_LOOKS = 100
"""So often a daemon is looked for whose routes have just been let go on."""
_EMPTY = frozenset({"Empty", DEAD, ""})


class Attendance:
    """Of one run of a command."""

    def __init__(self, sides: Sides, timeout_ms: int) -> None:
        """`timeout_ms`: for processes to leave."""
        self._sides = sides
        self._timeout_ms = timeout_ms

    async def check_daemons(self, side: Side, *, are_joining: bool) -> None:
        """Raises FailoverError where nobody would copy what is left at `side`. `are_joining`: routes have
        just been let go on, and take a moment to come to work.
        """
        sides = self._sides
        places = await read_places(sides, side)
        for route in sides.leaving(side):
            waits = any(place.position < place.end for place in places if place.route.name == route.name)
            wishes = sides.wishes.get(route.name)
            if waits and wishes is not None and wishes.pause is not None:
                raise FailoverError(
                    f"route {route.name!r} is paused and has not copied everything: resume it"
                )
            if waits and not await self._comes(side, route.name, JOIN_LOOKS if are_joining else 1):
                raise FailoverError(
                    f"no daemon runs the route {route.name!r}, and not everything is copied: start one"
                )

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

    async def _comes(self, side: Side, name: str, looks: int) -> bool:
        for _ in range(looks):
            if await self._members(side, name):
                return True
            await asyncio.sleep(LOOK_MS / 1000)
        return False

    async def _members(self, side: Side, name: str) -> int:
        sides = self._sides
        route = next(route for route in sides.leaving(side) if route.name == name)
        spec = sides.topology.clusters[sides.name(side)]
        async with route_group(route, spec, sides.cluster(side), reads_only=True) as admin:
            found = (await admin.describe_groups([route.group]))[route.group]
        return 0 if found.state in _EMPTY else max(len(found.members), 1)
