"""What becomes of the tail of a side that is not at work: records that only it has. Before the sides are
switched, and when one comes back that was lost, they are copied, or noted and left where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mirrormaker.failover.attendance import LOOK_MS, Attendance
from mirrormaker.failover.fence import open_topics
from mirrormaker.failover.lost_copies import made_anew_notes
from mirrormaker.failover.partitions import kept_of, lane_of, ledger_at, move_places, read_places
from mirrormaker.failover.sides import FailoverError, Sides
from mirrormaker.failover.tail import Tail, TailChoice, begin_of, find_tails
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.reconcile.switches import Side, Stage, Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How to switch."""

    timeout_ms: int = 60_000
    """For everything to be copied."""
    force: bool = False
    """Also without the side that is left."""
    tail: TailChoice | None = None


class TailSettling:
    """Of one run of a command; both sides must answer."""

    def __init__(
        self, sides: Sides, terms: Terms, attendance: Attendance, tell: Callable[[str], None]
    ) -> None:
        self.found: tuple[Tail, ...] = ()
        """What was dealt with, so far."""
        self._sides = sides
        self._terms = terms
        self._attendance = attendance
        self._tell = tell

    async def settle(self, side: Side) -> None:
        """Deal with what `side`, which is not at work, has and the other has not; then all is settled.

        Raises FailoverError where there is something, and nobody said what to do about it.
        """
        sides, now = self._sides, self._sides.switch
        if not sides.leaving(side):
            await self._settled(now)
            return
        if now.stage is Stage.TAIL:
            await self._copy(side, now)
            return
        await self._advance(side)
        tails = tuple((await find_tails(sides, side))[0])
        self.found += tails
        choice = self._terms.tail
        if not tails:
            await self._settled(now)
            return
        if choice is None:
            asked = [ask_about_tails(sides.name(side)), *(tail.line() for tail in tails)]
            raise FailoverError("\n  ".join(asked))
        report = {
            "choice": choice.value,
            "cluster": sides.name(side),
            "partitions": [tail.describe() for tail in tails],
        }
        if choice is TailChoice.REPORT:
            await self._report(side, tails)
            await sides.record(replace(now, tail=report))
            await self._pass(side, tails)
            await self._settled(sides.switch)
            return
        await move_places(sides, side, {tail.source: tail.first for tail in tails})
        until = {str(place.source): place.stable_end for place in await read_places(sides, side)}
        await sides.record(replace(now, stage=Stage.TAIL, tail=report, until=until))
        await self._copy(side, sides.switch)

    async def _settled(self, switch: Switch) -> None:
        """Where the group is; recorded only where that is news."""
        sides = self._sides
        if switch.stage is Stage.SETTLED:
            return
        back = switch.side.other
        if switch.fence and back in sides.clusters:
            await open_topics(sides.cluster(back), switch.fence)
        await self._attendance.await_nobody(switch.side)
        await set_starts(sides, switch.side, self._tell)
        await sides.record(replace(switch, stage=Stage.SETTLED, until={}, fence={}))

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
        await self._attendance.await_nobody(side)
        await move_places(sides, side, moves)

    async def _copy(self, side: Side, now: Switch) -> None:
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
        await self._settled(now)

    async def _has_reached(self, side: Side, now: Switch) -> bool:
        self._sides.check_alone()
        places = await read_places(self._sides, side)
        return all(place.copied_to >= now.until.get(str(place.source), 0) for place in places)

    async def _report(self, side: Side, tails: tuple[Tail, ...]) -> None:
        """Note what stays at `side` alone."""
        sides = self._sides
        at_ms = sides.clock.now_ms()
        routes = {place.source: place.route.name for place in await read_places(sides, side)}
        notes = [_note_of(routes[tail.source], tail, at_ms) for tail in tails]
        async with KeptTopic(sides.cluster(side.other), SKIPPED_TOPIC) as topic:
            await topic.put(notes)

    async def _pass(self, side: Side, tails: tuple[Tail, ...]) -> None:
        await move_places(self._sides, side, {tail.source: tail.last + 1 for tail in tails})


async def set_starts(sides: Sides, side: Side, tell: Callable[[str], None]) -> None:
    """Routes from `side` begin at the first record that did not come from the other one. What came from there
    does not go back (see `flow/provenance`): told where its topic is another now. Raises BrokerError.
    """
    if not sides.leaving(side):
        return
    view, other = await ledger_at(sides.cluster(side)), sides.clusters.get(side.other)
    places = await read_places(sides, side)
    starts = {
        place.source: begin_of(kept_of(lane_of(view, other, place.to, place.source), place.end), place)
        for place in places
    }
    await move_places(sides, side, starts)
    for note in made_anew_notes(sides, side, places, view):
        tell(note)


def _note_of(route: str, tail: Tail, at_ms: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Key and value for the topic of what was left out; see `flow/skips`."""
    key = {"route": route, "topic": tail.topic, "partition": tail.partition, "offset": tail.first}
    value = {
        "reason": "failover_tail",
        "problem": tail.line(),
        "at_ms": at_ms,
        "resumed_at": tail.last + 1,
        "lost": [tail.first, tail.last + 1],
    }
    return key, value


def ask_about_tails(name: str) -> str:
    """What to say where nobody has decided about what only that side has."""
    return (
        f"{name} has records that never came to the other side: say --tail copy to have them there too, or"
        " --tail report to leave them where they are"
    )
