"""Brings the positions of a route along when its `membership` changes: from its group at the coordinator of
its source to that in ZooKeeper, or back. See `position_places`.

It is done before a process takes part in the new group, and while nobody is in the former one: whoever is
would store positions there that nobody sees. Where they cannot be read the route waits: without them it would
begin by its `start`. What is done twice, as by several processes, or after a crash, comes to the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.metadata import TopicMetadata
from broker.client.offsets import EARLIEST, list_offsets
from broker.errors import BrokerError, CoordinationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.lane_note import Arrears
from mirrormaker.reconcile.position_places import Stored, brought, former_membership
from mirrormaker.route_groups import count_members, route_group
from mirrormaker.topology.model import ClusterSpec, Membership, RouteSpec
from mirrormaker.topology.naming import compile_naming

QUERY_TIMEOUT_MS = 20_000
LEAVE_TIMEOUT_MS = 12_000
"""How long processes may take to leave the former group, before it is told that they have not: one that ended
to come back leaves it with its session.
"""
LOOK_INTERVAL_MS = 200
LOOK_AGAIN_MS = 5_000
LOOKS_BEFORE_GONE = 2
"""A node that has just started may not know of all topics."""

_PLACES = {Membership.COORDINATOR: "at the coordinator", Membership.ZOOKEEPER: "in the ZooKeeper"}

Positions = Mapping[TopicPartition, Stored]
NoteLost = Callable[[Mapping[TopicPartition, Arrears]], Awaitable[None]]

_log = logger("former_group")


class FormerGroupError(BrokerError):
    """What the group had before `membership` changed cannot be brought now."""

    def __init__(self, route: RouteSpec, former: RouteSpec, problem: str) -> None:
        place = f"{_PLACES[former.membership]} of {route.source!r}"
        super().__init__(
            f"its membership is {route.membership.value!r} now, and the positions of its former group"
            f" {former.group!r} {place} cannot be brought: {problem}; `mirrormaker seek`,"
            " of the whole route, does without them"
        )


async def bring_positions(
    route: RouteSpec,
    spec: ClusterSpec,
    source: Cluster,
    said: Membership | None,
    note_lost: NoteLost,
) -> int | None:
    """Have the group stand where that of the former membership stood; returns in how many partitions, None
    where nothing is to be done. `said`: as the control topic says, where the new place is to be written
    afterwards. `note_lost` is told before what will not be sent. Raises FormerGroupError.
    """
    former = former_of(route, said)
    if former is None:
        return None
    try:
        return await _bring(former, route, spec, source, note_lost, is_said=said is former.membership)
    except BrokerError as error:
        raise FormerGroupError(route, former, str(error)) from error


async def former_positions(
    route: RouteSpec,
    spec: ClusterSpec,
    source: Cluster,
    said: Membership | None,
    here: Mapping[str, Mapping[int, int]],
) -> dict[TopicPartition, int]:
    """Where the group will stand once that is done, as far as it is not there yet; `here`: what it has, topic
    -> partition -> offset. Raises FormerGroupError.
    """
    former = former_of(route, said)
    if former is None:
        return {}
    try:
        is_said = said is former.membership
        async with _group(former, spec, source) as group:
            stored = await _stored(group, former, source, _passed_over(bool(here), is_said=is_said))
        has = {TopicPartition(topic, number) for topic, offsets in here.items() for number in offsets}
        found = await _found(route, source, stored, has, is_said=is_said)
    except BrokerError as error:
        raise FormerGroupError(route, former, str(error)) from error
    return {partition: offset for partition, (offset, _) in found.items()}


def former_of(route: RouteSpec, said: Membership | None) -> RouteSpec | None:
    """The route as it was when it had the positions that are to be brought; None: there are none."""
    former = former_membership(route, said)
    return None if former is None else replace(route, membership=former)


async def _bring(
    former: RouteSpec,
    route: RouteSpec,
    spec: ClusterSpec,
    source: Cluster,
    note_lost: NoteLost,
    *,
    is_said: bool,
) -> int:
    """Raises BrokerError."""
    async with _group(former, spec, source) as old, _group(route, spec, source) as new:
        here = frozenset[TopicPartition]() if is_said else (await _all_offsets(new, route, source)).keys()
        passed_over = _passed_over(bool(here), is_said=is_said)
        stored = await _stored(old, former, source, passed_over, waits=True)
        found = await _found(route, source, stored, here, is_said=is_said)
        await note_lost({partition: lacked for partition, (_, lacked) in found.items() if lacked is not None})
        if found:
            offsets = {partition: offset for partition, (offset, _) in found.items()}
            await new.reset_group_offsets(route.group, offsets)
        if former.membership is Membership.ZOOKEEPER:  # the next way there begins with nothing
            outcome = (await old.delete_groups([former.group]))[former.group]
            if outcome is not None and outcome.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise outcome
    return len(found)


def _group(
    route: RouteSpec, spec: ClusterSpec, source: Cluster
) -> AbstractAsyncContextManager[GroupOffsetAdmin]:
    """Raises CoordinationError where the file does not say where it is."""
    if route.membership is Membership.ZOOKEEPER and spec.zookeeper is None and spec.embedded is None:
        raise CoordinationError(f"the file does not say where the 'zookeeper' of {spec.name!r} is")
    return route_group(route, spec, source, timeout_ms=QUERY_TIMEOUT_MS)


async def _stored(
    group: GroupOffsetAdmin,
    former: RouteSpec,
    source: Cluster,
    passed_over: Collection[ErrorCode],
    *,
    waits: bool = False,
) -> Positions:
    """What the former group has; `waits`: once nobody is in it any more. Nothing where it answers with what
    is `passed_over`. Raises BrokerError.
    """
    try:
        if waits:
            await _await_nobody(group, former.group)
        else:
            await group.describe_groups([former.group])
        return await _all_offsets(group, former, source)
    except ProtocolError as error:
        if error.code not in passed_over:
            raise
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            _log.info("former_group_passed_over", route=former.name, group=former.group, error=str(error))
        return {}


def _passed_over(is_here: bool, *, is_said: bool) -> frozenset[ErrorCode]:
    """What of the former group is no reason to wait, but where it `is_said` to have the positions: that nodes
    have no groups; lack of a right, which a route had that ran by it; and, of one that has positions where it
    meets now, that nobody coordinates groups there.
    """
    if is_said:
        return frozenset({ErrorCode.UNSUPPORTED_VERSION})
    away = {ErrorCode.COORDINATOR_NOT_AVAILABLE} if is_here else ()
    return frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_AUTHORIZATION_FAILED, *away})


async def _all_offsets(group: GroupOffsetAdmin, route: RouteSpec, source: Cluster) -> Positions:
    try:
        found = await group.group_offsets(route.group)
    except ProtocolError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        metadata = await source.refresh()  # its nodes have to be asked about each partition
        every = metadata.topic_partitions(sorted(metadata.topics))
        found = await group.group_offsets(route.group, every)
    return {partition: Stored(at.offset, at.metadata) for partition, at in found.items()}


async def _await_nobody(group: GroupOffsetAdmin, group_id: str) -> None:
    """Raises ProtocolError NON_EMPTY_GROUP."""
    try:
        async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
            while True:
                if not await count_members(group, group_id):
                    return
                await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
    except TimeoutError:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, "processes are still in it") from None


async def _found(
    route: RouteSpec, source: Cluster, stored: Positions, here: Collection[TopicPartition], *, is_said: bool
) -> dict[TopicPartition, tuple[int, Arrears | None]]:
    """Where the partitions that there are go on, and what will be lacking before that. Raises BrokerError."""
    topics = await _topics(route, source, {each.topic for each in stored})
    known = {
        each: at
        for each, at in stored.items()
        if each.topic in topics and each.partition in topics[each.topic].partitions
    }
    ids = {name: topic.topic_id for name, topic in topics.items()}
    found = brought(known, here, ids, route.delivery, is_said=is_said)
    anew = [partition for partition, each in found.items() if each.offset is None]
    first = await list_offsets(source, dict.fromkeys(anew, EARLIEST)) if anew else {}
    return {
        partition: (first[partition].offset if each.offset is None else each.offset, each.lacked)
        for partition, each in found.items()
    }


async def _topics(route: RouteSpec, source: Cluster, names: Collection[str]) -> dict[str, TopicMetadata]:
    """Those of these that there are. Raises ProtocolError where one that the route takes is not shown, as the
    right to it lacks or its nodes are not ready: its positions may be needed yet. One is gone that several
    looks do not find, where the coordinator had its positions: ZooKeeper has none of such topics.
    """
    naming, may_be_gone = compile_naming(route.source, route.topics), route.membership is Membership.ZOOKEEPER
    for look in range(1, LOOKS_BEFORE_GONE + 1):
        found = await _look(source, names)
        absent = {name: topic.error for name, topic in found.items() if topic.error and naming.selects(name)}
        gone = {name for name, code in absent.items() if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for name in sorted(absent.keys() - gone if may_be_gone else absent):
            raise ProtocolError(absent[name], f"topic {name!r}")
        if not gone:
            break
        if look < LOOKS_BEFORE_GONE:
            await asyncio.sleep(LOOK_AGAIN_MS / 1000)
    return {name: topic for name, topic in found.items() if not topic.error}


async def _look(source: Cluster, names: Collection[str]) -> dict[str, TopicMetadata]:
    """What its nodes tell of each. Raises BrokerError."""
    listed = (await source.refresh()).topics
    absent = {name for name in names if name not in listed or listed[name].error}
    found = {**listed, **(await source.refresh(absent)).topics} if absent else listed
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {name: found.get(name, TopicMetadata(name=name, error=unknown)) for name in names}
