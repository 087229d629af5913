"""One partition in a consumer's hands: where its reader is, where fetching is, and what lies between.

Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from broker.client.consumer_metrics import PartitionProgress
from broker.client.fetch import FetchedBatches, PartitionPosition
from broker.client.record_cursor import ConsumerRecord, RecordCursor
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.records.record_filter import RecordFilter
from broker.types import NO_TOPIC_ID, TopicPartition


class PartitionError(ProtocolError):
    """Something is wrong with one partition at `position` (-1: before there was one)."""

    def __init__(self, topic_partition: TopicPartition, position: int, code: ErrorCode, message: str) -> None:
        super().__init__(code, f"{topic_partition} at offset {position}: {message}")
        self.topic_partition = topic_partition
        self.position = position


class PartitionState:
    """Reader, buffer and fetch position of one partition.

    Replaced, never revived, when it is assigned again.
    """

    __slots__ = (
        "_buffered",
        "_cursor",
        "buffered_bytes",
        "busy",
        "end",
        "failing_since",
        "failures",
        "fetch_offset",
        "max_bytes",
        "paused",
        "position",
        "processed",
        "reset",
        "resting",
        "retry_at",
        "seeks",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, max_bytes: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = NO_TOPIC_ID
        """The topic that the position belongs to; unknown before the first fetch there."""
        self.position: int | None = None
        """The next offset to hand out; None until found."""
        self.processed: int | None = None
        """Position up to which the reader is done: it came back for more."""
        self.end: int | None = None
        """Up to where there are records to be read, as the last answer said."""
        self.fetch_offset = -1
        self.max_bytes = max_bytes
        """What the next fetch asks for; grows while a batch does not fit."""
        self.reset = False
        """The committed offset is of no use: the reset policy decides."""
        self.paused = False
        self.resting = False
        """After an error, until `place` or `resume`."""
        self.busy = False
        """In a fetch, or its position is being looked for."""
        self.failures = 0
        self.failing_since = 0.0
        self.retry_at = 0.0
        self.seeks = 0
        """Answers to fetches from before the last seek, or before what was buffered was given back, are
        dropped.
        """
        self.buffered_bytes = 0
        self._buffered: deque[FetchedBatches] = deque()
        self._cursor: tuple[FetchedBatches, RecordCursor] | None = None

    @property
    def readable(self) -> bool:
        """Whether something can be handed out now."""
        return (self._cursor is not None or bool(self._buffered)) and not self.paused and not self.resting

    @property
    def buffered_answers(self) -> int:
        """How many answers wait; the one that is being read is none of them."""
        return len(self._buffered)

    @property
    def progress(self) -> PartitionProgress:
        """How far the partition is read."""
        known = self.end is not None and self.position is not None
        return PartitionProgress(
            position=self.position,
            processed=self.processed,
            end=self.end,
            lag=max(0, (self.end or 0) - (self.position or 0)) if known else None,
            buffered_bytes=self.buffered_bytes,
            is_paused=self.paused,
            is_resting=self.resting,
        )

    @property
    def fetch_position(self) -> PartitionPosition:
        """What to ask the leader for."""
        return PartitionPosition(
            topic_partition=self.topic_partition, offset=self.fetch_offset, max_bytes=self.max_bytes
        )

    def place(self, offset: int) -> None:
        """Go on at `offset`, as if nothing had been before."""
        self.drop_buffered()
        self.position = self.fetch_offset = offset
        self.topic_id = NO_TOPIC_ID
        self.reset = self.resting = False
        self.seeks += 1
        self.forget_failures()

    def lose_place(self) -> None:
        """The log does not have the position: the reset policy is to find one."""
        self.drop_buffered()
        self.position, self.reset = None, True

    def forget_failures(self) -> None:
        """The partition is well again."""
        self.failures, self.failing_since, self.retry_at = 0, 0.0, 0.0

    def drop_buffered(self) -> None:
        """Forget what was fetched ahead of the reader."""
        self._buffered.clear()
        self._cursor = None
        self.buffered_bytes = 0

    def buffer(self, fetched: FetchedBatches) -> None:
        """Keep an answer for the reader; fetching goes on behind it."""
        if self._buffered and not len(fetched.records):  # nothing but filtered: else they might become many
            self._buffered[-1] = replace(self._buffered[-1], next_offset=fetched.next_offset)
        else:
            self._buffered.append(fetched)
        self.buffered_bytes += len(fetched.records)
        self.fetch_offset = fetched.next_offset

    def give_back(self) -> None:
        """Forget what was fetched ahead, to be fetched again when it is wanted."""
        if self._buffered:
            self.fetch_offset = self._buffered[0].start_offset
            self.seeks += 1
            self._buffered.clear()
            self.buffered_bytes = 0

    def take_batches(self) -> FetchedBatches | None:
        """The rest of the answer that the reader is in, else the next one."""
        if self._cursor is not None:
            fetched, cursor = self._cursor
            fetched, self._cursor = replace(fetched, start_offset=cursor.position), None
        elif self._buffered:
            fetched = self._next_buffered()
        else:
            return None
        self.position = fetched.next_offset
        return fetched

    def take_records(
        self,
        max_records: int,
        *,
        committed_only: bool,
        decoded_bytes_max: int,
        wanted: RecordFilter | None = None,
    ) -> list[ConsumerRecord]:
        """The next records, of one batch; empty when what is buffered holds no more.

        Raises PartitionError, and rests then.
        """
        while True:
            if self._cursor is None:
                if not self._buffered:
                    return []
                fetched = self._next_buffered()
                cursor = RecordCursor(
                    fetched,
                    committed_only=committed_only,
                    decoded_bytes_max=decoded_bytes_max,
                    wanted=wanted,
                )
                self._cursor = (fetched, cursor)
            records = self._take_from_cursor(max_records)
            if records:
                return records

    def _take_from_cursor(self, max_records: int) -> list[ConsumerRecord]:
        assert self._cursor is not None
        cursor = self._cursor[1]
        try:
            records = cursor.take(max_records)
        except ProtocolError as error:
            self.drop_buffered()
            self.position = self.fetch_offset = cursor.position
            self.resting = True
            raise self.error_of(error) from error
        self.position = cursor.position
        if cursor.exhausted:
            self._cursor = None
        return records

    def _next_buffered(self) -> FetchedBatches:
        fetched = self._buffered.popleft()
        self.buffered_bytes -= len(fetched.records)
        return fetched

    def error_of(self, error: BrokerError) -> PartitionError:
        """What went wrong, as an error of this partition."""
        code = error.code if isinstance(error, ProtocolError) else ErrorCode.UNKNOWN_SERVER_ERROR
        message = error.message if isinstance(error, ProtocolError) else str(error)
        position = self.fetch_offset if self.position is None else self.position
        return PartitionError(self.topic_partition, position, code, message)
