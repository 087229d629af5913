"""Switches a failover group to one of its sides, stage by stage; each is recorded before it is begun, so
whoever runs the command again goes on where it was left (see `reconcile/switches`).

Planned, while both sides answer: what only the side switched to has is settled first (`tail`); the other side
is fenced, everything is copied, routes rest, groups are carried, the way back is set to begin at the first
record that did not come by the way forth, the fence is lifted, and the other direction runs. Forced, when
the side that is left does not answer, or not in full, or cannot be copied to its end in time: routes rest,
and nothing runs until that side is back and its tail is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.errors import BrokerError
from mirrormaker.failover.attendance import LOOK_MS, Attendance
from mirrormaker.failover.fence import close_topics, closed_topics, open_topics, read_settings, why_not_closed
from mirrormaker.failover.group_place import GroupPlace, carried_lines, past_tails
from mirrormaker.failover.groups import carry_groups
from mirrormaker.failover.lost_copies import past_lost
from mirrormaker.failover.partitions import PartitionPlace, lose_unreadable, read_places, source_topics
from mirrormaker.failover.rehearsal import Rehearsal, rehearse
from mirrormaker.failover.settling import TailSettling, Terms, set_starts
from mirrormaker.failover.sides import FailoverError, GaveWayError, Sides
from mirrormaker.failover.tail import Tail, find_tails
from mirrormaker.reconcile.switches import Side, Stage, Switch

STILL_LOOKS = 3
"""So often in a row nothing has moved before a fenced side counts as drained."""
TOLD_MAX = 5
"""Partitions that are named when a switch is called off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """What came of it."""

    switch: Switch
    rehearsal: Rehearsal
    """As it was at the beginning."""
    groups: tuple[GroupPlace, ...] = ()
    """Where they go on."""
    tail: tuple[Tail, ...] = ()

    def lines(self) -> list[str]:
        """For people: what was to be done, and where groups are now."""
        return replace(self.rehearsal, groups=self.groups or self.rehearsal.groups).lines()


class _UndrainedError(FailoverError):
    """The side that is left has records still to be copied, and the time for that is over."""


class GroupSwitch:
    """One run, while the group is held (`hold`); `tell` is given a line for each stage."""

    def __init__(self, sides: Sides, terms: Terms, tell: Callable[[str], None]) -> None:
        self._sides = sides
        self._terms = terms
        self._tell = tell
        self._attendance = Attendance(sides, terms.timeout_ms, tell)
        self._tail = TailSettling(sides, terms, self._attendance, tell)
        self._groups: tuple[GroupPlace, ...] = ()
        self._came_back: list[PartitionPlace] = []
        """What was still to be copied when routes rested last."""

    async def run(self, target: Side) -> Switched:
        """Raises FailoverError when the group is in no state for it, BrokerError."""
        sides = self._sides
        if target not in sides.clusters:
            raise FailoverError(f"{sides.problems[target]}: the group cannot be switched there")
        calls_off = sides.calls_off(target)
        if not calls_off:
            await lose_unreadable(sides, target.other)
            await self._check_state(target)
        try:
            rehearsal = await rehearse(sides, target, self._terms)
            if calls_off:
                await self._cancel(target)
            else:
                await self._switch(target)
        except GaveWayError:
            raise
        except (BrokerError, asyncio.CancelledError):
            if sides.switch.is_on_its_way:
                self._tell(self._describe_left())
            raise
        groups = past_lost(self._groups, rehearsal.lost)
        return Switched(switch=sides.switch, rehearsal=rehearsal, groups=groups, tail=self._tail.found)

    def _describe_left(self) -> str:
        sides, switch = self._sides, self._sides.switch
        fenced = f", and {sides.name(switch.side.other)} is fenced" if switch.fence else ""
        calls_off = ", or the opposite one to call it off" if switch.stage is Stage.DRAINING else ""
        return (
            f"{sides.group.name} is left on its way to {sides.name(switch.side)} ({switch.stage.value})"
            f"{fenced}: run the same command again{calls_off}"
        )

    async def _check_state(self, target: Side) -> None:
        sides = self._sides
        why = sides.why_not(target, force=self._terms.force)
        if sides.differ:
            await sides.record(sides.switch)  # whoever was to say so at both sides was killed
        if why is not None:
            if sides.switch.stage is Stage.SETTLED:
                await self._open_left()
            raise FailoverError(why)
        if (why := sides.why_forced(target)) is not None and not self._terms.force:
            raise FailoverError(why)

    async def _open_left(self) -> None:
        """Nothing is to be closed while the group is settled: what is was left by a command that was killed
        just when another one had ended its work.
        """
        sides = self._sides
        for side, cluster in sides.clusters.items():
            try:
                left = await closed_topics(cluster, await source_topics(sides, side))
            except BrokerError:
                continue  # this user may not ask
            if left:
                await open_topics(cluster, dict.fromkeys(left))
                self._tell(
                    f"{sides.name(side)} was left closed by a command that was stopped: open again are"
                    f" {', '.join(left)}"
                )

    async def _switch(self, target: Side) -> None:
        sides, now = self._sides, self._sides.switch
        if target.other not in sides.clusters:
            await self._force(target)
            return
        if now.is_unsettled:
            await self._tail.settle(now.side.other)
            if sides.switch.side is target:
                return
        if sides.switch.side is not target:
            await self._tail.settle(target)
            await self._begin(target)
        try:
            places = await self._copy_all(target)
        except _UndrainedError as error:
            await self._give_up(target, error)
            return
        except FailoverError:
            raise
        except BrokerError as error:  # of the side that is left
            if not self._terms.force:
                raise
            await self._give_up(target, error)
            return
        await self._finish(target, places)

    # ---- planned

    async def _begin(self, target: Side) -> None:
        """The fence is recorded, then closed."""
        sides, old = self._sides, target.other
        await self._attendance.check_daemons(old)
        topics = sorted({place.source.topic for place in await read_places(sides, old)})
        await self._check_fence(old, topics)
        before = await read_settings(sides.cluster(old), topics)
        epoch = sides.switch.epoch + 1
        await sides.record(
            Switch(
                revision=sides.switch.revision, epoch=epoch, side=target, stage=Stage.DRAINING, fence=before
            )
        )

    async def _copy_all(self, target: Side) -> list[PartitionPlace]:
        """Until routes rest and nothing is left. What one has read and not sent when it comes to rest goes
        back to where it was: ZooKeeper is told only then that it had not been sent, so it is copied again.
        """
        sides, old = self._sides, target.other
        until = asyncio.get_running_loop().time() + self._terms.timeout_ms / 1000
        while True:
            if sides.switch.stage is Stage.DRAINING:
                await self._drain(target, until)
            await self._attendance.await_nobody(old)
            places = await read_places(sides, old)
            self._came_back = [place for place in places if not place.is_copied]
            if not self._came_back:
                return places
            await sides.record(replace(sides.switch, stage=Stage.DRAINING))

    async def _drain(self, target: Side, until: float) -> None:
        """Until nothing is left to copy. Raises _UndrainedError after `until`, by the loop's clock."""
        sides, old = self._sides, target.other
        await self._close(old)
        self._tell(f"{sides.name(old)} is fenced: {', '.join(sides.switch.fence) or 'no topics'}")
        try:
            async with asyncio.timeout_at(until):
                await self._await_copied(old)
        except TimeoutError:
            left = [place for place in await read_places(sides, old) if not place.is_copied]
            left = left or self._came_back
            count = sum(place.end - place.copied_to for place in left)
            raise _UndrainedError(
                f"after {self._terms.timeout_ms} ms {count:,} records of {len(left)} partitions are still to"
                f" be copied ({_told(left)})"
            ) from None
        await sides.record(replace(sides.switch, stage=Stage.SWITCHING))

    async def _close(self, old: Side) -> None:
        """What is recorded of the fence, while nobody else has switched the group: a command that was stopped
        meanwhile opens again what another one, which has ended its work, had opened.
        """
        sides, fence = self._sides, self._sides.switch.fence
        await sides.look_alone()
        await close_topics(sides.cluster(old), fence)
        try:
            await sides.look_alone()
        except GaveWayError:
            now = sides.switch
            closed = now.fence if now.side.other is old else {}
            await open_topics(
                sides.cluster(old), {topic: before for topic, before in fence.items() if topic not in closed}
            )
            raise

    async def _check_fence(self, old: Side, topics: list[str]) -> None:
        """Before anything is changed. Raises FailoverError where the topics cannot be closed."""
        sides = self._sides
        if (why := await why_not_closed(sides.cluster(old), topics)) is not None:
            raise FailoverError(f"cluster {sides.name(old)!r} cannot be fenced, {why}")

    async def _await_copied(self, old: Side) -> None:
        """Until all is copied, and nothing more comes."""
        still, ends = 0, None
        while still < STILL_LOOKS:
            self._sides.check_alone()
            places = await read_places(self._sides, old)
            now = [place.end for place in places]
            is_copied = all(place.is_copied for place in places)
            still = still + 1 if is_copied and now == ends else 0
            ends = now
            await asyncio.sleep(LOOK_MS / 1000)

    async def _give_up(self, target: Side, error: BrokerError) -> None:
        """Not everything was copied: what is left stays behind by force, else all is as it was before."""
        sides, old = self._sides, target.other
        if not self._terms.force:
            await self._cancel(old)
            raise FailoverError(f"{error}: nothing has been switched, the fence is lifted") from error
        self._tell(f"{error}: what is not copied stays at {sides.name(old)}, which is left fenced")
        await self._force(target)

    async def _cancel(self, side: Side) -> None:
        """Stay at `side`, which was being left."""
        sides = self._sides
        await sides.look_alone()
        await open_topics(sides.cluster(side), sides.switch.fence)
        await sides.record(
            replace(sides.switch, side=side, stage=Stage.SETTLED, fence={}, epoch=sides.switch.epoch + 1)
        )
        self._tell(f"the switch is called off: {sides.group.name} stays at {sides.name(side)}")

    async def _finish(self, target: Side, places: list[PartitionPlace]) -> None:
        """All is copied, and routes rest: carry what else there is, have the other direction run. `places` of
        the side that is left. What came to `target` since its tail was settled no group has read.
        """
        sides, old = self._sides, target.other
        await sides.look_alone()
        tails, looked_to = await find_tails(sides, target)
        unread = looked_to | {tail.source: tail.first for tail in tails}
        found, failures = await carry_groups(sides, old, places, unread)
        self._groups = past_tails(found, self._tail.found)
        for line in (*carried_lines(found), *failures):
            self._tell(line)
        await set_starts(sides, target, self._tell)
        await open_topics(sides.cluster(old), sides.switch.fence)
        await sides.record(replace(sides.switch, stage=Stage.SETTLED, fence={}, until={}))
        self._tell(f"{sides.group.name} is at {sides.name(target)}")

    # ---- forced

    async def _force(self, target: Side) -> None:
        sides = self._sides
        fence = sides.switch.fence
        if sides.switch.side is not target:
            await open_topics(sides.cluster(target), fence)  # it was being left
            fence = {}
        if sides.switch.stage is not Stage.SWITCHING or sides.switch.side is not target:
            await sides.record(
                Switch(
                    revision=sides.switch.revision,
                    epoch=sides.switch.epoch + 1,
                    side=target,
                    stage=Stage.SWITCHING,
                    forced=True,
                    fence=fence,
                )
            )
        await sides.record(replace(sides.switch, stage=Stage.AWAY, forced=True))
        self._tell(
            f"{sides.group.name} is at {sides.name(target)}; nothing is copied until"
            f" {sides.name(target.other)} is back and the same command is run again"
        )


def _told(left: list[PartitionPlace]) -> str:
    """Where the copying of partitions stands."""
    told = [
        f"{place.source} at {place.copied_to} of {place.end}"
        + (", behind an open transaction" if place.copied_to >= place.stable_end else "")
        for place in left[:TOLD_MAX]
    ]
    return "; ".join(told + ["..."] * (len(left) > TOLD_MAX))
