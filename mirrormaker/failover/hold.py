"""One command at a time works on a failover group: it says so at both clusters, again and again (see
`reconcile/switch_commands`). Where one was killed the next goes on with its work. What two commands that
began in one moment would do is kept apart by the revision of the switch: see `Sides.record`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from broker.client.cluster import Cluster
from broker.client.operations import WRITE
from broker.client.partition_admin import PartitionAdmin
from broker.client.rights import read_rights
from broker.errors import BrokerError
from mirrormaker.failover.sides import FailoverError, Sides
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.reconcile.control_board import TIMEOUT_MS
from mirrormaker.reconcile.control_records import this_user
from mirrormaker.reconcile.switch_commands import BEAT_MS, DEAD_MS, command_key, name_command
from mirrormaker.reconcile.switches import Side, Stage

_LOOK_MS = 100


@asynccontextmanager
async def hold(sides: Sides, target: Side, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Be the command that switches the group; the side that is left counts as away where it cannot be
    written to. Raises FailoverError while another command is at work, but for one that is to be called off.
    """
    key = command_key(sides.group.name)
    async with AsyncExitStack() as stack:
        for side in list(sides.clusters):
            try:
                topic = KeptTopic(sides.clusters[side], CONTROL_TOPIC, timeout_ms=TIMEOUT_MS)
                sides.control[side] = await stack.enter_async_context(topic)
                await topic.read_to_end()
            except BrokerError as error:
                _lose(sides, side, target, error)
        await _await_the_end_of_others(sides, key, target, tell)
        sides.look()
        own = _describe(sides, target)
        for side, topic in list(sides.control.items()):
            try:
                await topic.put([(key, own)])
            except BrokerError as error:
                _lose(sides, side, target, error)
        beats = [asyncio.create_task(_beat(topic, key, own)) for topic in sides.control.values()]
        try:
            yield
        finally:
            for task in beats:
                task.cancel()
            await asyncio.wait(beats)
            for topic in sides.control.values():
                with suppress(BrokerError, TimeoutError):
                    async with asyncio.timeout(
                        DEAD_MS / 1000
                    ):  # in so long the next command finds out itself
                        await topic.put([(key, None)])


async def lose_unwritable(sides: Sides, target: Side) -> None:
    """For who only looks: a side whose control topic has no leader, has fewer replicas in sync than it
    wants, or may not be written to by this user counts as away, as `hold` would find by writing to it.
    Raises FailoverError where that is the one to switch to.
    """
    for side, cluster in list(sides.clusters.items()):
        if (why := await _why_unwritable(cluster)) is not None:
            _lose(sides, side, target, FailoverError(why))


async def _why_unwritable(cluster: Cluster) -> str | None:
    admin = PartitionAdmin(cluster)
    try:
        allowed = (await read_rights(cluster, [CONTROL_TOPIC])).topics.get(CONTROL_TOPIC)
        if allowed is not None and WRITE not in allowed:
            return f"the right to write to {CONTROL_TOPIC} is needed"
        if found := await admin.find_partitions([CONTROL_TOPIC], unavailable=True):
            return f"{next(iter(found))} has no leader"
        if found := await admin.find_partitions([CONTROL_TOPIC], under_min_isr=True):
            return f"{next(iter(found))} has fewer replicas in sync than 'min.insync.replicas' says"
    except BrokerError:
        pass  # the topic is not there yet, or this user may not ask
    return None


def _lose(sides: Sides, side: Side, target: Side, error: BrokerError) -> None:
    """Go on without a side. Raises FailoverError where that is the one to switch to."""
    problem = f"cluster {sides.name(side)!r}: the switch cannot be recorded there: {error}"
    if side is target:
        raise FailoverError(problem) from error
    sides.lose(side, problem)
    sides.unwritable.add(side)
    sides.control.pop(side, None)


def _describe(sides: Sides, target: Side) -> dict[str, Any]:
    return {
        "id": uuid4().hex,
        "by": this_user(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "to": sides.name(target),
        "beats": 0,
    }


async def _beat(topic: KeptTopic, key: Document, own: Mapping[str, Any]) -> None:
    beats = 0
    while True:
        await asyncio.sleep(BEAT_MS / 1000)
        beats += 1
        with suppress(BrokerError):  # the steps of the switch will tell
            await topic.put([(key, {**own, "beats": beats})])


async def _await_the_end_of_others(
    sides: Sides, key: Document, target: Side, tell: Callable[[str], None]
) -> None:
    """Until those that are said to be at work have gone, or are seen to be dead. Raises FailoverError."""
    before = {side: told for side, topic in sides.control.items() if (told := topic.get(key)) is not None}
    if not before:
        return
    tell(f"{name_command(next(iter(before.values())))} did not end: looking whether it is still at work")
    now: dict[Side, Document | None] = {**before}
    waited_ms = 0
    while now == before and waited_ms < DEAD_MS:
        await asyncio.sleep(_LOOK_MS / 1000)
        waited_ms += _LOOK_MS
        now = {side: sides.control[side].get(key) for side in before}
    sides.look()
    alive = [told for side, told in now.items() if told is not None and told != before[side]]
    if alive and not _calls_off(sides, target):
        raise FailoverError(
            f"the group {sides.group.name!r} is being switched to {alive[0].get('to')!r} by"
            f" {name_command(alive[0])} just now: wait until that has ended"
        )


def _calls_off(sides: Sides, target: Side) -> bool:
    return sides.switch.side is target.other and sides.switch.stage is Stage.DRAINING
