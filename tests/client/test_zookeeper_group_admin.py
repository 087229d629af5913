"""Administration of groups in ZooKeeper: what members and offsets they have, and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.group_descriptions import DEAD
from broker.client.group_offset_admin import GroupLag, ToEarliest, ToLatest
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.producer import Producer
from broker.client.zookeeper_group_admin import ZooKeeperGroupAdmin
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import ConsumerZnode
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from tests.client.running import QUICK, run
from tests.server.running_node import running_node

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
GONE = TopicPartition("gone", 0)


@asynccontextmanager
async def administering(directory: Path) -> AsyncIterator[tuple[ZooKeeperGroupAdmin, MemorySession]]:
    """A node with a topic of three records a partition, and a session beside the administration's."""
    tree = MemoryTree()
    sessions = [MemorySession(tree), MemorySession(tree)]
    for session in sessions:
        await session.start(timeout_ms=1_000)
    async with (
        running_node(directory, tree=tree) as listeners,
        Cluster([listeners[0].address], backoff=QUICK) as cluster,
    ):
        await Admin(cluster).create_topic(NewTopic(name="t", partitions=2))
        async with Producer(cluster) as producer:
            for number in range(6):
                await producer.send("t", b"%d" % number, partition=number % 2)
        yield ZooKeeperGroupAdmin(cluster, sessions[0]), sessions[1]
    for session in sessions:
        await session.close()


def administered(
    directory: Path, play: Callable[[ZooKeeperGroupAdmin, MemorySession], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with administering(directory) as (admin, session):
            await play(admin, session)

    run(main)


async def join(session: MemorySession, name: str, registered: ConsumerZnode) -> None:
    await session.create(paths.consumer_id("g", name), registered.encode(), ephemeral=True)


def static(**streams: int) -> ConsumerZnode:
    return ConsumerZnode(subscription=streams, pattern=ConsumerZnode.STATIC, timestamp_ms=1)


def test_members_are_told_with_what_they_subscribed_to_and_own(tmp_path: Path) -> None:
    async def play(admin: ZooKeeperGroupAdmin, session: MemorySession) -> None:
        await join(session, "host:1", static(t=2))
        for name, pattern in (("host:2", ConsumerZnode.ALLOW), ("host:3", ConsumerZnode.DENY)):
            await join(session, name, ConsumerZnode(subscription={"t|u": 1}, pattern=pattern, timestamp_ms=1))
        await session.create(paths.consumer_owner("g", ONE), b"host:1-1", ephemeral=True)
        group = (await admin.describe_groups(["g", "h"]))["g"]
        assert (group.type, group.state, group.protocol) == ("zookeeper", "Stable", "range")
        one, two, three = group.members
        assert (one.member_id, one.topics, one.pattern, one.assignment) == ("host:1", ("t",), None, (ONE,))
        assert (two.topics, two.pattern, two.assignment) == ((), "t|u", ())
        assert three.pattern == "(?!(?:t|u)$).*"
        assert await admin.group_owners("g") == {ONE: "host:1-1"}
        assert (await admin.describe_groups(["h"]))["h"].state == DEAD
        await join(session, "host:4", static(t=1))
        await session.set(paths.consumer_id("g", "host:4"), b"*1*t")
        with pytest.raises(CoordinationError, match="/consumers/g/ids/host:4"):
            await admin.describe_groups(["g"])

    administered(tmp_path, play)


def test_offsets_of_topics_that_are_gone_count_for_nothing(tmp_path: Path) -> None:
    async def play(admin: ZooKeeperGroupAdmin, session: MemorySession) -> None:
        await session.create(paths.consumer_offset("g", ZERO), b"1")
        for gone in (GONE, TopicPartition("t", 7)):
            await session.create(paths.consumer_offset("g", gone), b"9")
        assert await admin.group_offsets("g") == {ZERO: OffsetAndMetadata(offset=1)}
        assert await admin.group_lags("g") == {ZERO: GroupLag(offset=1, end=3)}
        assert await admin.move_group_offsets("g", ToLatest()) == {ZERO: 3}
        assert await admin.move_group_offsets("g", ToEarliest(), [ZERO, ONE]) == {ZERO: 0, ONE: 0}
        assert (await admin.group_lags("g"))[ONE] == GroupLag(offset=0, end=3)
        assert await session.children(paths.consumer_owners("g", "t")) == [], "nothing is left claimed"

    administered(tmp_path, play)


def test_offsets_are_not_moved_while_somebody_is_there_or_owns_a_partition(tmp_path: Path) -> None:
    async def play(admin: ZooKeeperGroupAdmin, session: MemorySession) -> None:
        await session.create(paths.consumer_offset("g", ZERO), b"1")
        owner = paths.consumer_owner("g", ZERO)
        await session.create(owner, b"host:1-0", ephemeral=True)
        with pytest.raises(ProtocolError, match=f"owned: {owner}") as raised:
            await admin.reset_group_offsets("g", {ZERO: 0, ONE: 0})
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
        assert list(await admin.group_offsets("g")) == [ZERO]
        refused = await admin.delete_group_offsets("g", [ZERO, ONE])
        assert refused[ONE] is None
        assert "read by host:1-0" in str(refused[ZERO])
        await session.delete(owner)
        await join(session, "host:1", static(t=1))
        with pytest.raises(ProtocolError, match="host:1 is in group g"):
            await admin.reset_group_offsets("g", {ZERO: 0})
        assert await admin.delete_group_offsets("g", [ZERO]) == {ZERO: None}
        assert await admin.group_offsets("g") == {}

    administered(tmp_path, play)


def test_offsets_that_are_named_by_brokers_stay_so_and_those_of_former_ones_go(tmp_path: Path) -> None:
    async def play(admin: ZooKeeperGroupAdmin, session: MemorySession) -> None:
        offsets = paths.consumer_offsets("g", "t")
        for name, offset in (("1-0", b"2"), ("7-0", b"3"), ("1-1", b"1")):
            await session.create(f"{offsets}/{name}", offset)
        lags = await admin.group_lags("g")
        assert {partition: at.offset for partition, at in lags.items()} == {ZERO: 3, ONE: 1}
        await admin.reset_group_offsets("g", {ZERO: 0})
        assert await session.children(offsets) == ["1-0", "1-1"]
        assert (await admin.group_offsets("g"))[ZERO].offset == 0

    administered(tmp_path, play)


def test_groups_are_deleted_whole_when_nobody_is_there(tmp_path: Path) -> None:
    async def play(admin: ZooKeeperGroupAdmin, session: MemorySession) -> None:
        await session.create(paths.consumer_offset("old", ZERO), b"1")
        await session.create(paths.consumer_owners("old", "t"), b"")
        await join(session, "host:1", static(t=1))
        listed = await admin.list_groups(types=["zookeeper"])
        assert [(group.group_id, group.state) for group in listed] == [("g", "Stable"), ("old", "Empty")]
        outcomes = await admin.delete_groups(["old", "g", "never", "a/b"])
        assert [error and error.code for error in outcomes.values()] == [
            None,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.INVALID_GROUP_ID,
        ]
        assert await session.children(paths.CONSUMERS) == ["g"]
        assert await admin.list_groups(types=["classic"]) == []

    administered(tmp_path, play)
