"""From the bytes of a fetch answer to chunks ready for sending. Pure.

Batches pass as they are wherever the format allows it. The others go deep: decoded, and built anew with the
same codec. Control batches and batches of aborted transactions are dropped; the position moves past them all
the same. Per batch this costs one header read and a few comparisons; record bytes are neither read nor
copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from broker.client.aborted import AbortedBatches, AbortedTransaction
from broker.errors import CorruptRecordsError
from broker.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    peek_size,
    read_header,
    verify_crc,
)
from broker.records.builder import BatchBuilder
from broker.records.message_set import message_codec, read_message
from broker.records.reader import read_records
from broker.records.record import Record
from mirrormaker.flow.chunk import BatchSpan, Chunk, DeepReason, Frame, SourceRun

_LOOK_CLOSER = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG


class OriginUnknownError(Exception):
    """It has to be found out where a batch has been; the walk stops before it."""


class Origins(Protocol):
    """Where batches have been before they came to the source."""

    def origin_of(self, header: BatchHeader) -> int | None:
        """The number of the batch's origin, 0 for what was born at the source; None: it must not go on.

        Raises OriginUnknownError, and CorruptRecordsError when it cannot be found out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeConfig:
    """How bytes are cut up."""

    chunk_bytes: int
    """Bound on a chunk of several batches."""
    chunk_batches_max: int
    """1 toward stock brokers: they take one batch per partition and request."""
    built_batch_bytes: int = 1 << 20
    """Bound on a batch that is built anew, before compression."""
    deep: bool = False
    origins: Origins | None = None
    """None: all batches were born at the source."""
    decoded_bytes_max: int = 64 << 20
    """Bound on what one batch may decompress to."""


@dataclass(slots=True, kw_only=True)
class Intake:
    """What became of the bytes of one partition's answer."""

    position: int
    """The source offset to fetch next."""
    leader_epoch: int = -1
    """Of the batch before `position`; -1: the position has not moved, or the batch is too old to have one."""
    chunks: list[Chunk] = field(default_factory=list)
    deep: Counter[DeepReason] = field(default_factory=Counter)
    control_batches: int = 0
    aborted_batches: int = 0
    returned_batches: int = 0
    """Dropped for their origin."""
    awaits_origins: bool = False
    """What lies at `position` can be taken once `Origins` knows where it has been."""
    damage: str | None = None
    """Why the bytes at `position` cannot be read; what came before them is in the chunks."""


def take_in(
    records: bytearray | memoryview,
    position: int,
    config: IntakeConfig,
    frame: Frame,
    aborted: Sequence[AbortedTransaction] = (),
) -> Intake:
    """Cut the answer for a fetch at `position` into chunks. A torn batch at the end is left for the next."""
    cutter = _Cutter(records, position, config, frame, aborted)
    try:
        cutter.run()
    except CorruptRecordsError as error:
        cutter.intake.damage = error.message
    except OriginUnknownError:
        cutter.intake.awaits_origins = True
        _ask_for_all(records, config.origins)
    cutter.flush()
    return cutter.intake


def _ask_for_all(records: bytearray | memoryview, origins: Origins | None) -> None:
    """Have every unknown origin in the answer noticed, so that all are found out together."""
    assert origins is not None
    at = 0
    while (size := peek_size(records, at)) is not None and size <= len(records) - at:
        if records[at + MAGIC_POSITION] >= 2:
            with suppress(OriginUnknownError, CorruptRecordsError):
                origins.origin_of(read_header(records, at))
        at += size


class _Cutter:
    """One walk over an answer. Batches that lie side by side and cross as they are form a run."""

    def __init__(
        self,
        records: bytearray | memoryview,
        position: int,
        config: IntakeConfig,
        frame: Frame,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        self.intake = Intake(position=position)
        self._records = memoryview(records)
        self._config = config
        self._frame = frame
        self._aborted = AbortedBatches(aborted)
        self._run: list[BatchSpan] = []
        self._run_at = 0
        self._run_size = 0
        self._run_count = 0
        self._run_offset = 0
        self._run_timestamp = -1
        self._origin = 0
        """Of the run at hand."""

    def run(self) -> None:
        """Walk all whole batches. Raises CorruptRecordsError at the first that cannot be read."""
        records, end, at = self._records, len(self._records), 0
        origins = self._config.origins
        while (size := peek_size(records, at)) is not None and size <= end - at:
            if records[at + MAGIC_POSITION] < 2:
                self._take_legacy(records[at : at + size])
            else:
                header = read_header(records, at)
                if origins is None or header.is_control or self._goes_on(header, origins):
                    self._take(at, size, header)
            at += size

    def flush(self) -> None:
        """End the run at hand: the next batch does not lie right behind it, or must not join it."""
        if not self._run:
            return
        self.intake.chunks.append(
            Chunk(
                records=self._records[self._run_at : self._run_at + self._run_size],
                batches=self._run,
                frame=self._frame,
                first_offset=self._run_offset,
                next_offset=self.intake.position,
                max_timestamp=self._run_timestamp,
                count=self._run_count,
                size=self._run_size,
                origin=self._origin,
            )
        )
        self._run, self._run_size, self._run_count, self._run_timestamp = [], 0, 0, -1

    def _take(self, at: int, size: int, header: BatchHeader) -> None:
        if (
            not header.attributes & _LOOK_CLOSER
            and header.record_count == header.last_offset_delta + 1
            and header.base_offset >= self.intake.position
            and not self._config.deep
        ):
            self._append(at, size, header)
        elif header.next_offset <= self.intake.position:
            self.flush()
            return
        elif self._is_dropped(header):
            self.flush()
        elif (reason := self._deep_reason(header)) is not None:
            self.flush()
            verify_crc(self._records, at, header)
            self._take_deep(self._records[at : at + size], header, reason)
        else:
            self._append(at, size, header)
        self.intake.position = header.next_offset
        self.intake.leader_epoch = header.leader_epoch

    def _goes_on(self, header: BatchHeader, origins: Origins) -> bool:
        """Whether its origin lets the batch pass; a batch of another origin than the run's ends that."""
        origin = origins.origin_of(header)
        if origin != self._origin or origin is None:
            self.flush()
        if origin is not None:
            self._origin = origin
            return True
        if header.next_offset > self.intake.position:
            self.intake.returned_batches += 1
            self.intake.position = header.next_offset
            self.intake.leader_epoch = header.leader_epoch
        return False

    def _append(self, at: int, size: int, header: BatchHeader) -> None:
        config = self._config
        if self._run and (
            len(self._run) >= config.chunk_batches_max
            or self._run_size + size > config.chunk_bytes
            or header.base_offset != self.intake.position  # source offsets of a chunk have no gaps
        ):
            self.flush()
        if not self._run:
            self._run_at, self._run_offset = at, header.base_offset
        self._run.append(BatchSpan(at - self._run_at, size, header.record_count))
        self._run_size += size
        self._run_count += header.record_count
        if header.max_timestamp > self._run_timestamp:
            self._run_timestamp = header.max_timestamp

    def _is_dropped(self, header: BatchHeader) -> bool:
        is_aborted = self._aborted.includes(header)
        if header.is_control:
            self.intake.control_batches += 1
        elif is_aborted:
            self.intake.aborted_batches += 1
        return header.is_control or is_aborted or header.record_count == 0

    def _deep_reason(self, header: BatchHeader) -> DeepReason | None:
        if header.is_log_append_time:
            return DeepReason.LOG_APPEND_TIME
        if header.has_delete_horizon:
            return DeepReason.DELETE_HORIZON
        if header.record_count != header.last_offset_delta + 1:
            return DeepReason.COMPACTED
        if header.base_offset < self.intake.position:
            return DeepReason.RESUMED_INSIDE
        return DeepReason.FORCED if self._config.deep else None

    def _take_deep(self, batch: memoryview, header: BatchHeader, reason: DeepReason) -> None:
        records = read_records(batch, header, size_max=self._config.decoded_bytes_max)
        self._rebuild(records, header.codec, reason)

    def _take_legacy(self, entry: memoryview) -> None:
        """Take one entry of magic 0 or 1, compressed or not."""
        self.flush()
        self._origin = 0
        records = read_message(entry, size_max=self._config.decoded_bytes_max)
        if records[-1].offset >= self.intake.position:
            self._rebuild(records, message_codec(entry), DeepReason.LEGACY_FORMAT)
            self.intake.position = records[-1].offset + 1
            self.intake.leader_epoch = -1

    def _rebuild(self, records: Sequence[Record], codec: Codec, reason: DeepReason) -> None:
        wanted = [record for record in records if record.offset >= self.intake.position]
        self.intake.chunks += build_chunks(wanted, codec, self._config.built_batch_bytes, self._origin)
        self.intake.deep[reason] += 1


def build_chunks(records: Sequence[Record], codec: Codec, size_max: int, origin: int = 0) -> list[Chunk]:
    """Batches of the given records, all of one origin, with the given codec, one a chunk, in order.

    Offsets are not kept (the destination gives its own), timestamps are; a log-append time becomes the create
    time.
    """
    chunks: list[Chunk] = []
    builder, first = BatchBuilder(codec, size_max=size_max), 0
    for index, record in enumerate(records):
        if not builder.append(record.timestamp, record.key, record.value, record.headers):
            chunks.append(_chunk_of(builder, records[first:index], origin))
            builder, first = BatchBuilder(codec, size_max=size_max), index
            builder.append(record.timestamp, record.key, record.value, record.headers)
    if builder.count:
        chunks.append(_chunk_of(builder, records[first:], origin))
    return chunks


def _chunk_of(builder: BatchBuilder, records: Sequence[Record], origin: int) -> Chunk:
    built = builder.build()
    first, last = records[0].offset, records[-1].offset
    return Chunk(
        records=built,
        batches=[BatchSpan(0, len(built), len(records))],
        frame=Frame(len(built)),
        first_offset=first,
        next_offset=last + 1,
        max_timestamp=max(record.timestamp for record in records),
        count=len(records),
        size=len(built),
        origin=origin,
        runs=() if last - first + 1 == len(records) else _runs_of(records),
        is_rebuilt=True,
    )


def _runs_of(records: Sequence[Record]) -> tuple[SourceRun, ...]:
    """The source offsets of the records, as runs without a gap."""
    starts = [
        index for index in range(1, len(records)) if records[index].offset != records[index - 1].offset + 1
    ]
    bounds = [0, *starts, len(records)]
    return tuple(SourceRun(records[start].offset, end - start) for start, end in pairwise(bounds))
