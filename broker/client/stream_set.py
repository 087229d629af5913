"""The streams of one connector: which of them has which partition, and how far the group is.

It does what the membership says, whichever kind that is, and commits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping

from broker.client.group_positions import GroupPositions
from broker.client.rebalance_listener import RebalanceListener
from broker.client.record_stream import RecordStream
from broker.client.stream_fetching import StreamFetching
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition

StreamChoice = Callable[[str, int], RecordStream]
"""The stream of a topic by its number."""

_log = logger("connector")


class StreamSet:
    """All streams of a connector; implements `ShareListener`."""

    def __init__(
        self,
        fetching: StreamFetching,
        choice: StreamChoice,
        *,
        commits_on_release: bool,
        reader_grace_ms: float,
        rebalance_listener: RebalanceListener,
    ) -> None:
        self.kept: GroupPositions | None = None
        """Where the group's positions are kept; set before anything is assigned."""
        self._fetching = fetching
        self._streams = fetching.streams
        self._choice = choice
        self._commits_on_release = commits_on_release
        self._reader_grace_ms = reader_grace_ms
        self._rebalance_listener = rebalance_listener
        self._told: frozenset[TopicPartition] = frozenset()
        """The partitions that the listener holds for this connector's."""
        self._readers: dict[TopicPartition, RecordStream] = {}
        self._committed: dict[TopicPartition, int] = {}
        """What is known to be kept; only what differs is committed."""
        self._committing = asyncio.Lock()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(self._readers)

    def reader(self, partition: TopicPartition) -> RecordStream:
        """The stream that reads a partition. Raises KeyError for one that is not this connector's."""
        return self._readers[partition]

    def start(self) -> None:
        """Get ready for partitions."""
        self._fetching.start()

    def finish(self) -> None:
        """Readers are done with what they have, and get no more."""
        for stream in self._streams:
            stream.finish()

    async def end(self, failure: BaseException | None) -> None:
        """End all streams; `failure` is what their readers are told."""
        for stream in self._streams:
            stream.end(failure)
        await self._fetching.close()
        self.lost(self.partitions)
        await self._tell_lost()

    async def commit(self, *, processed: bool) -> None:
        """Keep how far the streams are: what was handed out, or only what readers are done with.

        Raises BrokerError.
        """
        assert self.kept is not None
        async with self._committing:
            offsets = {
                partition: offset
                for partition, stream in self._readers.items()
                if (offset := stream.position(partition, processed=processed)) is not None
                and offset != self._committed.get(partition)
            }
            if offsets:
                await self.kept.commit(offsets)
                self._committed |= {
                    partition: offset for partition, offset in offsets.items() if partition in self._readers
                }

    async def commit_logged(self, *, processed: bool) -> None:
        """As `commit`; a failure is logged."""
        try:
            await self.commit(processed=processed)
        except BrokerError as error:
            _log.warning("offsets_not_committed", error=str(error))

    # What the membership says

    async def claimed(self, share: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        assert self.kept is not None
        await self._tell_lost()
        if share:
            self._told |= share.keys()
            await self._rebalance_listener.before_starting_fetchers(share)
        return await self.kept.committed(share.keys()) if share else {}

    async def _tell_lost(self) -> None:
        lost = self._told - self._readers.keys()
        self._told -= lost
        if lost:
            await self._rebalance_listener.partitions_lost(lost)

    def assigned(self, share: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> None:
        for partition, number in share.items():
            stream = self._choice(partition.topic, number)
            self._readers[partition] = stream
            stream.add(partition, positions.get(partition))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.doubted()
        try:
            if self._commits_on_release:
                await self._await_readers()
            await self._tell_lost()
            if released := self._told & set(partitions):
                self._told -= released
                await self._rebalance_listener.before_releasing_partitions(released)
            if self._commits_on_release:
                await self.commit_logged(processed=True)
        finally:
            self.lost(partitions)

    async def _await_readers(self) -> None:
        """Give readers time to be done with the record that each has, so that nobody else gets it again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._reader_grace_ms / 1000):
                await asyncio.gather(*(stream.reader_is_back() for stream in self._streams))

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._committed.pop(partition, None)
            if (stream := self._readers.pop(partition, None)) is not None:
                stream.remove([partition])

    def doubted(self) -> None:
        for stream in self._streams:
            stream.hold()

    def assured(self) -> None:
        for stream in self._streams:
            stream.let_go()
