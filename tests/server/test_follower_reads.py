"""Consumers are sent to followers, and followers serve them what they know to be committed (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.coordination.memory import MemoryTree
from broker.errors import ConfigurationError, ErrorCode
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.server.followed_node import LEADER, LONG_MS, TOPIC, FollowedNode, followed_node, known
from tests.server.running_node import running_node

NOBODY = -1
FEW_MS = 50


def on_leader(
    tmp_path: Path, scenario: Callable[[FollowedNode], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    """A scenario with two records that all three replicas have; the leader knows racks."""

    async def play() -> None:
        settings.setdefault("replica_selector_class", "rack")
        async with followed_node(tmp_path, 2, 3, broker_rack="rack-1", **settings) as node:
            await node.produce(b"a", b"b", acks=1)
            for broker_id in (2, 3):
                await node.fetch(broker_id, 2)
            await scenario(node)

    asyncio.run(play())


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    async def scenario(node: FollowedNode) -> None:
        sent = await node.consume(0, rack="rack-3", max_wait_ms=LONG_MS)
        assert (sent.preferred_read_replica, sent.records, sent.high_watermark) == (3, b"", 2)
        for rack in ("rack-1", "rack-9", ""):
            served = await node.consume(0, rack=rack)
            assert served.preferred_read_replica == NOBODY
            assert served.records
        old = await node.consume(0, version=10)
        assert old.records

    on_leader(tmp_path, scenario)


def test_only_a_replica_that_has_what_is_asked_for_is_named(tmp_path: Path) -> None:
    async def scenario(node: FollowedNode) -> None:
        await node.produce(b"c", acks=1)
        await node.fetch(2, 3, log_start_offset=1)
        assert (await node.consume(2, rack="rack-3")).preferred_read_replica == 3
        assert (await node.consume(1, rack="rack-2")).preferred_read_replica == 2
        assert (await node.consume(0, rack="rack-2")).records
        beyond = await node.consume(4, rack="rack-2")
        assert (beyond.error_code, beyond.preferred_read_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, NOBODY)

    on_leader(tmp_path, scenario)


def test_a_replica_that_is_not_in_sync_is_not_named(tmp_path: Path) -> None:
    async def scenario(node: FollowedNode) -> None:
        await node.produce(b"c", acks=1)
        await node.fetch(2, 3)
        await node.until_isr(1, 2)
        assert (await node.consume(0, rack="rack-3")).records
        assert (await node.consume(0, rack="rack-2")).preferred_read_replica == 2

    on_leader(tmp_path, scenario, replica_lag_max_messages=None, replica_lag_time_max_ms=300)


def test_without_a_selector_everybody_reads_from_the_leader(tmp_path: Path) -> None:
    async def scenario(node: FollowedNode) -> None:
        assert (await node.consume(0, rack="rack-3")).records

    on_leader(tmp_path, scenario, replica_selector_class="leader")


class Session:
    """A fetch session of one consumer or follower, partition 0 of the topic."""

    def __init__(self, node: FollowedNode, connection: Connection, **fields: Any) -> None:
        self._node, self._connection, self._fields = node, connection, fields
        self._id, self._epoch = 0, 0

    async def fetch(self, offset: int, *, max_wait_ms: int = 0) -> Any:
        """The answer to the partition, None where nothing is told."""
        partition = FetchPartition(
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=self._node.state().leader_epoch,
        )
        topic = FetchTopic(topic=TOPIC, topic_id=self._node.topic_id, partitions=[partition])
        answer = await self._connection.request(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                session_id=self._id,
                session_epoch=self._epoch,
                topics=[topic],
                **self._fields,
            )
        )
        self._id, self._epoch = answer.session_id, self._epoch + 1
        return answer.responses[0].partitions[0] if answer.responses else None


def test_a_session_is_told_where_to_read_though_nothing_else_changed(tmp_path: Path) -> None:
    async def scenario(node: FollowedNode) -> None:
        session = Session(node, await node.connect(), rack_id="rack-2")
        for _ in range(2):
            answer = await session.fetch(2, max_wait_ms=LONG_MS)
            assert answer.preferred_read_replica == 2

    on_leader(tmp_path, scenario)


def test_followers_hear_at_once_what_was_committed(tmp_path: Path) -> None:
    """Both of the way a follower can wait while the high watermark moves: for it, and with what moves it."""

    async def scenario(node: FollowedNode) -> None:
        second, third = node.followers[2], node.followers[3]
        slow = Session(
            node, second.connection, replica_state=ReplicaState(replica_id=2, replica_epoch=second.epoch)
        )
        quick = Session(
            node, third.connection, replica_state=ReplicaState(replica_id=3, replica_epoch=third.epoch)
        )
        assert (await slow.fetch(2)).high_watermark == 2
        assert (await quick.fetch(2)).high_watermark == 2
        await node.produce(b"c", acks=1)
        assert (await slow.fetch(2, max_wait_ms=LONG_MS)).records
        waiting = asyncio.create_task(slow.fetch(3, max_wait_ms=LONG_MS))
        assert (await quick.fetch(2, max_wait_ms=LONG_MS)).records
        assert (await quick.fetch(3, max_wait_ms=LONG_MS)).high_watermark == 3
        assert (await waiting).high_watermark == 3

    on_leader(tmp_path, scenario)


def test_a_follower_serves_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        async with running_node(tmp_path, tree=tree, broker_id=LEADER) as (listener, *_):
            node = FollowedNode(tree, listener)
            async with node.connections:
                await node.register(2)
                await known(node, 2)
                await node.create(2, LEADER)
                epoch = node.state().leader_epoch
                asked = {"max_wait_ms": FEW_MS}
                assert (await node.consume(0, **asked)).error_code == ErrorCode.NONE
                later = await node.consume(1, **asked)
                assert later.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
                refused = await node.consume(0, version=10)
                assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                newer = await node.consume(0, current_leader_epoch=epoch + 1, **asked)
                assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
                offsets = await node.list_offset(-1)
                assert offsets.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                looked_at = await node.list_offset(-1, replica_id=-2)
                assert (looked_at.error_code, looked_at.offset) == (ErrorCode.NONE, 0)

    asyncio.run(scenario())


def test_a_selector_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match=r"replica\.selector\.class: nearest cannot be made"):
            async with running_node(tmp_path, replica_selector_class="nearest"):
                pass

    asyncio.run(scenario())
    assert not list(tmp_path.iterdir())
