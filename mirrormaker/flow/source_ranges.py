"""What the source has of a partition that it does not have as it was asked for: it is another topic by now,
its log begins later, or it parts from what was read.

Each is looked at by itself, while nothing more is fetched of the partition; what is found is told as a
trouble, or fetching goes on. Owned by the event loop of the route's copier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from broker.client.cluster import Cluster
from broker.client.epoch_ends import epoch_ends_found
from broker.client.offsets import EARLIEST, LATEST, list_offsets
from broker.client.operations import DESCRIBE
from broker.clock import Clock
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from broker.wire.messages.fetch import EpochEndOffset
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partings import ASK_TIMEOUT_MS, Read, partings
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.trouble import (
    Divergence,
    SourceRange,
    Trouble,
    diverged,
    out_of_range,
    recreated,
)
from mirrormaker.missing_rights import explained

HOLD_MS = 5_000
"""How long a partition is not fetched while it is looked at."""

FindEpochs = Callable[[TopicPartition], Awaitable[Iterable[EpochStart]]]
"""Where leader epochs begin in what any process has copied of it, as far as that is written down. Raises
BrokerError when it cannot be told yet.
"""

_log = logger("reader")


class SourceRanges:
    """Of one reader."""

    def __init__(
        self,
        cluster: Cluster,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        *,
        on_look: Callable[[TopicPartition], None],
        on_trouble: Callable[[Trouble], None],
        on_progress: Callable[[], None],
        find_epochs: FindEpochs,
    ) -> None:
        """`on_look`: what is under way of the partition counts no more. `on_progress`: it was looked at."""
        self._cluster = cluster
        self._machine = machine
        self._tasks = tasks
        self._clock = clock
        self._on_look = on_look
        self._on_trouble = on_trouble
        self._on_progress = on_progress
        self._find_epochs = find_epochs
        self._topic_ids: dict[TopicPartition, TopicId] = {}
        """The topic's id when copying of a partition began."""
        self._looked_at: set[TopicPartition] = set()

    def topic_id(self, source: TopicPartition) -> TopicId:
        """The id of the source topic that is being copied, NO_TOPIC_ID where the source does not tell."""
        return self._topic_ids.get(source, NO_TOPIC_ID)

    def accept_topic(self, source: TopicPartition) -> None:
        """The topic that has the name now is to be copied."""
        self._topic_ids[source] = self._known_topic_id(source)

    def find_recreated(self) -> None:
        """Look at partitions whose topic has another id than before, by what the cluster told last."""
        for source in self._topic_ids.keys() - self._machine.partitions.keys():
            del self._topic_ids[source]
        for source in self._machine.partitions:
            now = self._known_topic_id(source)
            if now != NO_TOPIC_ID and self._topic_ids.setdefault(source, now) != now:
                self.look(source)

    def _known_topic_id(self, source: TopicPartition) -> TopicId:
        known = self._cluster.topics.get(source.topic)
        return known.topic_id if known is not None else NO_TOPIC_ID

    def look(
        self, source: TopicPartition, asked_at: int = -1, divergence: EpochEndOffset | None = None
    ) -> None:
        """The source has not what was asked for, at `asked_at` where that is known; `divergence`: its log
        parts from what was read up to there.
        """
        partition = self._machine.partitions.get(source)
        if partition is None or partition.trouble is not None or source in self._looked_at:
            return
        if _is_elsewhere(partition, asked_at):
            return
        self._on_look(source)
        self._machine.hold_fetch(source, self._clock.monotonic_ms() + HOLD_MS)
        self._looked_at.add(source)
        self._tasks.create_task(self._find(partition, asked_at, divergence), name=f"range of {source}")

    async def _find(self, partition: Partition, asked_at: int, divergence: EpochEndOffset | None) -> None:
        """Learn what the source has, and tell of the trouble if there is one."""
        source = partition.source
        try:
            await self._cluster.refresh({source.topic})  # or these may be offsets of another topic
            topic_id = self._known_topic_id(source)
            start = (await list_offsets(self._cluster, {source: EARLIEST}))[source].offset
            end = (await list_offsets(self._cluster, {source: LATEST}))[source].offset
            found = SourceRange(start=start, end=end)
            at = None if divergence is None else await self._divergence(partition, divergence)
            epoch = partition.leader_epoch
            is_doubtful = at is None and epoch >= 0 and start <= partition.position <= end
            if is_doubtful and not await self._tells_epochs(source):
                epoch = -1
        except BrokerError as error:
            _log.info("range_not_found", partition=str(source), error=str(error))
            refusal = (
                error if isinstance(error, ProtocolError) else ProtocolError(ErrorCode.NETWORK_EXCEPTION)
            )
            refusal = explained(refusal, self._cluster.name, source.topic, DESCRIBE)
            self._machine.source_failed(source, refusal, self._clock.monotonic_ms())
        else:
            trouble = self._diagnose(partition, topic_id, found, at, epoch)
            if trouble is None or _is_elsewhere(partition, asked_at):
                self._machine.trust_position(source)
            else:
                self._on_trouble(trouble)
            self._on_progress()
        finally:
            self._looked_at.discard(source)

    async def _divergence(self, partition: Partition, told: EpochEndOffset) -> Divergence:
        """The one that tells where the log parts from what was copied, also by processes before this one.
        Raises BrokerError.
        """
        source, epochs = partition.source, partition.epochs
        epochs.learn(await self._find_epochs(source))
        read = {source: Read(epochs, partition.position)}
        at = Divergence(epoch=told.epoch, end_offset=told.end_offset)
        answers = await partings(self._cluster, read, {source: at})
        if source in answers.failures:
            raise answers.failures[source]
        return answers.found[source]

    async def _tells_epochs(self, source: TopicPartition) -> bool:
        """Whether its log tells where the first epoch ends: Kafka before 3.0 forgets all of them as soon as a
        topic is to be stored in a format of before 0.11. Raises BrokerError.
        """
        answers = await epoch_ends_found(self._cluster, {source: 0}, timeout_ms=ASK_TIMEOUT_MS)
        if source in answers.failures:
            raise answers.failures[source]
        return answers.found[source].offset >= 0

    def _diagnose(
        self,
        partition: Partition,
        topic_id: TopicId,
        found: SourceRange,
        at: Divergence | None,
        leader_epoch: int,
    ) -> Trouble | None:
        source, position = partition.source, partition.position
        if self._topic_ids.setdefault(source, topic_id) != topic_id:
            return recreated(source, position, found, topic_id)
        if at is None or position < found.start:
            return out_of_range(source, position, leader_epoch, found)
        return diverged(source, position, partition.epochs.end_of(at.epoch), at)


def _is_elsewhere(partition: Partition, asked_at: int) -> bool:
    """Whether it has gone on, or was sent elsewhere, since it asked there: what that was answered is over."""
    return 0 <= asked_at != partition.position
