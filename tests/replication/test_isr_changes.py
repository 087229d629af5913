"""In-sync sets on their way to ZooKeeper: written on a condition, told, and safe when that fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from broker.clock import SystemClock
from broker.cluster.registration import create_layout
from broker.cluster.states import write_isr
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import SessionLostError
from broker.coordination.znodes import PartitionStateZnode
from broker.replication import isr_changes
from broker.replication.follower_progress import LagBounds
from broker.replication.isr_changes import IsrChanges
from broker.replication.partition import Assignment
from broker.replication.replica import Replica
from broker.types import BrokerId, LeaderEpoch
from tests.replication.test_flush_through import executor, led
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, build

__all__ = ["executor"]

LOCAL, OTHER = BrokerId(1), BrokerId(2)
EPOCH = LeaderEpoch(1)
STATE = PartitionStateZnode(controller_epoch=3, leader=LOCAL, leader_epoch=EPOCH, isr=(LOCAL,))


class FailingSession(MemorySession):
    """Its writes fail as often as it is told to, after they took effect or before."""

    fail_before = fail_after = 0

    async def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        if self.fail_before:
            self.fail_before -= 1
            raise SessionLostError("before")
        written = await super().set(path, data, version=version)
        if self.fail_after:
            self.fail_after -= 1
            raise SessionLostError("after")
        return written


class Scene:
    """A leader with one record whose follower, which is out of sync, is registered."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.tree = MemoryTree()
        self.session = FailingSession(self.tree)
        self.replica: Replica = led(memory_place(), executor)
        self.changes = IsrChanges(
            [self.replica], self.session, clock=SystemClock(), bounds=LagBounds(time_ms=60_000)
        )
        self.broker_epoch = 0

    async def begin(self) -> None:
        await self.session.start(timeout_ms=1000)
        await create_layout(self.session)
        await self.session.create(paths.broker(OTHER), b"{}", ephemeral=True)
        znode = self.tree.get(paths.broker(OTHER))
        assert znode is not None
        self.broker_epoch = znode.czxid
        await self.session.create(paths.partition_state(PARTITION), STATE.encode())
        self.order(STATE, 0)
        self.replica.append(build([b"a"]), acks=1, now_ms=NOW_MS)

    def order(self, state: PartitionStateZnode, version: int) -> None:
        order = Assignment(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            replicas=(LOCAL, OTHER),
            partition_epoch=version,
            controller_epoch=state.controller_epoch,
        )
        self.replica.machine.lead(order, now_ms=0)

    def fetch(self) -> None:
        """The follower has everything."""
        end = self.replica.log.log_end_offset
        self.replica.fetched_by(OTHER, end, broker_epoch=self.broker_epoch, now_ms=0)
        self.changes.fetched(self.replica, OTHER)

    def stored(self) -> tuple[PartitionStateZnode, int]:
        znode = self.tree.get(paths.partition_state(PARTITION))
        assert znode is not None
        return PartitionStateZnode.decode(znode.data, "state"), znode.version

    async def until(self, condition: Callable[[], bool]) -> None:
        changed = asyncio.Event()
        stop = self.tree.observe(lambda *_: changed.set())
        async with asyncio.timeout(30):
            while not condition():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), 0.01)
                changed.clear()
        stop()


@contextlib.asynccontextmanager
async def scene(executor: ThreadPoolExecutor) -> AsyncIterator[Scene]:
    made = Scene(executor)
    await made.begin()
    running = asyncio.create_task(made.changes.run())
    await asyncio.sleep(0)
    try:
        yield made
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "RETRY_SECONDS", 0.01)


def test_who_caught_up_is_written_into_the_isr_and_announced(executor: ThreadPoolExecutor) -> None:
    async def scenario() -> None:
        async with scene(executor) as here:
            here.fetch()
            await here.until(lambda: here.replica.machine.isr == (LOCAL, OTHER))
            assert here.stored() == (replace(STATE, isr=(LOCAL, OTHER)), 1)
            await here.until(lambda: bool(here.tree.children(paths.ISR_CHANGES)))
            assert (here.changes.expanded_count, here.changes.shrunk_count) == (1, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_write_whose_outcome_is_unknown_is_written_until_it_is_known(
    executor: ThreadPoolExecutor, takes_effect: bool
) -> None:
    async def scenario() -> None:
        async with scene(executor) as here:
            name = "fail_after" if takes_effect else "fail_before"
            setattr(here.session, name, 1_000_000)
            here.fetch()
            machine = here.replica.machine
            await here.until(lambda: OTHER in machine.maximal_isr)
            machine.give_up_waiting(here.changes.bounds, now_ms=10**9)
            here.replica.append(build([b"b"]), acks=1, now_ms=NOW_MS)
            await here.replica.flush_through(2)
            assert machine.high_watermark == 1
            setattr(here.session, name, 0)
            await here.until(lambda: machine.isr == (LOCAL, OTHER))
            assert here.stored()[1] == machine.assignment.partition_epoch == 1

    asyncio.run(scenario())


def test_while_zookeeper_is_away_nothing_is_committed_without_who_may_have_joined(
    executor: ThreadPoolExecutor,
) -> None:
    async def scenario() -> None:
        async with scene(executor) as here:
            here.session.fail_before = 1
            here.fetch()
            await here.until(lambda: not here.session.fail_before)
            here.session.suspend()
            here.replica.append(build([b"b"]), acks=1, now_ms=NOW_MS)
            here.replica.machine.give_up_waiting(here.changes.bounds, now_ms=10**9)
            await here.replica.flush_through(2)
            assert here.replica.high_watermark == 1
            here.session.resume()
            await here.until(lambda: here.replica.machine.isr == (LOCAL, OTHER))
            here.fetch()
            assert here.replica.high_watermark == 2

    asyncio.run(scenario())


def test_after_the_controller_wrote_the_state_its_order_is_waited_for(executor: ThreadPoolExecutor) -> None:
    async def scenario() -> None:
        async with scene(executor) as here:
            newer = replace(STATE, leader_epoch=LeaderEpoch(2))
            await write_isr(here.session, PARTITION, newer, 0)
            here.fetch()
            machine = here.replica.machine
            await here.until(lambda: OTHER in machine.maximal_isr)
            await here.until(lambda: machine.propose(joining=[OTHER], leaving=[], bounds=LagBounds()) is None)
            assert here.stored() == (newer, 1)
            here.order(newer, 1)
            here.fetch()
            await here.until(lambda: machine.isr == (LOCAL, OTHER))
            assert here.stored() == (replace(newer, isr=(LOCAL, OTHER)), 2)

    asyncio.run(scenario())


def test_who_crashed_with_its_machine_does_not_join_by_what_it_had_before(
    executor: ThreadPoolExecutor,
) -> None:
    async def scenario() -> None:
        async with scene(executor) as here:
            here.fetch()
            await here.session.delete(paths.broker(OTHER))
            await write_isr(here.session, PARTITION, STATE, 0)  # as it does before it registers again
            machine = here.replica.machine
            await here.until(lambda: OTHER not in machine.maximal_isr)
            assert here.stored() == (STATE, 1)

    asyncio.run(scenario())
