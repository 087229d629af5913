"""A copier's group in ZooKeeper: what is in doubt is held back, what is lost is let go of at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine

import pytest

from broker.client.group_offsets import OffsetAndMetadata
from broker.clock import SystemClock
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import Znode
from broker.coordination.znodes import ConsumerZnode
from broker.errors import CoordinationError
from broker.types import TopicPartition
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.membership import PartitionOwner, Points
from mirrormaker.flow.zookeeper_membership import ZooKeeperMembership
from tests.client.running import run, until

GROUP = "mirror-r"
T, U, U1 = TopicPartition("t", 0), TopicPartition("u", 0), TopicPartition("u", 1)


class World:
    """A membership, what its owner was told, and another session with the same ZooKeeper."""

    def __init__(self, beside: World | None = None) -> None:
        """`beside`: with its ZooKeeper, in the other session."""
        tree = MemoryTree()
        self.session, self.other = MemorySession(tree), MemorySession(tree)
        if beside is not None:
            self.session, self.other = beside.other, beside.session
        self.copying: dict[TopicPartition, int] = {}
        self.looks = self.members = 0
        self.prepare = self._prepare
        owner = PartitionOwner(
            prepare=lambda partitions: self.prepare(partitions),
            begin=self._begin,
            give_up=self._give_up,
            lose=self._lose,
            look_again=self._look_again,
            count=self._count,
        )
        self.membership = ZooKeeperMembership(self.session, GROUP, frozenset({"t"}), owner, SystemClock())

    async def _prepare(self, partitions: Collection[TopicPartition]) -> Points:
        """Where there is no position, one is stored."""
        known = await self.membership.committed(partitions)
        new = {partition: OffsetAndMetadata(offset=0) for partition in partitions if partition not in known}
        await self.membership.commit(new)
        return {partition: StartingPoint((at.offset,)) for partition, at in (known | new).items()}

    def _count(self, members: int) -> None:
        self.members = members

    def _begin(self, partitions: Collection[TopicPartition], points: Points) -> None:
        self.copying |= {partition: point.lanes[0] for partition, point in points.items()}

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        with contextlib.suppress(CoordinationError):
            await self.membership.commit({partition: OffsetAndMetadata(offset=7) for partition in partitions})
        self._lose(partitions)

    def _lose(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.copying.pop(partition, None)

    def _look_again(self) -> None:
        self.looks += 1


def played(play: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        world = World()
        for session in (world.session, world.other):
            await session.start(timeout_ms=1_000)
        for topic in ("t", "u"):
            await world.other.create(paths.topic(topic), b'{"version":1,"partitions":{"0":[1]}}')
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.membership.run())
            await until(lambda: bool(world.copying))
            await play(world)
            await world.membership.close()
        assert (world.membership.generation, world.copying) == (-1, {})

    run(main)


def test_positions_are_kept_in_zookeeper_and_gone_on_with() -> None:
    async def play(world: World) -> None:
        assert (world.copying, world.membership.assignment) == ({T: 0}, {T})
        await world.membership.commit({T: OffsetAndMetadata(offset=5), U: OffsetAndMetadata(offset=6)})
        assert {at.offset for at in (await world.membership.committed([T, U])).values()} == {5}
        world.membership.subscribe(frozenset({"t", "u"}))
        await until(lambda: world.copying == {T: 7, U: 0})

    played(play)


def test_while_it_is_in_doubt_whose_partitions_are_nothing_moves_and_no_position_is_stored() -> None:
    async def play(world: World) -> None:
        world.membership.doubted()
        assert world.membership.is_in_doubt
        with pytest.raises(CoordinationError, match="not certain"):
            await world.membership.commit({T: OffsetAndMetadata(offset=5)})
        world.membership.assured()
        assert (world.membership.is_in_doubt, world.looks) == (False, 1)
        await world.membership.commit({T: OffsetAndMetadata(offset=5)})

    played(play)


def test_topics_that_change_while_the_connection_is_down_leave_no_member_behind() -> None:
    """Nor does any change of topics leave its listeners to the session."""

    async def play(world: World) -> None:
        ids, handlers = paths.consumer_ids(GROUP), len(world.session._state_handlers)
        (before,) = await world.other.children(ids)
        world.session.suspend()
        world.membership.subscribe(frozenset({"u"}))
        await asyncio.sleep(0.01)
        world.session.resume()
        await until(lambda: world.copying == {U: 0})
        (now,) = await world.other.children(ids)
        found = await world.other.get(paths.consumer_id(GROUP, now))
        assert found is not None
        registered = ConsumerZnode.decode(found.data, now)
        assert (before, registered.subscription) == (now, {"u": 1})
        assert await world.other.get(paths.consumer_owner(GROUP, T)) is None
        assert len(world.session._state_handlers) == handlers == 1

    played(play)


def test_members_hear_of_the_topics_that_another_reads_from_now_on() -> None:
    async def play(world: World) -> None:
        await world.other.set(paths.topic("u"), b'{"version":1,"partitions":{"0":[1],"1":[1]}}')
        second = World(world)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(second.membership.run())
            await until(lambda: world.members == second.members == 2)
            world.membership.subscribe(frozenset({"t", "u"}))
            await until(lambda: world.copying.keys() | second.copying.keys() == {T, U, U1})
            second.membership.subscribe(frozenset({"t", "u"}))
            await until(lambda: len(world.copying.keys() & {U, U1}) == 1)
            await until(lambda: len(second.copying.keys() & {U, U1}) == 1)
            await second.membership.close()

    played(play)


def test_after_a_doubt_a_partition_without_a_position_is_taken_again() -> None:
    async def play(world: World) -> None:
        world.copying[T] = 99
        await world.other.delete(paths.consumer_offset(GROUP, T))
        await world.other.delete(paths.consumer_owner(GROUP, T))
        await until(lambda: world.copying == {T: 0})
        assert not world.membership.is_in_doubt
        assert await world.other.get(paths.consumer_offset(GROUP, T)) is not None

    played(play)


def test_in_doubt_no_position_is_stored_of_a_claim_that_is_another_members_by_now() -> None:
    async def play(world: World) -> None:
        prepare, owner = asyncio.Event(), paths.consumer_owner(GROUP, U)
        refused: list[str] = []
        stored: list[Znode | None] = []

        async def take_from_it(partitions: Collection[TopicPartition]) -> Points:
            if U in partitions and not prepare.is_set():
                prepare.set()
                await world.other.delete(owner)
                await world.other.create(owner, b"another-0", ephemeral=True)
                world.membership.doubted()
                try:
                    return await world._prepare(partitions)
                except CoordinationError as error:
                    stored.append(await world.other.get(paths.consumer_offset(GROUP, U)))
                    refused.append(str(error))
                    await world.other.delete(owner)
                    raise
            return await world._prepare(partitions)

        world.prepare = take_from_it
        world.membership.subscribe(frozenset({"t", "u"}))
        await until(lambda: bool(refused))
        assert "not certain" in refused[0]
        assert stored[0] is None

    played(play)


def test_an_owner_znode_that_goes_away_has_the_partition_let_go_and_taken_again() -> None:
    async def play(world: World) -> None:
        world.copying[T] = 99  # to be told from a new beginning
        await world.other.delete(paths.consumer_owner(GROUP, T))
        await until(lambda: world.copying == {T: 0})
        await until(lambda: not world.membership.is_in_doubt)

    played(play)
