"""What clients of version 0 commit is in ZooKeeper, where old consumers look for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.errors import ErrorCode
from broker.groups.zookeeper_offsets import ZooKeeperOffsets
from broker.types import TopicPartition
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

ZNODE = paths.consumer_offset("g", TopicPartition("t", 0))


def played(play: Callable[[MemorySession, ZooKeeperOffsets], Awaitable[None]]) -> None:
    """Run a test with a session of the node's."""

    async def main() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1_000)
        await play(session, ZooKeeperOffsets(session, metadata_size_max=10))
        await session.close()

    asyncio.run(main())


async def commit(offsets: ZooKeeperOffsets, offset: int, *, group: str = "g", note: str = "") -> ErrorCode:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=note
    )
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )
    response = await offsets.commit_offsets(request, version=0)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


async def fetch(offsets: ZooKeeperOffsets, *, group: str = "g", topic: str = "t") -> tuple[int, ErrorCode]:
    asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    response = await offsets.fetch_offsets(OffsetFetchRequest(group_id=group, topics=asked), version=0)
    (partition,) = response.topics[0].partitions
    return partition.committed_offset, ErrorCode.of(partition.error_code)


def test_commits_are_written_where_consumers_read_them() -> None:
    async def play(session: MemorySession, offsets: ZooKeeperOffsets) -> None:
        for offset in (5, 7):
            assert await commit(offsets, offset) is ErrorCode.NONE
            znode = await session.get(ZNODE)
            assert znode is not None
            assert (znode.data, znode.ephemeral_owner) == (b"%d" % offset, 0)
        assert await fetch(offsets) == (7, ErrorCode.NONE)

    played(play)


def test_what_consumers_wrote_is_fetched() -> None:
    async def play(session: MemorySession, offsets: ZooKeeperOffsets) -> None:
        await session.create(ZNODE, b"42")
        assert await fetch(offsets) == (42, ErrorCode.NONE)

    played(play)


@pytest.mark.parametrize("topic", ["t", "no/topic", "..", ""])
def test_a_partition_without_an_offset_is_unknown(topic: str) -> None:
    async def play(session: MemorySession, offsets: ZooKeeperOffsets) -> None:
        assert await fetch(offsets, topic=topic) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    played(play)


@pytest.mark.parametrize("group", ["", "a/b", "..", ".", "a\0b"])
def test_a_group_that_cannot_have_a_znode_is_refused(group: str) -> None:
    async def play(session: MemorySession, offsets: ZooKeeperOffsets) -> None:
        assert await commit(offsets, 1, group=group) is ErrorCode.INVALID_GROUP_ID
        assert await fetch(offsets, group=group) == (-1, ErrorCode.INVALID_GROUP_ID)
        assert await session.children(paths.CONSUMERS) == []

    played(play)


def test_notes_are_bounded_though_none_is_kept() -> None:
    async def play(session: MemorySession, offsets: ZooKeeperOffsets) -> None:
        assert await commit(offsets, 1, note="x" * 10) is ErrorCode.NONE
        assert await commit(offsets, 2, note="x" * 11) is ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await fetch(offsets) == (1, ErrorCode.NONE)

    played(play)


def test_clients_are_told_to_come_back_while_zookeeper_is_away_or_holds_no_number() -> None:
    async def play(session: MemorySession, offsets: ZooKeeperOffsets) -> None:
        await session.create(ZNODE, b"what?")
        assert await fetch(offsets) == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        session.suspend()
        assert await commit(offsets, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await fetch(offsets) == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    played(play)
