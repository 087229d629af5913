"""Streams of records for threads: a thread for each stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Self

from broker.client.blocking.cluster import Cluster, ZooKeeper
from broker.client.blocking.facade import Facade, blocking, on_loop
from broker.client.consumer_connector import ConsumerConnector as AsyncConsumerConnector
from broker.client.consumer_connector import GroupKind
from broker.client.consumer_settings import ConsumerSettings
from broker.client.group_settings import GroupSettings
from broker.client.rebalance_listener import RebalanceListener as AsyncRebalanceListener
from broker.client.record_cursor import ConsumerRecord
from broker.client.record_stream import RecordStream as AsyncRecordStream
from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.types import TopicPartition


class RecordStream(Facade[AsyncRecordStream]):
    """Records of some partitions, for one reader: `for record in stream`. It ends when the connector does."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record.

        Raises PartitionError for one partition, which then rests until `seek`; what ended the connector, when
        it failed.
        """
        try:
            return self.thread.call(self.behind.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    next = blocking(AsyncRecordStream.next)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are this stream's at the moment."""
        return self.thread.run(lambda: self.behind.partitions)


class RebalanceListener:
    """As the asyncio listener. Called in a thread of its own, and may call the connector."""

    def before_releasing_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing is read any more; when this returns the partitions may be another's."""

    def before_starting_fetchers(self, share: Mapping[TopicPartition, int]) -> None:
        """The partitions are claimed, each for the stream with that number; they are not read before this
        returns.
        """

    def partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """The partitions are another's perhaps, and were so before anybody could be told."""


class _ListenerOnLoop(AsyncRebalanceListener):
    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def before_releasing_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.before_releasing_partitions, partitions)

    async def before_starting_fetchers(self, share: Mapping[TopicPartition, int]) -> None:
        await asyncio.to_thread(self._listener.before_starting_fetchers, share)

    async def partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.partitions_lost, partitions)


class ConsumerConnector(Facade[AsyncConsumerConnector]):
    """One process's part of a group. Made, entered (`with`), then asked for streams, once."""

    def __init__(
        self,
        cluster: Cluster,
        group: GroupSettings,
        *,
        kind: GroupKind = GroupKind.COORDINATOR,
        coordination: ZooKeeper | None = None,
        zookeeper: ZooKeeperGroupSettings | None = None,
        settings: ConsumerSettings | None = None,
        reader_grace_ms: float = 1_000,
        rebalance_listener: RebalanceListener | None = None,
    ) -> None:
        """`coordination` is a started session of the caller's, whose timeout is the group's. Raises
        ValueError when a group in ZooKeeper has none.
        """
        make = partial(
            AsyncConsumerConnector,
            cluster.behind,
            group,
            kind=kind,
            coordination=None if coordination is None else coordination.behind,
            zookeeper=zookeeper,
            settings=settings,
            reader_grace_ms=reader_grace_ms,
            rebalance_listener=None if rebalance_listener is None else _ListenerOnLoop(rebalance_listener),
        )
        super().__init__(cluster.thread, cluster.thread.run(make))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[RecordStream]]:
        """So many streams of each topic, once this process has its first share of the partitions. Raises as
        the asyncio connector.
        """
        made = self.thread.call(lambda: self.behind.create_message_streams(counts))
        return {topic: self._streams(streams) for topic, streams in made.items()}

    def create_message_streams_by_filter(self, pattern: TopicPattern, count: int = 1) -> list[RecordStream]:
        """So many streams of all topics that match, also of those that will be created. Raises as
        `create_message_streams`.
        """
        return self._streams(
            self.thread.call(lambda: self.behind.create_message_streams_by_filter(pattern, count))
        )

    def _streams(self, made: list[AsyncRecordStream]) -> list[RecordStream]:
        return [RecordStream(self.thread, stream) for stream in made]

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this process reads at the moment."""
        return self.thread.run(lambda: self.behind.assignment)

    commit_offsets = blocking(AsyncConsumerConnector.commit_offsets)
    seek = on_loop(AsyncConsumerConnector.seek)
    rewind = blocking(AsyncConsumerConnector.rewind)
    skip = blocking(AsyncConsumerConnector.skip)
    shutdown = blocking(AsyncConsumerConnector.shutdown)
