"""What fetch answers say: records for the machine, how far the source has come, where else to read, and what
is wrong. Owned by the event loop of the route's copier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.client.aborted import aborted_transactions
from broker.client.cluster import Cluster
from broker.client.operations import READ
from broker.client.read_replicas import ReadReplicas
from broker.clock import Clock
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.fetch import PartitionData
from mirrormaker.flow.exchange import FetchedPartition, FetchPlan, Remainder
from mirrormaker.flow.fetcher import Answered
from mirrormaker.flow.lag import BeginHistory, EndHistory, unseen_history
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.remedies import LEADER_CODES
from mirrormaker.flow.source_ranges import SourceRanges
from mirrormaker.flow.trouble import Trouble, TroubleKind, refused
from mirrormaker.missing_rights import explained

_MOVED = LEADER_CODES | {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.OFFSET_NOT_AVAILABLE}
"""After these the leader may be elsewhere: one of before follows now, and knows of no more than is committed.
"""


class Taken(NamedTuple):
    """What became of an answer."""

    served: set[TopicPartition]
    """Partitions that it had records of."""
    size: int
    """How much of the source's logs the answer passed."""
    remainder: Remainder | None
    """What of it is left to take in."""
    is_moved: bool
    """Whether partitions are to be read elsewhere from now on."""


class FetchAnswers:
    """Of one reader; hands what came to the machine."""

    def __init__(
        self,
        cluster: Cluster,
        machine: FlowMachine,
        clock: Clock,
        ranges: SourceRanges,
        *,
        on_trouble: Callable[[Trouble], None],
        on_stale: Callable[[], None],
        read_committed: bool,
        begin_history: BeginHistory = unseen_history,
    ) -> None:
        """`on_stale`: leaders may have moved."""
        self.histories: dict[TopicPartition, EndHistory] = {}
        self.read_from = ReadReplicas()
        self._cluster = cluster
        self._machine = machine
        self._clock = clock
        self._ranges = ranges
        self._on_trouble = on_trouble
        self._on_stale = on_stale
        self._read_committed = read_committed
        self._begin_history = begin_history

    def forget(self, positions: Mapping[TopicPartition, int]) -> None:
        """Drop what is only of use for the lag of records before these positions."""
        for source, position in positions.items():
            history = self.histories.get(source)
            if history is not None:
                history.forget_before(position)

    def forget_released(self) -> None:
        """Drop what is known of partitions that the machine has no longer."""
        for source in self.histories.keys() - self._machine.partitions.keys():
            del self.histories[source]

    def take(self, answered: Answered, plan: FetchPlan) -> Taken:
        """Hand an answer to the machine."""
        now_ms = self._clock.monotonic_ms()
        offsets = {position.topic_partition: position.offset for position in plan.positions}
        answers: list[FetchedPartition] = []
        frame_bytes, passed_bytes, is_moved = 0, 0, False
        for source, data in answered.parts:
            if source not in offsets:
                continue
            if data.preferred_read_replica >= 0:
                is_moved = self._read_elsewhere(source, data.preferred_read_replica, now_ms) or is_moved
                continue
            if data.error_code:
                is_moved = self._refused(source, data, offsets[source], now_ms) or is_moved
                continue
            if data.diverging_epoch.epoch >= 0:
                self._ranges.look(source, offsets[source], data.diverging_epoch)
                continue
            answer = self.read(source, offsets[source], data, answered)
            frame_bytes += len(answer.records)
            passed_bytes += answer.bytes_passed
            answers.append(answer)
        for source in answered.heard_of:
            if (history := self.histories.get(source)) is not None:
                history.hear(now_ms, answered.started_ms)
        remainder = self._machine.fetched(answers, frame_bytes, now_ms)
        served = {answer.source for answer in answers if len(answer.records)}
        return Taken(served, passed_bytes, remainder, is_moved)

    def read(
        self, source: TopicPartition, offset: int, data: PartitionData, answered: Answered
    ) -> FetchedPartition:
        """What a partition's part of an answer has, for the machine; how far the source is, is noted."""
        answer = _answer_of(source, offset, data, read_committed=self._read_committed)
        history = self.histories.get(source)
        if history is None:
            history = self.histories[source] = self._begin_history(source, offset)
        unchanged_ms = answered.unchanged_ms if source not in answered.added else None
        history.observe(
            answer.source_end, self._clock.monotonic_ms(), answered.started_ms, unchanged_ms=unchanged_ms
        )
        history.start = data.log_start_offset
        return answer

    def _read_elsewhere(self, source: TopicPartition, node_id: int, now_ms: int) -> bool:
        """The leader said to read it there; whether that can be."""
        try:
            self.read_from.send(source, node_id, self._cluster.metadata, now_ms)
        except ProtocolError as error:
            self._on_stale()
            self._machine.source_failed(source, error, now_ms)
            return False
        return True

    def _refused(self, source: TopicPartition, data: PartitionData, offset: int, now_ms: int) -> bool:
        """Take an error in that answers a fetch from `offset` on; whether the partition is to be read
        elsewhere from now on.
        """
        code, is_recalled = ErrorCode.of(data.error_code), self.read_from.recall(source)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if not is_recalled:  # else its leader may have it
                self._ranges.look(source, offset)
            return is_recalled
        if code in _MOVED:
            self._on_stale()
        error = explained(ProtocolError(code), self._cluster.name, source.topic, READ)
        self._machine.source_failed(source, error, now_ms)
        if (partition := self._machine.partitions.get(source)) is not None:
            trouble = refused(source, partition.position, error, "source")
            if trouble is not None and trouble.kind is TroubleKind.UNAUTHORIZED:
                self._on_trouble(trouble)
        return is_recalled


def is_answered(data: PartitionData) -> bool:
    """Whether the broker told what it has there."""
    return not data.error_code and data.preferred_read_replica < 0 and data.diverging_epoch.epoch < 0


def _answer_of(
    source: TopicPartition, offset: int, data: PartitionData, *, read_committed: bool
) -> FetchedPartition:
    records = data.records if data.records is not None else bytearray()
    stable = data.last_stable_offset
    return FetchedPartition(
        source=source,
        offset=offset,
        records=bytearray(records) if isinstance(records, bytes) else records,
        source_end=stable if stable >= 0 and read_committed else data.high_watermark,
        aborted=aborted_transactions(data) if read_committed else (),
        filtered_to=data.filtered_to,
        filtered_epoch=data.filtered_epoch,
        left_out_bytes=data.filtered_bytes,
    )
