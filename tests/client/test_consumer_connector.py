"""Streams over groups of every kind, against a whole node in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.consumer_connector import ConsumerConnector, GroupKind
from broker.client.consumer_settings import ConsumerSettings, OffsetReset
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.client.group_settings import GroupSettings
from broker.client.producer import Producer
from broker.client.rebalance_listener import RebalanceListener
from broker.client.record_stream import RecordStream
from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.errors import BrokerError
from broker.types import HostPort, TopicPartition
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.client.running import QUICK, run, until
from tests.server.running_node import running_node

PARTITIONS = 4
GROUP = GroupSettings(
    group_id="g", heartbeat_interval_ms=20, session_timeout_ms=6_000, metadata_max_age_ms=50
)
SETTINGS = ConsumerSettings(
    offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=50, auto_commit_interval_ms=60_000
)
IN_ZOOKEEPER = ZooKeeperGroupSettings(rebalance_backoff_ms=50)
ZERO = TopicPartition("t", 0)


@dataclass(slots=True, kw_only=True)
class Scene:
    """A node with a topic, and what tests do to it."""

    cluster: Cluster
    tree: MemoryTree
    sessions: list[MemorySession] = field(default_factory=list)

    async def session(self) -> MemorySession:
        session = MemorySession(self.tree)
        await session.start(timeout_ms=1_000)
        self.sessions.append(session)
        return session

    async def connector(
        self,
        kind: GroupKind,
        settings: ConsumerSettings = SETTINGS,
        group: GroupSettings = GROUP,
        rebalance_listener: RebalanceListener | None = None,
    ) -> ConsumerConnector:
        return ConsumerConnector(
            self.cluster,
            group,
            kind=kind,
            coordination=await self.session(),
            zookeeper=IN_ZOOKEEPER,
            settings=settings,
            reader_grace_ms=50,
            rebalance_listener=rebalance_listener,
        )

    async def produce(self, *values: bytes, topic: str = "t", partition: int | None = None) -> None:
        async with Producer(self.cluster) as producer:
            for number, value in enumerate(values):
                await producer.send(
                    topic, value, partition=number % PARTITIONS if partition is None else partition
                )
            await producer.flush()

    async def committed(self, kind: GroupKind, partition: TopicPartition = ZERO) -> int | None:
        """What the group has stored in one place."""
        if kind is GroupKind.COORDINATOR:
            found = await fetch_offsets(self.cluster, "g", [partition])
            return found[partition].offset if partition in found else None
        znode = await self.sessions[0].get(paths.consumer_offset("g", partition))
        return int(znode.data) if znode is not None else None

    async def until_committed(self, kind: GroupKind, offset: int) -> None:
        while await self.committed(kind) != offset:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    tree = MemoryTree()
    async with (
        running_node(directory, tree=tree) as listeners,
        Cluster([listeners[0].address], backoff=QUICK) as cluster,
    ):
        await Admin(cluster).create_topic(NewTopic(name="t", partitions=PARTITIONS))
        running = Scene(cluster=cluster, tree=tree)
        await running.session()
        yield running
        for session in running.sessions:
            await session.close()


def played(directory: Path, play: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a test against a node."""

    async def main() -> None:
        async with scene(directory) as running:
            await play(running)

    run(main)


async def take(stream: RecordStream, count: int) -> list[bytes]:
    """The values of so many records."""
    return [(await anext(stream)).value or b"" for _ in range(count)]


class Told(RebalanceListener):
    """Writes down what it is told, with the number of the partitions."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.releasing: Callable[[], Awaitable[None]] | None = None
        self.failure: Exception | None = None

    async def before_releasing_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("releasing", len(partitions)))
        if self.failure is not None:
            raise self.failure
        if self.releasing is not None:
            await self.releasing()

    async def before_starting_fetchers(self, share: Mapping[TopicPartition, int]) -> None:
        self.events.append(("starting", len(share)))

    async def partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("lost", len(partitions)))


KINDS = pytest.mark.parametrize("kind", list(GroupKind))


@KINDS
def test_every_partition_goes_to_one_stream(kind: GroupKind, tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        values = [b"%d" % number for number in range(40)]
        await scene.produce(*values)
        async with await scene.connector(kind) as connector:
            streams = (await connector.create_message_streams({"t": 3}))["t"]
            taken = await asyncio.gather(*(take(stream, 10 * len(stream.partitions)) for stream in streams))
            assert sorted(len(stream.partitions) for stream in streams) == [1, 1, 2]
            assert sorted(value for one in taken for value in one) == sorted(values)

    played(tmp_path, play)


@KINDS
def test_what_was_read_is_committed_at_the_end_and_the_next_goes_on_there(
    kind: GroupKind, tmp_path: Path
) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", b"2", partition=0)
        async with await scene.connector(kind) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 2) == [b"0", b"1"]
        assert await stream.next(1_000) is None, "the stream has ended"
        async with await scene.connector(kind) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 1) == [b"2"]
        places = [GroupKind.ZOOKEEPER, GroupKind.COORDINATOR] if kind is GroupKind.DUAL else [kind]
        assert [await scene.committed(place) for place in places] == [3] * len(places)

    played(tmp_path, play)


@KINDS
def test_what_the_reader_still_has_is_not_committed_when_its_partition_goes(
    kind: GroupKind, tmp_path: Path
) -> None:
    async def play(scene: Scene) -> None:
        partition = TopicPartition("t", PARTITIONS - 1)
        await scene.produce(b"0", b"1", b"2", partition=partition.partition)
        async with await scene.connector(kind) as first:
            (stream,) = (await first.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 2) == [b"0", b"1"]
            async with await scene.connector(kind) as second:
                (other,) = (await second.create_message_streams({"t": 1}))["t"]
                await until(lambda: len(first.assignment) == len(second.assignment) == PARTITIONS // 2)
                now = other if partition in second.assignment else stream
                assert await take(now, 2) == [b"1", b"2"]

    played(tmp_path, play)


@KINDS
def test_positions_are_committed_periodically(kind: GroupKind, tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", partition=0)
        often = replace(SETTINGS, auto_commit_interval_ms=5)
        async with await scene.connector(kind, often) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            await take(stream, 2)
            place = GroupKind.COORDINATOR if kind is GroupKind.COORDINATOR else GroupKind.ZOOKEEPER
            await scene.until_committed(place, 1)
            assert await stream.next(50) is None  # the reader is done with the last one
            await scene.until_committed(place, 2)

    played(tmp_path, play)


@KINDS
def test_without_automatic_commits_only_explicit_ones_count(kind: GroupKind, tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", b"2", partition=0)
        by_hand = replace(SETTINGS, auto_commit_interval_ms=0)
        async with await scene.connector(kind, by_hand) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            await take(stream, 1)
            await connector.commit_offsets()
            await take(stream, 2)
        async with await scene.connector(kind, by_hand) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 2) == [b"1", b"2"]

    played(tmp_path, play)


@KINDS
def test_a_stream_goes_back_and_leaves_out(kind: GroupKind, tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", b"2", b"3", partition=0)
        async with await scene.connector(kind) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 3) == [b"0", b"1", b"2"]
            assert await connector.rewind(ZERO, 2) == 1
            assert await take(stream, 1) == [b"1"]
            assert await connector.skip(ZERO, 1) == 3
            assert await take(stream, 1) == [b"3"]
            assert await connector.rewind(ZERO, 100) == 0
            assert await connector.skip(ZERO, 100) == 4
            connector.seek(ZERO, 2)
            assert await take(stream, 1) == [b"2"]
            with pytest.raises(KeyError):
                connector.seek(TopicPartition("t", 99), 0)

    played(tmp_path, play)


@KINDS
def test_topics_that_a_pattern_allows_are_read_when_they_appear(kind: GroupKind, tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"of t")
        async with await scene.connector(kind) as connector:
            streams = await connector.create_message_streams_by_filter(TopicPattern.allow("t|new.*"))
            assert await take(streams[0], 1) == [b"of t"]
            assert await streams[0].next(1) is None
            admin = Admin(scene.cluster)
            for name in ("newest", "other"):
                await admin.create_topic(NewTopic(name=name, partitions=1))
                await scene.produce(b"of " + name.encode(), topic=name, partition=0)
            assert await take(streams[0], 1) == [b"of newest"]
            assert {partition.topic for partition in connector.assignment} == {"t", "newest"}

    played(tmp_path, play)


def test_a_group_moves_from_zookeeper_to_a_coordinator_and_back(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(*(b"%d" % number for number in range(6)), partition=0)
        kinds = [
            GroupKind.ZOOKEEPER,
            GroupKind.DUAL,
            GroupKind.COORDINATOR,
            GroupKind.DUAL,
            GroupKind.ZOOKEEPER,
        ]
        taken = []
        for kind in kinds:
            async with await scene.connector(kind) as connector:
                (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
                taken += await take(stream, 1)
        assert taken == [b"0", b"1", b"2", b"3", b"4"]

    played(tmp_path, play)


@pytest.mark.parametrize(("in_zookeeper", "at_coordinator"), [(1, 2), (2, 1)])
def test_of_two_positions_the_larger_counts(in_zookeeper: int, at_coordinator: int, tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", b"2", partition=0)
        await commit_offsets(scene.cluster, "g", {ZERO: OffsetAndMetadata(offset=at_coordinator)})
        await scene.sessions[0].create(paths.consumer_offset("g", ZERO), b"%d" % in_zookeeper)
        async with await scene.connector(GroupKind.DUAL) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 1) == [b"2"]

    played(tmp_path, play)


def test_what_a_client_of_version_0_committed_is_where_the_group_goes_on(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", b"2", partition=0)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
        )
        await scene.cluster.request(1, commit, at_most=0)
        async with await scene.connector(GroupKind.ZOOKEEPER) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 1) == [b"1"]
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        fetch = OffsetFetchRequest(group_id="g", topics=asked)
        response = await scene.cluster.request(1, fetch, at_most=0)
        assert response.topics[0].partitions[0].committed_offset == 2
        assert await scene.committed(GroupKind.COORDINATOR) is None

    played(tmp_path, play)


def test_ids_that_cannot_name_a_znode_are_refused(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        group = replace(GROUP, group_id="a/b")
        async with await scene.connector(GroupKind.ZOOKEEPER, group=group) as connector:
            with pytest.raises(ValueError, match="'a/b' cannot be the id of a group"):
                await connector.create_message_streams({"t": 1})

    played(tmp_path, play)


def test_a_session_that_ends_gives_the_stream_its_partitions_anew(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", partition=0)
        async with await scene.connector(GroupKind.ZOOKEEPER) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            assert await take(stream, 1) == [b"0"]
            await connector.commit_offsets()
            session = scene.sessions[-1]
            session.suspend()
            await asyncio.sleep(0)
            assert await stream.next(100) is None, "nothing is handed out while owners may be gone"
            session.expire()
            session.resume()
            assert await take(stream, 1) == [b"1"]
            assert len(connector.assignment) == PARTITIONS

    played(tmp_path, play)


def test_readers_are_told_why_a_connector_failed(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        owner = paths.consumer_owner("g", ZERO)
        await scene.sessions[0].create(owner, b"somebody-0", ephemeral=True)
        async with await scene.connector(GroupKind.ZOOKEEPER) as connector:
            with pytest.raises(BrokerError, match=f"in its way: {owner}"):
                await connector.create_message_streams({"t": 1})

    played(tmp_path, play)


def test_streams_are_made_once_and_of_some_count(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with await scene.connector(GroupKind.COORDINATOR) as connector:
            with pytest.raises(RuntimeError, match="no streams"):
                await connector.commit_offsets()
            with pytest.raises(ValueError, match="at least one"):
                await connector.create_message_streams({"t": 0})
            await connector.create_message_streams({"t": 1})
            with pytest.raises(RuntimeError, match="once"):
                await connector.create_message_streams({"t": 1})

    played(tmp_path, play)


def test_a_group_in_zookeeper_needs_a_session() -> None:
    with pytest.raises(ValueError, match="needs a session"):
        ConsumerConnector(Cluster([HostPort("127.0.0.1", 1)]), GROUP, kind=GroupKind.DUAL)


@KINDS
def test_a_listener_is_told_before_partitions_go_and_when_they_have_come(
    kind: GroupKind, tmp_path: Path
) -> None:
    by_hand = replace(SETTINGS, auto_commit_interval_ms=0)

    async def play(scene: Scene) -> None:
        await scene.produce(b"0", b"1", partition=0)
        told, others = Told(), Told()
        async with await scene.connector(kind, by_hand, rebalance_listener=told) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            await take(stream, 2)
            assert told.events == [("starting", PARTITIONS)]
            told.releasing = connector.commit_offsets
            async with await scene.connector(kind, by_hand, rebalance_listener=others) as other:
                await other.create_message_streams({"t": 1})
                await until(lambda: len(connector.assignment) == PARTITIONS // 2)
                await until(lambda: others.events[-1] == ("starting", PARTITIONS // 2))
                place = GroupKind.COORDINATOR if kind is GroupKind.COORDINATOR else GroupKind.ZOOKEEPER
                assert await scene.committed(place) == 2, "what was committed while partitions were released"
            assert others.events[-1] == ("releasing", PARTITIONS // 2)
        assert told.events[1:3] == [("releasing", PARTITIONS), ("starting", PARTITIONS // 2)]
        assert told.events[-1][0] == "releasing"

    played(tmp_path, play)


def test_a_listener_is_told_what_was_lost_before_anything_is_claimed_anew(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        told = Told()
        async with await scene.connector(GroupKind.ZOOKEEPER, rebalance_listener=told) as connector:
            await connector.create_message_streams({"t": 1})
            session = scene.sessions[-1]
            session.suspend()
            session.expire()
            session.resume()
            await until(lambda: len(connector.assignment) == PARTITIONS and len(told.events) > 2)
            assert told.events == [("starting", PARTITIONS), ("lost", PARTITIONS), ("starting", PARTITIONS)]

    played(tmp_path, play)


@KINDS
def test_what_a_listener_raises_ends_the_connector_and_lets_others_go_on(
    kind: GroupKind, tmp_path: Path
) -> None:
    async def play(scene: Scene) -> None:
        await scene.produce(b"0")
        told = Told()
        told.failure = ValueError("no room for what was read")
        async with await scene.connector(kind, rebalance_listener=told) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            await take(stream, 1)
            async with await scene.connector(kind) as other:
                (others,) = (await other.create_message_streams({"t": 1}))["t"]
                with pytest.raises(ValueError, match="no room for what was read"):
                    await anext(stream)
                await until(lambda: len(other.assignment) == PARTITIONS)
                assert await take(others, 1) == [b"0"], "what was not committed comes again"

    played(tmp_path, play)
