"""Moving a route to another place in its source: the positions that its group has stored there, and for an
exactly-once route those at its destination too, which count first. They are withdrawn from one that is at
most once, as it goes by what it left there. What it passes over is noted before.

Only while nobody copies: a process at work would store its own position over it. So the route must pause as a
whole, or no process be in its group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from broker.client.cluster import Cluster
from broker.client.group_offset_admin import (
    Destination,
    GroupOffsetAdmin,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
)
from broker.client.group_offsets import OffsetAndMetadata
from broker.clock import SystemClock
from broker.errors import BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.audit.time_offsets import offsets_of_window
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.clusters import open_cluster
from mirrormaker.control_access import read_control
from mirrormaker.flow.lane_note import Arrears
from mirrormaker.flow.losses import LossNotes, losses_of
from mirrormaker.flow.memberships import SESSION_TIMEOUT_MS
from mirrormaker.flow.passed_over import Moves, note_passed_over
from mirrormaker.flow.position_moves import move_positions, withdraw_readable
from mirrormaker.flow.position_note import read_note, write_note
from mirrormaker.flow.positions import SourceId
from mirrormaker.flow.transaction_steps import FENCED_CODES
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.plan.adoption import undecided_topics
from mirrormaker.plan.grounds import may_append, refusal
from mirrormaker.plan.topics import select_topics, written_by_topic
from mirrormaker.reconcile.active_sides import ActiveSide, read_switch
from mirrormaker.reconcile.control import RouteWishes
from mirrormaker.reconcile.control_records import control_of
from mirrormaker.reconcile.former_group import FormerGroupError, bring_positions, former_of
from mirrormaker.reconcile.halts import Halt
from mirrormaker.reconcile.observe import observe
from mirrormaker.reconcile.pauses import find_route
from mirrormaker.reconcile.position_places import place_record
from mirrormaker.route_groups import count_members, route_group
from mirrormaker.topology.failover_groups import failover_groups
from mirrormaker.topology.model import Delivery, Membership, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

LEAVE_TIMEOUT_MS = 20_000
"""How long a paused route's processes may take to leave; one that was killed leaves with its session."""
ENDED_TIMEOUT_MS = SESSION_TIMEOUT_MS + 2_000
"""How long a process that has just ended, or was killed, may count as one in the group of a route."""
LOOK_INTERVAL_MS = 200
_COME_TO_WORK_CODES = FENCED_CODES | {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP}
"""What the group, or the owner of an exactly-once bucket, answers where a process is at work by then."""


class RouteBusyError(BrokerError):
    """The route is at work somewhere."""


def parse_destination(text: str) -> Destination:
    """`earliest`, `latest`, an offset, or a time such as 2026-01-31T12:00:00Z. Raises ValueError."""
    match text:
        case "earliest":
            return ToEarliest()
        case "latest":
            return ToLatest()
        case _ if text.isdecimal():
            return ToOffset(int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z"
        raise ValueError(f"{text!r} is not {expected}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at_ms = round(moment.timestamp() * 1000)
    if at_ms < 0:  # clusters take some such times for the earliest or the latest
        raise ValueError(f"{text} is before 1970, when the times of clusters begin")
    return ToTime(at_ms)


async def seek(
    topology: Topology,
    name: str,
    topics: Collection[str],
    destination: Destination,
    partition: int | None = None,
    *,
    may_have_ended: bool = True,
) -> dict[TopicPartition, int]:
    """Have the route go on at `destination` in these topics (all that it takes when there are none), in one
    partition of each or in all. Returns where they are now; what lies outside of what the source keeps
    stands for the nearer end. `may_have_ended`: processes that run the route are given the time of a session
    to show that they are no more.

    Raises RouteBusyError, ConfigurationError, BrokerError.
    """
    route = find_route(topology, name, topics)
    await _check_side(topology, route)
    try:
        return await _move(topology, route, topics, destination, partition, may_have_ended=may_have_ended)
    except ProtocolError as error:
        if error.code not in _COME_TO_WORK_CODES:
            raise
        raise _came_to_work(route) from error


def _came_to_work(route: RouteSpec) -> RouteBusyError:
    return RouteBusyError(
        f"route {route.name!r} came to work meanwhile: pause it first, as a whole, then seek again;"
        " some of its positions may have moved"
    )


async def _move(
    topology: Topology,
    route: RouteSpec,
    topics: Collection[str],
    destination: Destination,
    partition: int | None,
    *,
    may_have_ended: bool,
) -> dict[TopicPartition, int]:
    """Raises as `seek`; ProtocolError of `_COME_TO_WORK_CODES` where a process is taking the route up."""
    wishes = (await read_control(topology.clusters[route.destination])).get(route.name, RouteWishes())
    spec = topology.clusters[route.source]
    async with open_cluster(spec) as source, route_group(route, spec, source) as admin:
        partitions = await _partitions(source, route, topics, partition)
        is_paused = wishes.pause is not None
        patience_ms = LEAVE_TIMEOUT_MS if is_paused else ENDED_TIMEOUT_MS if may_have_ended else 0
        await _await_nobody(admin, route, patience_ms, is_paused=is_paused)
        is_whole = not topics and partition is None
        does_without = await _bring_positions(topology, route, source, wishes.positions, is_whole=is_whole)
        before = await admin.group_offsets(route.group, partitions)
        if not does_without:
            await _check_decided(
                topology, route, {each.topic for each in partitions} - {each.topic for each in before}
            )
        moved = await _find(source, admin, route, destination, partitions)
        await note_passed_over(
            topology.clusters[route.destination],
            route.name,
            _passed_over(moved, before, wishes.halts),
        )
        await admin.reset_group_offsets(route.group, _noted(moved, before))
        if route.delivery is not Delivery.AT_LEAST_ONCE:
            await _move_at_destination(topology, route, source, moved)
            if await count_members(admin, route.group):  # who joined before that read where it was before
                raise _came_to_work(route)
        return moved


async def _check_side(topology: Topology, route: RouteSpec) -> None:
    """Raises ConfigurationError where the route stands by, as a switch settles where it goes on."""
    if route.failover_group is None:
        return
    group = failover_groups(topology)[route.failover_group]
    side = ActiveSide(group=group, switch=await read_switch(topology, group))
    if not side.runs(route):
        where = f"the failover group {group.name!r} is at {side.cluster!r}"
        then = "the switch that has it work again says where it goes on"
        raise ConfigurationError([f"the route {route.name!r} stands by, as {where}: {then}"])


async def _bring_positions(
    topology: Topology, route: RouteSpec, source: Cluster, said: Membership | None, *, is_whole: bool
) -> bool:
    """Those of a former membership, so that no daemon brings them later; a route that moves as a whole does
    without them where they cannot be brought: returns whether it does. Raises BrokerError.
    """
    if former_of(route, said) is None:
        return False
    does_without, destination = False, topology.clusters[route.destination]

    async def note_lost(lost: Mapping[TopicPartition, Arrears]) -> None:
        if lost:
            async with open_cluster(destination) as cluster:
                await LossNotes(route.name, cluster, SystemClock()).write(losses_of(lost))

    try:
        await bring_positions(route, topology.clusters[route.source], source, said, note_lost)
    except FormerGroupError:
        if not is_whole:
            raise
        does_without = said is not None
    async with control_of(destination) as topic:
        await topic.put([place_record(route.name, route.membership)])
    return does_without


async def _check_decided(topology: Topology, route: RouteSpec, topics: Collection[str]) -> None:
    """Raises ConfigurationError where the route, which has no position in these topics, would come by one in
    some whose copies hold records that nobody has decided about.
    """
    if not topics or may_append(route):
        return
    ends = {name: topology.clusters[name] for name in (route.source, route.destination)}
    part = replace(topology, clusters=ends, routes=(replace(route, enabled=True),), pipelines=())
    world = await observe(part, SystemClock())
    source, destination = world.reached(route.source), world.reached(route.destination)
    if source is None or destination is None:
        return
    written = written_by_topic(route, compile_naming(route.source, route.topics), source.topics.values())
    left = undecided_topics(route, source, destination, written)
    refused = frozenset[str]().union(*(left[topic] for topic in topics if topic in left))
    if refused:
        raise ConfigurationError([refusal([name]) for name in sorted(refused)])


async def _find(
    source: Cluster,
    admin: GroupOffsetAdmin,
    route: RouteSpec,
    destination: Destination,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where that is. Of a time the first record, not the marker of a transaction that came later."""
    if isinstance(destination, ToTime):
        found = await offsets_of_window(source, partitions, TimeWindow(from_ms=destination.timestamp_ms))
        return {each: found[each].first for each in partitions}
    return await admin.move_group_offsets(route.group, destination, partitions, validate_only=True)


def _passed_over(
    moved: Mapping[TopicPartition, int],
    before: Mapping[TopicPartition, OffsetAndMetadata],
    halts: Mapping[TopicPartition, Halt],
) -> Moves:
    """From where to where; of a topic that was made anew, and stands for that, from where it begins."""
    starts = {each: at.offset for each, at in before.items()}
    for source, halt in halts.items():
        if halt.trouble.kind is TroubleKind.TOPIC_RECREATED:
            starts[source] = halt.trouble.resume_at
    return {each: (starts[each], to) for each, to in moved.items() if each in starts}


def _noted(
    moved: Mapping[TopicPartition, int], before: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions, for whatever topic has the name; where copies went so far stays known."""
    led = {each: read_note(at.metadata).led for each, at in before.items()}
    return {
        each: OffsetAndMetadata(offset=to, metadata=write_note(NO_TOPIC_ID, "", led.get(each)))
        for each, to in moved.items()
    }


async def _move_at_destination(
    topology: Topology, route: RouteSpec, source: Cluster, positions: Mapping[TopicPartition, int]
) -> None:
    naming = compile_naming(route.source, route.topics)
    names = select_topics(naming, source.metadata.topics.values())
    moves = {
        SourceId(
            cluster_id=source.cluster_id,
            topic_id=source.metadata.topics[each.topic].topic_id,
            partition=each,
            to=names[each.topic],
        ): offset
        for each, offset in positions.items()
    }
    async with open_cluster(topology.clusters[route.destination]) as destination:
        if route.delivery is Delivery.EXACTLY_ONCE:
            await move_positions(destination, route, moves)
        else:
            await withdraw_readable(destination, route, moves)


async def _partitions(
    source: Cluster, route: RouteSpec, topics: Collection[str], partition: int | None
) -> list[TopicPartition]:
    metadata = await source.refresh()
    selected = select_topics(compile_naming(route.source, route.topics), metadata.topics.values())
    if missing := [topic for topic in topics if topic not in selected]:
        raise ConfigurationError([f"cluster {route.source!r} has no topic {topic!r}" for topic in missing])
    found = [
        at
        for at in metadata.topic_partitions(sorted(topics or selected))
        if partition is None or at.partition == partition
    ]
    if not found:
        what = "no topic" if partition is None else f"no partition {partition}"
        raise ConfigurationError([f"route {route.name!r}: {what} to seek in"])
    return found


async def _await_nobody(
    admin: GroupOffsetAdmin, route: RouteSpec, patience_ms: float, *, is_paused: bool
) -> None:
    """Return when no process is in the route's group. Raises RouteBusyError."""
    ends_at = time.monotonic() + patience_ms / 1000
    while members := await count_members(admin, route.group):
        if time.monotonic() < ends_at:
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        elif is_paused:
            raise RouteBusyError(
                f"route {route.name!r} is paused, but processes did not leave it within {patience_ms} ms"
            )
        else:
            raise RouteBusyError(
                f"route {route.name!r} is at work in {members} processes: pause it first, as a whole"
            )
