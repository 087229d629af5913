"""What a switch would mean now: what is not copied yet, where groups would go on, what stays behind. Nothing
is changed by finding out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from broker.client.acl_admin import AclAdmin
from broker.client.cluster import Cluster
from broker.errors import BrokerError, RequestTimedOutError
from broker.types import TopicPartition
from mirrormaker.failover.attendance import why_paused
from mirrormaker.failover.carried_groups import groups_as_carried
from mirrormaker.failover.fence import why_not_closed
from mirrormaker.failover.group_place import GroupPlace, following, past_tails
from mirrormaker.failover.groups import look_at_groups
from mirrormaker.failover.last_known import read_last_known, read_obstacles
from mirrormaker.failover.lost_copies import Lost, look_for_lost, lost_as_known, made_anew_notes, past_lost
from mirrormaker.failover.partitions import PartitionPlace, lane_of, ledger_at, read_places
from mirrormaker.failover.settling import Terms, ask_about_tails
from mirrormaker.failover.sides import Sides
from mirrormaker.failover.tail import Tail, TailChoice, find_tails
from mirrormaker.ledger.view import LedgerView
from mirrormaker.plan.topics import select_topics
from mirrormaker.reconcile.switches import Side, Stage
from mirrormaker.status import STANDING_BY, read_status
from mirrormaker.topology.naming import compile_naming

TAILS_TIMEOUT_MS = 20_000
"""The new side is looked at so long for what nobody has to know, before a forced switch."""
_AS_CARRIED = "groups go on where they were carried last: what they have read since they read again"
_T = TypeVar("_T")
_BECOMES = {
    None: "what only it has is to be decided about",
    TailChoice.COPY: "what only it has is copied",
    TailChoice.REPORT: "what only it has stays there, and is noted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What one partition has that the other side lacks; None: not known."""

    route: str
    source: TopicPartition
    copied_to: int | None
    """Source offset after all that the other side is known to have."""
    end: int | None
    records: int | None
    bytes: int | None
    seconds: float | None
    age_ms: int
    """How long ago the source said so; 0: now."""

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "route": self.route,
            "topic": self.source.topic,
            "partition": self.source.partition,
            "copied_to": self.copied_to,
            "end": self.end,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "age_ms": self.age_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """See the module."""

    group: str
    source: str
    """The cluster that is left."""
    to: str
    is_planned: bool
    """Both clusters answer: everything can be copied first."""
    problem: str | None
    """Why the one that is left does not answer, or cannot be written to."""
    missing: tuple[Missing, ...] | None = ()
    """None where nobody can tell."""
    groups: tuple[GroupPlace, ...] = ()
    settles: bool = False
    """The group is at `to` already, and `source`, which was lost, is back: only its tail is dealt with."""
    calls_off: bool = False
    """A switch to `source` is on its way and has copied nothing to its end yet: it is taken back, and nothing
    else is done.
    """
    choice: TailChoice | None = None
    """What becomes of the tail."""
    tail: tuple[Tail, ...] = ()
    """Records that never came to the other side: at `source` where it `settles`, else at `to`."""
    lost: tuple[Lost, ...] = ()
    """Records at `source` that `to` had, and has not any more."""
    refusals: tuple[str, ...] = ()
    """Why the switch would not be made so."""
    notes: tuple[str, ...] = ()
    """What is not carried, and what to heed."""

    @property
    def records_missing(self) -> int | None:
        """In all; None where it is not known of every partition."""
        counts = [None] if self.missing is None else [each.records for each in self.missing]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def records_read_again(self) -> int:
        """That groups have read and find once more, at the most, all together."""
        return sum(place.again or 0 for place in self.groups)

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "group": self.group,
            "from": self.source,
            "to": self.to,
            "planned": self.is_planned,
            "settles": self.settles,
            "calls_off": self.calls_off,
            "refused": list(self.refusals),
            "problem": self.problem,
            "records_missing": self.records_missing,
            "partitions": [each.describe() for each in self.missing or ()],
            "groups": [each.describe() for each in self.groups],
            "records_read_again": self.records_read_again,
            "tail": [each.describe() for each in self.tail],
            "lost": [each.describe() for each in self.lost],
            "notes": self._notes(),
        }

    def _notes(self) -> list[str]:
        return [*(f"the switch would be refused: {why}" for why in self.refusals), *self.notes]

    def lines(self) -> list[str]:
        """For people."""
        lines = [self._first_line()]
        if not (self.settles or self.calls_off):
            lines.append(f"  not copied yet: {self._count_line()}")
        lines += (_line_of(each) for each in self.missing or () if each.records != 0)
        lines += (f"  {place.line()}" for place in self.groups)
        alone = self.source if self.settles else self.to
        lines += (f"  only at {alone}: {each.line()}" for each in self.tail)
        lines += (f"  no more at {self.to}: {each.line()}, which nobody copies again" for each in self.lost)
        return [*lines, *(f"  {note}" for note in self._notes())]

    def _first_line(self) -> str:
        if self.calls_off:
            return f"{self.group}: stays at {self.to}, the switch to {self.source} is called off"
        if self.settles:
            what = _BECOMES[self.choice] if self.tail else "it has nothing of its own"
            return f"{self.group}: at {self.to}, and {self.source} is back: {what}"
        how = "planned: both clusters answer, what is missing is copied first"
        if not self.is_planned:
            how = f"forced: {self.problem}; what is missing stays at {self.source}"
        return f"{self.group}: from {self.source} to {self.to}, {how}"

    def _count_line(self) -> str:
        """How many; what a side that does not answer has got since it was seen nobody knows."""
        count = self.records_missing
        if count is None:
            return "unknown"
        age_ms = max((each.age_ms for each in self.missing or ()), default=0)
        when = f" as of {age_ms / 1000:.0f} s ago, and what came to {self.source} since" if age_ms else ""
        return f"{count:,} records{when}"


def _line_of(each: Missing) -> str:
    if each.records is None:
        return f"    {each.source}: nothing is known of its end; copied to {each.copied_to}"
    size = "" if each.bytes is None else f", {each.bytes:,} bytes"
    time = "" if each.seconds is None else f", the first waits for {each.seconds:.1f} s"
    age = f", as of {each.age_ms / 1000:.0f} s ago" if each.age_ms else ""
    return f"    {each.source}: {each.records:,} records{size}{time}{age}"


class _Looks:
    """Each at a part of what there is; one that fails is told, and holds up nothing."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def at(self, what: str, look: Awaitable[_T], otherwise: _T) -> _T:
        try:
            return await look
        except BrokerError as error:
            self.notes.append(f"{what} cannot be told: {error}")
            return otherwise


async def rehearse(sides: Sides, target: Side, terms: Terms) -> Rehearsal:
    """Of a switch to `target`, which must answer; what cannot be looked at is told."""
    old = target.other
    sides.cluster(target)
    is_planned = old in sides.clusters
    rehearsal = Rehearsal(
        group=sides.group.name,
        source=sides.name(old),
        to=sides.name(target),
        is_planned=is_planned,
        problem=sides.problems.get(old),
    )
    if sides.calls_off(target):
        return replace(rehearsal, calls_off=True)
    looks = _Looks()
    if is_planned and sides.switch.side is target and sides.switch.is_unsettled:
        found = await _look_at_tail(sides, target, rehearsal, looks, terms)
    elif is_planned:
        found = await _look_at_both(sides, target, rehearsal, looks, terms)
    else:
        found = await _look_at_one(sides, target, rehearsal, looks)
    refusals = _state_refusals(sides, target, terms) or found.refusals
    notes = (*found.notes, *looks.notes, *_standing_notes(sides, old))
    return replace(found, refusals=refusals, notes=notes)


async def _look_at_one(sides: Sides, target: Side, rehearsal: Rehearsal, looks: _Looks) -> Rehearsal:
    """The other one is away."""
    cluster, old = sides.cluster(target), target.other
    view = await looks.at(f"what the ledger at {sides.name(target)} says", ledger_at(cluster), LedgerView())
    missing = await looks.at("what is not copied yet", _missing_at_last(sides, target, view), None)
    tails, came_back = await asyncio.gather(
        looks.at(f"what only {sides.name(target)} has", _soon(_find_tails(sides, target)), []),
        looks.at("how far routes back have come", _soon(_went_back_to(sides, target)), None),
    )
    carried = groups_as_carried(cluster, sides.leaving(old), view, came_back)
    groups = await looks.at("where groups go on", carried, [])
    losses = lost_as_known(cluster, sides.leaving(old), view)
    lost = await looks.at(f"what {sides.name(target)} has lost", losses, [])
    return replace(
        rehearsal,
        missing=None if missing is None else tuple(missing),
        groups=past_lost(past_tails(groups, tails), lost),
        tail=tuple(tails),
        lost=tuple(lost),
        notes=(_AS_CARRIED, *_obstacle_notes(sides, old)),
    )


async def _find_tails(sides: Sides, target: Side) -> list[Tail]:
    return (await find_tails(sides, target))[0]


async def _went_back_to(sides: Sides, target: Side) -> Mapping[TopicPartition, int] | None:
    """Where what only `target` has may begin: before that, records may have come to the other side."""
    return {place.source: place.position for place in await read_places(sides, target)}


async def _soon(look: Awaitable[_T]) -> _T:
    """So long that it holds up no forced switch. Raises BrokerError."""
    try:
        async with asyncio.timeout(TAILS_TIMEOUT_MS / 1000):
            return await look
    except TimeoutError:
        raise RequestTimedOutError(f"not all of it was looked at within {TAILS_TIMEOUT_MS} ms") from None


async def _look_at_both(
    sides: Sides, target: Side, rehearsal: Rehearsal, looks: _Looks, terms: Terms
) -> Rehearsal:
    """Groups go on before what is copied from `target` first, as they have not read that there either, and
    behind what is copied to it.
    """
    old = target.other
    places = await looks.at(f"how far {sides.name(old)} is copied", read_places(sides, old), [])
    tails, _ = await looks.at(f"what only {sides.name(target)} has", find_tails(sides, target), ([], {}))
    unread = {} if terms.tail is TailChoice.REPORT else {each.source: each.first for each in tails}
    look = look_at_groups(sides, old, places, unread)
    groups, failures = await looks.at("where groups go on", look, ([], []))
    missing = await looks.at("what is not copied yet", _missing_now(sides, old, places), None)
    left = {each.source: each.copied_to or 0 for each in missing or () if each.records}
    anew = await looks.at("what was made anew", _anew_notes(sides), [])
    losses = look_for_lost(sides, old, places)
    lost = await looks.at(f"what {sides.name(target)} has lost", losses, [])
    fences = _fence_refusals(sides, old, places)
    fence = await looks.at(f"whether {sides.name(old)} can be fenced", fences, [])
    paused = None if sides.switch.side is target else why_paused(sides, places)
    refusals = [*_tail_refusals(sides, target, tails, terms), *fence, *([] if paused is None else [paused])]
    return replace(
        rehearsal,
        missing=None if missing is None else tuple(missing),
        groups=past_lost(past_tails(following(groups, left, unread), tails), lost),
        tail=tuple(tails),
        lost=tuple(lost),
        refusals=tuple(refusals),
        notes=(*failures, *anew, *_transaction_notes(places), *await _rule_notes(sides, old)),
    )


async def _look_at_tail(
    sides: Sides, target: Side, rehearsal: Rehearsal, looks: _Looks, terms: Terms
) -> Rehearsal:
    """Groups are not moved for it."""
    old = target.other
    tails, _ = await looks.at(f"what only {sides.name(old)} has", find_tails(sides, old), ([], {}))
    anew = await looks.at("what was made anew", _anew_notes(sides), [])
    return replace(
        rehearsal,
        settles=True,
        choice=TailChoice.COPY if sides.switch.stage is Stage.TAIL else terms.tail,
        tail=tuple(tails),
        refusals=tuple(_tail_refusals(sides, old, tails, terms)),
        notes=tuple(anew),
    )


async def _missing_now(sides: Sides, old: Side, places: Sequence[PartitionPlace]) -> list[Missing]:
    """As `status` tells it; of routes that stand by, by what lies at the two sides. `places` of `old`."""
    names = {route.name for route in sides.leaving(old)}
    told = await read_status(replace(sides.topology, routes=sides.group.routes), sides.clock)
    leaving = [route for route in told.routes if route.name in names]
    standing_by = {route.name for route in leaving if route.state == STANDING_BY}
    routes = {place.source: place.route.name for place in places if place.route.name in standing_by}
    tails = (await find_tails(sides, old))[0] if routes else []
    now_ms = sides.clock.now_ms()
    return [
        Missing(
            route=routes[tail.source],
            source=tail.source,
            copied_to=tail.first,
            end=tail.last + 1,
            records=tail.records,
            bytes=tail.bytes,
            seconds=max(now_ms - tail.first_ms, 0) / 1000 if tail.first_ms >= 0 else None,
            age_ms=0,
        )
        for tail in tails
        if tail.source in routes
    ] + [
        Missing(
            route=route.name,
            source=each.source,
            copied_to=each.committed,
            end=each.end,
            records=max(each.lag.messages, 0),
            bytes=each.lag.bytes,
            seconds=each.lag.seconds,
            age_ms=0,
        )
        for route in leaving
        for each in route.partitions
    ]


async def _missing_at_last(sides: Sides, target: Side, view: LedgerView) -> list[Missing]:
    """As a side says that can be read still, or as it was seen last."""
    found: list[Missing] = []
    if target.other in sides.unwritable:
        with suppress(BrokerError):  # some of it has no leader, or it has gone
            found = await _missing_now(sides, target.other, ())
    return found or await _missing_as_known(sides, target, view)


async def _missing_as_known(sides: Sides, target: Side, view: LedgerView) -> list[Missing]:
    """From what the daemon saw of the source last, and the ledger at the side that answers."""
    cluster = sides.cluster(target)
    kept, now_ms = read_last_known(sides.topology), sides.clock.now_ms()
    metadata = await cluster.refresh()
    found: list[Missing] = []
    for route in sides.leaving(target.other):
        ends: Mapping[str, Mapping[str, Any]] = kept.get(route.name, {})
        naming = compile_naming(route.source, route.topics)
        for topic, name in select_topics(naming, metadata.topics.values()).items():
            for number in sorted(metadata.topics[topic].partitions):
                source = TopicPartition(topic, number)
                copied = lane_of(view, None, source, TopicPartition(name, number)).next
                found.append(_known(route.name, source, copied, ends.get(str(source)), now_ms))
    return found


def _known(
    route: str, source: TopicPartition, copied: int | None, told: Mapping[str, Any] | None, now_ms: int
) -> Missing:
    if told is None:
        return Missing(
            route=route,
            source=source,
            copied_to=copied,
            end=None,
            records=None,
            bytes=None,
            seconds=None,
            age_ms=0,
        )
    copied = max(copied or 0, told.get("copied_to", 0))
    records = max(told["end"] - copied, 0)
    size, since_ms = told.get("bytes_per_offset"), told.get("waiting_since_ms")
    return Missing(
        route=route,
        source=source,
        copied_to=copied,
        end=told["end"],
        records=records,
        bytes=0 if not records else None if size is None else round(records * size),
        seconds=(now_ms - since_ms) / 1000 if records and since_ms else None,
        age_ms=now_ms - told["at_ms"],
    )


def _state_refusals(sides: Sides, target: Side, terms: Terms) -> tuple[str, ...]:
    why = sides.why_not(target, force=terms.force)
    if why is None and not terms.force:
        why = sides.why_forced(target)
    return () if why is None else (why,)


def _tail_refusals(sides: Sides, idle: Side, tails: Collection[Tail], terms: Terms) -> list[str]:
    """What of `tails`, of the side that is `idle`, has to be decided first."""
    switch = sides.switch
    is_decided = switch.stage is Stage.TAIL or (switch.side is idle and switch.is_on_its_way)
    return [] if not tails or terms.tail is not None or is_decided else [ask_about_tails(sides.name(idle))]


def _transaction_notes(places: list[PartitionPlace]) -> list[str]:
    return [
        f"{place.source}: transactions are open from offset {place.stable_end} on, {place.end} is its end:"
        " they have to end first"
        for place in places
        if place.stable_end < place.end
    ]


async def _fence_refusals(sides: Sides, old: Side, places: Sequence[PartitionPlace]) -> list[str]:
    why = await why_not_closed(sides.cluster(old), sorted({place.source.topic for place in places}))
    return [] if why is None else [f"{sides.name(old)} cannot be fenced, {why}"]


async def _anew_notes(sides: Sides) -> list[str]:
    """Of both ways."""
    notes: list[str] = []
    for side in Side:
        places, view = await read_places(sides, side), await ledger_at(sides.cluster(side))
        notes += made_anew_notes(sides, side, places, view)
    return notes


async def _rule_notes(sides: Sides, old: Side) -> list[str]:
    if all(route.sync.acls for route in sides.leaving(old)):
        return []
    try:
        count = len(await _rules(sides.cluster(old)))
    except BrokerError:
        return []  # a cluster without access rules, or one that does not tell
    return [f"{count} access rules at {sides.name(old)} are not carried: 'sync.acls' is off"] if count else []


async def _rules(cluster: Cluster) -> list[Any]:
    return list(await AclAdmin(cluster).rules())


def _obstacle_notes(sides: Sides, old: Side) -> list[str]:
    """Topics of which nothing may be at the other side, so that nothing else tells of them."""
    known = read_obstacles(sides.topology)
    return [
        f"route {route.name}: topic {topic} was not copied when the daemon looked last: {why}"
        for route in sides.leaving(old)
        for topic, why in known.get(route.name, {}).items()
    ]


def _standing_notes(sides: Sides, old: Side) -> list[str]:
    """What people and policies hold back."""
    notes: list[str] = []
    for route in sides.leaving(old):
        wishes = sides.wishes.get(route.name)
        if wishes is None:
            continue
        if wishes.pause is not None:
            notes.append(f"route {route.name} is paused as a whole: resume it, else nothing is copied")
        notes += (f"route {route.name}: topic {topic} is paused" for topic in wishes.topics)
        notes += (
            f"route {route.name}: {source} stands: {halt.trouble.kind.value}: {halt.trouble.problem}"
            for source, halt in wishes.halts.items()
        )
    return notes
