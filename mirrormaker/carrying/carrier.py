"""Carries the groups of a route over: what they committed at the source, committed at the destination.

A process does so for the partitions that it copies, again and again. It commits as a consumer outside of any
membership: a group with members at the destination refuses that, so nobody is moved while reading. Where a
route leads back, what came by it counts too. Owned by the route's event loop; `run` is a task of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.group_descriptions import DEAD
from broker.client.group_offsets import OffsetAndMetadata, OffsetsRefusedError, commit_offsets, fetch_offsets
from broker.client.offsets import earliest_offsets
from broker.client.operations import DESCRIBE, READ
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.carrying.decision import Decision, GroupStanding, decide
from mirrormaker.carrying.group_positions import group_positions
from mirrormaker.ledger.group_mark import GroupMark, GroupMarkId
from mirrormaker.ledger.lane_map import Translation
from mirrormaker.ledger.return_ledger import ReturnLedger
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.ledger.two_way import translate
from mirrormaker.missing_rights import missing_right
from mirrormaker.topology.group_selection import GroupSelection
from mirrormaker.topology.model import GroupSync

TIMEOUT_MS = 10_000
GROUPS_AT_ONCE = 8
_EMPTY_STATES = frozenset({"Empty", DEAD, ""})
_MEMBER_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A partition of a group: where it leads, and where the group stands there."""

    source: TopicPartition
    to: TopicPartition
    position: OffsetAndMetadata
    committed: int | None
    translation: Translation
    """What its position is there."""
    decision: Decision
    mark: GroupMark | None
    """How the mirror moved it last."""
    behind: int
    """Source offsets that the group has read and that the ledger does not know yet."""
    refusal: str | None = None
    """Why the destination does not take its position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What is the same for all groups that are carried at a time."""

    owned: Mapping[TopicPartition, TopicPartition]
    starts: Mapping[TopicPartition, int]
    """Of the destination."""
    unread: Mapping[TopicPartition, int]
    """See `GroupCarrier.carry`."""
    heeds_given: bool
    awaits_transactions: bool


class GroupCarrier:
    """See the module. Clusters come started."""

    def __init__(
        self,
        sync: GroupSync,
        source: Cluster,
        destination: Cluster,
        ledger: RouteLedger,
        owned: Callable[[], Mapping[TopicPartition, TopicPartition]],
        back: ReturnLedger | None = None,
        brings_back: Callable[[str], bool] = lambda _: False,
        may_move: Callable[[], bool] = lambda: True,
        find_unread: Callable[[], Mapping[TopicPartition, int]] = dict,
    ) -> None:
        """`owned`: the source partitions that this process copies, with their destinations. `back`: of the
        routes that lead back, where there are any; `brings_back`: whether one is at work now that takes a
        topic of the destination. While groups may not be moved they are only looked at. `find_unread`:
        `unread` of `carry`, while it runs.
        """
        self.groups: Mapping[str, tuple[Crossing, ...]] = {}
        """How each stood when it was last looked at."""
        self.problem: str | None = None
        """Why they are not carried just now."""
        self.failures: Mapping[str, str] = {}
        """Groups that could not be carried when that was last tried, and why."""
        self.moved = 0
        """Positions committed at the destination."""
        self._taken: dict[GroupMarkId, GroupMark] = {}
        """Marks whose positions the destination took, as long as no later look has noted that: whoever is
        elsewhere since was moved by somebody else, also where it stood before.
        """
        self._sync = sync
        self._selection = GroupSelection(sync)
        self._source = source
        self._destination = destination
        self._ledger = ledger
        self._owned = owned
        self._back = back
        self._brings_back = brings_back
        self._may_move = may_move
        self._find_unread = find_unread

    async def run(self) -> None:
        """Carry every `interval_ms`, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._back is not None:
                tasks.create_task(self._back.run(), name="ledger of the way back")
            await self._carry_on()

    async def _carry_on(self) -> None:
        while True:
            await asyncio.sleep(self._sync.interval_ms / 1000)
            if self._back is not None and not self._back.is_read:
                self.problem = self._back.problem
                continue
            if not self._ledger.is_read:
                continue
            try:
                without = await self._without_leader()
                await self.carry(without=without, unread=self._find_unread(), awaits_transactions=False)
                if without:
                    raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, str(min(without)))
                self.problem = self.first_failure
            except BrokerError as error:
                self._tell_problem(error)

    async def _without_leader(self) -> set[TopicPartition]:
        """Destinations that cannot be asked now: those of the others are carried all the same."""
        destinations = set(self._owned().values())
        await self._destination.refresh({to.topic for to in destinations})
        return {to for to in destinations if self._destination.leader(to) is None}

    def _tell_problem(self, error: BrokerError) -> None:
        if self.problem is None:
            self._ledger.note("groups_not_carried", error=str(error))
        self.problem = str(error)

    @property
    def first_failure(self) -> str | None:
        """Which group could not be carried when that was last tried, and why."""
        refusals = {
            name: each.refusal
            for name, crossings in self.groups.items()
            for each in crossings
            if each.refusal is not None
        }
        failures = {**refusals, **self.failures}
        if not failures:
            return None
        name, why = min(failures.items())
        others = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        return f"group {name!r}: {why}{others}"

    async def carry(
        self,
        *,
        moves: bool = True,
        without: Collection[TopicPartition] = (),
        unread: Mapping[TopicPartition, int] | None = None,
        heeds_given: bool = True,
        awaits_transactions: bool = True,
    ) -> None:
        """Once; unless it `moves`, groups are only looked at, and which of them have members. `without`:
        destinations to leave out. `unread`: by destination, the first record that surely never came to the
        source: groups go on there, or before. Unless it `heeds_given`, groups that stand where the way back
        put them are moved like the others. Unless it `awaits_transactions`, of a group that commits in one
        counts what it had committed before. Raises BrokerError when a cluster cannot be asked; a group that
        fails fails alone (`failures`).
        """
        owned = {source: to for source, to in self._owned().items() if to not in without}
        listed = await Admin(self._source).list_groups()
        names = [group.group_id for group in listed if self._selection.selects(group.group_id)]
        starts = await earliest_offsets(self._destination, owned.values())
        this_time = _Round(
            owned=owned,
            starts=starts,
            unread=unread or {},
            heeds_given=heeds_given,
            awaits_transactions=awaits_transactions,
        )
        gate = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def carry_one(name: str) -> tuple[Crossing, ...]:
            async with gate:
                crossings = await self._look_at(name, this_time)
                if moves and self._may_move():
                    return await self._carry_group(name, crossings)
                is_due = any(each.decision.to is not None for each in crossings)
                is_held = is_due and await self._is_in_use(name)
                return _left(crossings, GroupStanding.IN_USE) if is_held else crossings

        outcomes = await asyncio.gather(*map(carry_one, names), return_exceptions=True)
        groups: dict[str, tuple[Crossing, ...]] = {}
        failures: dict[str, str] = {}
        for name, outcome in zip(names, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                failures[name] = str(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome:
                groups[name] = outcome
        self._tell_changes(groups)
        for name in failures.keys() - self.failures.keys():
            self._ledger.note("groups_not_carried", group=name, error=failures[name])
        self.groups, self.failures = groups, failures

    async def _look_at(self, group: str, this_time: _Round) -> tuple[Crossing, ...]:
        owned, awaits = this_time.owned, this_time.awaits_transactions
        with _needing(DESCRIBE, group, self._source):
            positions = await group_positions(self._source, group, owned, awaits_transactions=awaits)
        concerned = {source: at for source, at in positions.items() if source in owned}
        if not concerned:
            return ()
        wanted = [owned[source] for source in concerned]
        with _needing(DESCRIBE, group, self._destination):
            there = await fetch_offsets(
                self._destination, group, wanted, awaits_transactions=awaits, timeout_ms=TIMEOUT_MS
            )
        return tuple(
            self._cross(group, source, position, there, this_time) for source, position in concerned.items()
        )

    async def _carry_group(self, group: str, crossings: tuple[Crossing, ...]) -> tuple[Crossing, ...]:
        moves = [each for each in crossings if each.decision.to is not None]
        await self._note_arrivals(group, [each for each in crossings if each.decision.to is None])
        if not moves:
            return crossings
        if await self._is_in_use(group):
            return _left(crossings, GroupStanding.IN_USE)
        refused = await self._move(group, moves)
        return tuple(_refused(each, refused[each.to]) if each.to in refused else each for each in crossings)

    async def _note_arrivals(self, group: str, resting: Iterable[Crossing]) -> None:
        """Positions that were moved and have been taken; one record each. Raises BrokerError."""
        seen = [
            (
                mark_id,
                each.mark.arrived if self._was_taken(mark_id, each.mark) else each.mark.seen(each.committed),
            )
            for each in resting
            if each.mark is not None
            for mark_id in [GroupMarkId(group, self._ledger.lane(each.source, each.to))]
        ]
        notes = {mark_id: mark for mark_id, mark in seen if mark is not None}
        if notes:
            await self._ledger.put([(mark_id.key(), mark.value()) for mark_id, mark in notes.items()])
        for mark_id in notes:
            self._taken.pop(mark_id, None)

    def _was_taken(self, mark_id: GroupMarkId, mark: GroupMark | None) -> bool:
        """Whether the destination is known to have taken the position of that mark, the last one."""
        return mark is not None and self._taken.get(mark_id) == mark

    def _cross(
        self,
        group: str,
        source: TopicPartition,
        position: OffsetAndMetadata,
        there: Mapping[TopicPartition, OffsetAndMetadata],
        this_time: _Round,
    ) -> Crossing:
        to = this_time.owned[source]
        start = this_time.starts[to]
        committed = there[to].offset if to in there else None
        pages = self._ledger.pages(source, to)
        back = None if self._back is None else self._back.pages(source, to)
        known = None if pages is None else pages.next
        given, pending = None, None
        if self._back is not None and this_time.heeds_given:
            given = self._back.mark(group, source, to)
        if self._back is not None and self._brings_back(to.topic):
            pending = max(start, (None if back is None else back.next) or 0)
        translation = translate(position.offset, pages, back, pending, start)
        mark_id = GroupMarkId(group, self._ledger.lane(source, to))
        mark = self._ledger.view.mark(mark_id)
        decision = decide(
            position.offset,
            translation,
            start,
            committed,
            mark.arrived if mark is not None and self._was_taken(mark_id, mark) else mark,
            follows_rewinds=self._sync.rewinds,
            is_given=given is not None and given.fits(position.offset),
            unread=this_time.unread.get(to),
        )
        return Crossing(
            source=source,
            to=to,
            position=position,
            committed=committed,
            translation=translation,
            decision=decision,
            mark=mark,
            behind=0 if known is None else max(position.offset - known, 0),
        )

    async def _is_in_use(self, group: str) -> bool:
        described = await Admin(self._destination).describe_groups([group])
        return described[group].state not in _EMPTY_STATES

    async def _move(self, group: str, moves: Iterable[Crossing]) -> Mapping[TopicPartition, ProtocolError]:
        """Commit, while groups may be moved. Returns why the destination refused those of its partitions that
        it did not take. Raises BrokerError.
        """
        marks: dict[TopicPartition, tuple[GroupMarkId, GroupMark]] = {}
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for each in moves:
            assert each.decision.to is not None
            mark = GroupMark(source=each.position.offset, to=each.decision.to, before=each.committed)
            marks[each.to] = GroupMarkId(group, self._ledger.lane(each.source, each.to)), mark
            offsets[each.to] = OffsetAndMetadata(offset=each.decision.to, metadata=each.position.metadata)
        await self._ledger.put([(mark_id.key(), mark.value()) for mark_id, mark in marks.values()])
        if not self._may_move():  # sides are switched meanwhile, and the group goes on where that puts it
            return {}
        refused: Mapping[TopicPartition, ProtocolError] = {}
        try:
            with _needing(READ, group, self._destination):
                await commit_offsets(self._destination, group, offsets, timeout_ms=TIMEOUT_MS)
        except OffsetsRefusedError as error:
            refused = error.errors
        except ProtocolError as error:
            refused = dict.fromkeys(marks, error)
        self._taken |= dict(taken for to, taken in marks.items() if to not in refused)
        self.moved += len(marks) - len(refused)
        return refused

    def _tell_changes(self, groups: Mapping[str, tuple[Crossing, ...]]) -> None:
        """Events for groups that began or ceased to be carried."""
        told = (
            GroupStanding.BEHIND,
            GroupStanding.HELD,
            GroupStanding.REWOUND,
            GroupStanding.OWN,
            GroupStanding.REFUSED,
        )
        for name, crossings in groups.items():
            before = {
                each.source: (each.decision.standing, each.refusal) for each in self.groups.get(name, ())
            }
            for each in crossings:
                standing = each.decision.standing
                if standing in told and before.get(each.source) != (standing, each.refusal):
                    why = {} if each.refusal is None else self._why(each.refusal)
                    self._ledger.note(
                        f"group_{standing.value}",
                        group=name,
                        partition=str(each.source),
                        position=each.position.offset,
                        committed=each.committed,
                        **why,
                    )

    def _why(self, refusal: str) -> dict[str, str]:
        return {"cluster": self._destination.name, "error": refusal}

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "problem": self.problem,
            "moved": self.moved,
            "groups": {
                name: {
                    "partitions": dict(Counter(each.decision.standing.value for each in crossings)),
                    "behind": sum(each.behind for each in crossings),
                }
                for name, crossings in self.groups.items()
            },
        }


@contextmanager
def _needing(operation: int, group: str, cluster: Cluster) -> Iterator[None]:
    """What is done within takes that right to the group."""
    try:
        yield
    except ProtocolError as error:
        if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        raise missing_right(error.code, cluster.name, group, operation) from error


def _left(crossings: tuple[Crossing, ...], standing: GroupStanding) -> tuple[Crossing, ...]:
    """Those that were to be moved, and are not, for that reason."""
    decision = Decision(standing=standing)
    return tuple(each if each.decision.to is None else replace(each, decision=decision) for each in crossings)


def _refused(crossing: Crossing, error: ProtocolError) -> Crossing:
    """One whose position the destination did not take. A group that somebody has just joined is in use."""
    if error.code in _MEMBER_CODES:
        return replace(crossing, decision=Decision(standing=GroupStanding.IN_USE))
    return replace(crossing, decision=Decision(standing=GroupStanding.REFUSED), refusal=str(error))
