"""Consumer groups of a failover group's routes, looked at or carried once, by the ledgers of both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.metadata import ClusterMetadata
from broker.errors import RequestTimedOutError
from broker.types import TopicPartition
from mirrormaker.carrying.carrier import Crossing, GroupCarrier
from mirrormaker.carrying.decision import GroupStanding
from mirrormaker.carrying.group_positions import group_positions
from mirrormaker.failover.carried_groups import known_ends
from mirrormaker.failover.group_place import GroupPlace
from mirrormaker.failover.partitions import PartitionPlace
from mirrormaker.failover.sides import Sides
from mirrormaker.ledger.group_mark import GroupMark, GroupMarkId
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.return_ledger import ReturnLedger
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.ledger.two_way import read_again
from mirrormaker.reconcile.switches import Side
from mirrormaker.topology.failover_groups import return_route
from mirrormaker.topology.group_selection import GroupSelection
from mirrormaker.topology.model import Delivery, RouteSpec

READ_TIMEOUT_MS = 30_000
_LOOK_MS = 50
UNWRITTEN_LOOKS, UNWRITTEN_LOOK_MS = 6, 500
"""So often, and that far apart, a rehearsal looks again for what is sent to be written down."""
_AT_THE_END = frozenset({GroupStanding.CARRIED, GroupStanding.AHEAD})
_UNWRITTEN = frozenset({GroupStanding.UNKNOWN, GroupStanding.AHEAD})


@dataclass(frozen=True, slots=True)
class _Lanes:
    """What the ledgers say of a route, and of the one that leads back."""

    there: RouteLedger
    back: ReturnLedger | None
    ends: Mapping[TopicPartition, int]
    """Of the partitions that the route leads to, as far as known."""


async def look_at_groups(
    sides: Sides, side: Side, places: list[PartitionPlace], unread: Mapping[TopicPartition, int]
) -> tuple[list[GroupPlace], list[str]]:
    """Where the groups of `side` would go on at the other one now, and why others could not be looked at;
    nothing is moved. `unread`: as in `carry_groups`. Both sides must answer.

    Raises BrokerError.
    """
    found: list[GroupPlace] = []
    failures: list[str] = []
    for route in _carrying(sides, side):
        async with _carriage(sides, side, route, places, only_looks=True) as (carrier, lanes):
            await carrier.carry(moves=False, unread=unread, heeds_given=False)
            for _ in range(UNWRITTEN_LOOKS):
                if not _are_unwritten(route, carrier, places):
                    break
                await asyncio.sleep(UNWRITTEN_LOOK_MS / 1000)
                await carrier.carry(moves=False, unread=unread, heeds_given=False)
            found += _told(route, carrier.groups, lanes)
            found += await _uncopied(sides, side, route, places)
            failures += _failures_of(carrier)
    return found, failures


def _are_unwritten(route: RouteSpec, carrier: GroupCarrier, places: Iterable[PartitionPlace]) -> bool:
    """Whether groups have read what the route has sent, as its positions say, and the ledger does not know
    yet: that comes after them where delivery is at most once, and before routes rest.
    """
    if route.delivery is not Delivery.AT_MOST_ONCE:
        return False
    sent = {place.source: place.copied_to for place in places if place.route.name == route.name}
    return any(
        each.decision.standing in _UNWRITTEN and 0 < each.position.offset <= sent.get(each.source, 0)
        for crossings in carrier.groups.values()
        for each in crossings
    )


async def _uncopied(
    sides: Sides, side: Side, route: RouteSpec, places: list[PartitionPlace]
) -> list[GroupPlace]:
    """Groups in partitions that have no copy yet, as of a cluster that was made anew. Raises BrokerError."""
    cluster, there = sides.cluster(side), await sides.cluster(side.other).refresh()
    own = {each.source: each.to for each in places if each.route.name == route.name}
    missing = own.keys() - copied_lanes(route, places, there).keys()
    if not missing:
        return []
    selection = GroupSelection(route.sync.groups)
    names = [each.group_id for each in await Admin(cluster).list_groups()]
    found: list[GroupPlace] = []
    for name in filter(selection.selects, sorted(names)):
        positions = await group_positions(cluster, name, missing)
        found += [
            GroupPlace(
                route=route.name,
                group=name,
                source=source,
                at=positions[source].offset,
                to=own[source],
                continues_at=None,
                standing=GroupStanding.UNKNOWN.value,
                is_exact=False,
                unread=0,
                again=None,
            )
            for source in sorted(missing & positions.keys())
        ]
    return found


async def carry_groups(
    sides: Sides, side: Side, places: list[PartitionPlace], unread: Mapping[TopicPartition, int]
) -> tuple[list[GroupPlace], list[str]]:
    """Carry the groups of `side` to the other one, none past the first record there that never came to `side`
    (`unread`, by partition), and note there that they came from here: so they are carried back from where
    they go on. Returns where they are now, and what was said of those that were not
    carried. Raises BrokerError.
    """
    found: list[GroupPlace] = []
    failures: list[str] = []
    for route in _carrying(sides, side):
        async with _carriage(sides, side, route, places) as (carrier, lanes):
            await carrier.carry(unread=unread, heeds_given=False)
            await carrier.carry(unread=unread, heeds_given=False)  # says where they are now
            failures += _failures_of(carrier)
            if lanes.back is not None:
                await _note(carrier.groups, lanes.back)
            found += _told(route, carrier.groups, lanes)
    return found, failures


def _failures_of(carrier: GroupCarrier) -> list[str]:
    return [f"group {name} is not carried: {why}" for name, why in sorted(carrier.failures.items())]


def _carrying(sides: Sides, side: Side) -> list[RouteSpec]:
    return [route for route in sides.leaving(side) if route.sync.groups is not None]


@asynccontextmanager
async def _carriage(
    sides: Sides, side: Side, route: RouteSpec, places: list[PartitionPlace], *, only_looks: bool = False
) -> AsyncIterator[tuple[GroupCarrier, _Lanes]]:
    """A carrier for all partitions of the route, with ledgers that have been read. One that `only_looks`
    makes no ledger where there is none, as at a cluster that was made anew: nothing is known of it then.
    """
    assert route.sync.groups is not None
    source, destination = sides.cluster(side), sides.cluster(side.other)
    ledger = RouteLedger(route, source, destination, sides.clock)
    back = None
    if return_route(route, sides.group.routes) is not None:
        back = ReturnLedger(source, destination)
    owned = copied_lanes(route, places, await destination.refresh())
    ledgers: list[tuple[Cluster, RouteLedger | ReturnLedger]] = [(destination, ledger)]
    ledgers += [] if back is None else [(source, back)]
    kept = [
        each
        for cluster, each in ledgers
        if not only_looks or LEDGER_TOPIC in (await cluster.refresh()).topics
    ]
    tasks = [asyncio.create_task(each.run()) for each in kept]
    try:
        await _await_read(kept)
        yield (
            GroupCarrier(route.sync.groups, source, destination, ledger, lambda: owned, back),
            _Lanes(ledger, back, await known_ends(destination, owned.values())),
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def copied_lanes(
    route: RouteSpec, places: Iterable[PartitionPlace], there: ClusterMetadata
) -> dict[TopicPartition, TopicPartition]:
    """From source to destination, of the route's partitions that have a copy, be it without a leader for now:
    the others hold nothing that could have been copied.
    """
    return {
        place.source: place.to
        for place in places
        if place.route.name == route.name and there.partition(place.to) is not None
    }


async def _await_read(ledgers: Collection[RouteLedger | ReturnLedger]) -> None:
    """Raises RequestTimedOutError."""
    try:
        async with asyncio.timeout(READ_TIMEOUT_MS / 1000):
            while not all(each.is_read for each in ledgers):  # noqa: ASYNC110 asked by commands alone
                await asyncio.sleep(_LOOK_MS / 1000)
    except TimeoutError:
        told = next((each.problem for each in ledgers if each.problem is not None), None)
        raise RequestTimedOutError(f"the ledgers were not read: {told}") from None


async def _note(groups: Mapping[str, tuple[Crossing, ...]], back: ReturnLedger) -> None:
    records = []
    for name, crossings in groups.items():
        for each in crossings:
            if each.committed is not None:
                mark = GroupMark(source=each.committed, to=each.position.offset, before=None)
                records.append((GroupMarkId(name, back.lane(each.source, each.to)).key(), mark.value()))
    if records:
        await back.put(records)


def _told(route: RouteSpec, groups: Mapping[str, tuple[Crossing, ...]], lanes: _Lanes) -> list[GroupPlace]:
    return [
        _place_of(route, name, each, lanes)
        for name, crossings in sorted(groups.items())
        for each in crossings
    ]


def _place_of(route: RouteSpec, group: str, each: Crossing, lanes: _Lanes) -> GroupPlace:
    continues_at = each.committed if each.decision.to is None else each.decision.to
    again = None
    if continues_at is not None:
        there = lanes.there.pages(each.source, each.to)
        back = None if lanes.back is None else lanes.back.pages(each.source, each.to) or LaneLedger()
        again = read_again(each.position.offset, continues_at, there, back, lanes.ends.get(each.to))
    is_exact = each.translation.is_exact
    return GroupPlace(
        route=route.name,
        group=group,
        source=each.source,
        at=each.position.offset,
        to=each.to,
        continues_at=continues_at,
        standing=each.decision.standing.value,
        is_exact=is_exact and each.decision.standing in _AT_THE_END,
        unread=each.behind,
        again=again,
    )
