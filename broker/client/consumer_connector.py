"""The high-level consumer: streams of records over the partitions that a group shares out.

A process asks for N streams of each of some topics, or of all topics that a pattern allows, and reads each
with a task of its own. Every partition goes to exactly one stream of the whole group. Who is in the group
and how far it has read is kept in ZooKeeper, as Kafka's consumers did up to 1.1, or by a coordinator
(`GroupKind`).

    async with ConsumerConnector(cluster, GroupSettings(group_id="readers")) as connector:
        streams = await connector.create_message_streams({"flights": 2})
        async for record in streams["flights"][0]:
            ...

At least once: what readers are done with is committed every `auto_commit_interval_ms`, before partitions are
given up, and at the end. With 0 for the interval only `commit_offsets` commits. Readers have
`reader_grace_ms` to finish the record that each has before a partition is given up; then somebody else gets
it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Protocol, Self

from broker.client.cluster import Cluster
from broker.client.consumer_settings import ConsumerSettings
from broker.client.coordinated_streams import CoordinatedStreams
from broker.client.group_positions import CoordinatorPositions, DualPositions, GroupPositions
from broker.client.group_settings import GroupSettings
from broker.client.offsets import earliest_offsets, latest_offsets
from broker.client.rebalance_listener import RebalanceListener
from broker.client.record_stream import RecordStream
from broker.client.stream_fetching import StreamFetching
from broker.client.stream_set import StreamChoice, StreamSet
from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_group import PatternStreams, StreamCounts, ZooKeeperMember
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.coordination.protocol import Coordination
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("connector")


class GroupKind(Enum):
    """Where a group meets, and where it keeps its positions."""

    ZOOKEEPER = "zookeeper"
    """Both in ZooKeeper: along with Apache Kafka's consumers from 0.8 to 1.1."""
    COORDINATOR = "coordinator"
    """Both at the group's coordinator: along with all consumers since."""
    DUAL = "dual"
    """It meets in ZooKeeper; positions are written to both, and the larger one counts. In between for a group
    that moves from one kind to the other, either way.
    """


class _Membership(Protocol):
    async def run(self) -> None: ...

    async def close(self) -> None: ...

    async def settled(self) -> None: ...


class ConsumerConnector:
    """One process's part of a group. Made, entered (`async with`), then asked for streams, once."""

    def __init__(
        self,
        cluster: Cluster,
        group: GroupSettings,
        *,
        kind: GroupKind = GroupKind.COORDINATOR,
        coordination: Coordination | None = None,
        zookeeper: ZooKeeperGroupSettings | None = None,
        settings: ConsumerSettings | None = None,
        reader_grace_ms: float = 1_000,
        rebalance_listener: RebalanceListener | None = None,
    ) -> None:
        """`coordination` is a started session of the caller's, whose timeout is the group's. Raises
        ValueError when a group in ZooKeeper has none.
        """
        if kind is not GroupKind.COORDINATOR and coordination is None:
            raise ValueError(f"a group of kind {kind.value} needs a session with ZooKeeper")
        self.kind = kind
        self.group = group
        self.settings = settings or ConsumerSettings()
        self.reader_grace_ms = reader_grace_ms
        self._rebalance_listener = rebalance_listener or RebalanceListener()
        self._cluster = cluster
        self._coordination = coordination
        self._zookeeper = zookeeper or ZooKeeperGroupSettings()
        self._fetching = StreamFetching(cluster, self.settings)
        self._streams: StreamSet | None = None
        self._membership: _Membership | None = None
        self._work: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    # Streams

    async def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[RecordStream]]:
        """So many streams of each topic, once this process has its first share of the partitions.

        Raises RuntimeError the second time, ValueError for a count below 1; RebalanceFailedError,
        ProtocolError and others of BrokerError when the group cannot be joined.
        """
        self._check_counts(counts.values())
        total = sum(counts.values())
        streams = {topic: self._new_streams(count, total) for topic, count in counts.items()}
        await self._start(dict(counts), lambda topic, number: streams[topic][number])
        return streams

    async def create_message_streams_by_filter(
        self, pattern: TopicPattern, count: int = 1
    ) -> list[RecordStream]:
        """So many streams of all topics that match, also of those that will be created. Raises as
        `create_message_streams`.
        """
        self._check_counts([count])
        streams = self._new_streams(count, count)
        await self._start((pattern, count), lambda _, number: streams[number])
        return streams

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process reads at the moment."""
        return self._streams.partitions if self._streams is not None else frozenset()

    # Positions

    async def commit_offsets(self) -> None:
        """Commit everything that streams have handed out. Raises BrokerError, and RuntimeError while there
        are no streams.
        """
        await self._started().commit(processed=False)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. Raises KeyError for a partition of another process, ValueError below 0."""
        self._started().reader(partition).seek(partition, offset)

    async def rewind(self, partition: TopicPartition, count: int) -> int:
        """Go back by `count` offsets, at most to the first that is kept; returns where. Raises KeyError,
        BrokerError.
        """
        position = await self._position(partition)
        first = (await earliest_offsets(self._cluster, [partition]))[partition]
        return self._go_to(partition, max(first, position - count))

    async def skip(self, partition: TopicPartition, count: int) -> int:
        """Leave out the next `count` offsets, at most all that there are; returns where that leads. Raises
        KeyError, BrokerError.
        """
        position = await self._position(partition)
        end = (await latest_offsets(self._cluster, [partition]))[partition]
        return self._go_to(partition, max(position, min(end, position + count)))

    async def _position(self, partition: TopicPartition) -> int:
        position = self._started().reader(partition).position(partition, processed=False)
        if position is None:
            raise KeyError(f"the position in {partition} is not known yet")
        return position

    def _go_to(self, partition: TopicPartition, offset: int) -> int:
        self.seek(partition, offset)
        return offset

    # Life

    async def shutdown(self) -> None:
        """Commit where that is automatic, leave the group, end all streams. Whatever streams have handed out
        counts as processed: readers that are still at work are better waited for.
        """
        if self._membership is None or self._work is None:
            return
        self._started().finish()
        await self._membership.close()
        await self._work

    def _started(self) -> StreamSet:
        if self._streams is None:
            raise RuntimeError("there are no streams yet")
        return self._streams

    def _check_counts(self, counts: Iterable[int]) -> None:
        if self._streams is not None:
            raise RuntimeError("a connector makes streams once")
        for count in counts:
            if count < 1:
                raise ValueError(f"{count} streams: at least one is needed")

    def _new_streams(self, count: int, total: int) -> list[RecordStream]:
        """So many of `total` streams, which share the buffer."""
        return [self._fetching.new_stream(total) for _ in range(count)]

    async def _start(self, subscription: StreamCounts | PatternStreams, choice: StreamChoice) -> None:
        automatic = self.settings.auto_commit_interval_ms > 0
        self._streams = StreamSet(
            self._fetching,
            choice,
            commits_on_release=automatic,
            reader_grace_ms=self.reader_grace_ms,
            rebalance_listener=self._rebalance_listener,
        )
        self._membership, self._streams.kept = self._join(subscription, self._streams)
        self._streams.start()
        self._work = asyncio.create_task(self._run(self._membership, self._streams), name="connector")
        await self._membership.settled()
        if self._failure is not None:
            raise self._failure

    def _join(
        self, subscription: StreamCounts | PatternStreams, streams: StreamSet
    ) -> tuple[_Membership, GroupPositions]:
        """The membership, and where positions are kept."""
        if self._coordination is None or self.kind is GroupKind.COORDINATOR:
            coordinated = CoordinatedStreams(
                self._cluster, self.group, subscription=subscription, listener=streams
            )
            return coordinated, coordinated
        member = ZooKeeperMember(
            self._coordination,
            self.group.group_id,
            self._zookeeper,
            subscription=subscription,
            listener=streams,
        )
        if self.kind is GroupKind.ZOOKEEPER:
            return member, member.registry
        at_coordinator = CoordinatorPositions(
            self._cluster, self.group.group_id, timeout_ms=self.group.session_timeout_ms
        )
        return member, DualPositions(member.registry, at_coordinator)

    async def _run(self, membership: _Membership, streams: StreamSet) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                commits = tasks.create_task(self._commit_periodically(streams))
                try:
                    await membership.run()
                except Exception as error:  # noqa: BLE001 a listener may raise anything: all streams tell it
                    self._failure = error
                    _log.warning("connector_failed", group=self.group.group_id, error=str(error))
                commits.cancel()
        finally:
            await streams.end(self._failure)

    async def _commit_periodically(self, streams: StreamSet) -> None:
        interval_ms = self.settings.auto_commit_interval_ms
        while interval_ms:
            await asyncio.sleep(interval_ms / 1000)
            await streams.commit_logged(processed=True)
