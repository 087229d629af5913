"""How long the first record of a partition has waited that its destination lacks.

Fetch answers tell the ends of partitions, others are asked for. The chunk at the head of the queue tells its
time; where nothing is queued and nobody saw it come, as in a partition that stands since before this process
began, the source is asked for its first batch. Until it has answered the record is as old as the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.offsets import EARLIEST, LATEST, list_offsets_found
from broker.clock import Clock
from broker.types import TopicPartition
from mirrormaker.flow.lag import BeginHistory, EndHistory, unseen_history
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.timing.first_waiting import FirstBatch, sample_first
from mirrormaker.flow.trouble import ANOTHER_LOG, Trouble

SAMPLES_AT_ONCE = 16
ASK_TIMEOUT_MS = 5_000
UNHEARD_MS = 3_000
"""A partition that is not fetched for so long has its end asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """What the source has at the position of a partition."""

    position: int
    batch: FirstBatch | None


class Waiting:
    """Of the partitions of one copier; all times since the epoch."""

    def __init__(
        self,
        cluster: Cluster,
        histories: MutableMapping[TopicPartition, EndHistory],
        clock: Clock,
        on_end: Callable[[TopicPartition, int], None],
        *,
        read_committed: bool,
        begin_history: BeginHistory = unseen_history,
    ) -> None:
        """`on_end` is told ends of the source that were asked for."""
        self._cluster = cluster
        self._histories = histories
        self._clock = clock
        self._on_end = on_end
        self._read_committed = read_committed
        self._begin_history = begin_history
        self._samples: dict[TopicPartition, _Sample] = {}
        self._told_ms: dict[TopicPartition, int] = {}
        """What the first record that waited said last."""
        self._other_logs: dict[TopicPartition, Trouble] = {}
        """What stands since offsets of the source mean other records."""

    def timestamp_ms(self, partition: Partition) -> int | None:
        """What the first record that waits says of its time; while it is still to be asked for, what the one
        before it said. None: nobody knows.
        """
        if self.is_to_be_asked_for(partition):
            return self._told_ms.get(partition.source)
        timestamp_ms = self._first_timestamp_ms(partition)
        if timestamp_ms is not None:
            self._told_ms[partition.source] = timestamp_ms
        return timestamp_ms

    def _first_timestamp_ms(self, partition: Partition) -> int | None:
        lane = min(partition.lanes, key=lambda lane: lane.acknowledged)
        if lane.queue and lane.queue[0].max_timestamp >= 0:
            head = lane.queue[0]
            return head.first_timestamp if head.first_timestamp >= 0 else head.max_timestamp
        sample = self._samples.get(partition.source)
        if sample is None or sample.batch is None or sample.position != partition.waits_from:
            return None
        return sample.batch.timestamp_ms if sample.batch.timestamp_ms >= 0 else None

    def since_ms(self, partition: Partition, timestamp_ms: int | None, wall_shift_ms: int) -> int | None:
        """When it came to the source. `wall_shift_ms`: from the clock that never goes back to that of
        timestamps. None: nobody can tell, or nothing waits.
        """
        history = self._histories.get(partition.source)
        if history is None:
            return timestamp_ms
        said_ms = None if timestamp_ms is None else timestamp_ms - wall_shift_ms
        arrived_ms = history.arrived_ms(partition.waits_from, said_ms)
        return None if arrived_ms is None else arrived_ms + wall_shift_ms

    def bytes_per_offset(self, partition: Partition) -> float | None:
        """How large records are: those that were copied, or else the first that wait; None: nobody knows."""
        if partition.copied_offsets:
            return partition.copied_bytes / partition.copied_offsets
        lane = min(partition.lanes, key=lambda lane: lane.acknowledged)
        if lane.queue:
            head = lane.queue[0]
            return head.size / max(head.next_offset - head.first_offset, 1)
        sample = self._samples.get(partition.source)
        return None if sample is None or sample.batch is None else sample.batch.bytes_per_offset

    def start_of(self, source: TopicPartition) -> int:
        """The first offset of the source, -1 when it does not tell."""
        history = self._histories.get(source)
        return -1 if history is None else history.start

    async def look(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """Ask for what nobody knows. Raises BrokerError."""
        self.forget_other_logs(partitions)
        await self._ask_for_ends(partitions)
        await self._sample(partitions)

    async def _ask_for_ends(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        cluster, asked_ms = self._cluster, self._clock.monotonic_ms()
        unheard = [
            source
            for source, partition in partitions.items()
            if self._is_unheard(source, asked_ms) and cluster.leader(source) is not None
        ]
        if not unheard:
            return
        starts, _ = await list_offsets_found(
            cluster, dict.fromkeys(unheard, EARLIEST), timeout_ms=ASK_TIMEOUT_MS
        )
        ends, _ = await list_offsets_found(
            cluster,
            dict.fromkeys(starts, LATEST),
            read_committed=self._read_committed,
            timeout_ms=ASK_TIMEOUT_MS,
        )
        now_ms = self._clock.monotonic_ms()
        for source, end in ends.items():
            if source in partitions and self._is_unheard(source, asked_ms):
                history = self._histories.get(source)
                if history is None:
                    history = self._begin_history(source, partitions[source].waits_from)
                    self._histories[source] = history
                history.observe(end.offset, now_ms, asked_ms)
                history.start = starts[source].offset
                self._on_end(source, end.offset)

    def forget_other_logs(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """When a log had come to which end says nothing of another one that has its name."""
        standing = {
            source: partition.trouble
            for source, partition in partitions.items()
            if partition.trouble is not None and partition.trouble.kind in ANOTHER_LOG
        }
        for source, trouble in standing.items():
            if self._other_logs.get(source) != trouble:
                self._histories[source] = EndHistory()
        self._other_logs = standing

    def _is_unheard(self, source: TopicPartition, now_ms: int) -> bool:
        history = self._histories.get(source)
        return history is None or now_ms - history.heard_ms > UNHEARD_MS

    async def _sample(self, partitions: Mapping[TopicPartition, Partition]) -> None:
        """What waits first, of some partitions at a time."""
        for known in (self._samples, self._told_ms):
            for source in known.keys() - partitions.keys():
                del known[source]
        wanted: dict[TopicPartition, int] = {}
        for partition in partitions.values():
            if len(wanted) < SAMPLES_AT_ONCE and self.is_to_be_asked_for(partition):
                wanted[partition.source] = partition.waits_from
        found = await sample_first(self._cluster, wanted, read_committed=self._read_committed)
        for source, position in wanted.items():
            self._samples[source] = _Sample(position=position, batch=found.get(source))

    def is_to_be_asked_for(self, partition: Partition) -> bool:
        """Whether something waits of which nobody here knows since when, and the source was not asked yet."""
        position = partition.waits_from
        if partition.source_end <= position or any(lane.queue for lane in partition.lanes):
            return False
        history = self._histories.get(partition.source)
        if history is not None and history.absent_until_ms(position) is not None:
            return False
        sample = self._samples.get(partition.source)
        return sample is None or sample.position != position
