"""Groups that meet in ZooKeeper: whatever happens, a partition has one reader at most, and exactly one once
the group is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_assignment import PartitionNames
from broker.client.zookeeper_group import RebalanceFailedError, ZooKeeperMember
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import ConsumerZnode
from broker.types import TopicPartition
from tests.client.running import run, until
from tests.client.zookeeper_groups import GROUP, Ledger, Reader, SimulatedGroup

STEPS = 25


def simulate(group: SimulatedGroup, live: Callable[[], Awaitable[None]]) -> None:
    """Run it on the group's loop, to an end without unexpected errors."""

    async def whole() -> None:
        await group.begin()
        await live()
        await group.end()

    try:
        group.loop.run_until_complete(whole())
    finally:
        group.loop.run_until_complete(_cancel_all())
        group.loop.close()
    assert group.loop.unexpected == []


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 32), names=st.sampled_from(PartitionNames))
def test_any_joins_leaves_and_expiries_end_with_one_reader_of_every_partition(
    seed: int, names: PartitionNames
) -> None:
    group = SimulatedGroup(seed, names=names)

    async def live() -> None:
        group.join()
        for _ in range(3):
            await group.disturb(STEPS)
            await group.check_settled()

    simulate(group, live)


def test_a_session_that_ends_costs_its_partitions_at_once_and_others_take_them() -> None:
    group = SimulatedGroup(1)

    async def live() -> None:
        first, second = group.join({"topic-0": 1}), group.join({"topic-0": 1})
        await group.end_faults()
        assert first.reader.reading
        first.session.cut()
        await asyncio.sleep(0.1)
        assert not first.reader.reading, "what may be lost is not read"
        await asyncio.sleep(10)
        assert len(second.reader.reading) == len(group.topics["topic-0"])
        await group.end_faults()
        await group.check_settled()
        assert first.reader.reading

    simulate(group, live)


def test_a_connection_that_comes_back_in_time_costs_nothing() -> None:
    group = SimulatedGroup(2)

    async def live() -> None:
        member = group.join({"topic-0": 1})
        await group.end_faults()
        shares = member.reader.shares
        member.session.cut()
        await asyncio.sleep(0.1)
        assert not member.reader.reading
        member.session.heal()
        await asyncio.sleep(3)
        assert member.reader.reading
        assert member.reader.shares == shares

    simulate(group, live)


def test_a_process_that_stood_still_reads_nothing_before_it_knows_what_it_owns() -> None:
    group = SimulatedGroup(2)

    async def live() -> None:
        first, second = group.join({"topic-0": 1}), group.join({"topic-0": 1})
        await group.end_faults()
        first.pause()
        await asyncio.sleep(20)
        assert len(second.reader.reading) == len(group.topics["topic-0"])
        first.resume()  # the ledger looks at what it reads as soon as it did what was due
        await group.end_faults()
        await group.check_settled()

    simulate(group, live)


def test_an_owner_znode_that_somebody_removes_is_claimed_again() -> None:
    group = SimulatedGroup(3)

    async def live() -> None:
        member = group.join({"topic-0": 1})
        await group.end_faults()
        admin = group.zookeeper.session(group.loop.root)
        await admin.start(timeout_ms=1_000)
        await admin.delete(paths.consumer_owner(GROUP, TopicPartition("topic-0", 0)))
        await group.end_faults()
        assert member.reader.shares == 2
        await group.check_settled()
        await admin.close()

    simulate(group, live)


def test_topics_that_a_pattern_allows_are_taken_up_as_they_appear() -> None:
    group = SimulatedGroup(4)

    async def live() -> None:
        members = [group.join((TopicPattern.allow("topic-[0-9]"), 2)) for _ in range(2)]
        await group.end_faults()
        group.create_topic()
        await group.end_faults()
        await group.check_settled()
        read = {partition.topic for member in members for partition in member.reader.reading}
        assert read == {"topic-0", "topic-1", "topic-2"}

    simulate(group, live)


def test_what_changes_nothing_for_a_member_does_not_stop_it() -> None:
    group = SimulatedGroup(5)

    async def live() -> None:
        member = group.join({"topic-0": 1})
        await group.end_faults()
        group.join({"topic-1": 1})
        group.create_topic()
        await group.end_faults()
        assert member.reader.shares == 1

    simulate(group, live)


async def _one_member(
    tree: MemoryTree, reader: Reader, consumer_id: str
) -> tuple[MemorySession, ZooKeeperMember]:
    session = MemorySession(tree)
    await session.start(timeout_ms=1_000)
    member = ZooKeeperMember(
        session,
        GROUP,
        ZooKeeperGroupSettings(consumer_id=consumer_id, rebalance_retries_max=2, rebalance_backoff_ms=5),
        subscription={"t": 1},
        listener=reader,
    )
    return session, member


def test_a_new_member_that_gets_nothing_within_its_retries_says_who_is_in_its_way() -> None:
    async def main() -> None:
        group = SimulatedGroup(6)
        tree = group.zookeeper.tree
        owner = MemorySession(tree)
        await owner.start(timeout_ms=1_000)
        await owner.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
        blocked = paths.consumer_owner(GROUP, TopicPartition("t", 0))
        await owner.create(blocked, b"somebody-0", ephemeral=True)
        session, member = await _one_member(tree, Reader("r", Ledger(), group.random), "me")
        with pytest.raises(RebalanceFailedError, match=f"3 tries; in its way: {blocked}"):
            await member.run()
        assert await owner.children(paths.consumer_ids(GROUP)) == []
        await session.close()
        group.loop.close()

    run(main)


@pytest.mark.parametrize(
    ("registered", "told"), [(b"{", "holds no JSON"), (b'{ "t": 1 }', "has no subscription .*Kafka 0.7")]
)
def test_a_registration_that_nobody_understands_is_named(registered: bytes, told: str) -> None:
    async def main() -> None:
        group = SimulatedGroup(9)
        session, member = await _one_member(group.zookeeper.tree, Reader("r", Ledger(), group.random), "me")
        broken = paths.consumer_id(GROUP, "other")
        await session.create(broken, registered)
        with pytest.raises(RebalanceFailedError, match=f"3 tries; {broken} {told}"):
            await member.run()
        await session.close()
        group.loop.close()

    run(main)


def test_a_member_that_had_a_share_waits_until_the_owner_lets_go() -> None:
    async def main() -> None:
        group = SimulatedGroup(7)
        tree = group.zookeeper.tree
        owner = MemorySession(tree)
        await owner.start(timeout_ms=1_000)
        await owner.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
        reader = Reader("r", Ledger(), group.random)
        session, member = await _one_member(tree, reader, "me")
        work = asyncio.create_task(member.run())
        await member.settled()
        taken = paths.consumer_owner(GROUP, TopicPartition("t", 0))
        await owner.delete(taken)
        await owner.create(taken, b"somebody-0", ephemeral=True)
        await asyncio.sleep(0.1)  # many times the retries
        assert not reader.reading
        assert not work.done()
        await owner.delete(taken)
        await until(lambda: bool(reader.reading))
        await member.close()
        await work
        await session.close()
        group.loop.close()

    run(main)


def test_a_member_that_leaves_while_the_connection_is_down_is_gone_when_it_is_back() -> None:
    async def main() -> None:
        group = SimulatedGroup(9)
        tree = group.zookeeper.tree
        session, member = await _one_member(tree, Reader("r", Ledger(), group.random), "host:1")
        await session.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
        work = asyncio.create_task(member.run())
        await member.settled()
        session.suspend()
        leaving = asyncio.create_task(member.close())
        await asyncio.sleep(1.2)  # the reader takes up to a second to stop
        assert not leaving.done()
        session.resume()
        await leaving
        await work
        assert await session.children(paths.consumer_ids(GROUP)) == []
        assert await session.children(paths.consumer_owners(GROUP, "t")) == []
        await session.close()
        group.loop.close()

    run(main)


def test_members_are_registered_as_kafkas_consumers_are() -> None:
    async def main() -> None:
        group = SimulatedGroup(8)
        session, member = await _one_member(
            group.zookeeper.tree, Reader("r", Ledger(), group.random), "host:1"
        )
        work = asyncio.create_task(member.run())
        await member.settled()
        path = paths.consumer_id(GROUP, "host:1")
        znode = await session.get(path)
        assert znode is not None
        assert znode.ephemeral_owner == session.session_id
        registered = ConsumerZnode.decode(znode.data, path)
        assert (registered.subscription, registered.pattern) == ({"t": 1}, "static")
        await member.close()
        await work
        assert await session.children(paths.consumer_ids(GROUP)) == []
        await session.close()
        group.loop.close()

    run(main)
