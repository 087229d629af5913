"""Switches a failover group to one of its sides, stage by stage; each is recorded before it is begun, so
whoever runs the command again goes on where it was left (see `reconcile/switches`).

Planned, while both sides answer: what only the side switched to has is settled first (`tail`); the other side
is fenced, everything is copied, routes rest, groups are carried, the way back is set to begin at the first
record that did not come by the way forth, the fence is lifted, and the other direction runs. Forced, when
the side that is left does not answer: routes rest, and nothing runs until that side is back and its tail is
settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from broker.client.group_descriptions import DEAD
from mirrormaker.failover.fence import close_topics, open_topics, read_settings
from mirrormaker.failover.groups import GroupPlace, carry_groups
from mirrormaker.failover.partitions import lane_of, ledger_at, move_places, read_places
from mirrormaker.failover.rehearsal import Rehearsal, find_tails, mirrored_or_start, rehearse
from mirrormaker.failover.sides import FailoverError, Sides
from mirrormaker.failover.tail import Tail
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.skips import SKIPPED_TOPIC
from mirrormaker.reconcile.switches import Side, Stage, Switch
from mirrormaker.route_groups import route_group

LOOK_MS = 200
STILL_LOOKS = 3
"""So often in a row nothing has moved before a fenced side counts as drained."""
JOIN_LOOKS = 100
"""So often a daemon is looked for whose routes have just been let go on."""
_EMPTY = frozenset({"Empty", DEAD, ""})


class TailChoice(Enum):
    """What to do about records that only one side has."""

    COPY = "copy"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How to switch."""

    timeout_ms: int = 60_000
    """For everything to be copied."""
    force: bool = False
    """Also without the side that is left."""
    tail: TailChoice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What came of it."""

    switch: Switch
    rehearsal: Rehearsal
    """As it was at the beginning."""
    groups: tuple[GroupPlace, ...] = ()
    """Where they go on."""
    tail: tuple[Tail, ...] = ()


class GroupSwitch:
    """One run; `tell` is given a line for each stage."""

    def __init__(self, sides: Sides, terms: Terms, tell: Callable[[str], None]) -> None:
        self._sides = sides
        self._terms = terms
        self._tell = tell
        self._tail: tuple[Tail, ...] = ()
        self._groups: tuple[GroupPlace, ...] = ()

    async def run(self, target: Side) -> Switched:
        """Raises FailoverError when the group is in no state for it, BrokerError."""
        sides = self._sides
        if target not in sides.clusters:
            raise FailoverError(f"{sides.problems[target]}: the group cannot be switched there")
        self._check_state(target)
        rehearsal = await rehearse(sides, target)
        if sides.switch.side is target.other and sides.switch.stage is Stage.DRAINING:
            await self._cancel(target)
        else:
            await self._switch(target)
        return Switched(switch=sides.switch, rehearsal=rehearsal, groups=self._groups, tail=self._tail)

    def _check_state(self, target: Side) -> None:
        sides, now = self._sides, self._sides.switch
        name, old = sides.group.name, target.other
        if now.side is target and now.stage is Stage.SETTLED:
            since = f", epoch {now.epoch}, by {now.by}" if now.epoch else " and has never been elsewhere"
            raise FailoverError(f"the group {name!r} is at {sides.name(target)!r} already{since}")
        if now.side is target and now.stage is Stage.AWAY and old not in sides.clusters:
            raise FailoverError(
                f"the group {name!r} is at {sides.name(target)!r} already; {sides.name(old)!r} is still away:"
                f" {sides.problems[old]}"
            )
        if now.side is old and now.stage is Stage.SWITCHING:
            raise FailoverError(
                f"the group {name!r} is being switched to {sides.name(old)!r} by {now.by}: end that first, by"
                " the same command again"
            )
        if old not in sides.clusters and not self._terms.force:
            raise FailoverError(
                f"{sides.problems[old]}: what it has and {sides.name(target)!r} has not would stay there:"
                " see --dry-run, then say --force"
            )

    async def _switch(self, target: Side) -> None:
        sides, now = self._sides, self._sides.switch
        if now.stage in (Stage.AWAY, Stage.TAIL):
            if now.side.other in sides.clusters:
                await self._settle_tail(now.side.other)
            if sides.switch.side is target:
                return
        if target.other not in sides.clusters:
            await self._force(target)
            return
        if sides.switch.side is not target:
            await self._settle_tail(target)
            await self._begin(target)
        if sides.switch.stage is Stage.DRAINING:
            await self._drain(target)
        await self._finish(target)

    # ---- planned

    async def _begin(self, target: Side) -> None:
        """The fence is recorded, then closed."""
        sides, old = self._sides, target.other
        await self._check_daemons(old)
        topics = sorted({place.source.topic for place in await read_places(sides, old)})
        before = await read_settings(sides.cluster(old), topics)
        epoch = sides.switch.epoch + 1
        await sides.record(
            Switch(
                revision=sides.switch.revision, epoch=epoch, side=target, stage=Stage.DRAINING, fence=before
            )
        )

    async def _drain(self, target: Side) -> None:
        """Until nothing is left to copy; after the timeout everything is as it was before."""
        sides, old = self._sides, target.other
        await close_topics(sides.cluster(old), sides.switch.fence)
        self._tell(f"{sides.name(old)} is fenced: {', '.join(sides.switch.fence) or 'no topics'}")
        try:
            async with asyncio.timeout(self._terms.timeout_ms / 1000):
                await self._await_copied(old)
        except TimeoutError:
            left = [place for place in await read_places(sides, old) if place.position < place.end]
            count = sum(place.end - place.position for place in left)
            await self._cancel(old)
            raise FailoverError(
                f"after {self._terms.timeout_ms} ms {count:,} records of {len(left)} partitions are still to"
                " be copied: nothing has been switched, the fence is lifted"
            ) from None
        await sides.record(replace(sides.switch, stage=Stage.SWITCHING))

    async def _await_copied(self, old: Side) -> None:
        """Until all is copied, and nothing more comes."""
        still, ends = 0, None
        while still < STILL_LOOKS:
            places = await read_places(self._sides, old)
            now = [place.end for place in places]
            is_copied = all(place.position >= place.end for place in places)
            still = still + 1 if is_copied and now == ends else 0
            ends = now
            await asyncio.sleep(LOOK_MS / 1000)

    async def _cancel(self, side: Side) -> None:
        """Stay at `side`, which was being left."""
        sides = self._sides
        await open_topics(sides.cluster(side), sides.switch.fence)
        await sides.record(
            replace(sides.switch, side=side, stage=Stage.SETTLED, fence={}, epoch=sides.switch.epoch + 1)
        )
        self._tell(f"the switch is called off: {sides.group.name} stays at {sides.name(side)}")

    async def _finish(self, target: Side) -> None:
        """All is copied, and routes are to rest: carry what else there is, have the other direction run."""
        sides, old = self._sides, target.other
        await self._await_nobody(old)
        places = await read_places(sides, old)
        self._groups = tuple(await carry_groups(sides, old, places))
        self._tell(f"{len({place.group for place in self._groups})} groups are carried")
        await self._set_starts(target)
        await open_topics(sides.cluster(old), sides.switch.fence)
        await sides.record(replace(sides.switch, stage=Stage.SETTLED, fence={}, until={}))
        self._tell(f"{sides.group.name} is at {sides.name(target)}")

    async def _set_starts(self, side: Side) -> None:
        """Routes from `side` begin at the first record that did not come from the other one."""
        sides = self._sides
        if not sides.leaving(side):
            return
        view, other = await ledger_at(sides.cluster(side)), sides.clusters.get(side.other)
        starts = {
            place.source: mirrored_or_start(lane_of(view, other, place.to, place.source), place)
            for place in await read_places(sides, side)
        }
        await move_places(sides, side, starts)

    # ---- forced

    async def _force(self, target: Side) -> None:
        sides = self._sides
        if sides.switch.stage is not Stage.SWITCHING or sides.switch.side is not target:
            await sides.record(
                Switch(
                    revision=sides.switch.revision,
                    epoch=sides.switch.epoch + 1,
                    side=target,
                    stage=Stage.SWITCHING,
                    forced=True,
                    fence=sides.switch.fence,
                )
            )
        await self._set_starts(target)
        await sides.record(replace(sides.switch, stage=Stage.AWAY, forced=True))
        self._tell(
            f"{sides.group.name} is at {sides.name(target)}; nothing is copied until"
            f" {sides.name(target.other)} is back and the same command is run again"
        )

    # ---- the tail

    async def _settle_tail(self, side: Side) -> None:
        """Deal with what `side`, which is not at work, has and the other has not; then all is settled."""
        sides, now = self._sides, self._sides.switch
        if not sides.leaving(side):
            await self._settled(now, {})
            return
        if now.stage is not Stage.TAIL:
            await self._advance(side)
            tails = tuple(await find_tails(sides, side))
            self._tail += tails
            if tails and self._terms.tail is None:
                raise FailoverError(_describe_tails(sides.name(side), tails))
            if not tails:
                await self._settled(now, {})
                return
            assert self._terms.tail is not None
            report = {
                "choice": self._terms.tail.value,
                "cluster": sides.name(side),
                "partitions": [tail.describe() for tail in tails],
            }
            until = {str(place.source): place.stable_end for place in await read_places(sides, side)}
            if self._terms.tail is TailChoice.REPORT:
                await self._report(side, tails)
                await self._settled(now, report)
                return
            await sides.record(replace(now, stage=Stage.TAIL, tail=report, until=until))
            now = sides.switch
        await self._copy_tail(side, now)

    async def _settled(self, switch: Switch, report: dict[str, Any]) -> None:
        """Where the group is; recorded only where that is news."""
        sides = self._sides
        if switch.stage is Stage.SETTLED and not report:
            return
        back = switch.side.other
        if switch.fence and back in sides.clusters:
            await open_topics(sides.cluster(back), switch.fence)
        if switch.stage is not Stage.SETTLED:
            await self._await_nobody(switch.side)
            await self._set_starts(switch.side)
        tail = report or dict(switch.tail)
        await sides.record(replace(switch, stage=Stage.SETTLED, tail=tail, until={}, fence={}))

    async def _advance(self, side: Side) -> None:
        """Routes from `side` go on behind what the other side is known to have, where they were further than
        they could tell.
        """
        sides = self._sides
        view, cluster = await ledger_at(sides.cluster(side.other)), sides.cluster(side)
        known = {
            place.source: (place, lane_of(view, cluster, place.source, place.to).next)
            for place in await read_places(sides, side)
        }
        moves = {
            source: min(reached, place.end)
            for source, (place, reached) in known.items()
            if reached is not None and reached > place.position
        }
        await self._await_nobody(side)
        await move_places(sides, side, moves)

    async def _copy_tail(self, side: Side, now: Switch) -> None:
        sides = self._sides
        self._tell(f"what only {sides.name(side)} has is copied")
        try:
            async with asyncio.timeout(self._terms.timeout_ms / 1000):
                while not await self._has_reached(side, now):  # noqa: ASYNC110 clusters are asked
                    await asyncio.sleep(LOOK_MS / 1000)
        except TimeoutError:
            raise FailoverError(
                f"after {self._terms.timeout_ms} ms what only {sides.name(side)!r} has is still being copied:"
                " run the same command again"
            ) from None
        await self._settled(now, dict(now.tail))

    async def _has_reached(self, side: Side, now: Switch) -> bool:
        places = await read_places(self._sides, side)
        return all(place.position >= now.until.get(str(place.source), 0) for place in places)

    async def _report(self, side: Side, tails: tuple[Tail, ...]) -> None:
        """Note what stays at `side` alone, and pass it."""
        sides = self._sides
        at_ms = sides.clock.now_ms()
        routes = {place.source: place.route.name for place in await read_places(sides, side)}
        notes = [
            (
                {"route": routes[tail.source], "topic": tail.topic, "partition": tail.partition,
                 "offset": tail.first},
                {"reason": "failover_tail", "problem": tail.line(), "at_ms": at_ms,
                 "resumed_at": tail.last + 1, "lost": [tail.first, tail.last + 1]},
            )
            for tail in tails
        ]  # fmt: skip
        async with KeptTopic(sides.cluster(side.other), SKIPPED_TOPIC) as topic:
            await topic.put(notes)
        await move_places(sides, side, {tail.source: tail.last + 1 for tail in tails})

    # ---- who is at work

    async def _check_daemons(self, side: Side) -> None:
        """Raises FailoverError where nobody would copy what is left."""
        sides = self._sides
        places = await read_places(sides, side)
        for route in sides.leaving(side):
            waits = any(place.position < place.end for place in places if place.route.name == route.name)
            wishes = sides.wishes.get(route.name)
            if waits and wishes is not None and wishes.pause is not None:
                raise FailoverError(
                    f"route {route.name!r} is paused and has not copied everything: resume it"
                )
            if waits and not await self._has_members(side, route.name):
                raise FailoverError(
                    f"no daemon runs the route {route.name!r}, and not everything is copied: start one"
                )

    async def _has_members(self, side: Side, name: str) -> bool:
        """Routes that a settled tail has let go on take a moment to come to work."""
        looks = JOIN_LOOKS if self._tail else 1
        for _ in range(looks):
            if await self._members(side, name):
                return True
            await asyncio.sleep(LOOK_MS / 1000)
        return False

    async def _await_nobody(self, side: Side) -> None:
        """Until routes from `side` rest in every process. Raises FailoverError."""
        sides = self._sides
        try:
            async with asyncio.timeout(self._terms.timeout_ms / 1000):
                for route in sides.leaving(side):
                    while await self._members(side, route.name):  # noqa: ASYNC110 as above
                        await asyncio.sleep(LOOK_MS / 1000)
        except TimeoutError:
            raise FailoverError(
                f"processes did not leave routes from {sides.name(side)!r} within"
                f" {self._terms.timeout_ms} ms: run the same command again"
            ) from None

    async def _members(self, side: Side, name: str) -> int:
        sides = self._sides
        route = next(route for route in sides.leaving(side) if route.name == name)
        spec = sides.topology.clusters[sides.name(side)]
        async with route_group(route, spec, sides.cluster(side)) as admin:
            found = (await admin.describe_groups([route.group]))[route.group]
        return 0 if found.state in _EMPTY else max(len(found.members), 1)


def _describe_tails(name: str, tails: tuple[Tail, ...]) -> str:
    lines = "".join(f"\n  {tail.line()}" for tail in tails)
    return (
        f"{name} has records that never came to the other side: say --tail copy to have them there too, or"
        f" --tail report to leave them where they are{lines}"
    )
