"""From the bytes of a fetch answer to chunks ready for sending. Pure.

Batches pass as they are wherever the format and the route allow it. The others go deep: decoded, and built
anew. Control batches and batches of aborted transactions are dropped; the position moves past them all the
same. Per batch that passes this costs one header read and a few comparisons; record bytes are neither read
nor copied.

What goes deep takes time: after `turn_bytes` of it the walk stops, and what is left is for another turn. A
batch or record that can go no way at all is an obstacle (see `obstacles`): either something takes its place,
or everything before it is taken, and nothing from there on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Protocol

from broker.client.aborted import AbortedBatches, AbortedTransaction
from broker.errors import CorruptRecordsError
from broker.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    MAGIC_POSITION,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    peek_size,
    read_header,
    verify_crc,
)
from broker.records.builder import enclose
from broker.records.compression import decompress_view
from broker.records.excerpt import open_batch
from broker.records.message_set import message_codec, read_message
from broker.records.reader import Columns
from broker.records.record import Record
from mirrormaker.flow.chunk import BatchSpan, Chunk, DeepReason, Frame
from mirrormaker.flow.obstacles import (
    Aside,
    Obstacle,
    ObstacleKind,
    ObstacleMetError,
)
from mirrormaker.flow.packing import Measure, Packer, from_offset
from mirrormaker.steps.record import RecordError

UNBOUNDED = 1 << 30
_NO_END = 1 << 63
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


class Steps(Protocol):
    """What is done to the records of one partition."""

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        """What becomes of it, each with its lane; all with the offset that it has. Raises RecordError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeConfig:
    """How bytes are cut up."""

    chunk_bytes: int
    """Bound on a chunk of several batches."""
    chunk_batches_max: int
    """1 toward stock brokers: they take one batch per partition and request."""
    built_batch_bytes: int = 1 << 20
    """Bound on a batch that is built anew of smaller ones."""
    deep: bool = False
    """Nothing passes as it is."""
    deep_reason: DeepReason = DeepReason.FORCED
    """Why not, where nothing else forbids it."""
    is_shallow: bool = False
    """Nothing is ever decoded."""
    origins: Origins | None = None
    """None: all batches were born at the source."""
    codec: Codec | None = None
    """Of what is sent; None: the one that it came in."""
    gather_bytes: int = 0
    """Batches smaller than this are put together up to it; 0: they are not."""
    batch_bytes_max: int = UNBOUNDED
    """The destination takes no larger batch."""
    steps: Steps | None = None
    """With it, nothing passes as it is."""
    aside: Aside = field(default_factory=Aside)
    decoded_bytes_max: int = 64 << 20
    """Bound on what one batch may decompress to."""
    turn_bytes: int = 1 << 20
    """The walk stops once so many bytes were decoded."""


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
    filtered_records: int = 0
    """Dropped by steps."""
    left_out: Counter[ObstacleKind] = field(default_factory=Counter)
    """Noted or parked instead of copied."""
    damage: str | None = None
    """Why the bytes at `position` cannot be read; what came before them is in the chunks."""
    obstacle: Obstacle | None = None
    """Why the records at `position` cannot go on."""
    left_at: int | None = None
    """Where in the answer another turn goes on."""


Floors = Callable[[int], Sequence[int]]
"""By number of an origin, and by lane, the offset before which the destination has all of its records; none
where it has no more than what lies before the position.
"""


def _no_floors(origin: int) -> Sequence[int]:
    return ()


NO_FLOORS: Floors = _no_floors


def take_in(
    records: bytearray | memoryview,
    position: int,
    config: IntakeConfig,
    frame: Frame,
    aborted: Sequence[AbortedTransaction] = (),
    floors: Floors = NO_FLOORS,
) -> Intake:
    """Cut the answer for a fetch at `position` into chunks. A torn batch at the end is left for the next."""
    obstacle: Obstacle | None = None
    while True:
        cutter = _Cutter(records, position, config, frame, aborted, floors, obstacle)
        try:
            cutter.run()
        except ObstacleMetError as error:
            obstacle = error.obstacle  # each lies before the one that was met before
        else:
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
        floors: Floors,
        obstacle: Obstacle | None,
    ) -> None:
        """`obstacle`: one that a walk before has met; nothing is taken from there on."""
        self.intake = Intake(position=position)
        self._records = memoryview(records)
        self._config = config
        self._frame = frame
        self._aborted = AbortedBatches(aborted)
        self._obstacle = obstacle
        self._until = _NO_END if obstacle is None else obstacle.offset
        self._is_deep = config.deep or config.steps is not None
        self._floors_of = floors
        self._decoded_bytes = 0
        self._run: list[BatchSpan] = []
        self._run_at = 0
        self._run_size = 0
        self._run_count = 0
        self._run_offset = 0
        self._run_next = 0
        self._run_timestamp = -1
        self._origin = 0
        """Of what is at hand."""
        self._small: list[tuple[int, BatchHeader]] = []
        """Batches in a row, with where they lie, that could pass and may be gathered."""
        self._small_size = 0
        self._packer = Packer(
            Measure(
                batch_bytes=config.built_batch_bytes,
                batch_bytes_max=config.batch_bytes_max,
                gather_bytes=max(
                    config.gather_bytes, config.built_batch_bytes if config.steps is not None else 0
                ),
                decoded_bytes_max=config.decoded_bytes_max,
            ),
            self.intake.chunks,
            self._note_oversize,
            noted_lane=config.aside.skipped_lane,
        )
        self._set_origin(0)

    def _set_origin(self, origin: int) -> None:
        """Records of this origin come next."""
        self._origin = origin
        self._floors = self._packer.floors = self._floors_of(origin)
        self._floor_max = max(self._floors, default=0)
        """Some lanes have records before this, others lack them."""
        config = self._config
        is_looked_at = self._is_deep or config.gather_bytes or config.codec is not None
        is_free = not (is_looked_at or self._floors or self._obstacle)
        self._free_size_max = config.batch_bytes_max if is_free else 0

    def run(self) -> None:
        """Walk the batches. Raises ObstacleMetError at one that was not known of."""
        for part in (self._walk, self._settle_small):
            try:
                part()
            except CorruptRecordsError as error:
                self.intake.damage = error.message
            except OriginUnknownError:
                self.intake.awaits_origins = True
                _ask_for_all(self._records, self._config.origins)
        self._flush()
        self._packer.end()

    # ---- batch by batch

    def _walk(self) -> None:
        """Raises CorruptRecordsError at the first that cannot be read."""
        records, end, at = self._records, len(self._records), 0
        origins, turn_bytes = self._config.origins, self._config.turn_bytes
        while (size := peek_size(records, at)) is not None and size <= end - at:
            if self._decoded_bytes >= turn_bytes:
                self.intake.left_at = at
                return
            if records[at + MAGIC_POSITION] < 2:
                self._take_legacy(records[at : at + size])
            else:
                header = read_header(records, at)
                if origins is None or header.is_control or self._goes_on(header, origins):
                    self._take(at, size, header)
            if self.intake.position >= self._until:
                self.intake.obstacle = self._obstacle
                return
            at += size

    def _take(self, at: int, size: int, header: BatchHeader) -> None:
        if (
            not header.attributes & _LOOK_CLOSER
            and header.record_count == header.last_offset_delta + 1
            and header.base_offset >= self.intake.position
            and size <= self._free_size_max
        ):
            self._append(at, size, header)
            self.intake.position, self.intake.leader_epoch = self._run_next, header.leader_epoch
            return
        if header.next_offset <= self.intake.position:
            self._settle()
            return
        if self._is_dropped(header):
            self._settle()
        elif (reason := self._deep_reason(size, header)) is None:
            self._take_as_it_is(at, size, header)
        else:
            self._settle()
            if header.base_offset < self._until:
                self._take_otherwise(at, size, header, reason)
        self.intake.position = min(header.next_offset, self._until)
        self.intake.leader_epoch = header.leader_epoch

    def _goes_on(self, header: BatchHeader, origins: Origins) -> bool:
        """Whether its origin lets the batch pass; a batch of another origin than the run's ends that."""
        origin = origins.origin_of(header)
        if origin != self._origin or origin is None:
            self._settle()
        if origin is not None:
            if origin != self._origin:
                self._set_origin(origin)
            return True
        if header.next_offset > self.intake.position:
            self.intake.returned_batches += 1
            self.intake.position = header.next_offset
            self.intake.leader_epoch = header.leader_epoch
        return False

    def _is_dropped(self, header: BatchHeader) -> bool:
        is_aborted = self._aborted.includes(header)
        if header.is_control:
            self.intake.control_batches += 1
        elif is_aborted:
            self.intake.aborted_batches += 1
        return header.is_control or is_aborted or header.record_count == 0

    def _deep_reason(self, size: int, header: BatchHeader) -> DeepReason | None:
        config = self._config
        if header.is_log_append_time:
            return DeepReason.LOG_APPEND_TIME
        if header.has_delete_horizon:
            return DeepReason.DELETE_HORIZON
        if header.record_count != header.last_offset_delta + 1:
            return DeepReason.COMPACTED
        if header.base_offset < self.intake.position or (
            header.base_offset < self._floor_max and not config.is_shallow
        ):
            return DeepReason.RESUMED_INSIDE
        if self._is_deep:
            return config.deep_reason
        if size > config.batch_bytes_max or header.next_offset > self._until:
            return DeepReason.OVERSIZE
        if config.codec is not None and header.codec is not config.codec:
            return DeepReason.CODEC
        return None

    # ---- batches that pass as they are

    def _take_as_it_is(self, at: int, size: int, header: BatchHeader) -> None:
        """Let the batch join the run, or those that may be gathered."""
        if self._floors and header.next_offset <= self._floors[0]:
            self._settle()
            return
        gather_bytes = self._config.gather_bytes
        if not gather_bytes:
            self._append(at, size, header)
            return
        small = self._small
        if small and (
            self._small_size + size > gather_bytes
            or small[-1][1].codec is not header.codec
            or small[-1][1].next_offset != header.base_offset
        ):
            self._settle_small()
        self._small.append((at, header))
        self._small_size += size

    def _append(self, at: int, size: int, header: BatchHeader) -> None:
        config = self._config
        if self._run and (
            len(self._run) >= config.chunk_batches_max
            or self._run_size + size > config.chunk_bytes
            or header.base_offset != self._run_next  # source offsets of a chunk have no gaps
        ):
            self._flush()
        if not self._run:
            self._packer.settle()
            self._run_at, self._run_offset = at, header.base_offset
        self._run.append(BatchSpan(at - self._run_at, size, header.record_count))
        self._run_size += size
        self._run_count += header.record_count
        self._run_next = header.next_offset
        if header.max_timestamp > self._run_timestamp:
            self._run_timestamp = header.max_timestamp

    def _settle(self) -> None:
        """What comes next does not lie right behind what is at hand, or must not join it."""
        if self._small:
            self._settle_small()
        self._flush()

    def _flush(self) -> None:
        """End the run at hand."""
        if not self._run:
            return
        self.intake.chunks.append(
            Chunk(
                records=self._records[self._run_at : self._run_at + self._run_size],
                batches=self._run,
                frame=self._frame,
                first_offset=self._run_offset,
                next_offset=self._run_next,
                max_timestamp=self._run_timestamp,
                count=self._run_count,
                size=self._run_size,
                origin=self._origin,
            )
        )
        self._run, self._run_size, self._run_count, self._run_timestamp = [], 0, 0, -1

    def _settle_small(self) -> None:
        """Gather what can be; a batch that found no other passes as it is."""
        small, self._small, self._small_size = self._small, [], 0
        if len(small) == 1:
            ((at, header),) = small
            self._append(at, header.size, header)
            return
        position = self.intake.position
        for at, header in small:
            self.intake.position = header.base_offset  # where it stays, should the batch be damaged
            self._take_deep(at, header.size, header, DeepReason.GATHERED)
        self.intake.position = position
        self._packer.settle()

    def _note_oversize(self, record: Record, problem: str) -> tuple[int, Record]:
        noted = self._config.aside.oversize(record, problem)
        self.intake.left_out[ObstacleKind.OVERSIZE] += 1
        return noted

    # ---- batches that cannot

    def _take_otherwise(self, at: int, size: int, header: BatchHeader, reason: DeepReason) -> None:
        if not self._config.is_shallow:
            self._take_deep(at, size, header, reason)
            return
        problem = f"{reason.value}: offsets {header.base_offset} to {header.last_offset}, {size} bytes"
        self._leave_out(reason, header.last_offset, header.max_timestamp, problem)

    def _leave_out(self, reason: DeepReason, last_offset: int, timestamp: int, problem: str) -> None:
        """Note a batch that would have to be decoded. Raises ObstacleMetError by the policy."""
        aside, first = self._config.aside, self.intake.position
        if reason is DeepReason.OVERSIZE:
            lane, note = aside.oversize_batch(first, last_offset, timestamp, problem)
            self.intake.left_out[ObstacleKind.OVERSIZE] += 1
        else:
            lane, note = aside.not_shallow(first, last_offset, timestamp, problem)
            self.intake.left_out[ObstacleKind.NOT_SHALLOW] += 1
        self._packer.add(lane, 0, Codec.NONE, note, 1.0)

    def _take_deep(self, at: int, size: int, header: BatchHeader, reason: DeepReason) -> None:
        """Take one batch in by decoding it. Raises CorruptRecordsError."""
        config, entry = self._config, self._records[at : at + size]
        verify_crc(entry, 0, header)
        codec = config.codec if config.codec is not None else header.codec
        self._flush()
        is_whole = reason is DeepReason.CODEC and not config.gather_bytes
        if not (is_whole and self._take_repacked(entry, header, codec)):
            opened = open_batch(entry, header, size_max=config.decoded_bytes_max)
            decoded_bytes = len(opened.content)
            self._decoded_bytes += decoded_bytes
            weight = size if codec is header.codec else decoded_bytes
            self._take_columns(opened.columns, codec, weight, decoded_bytes)
        self.intake.deep[reason] += 1

    def _take_repacked(self, entry: memoryview, header: BatchHeader, codec: Codec) -> bool:
        """Give the batch another codec, its records staying closed; False where that makes it too large."""
        content = decompress_view(
            header.codec, entry[HEADER_SIZE : header.size], size_max=self._config.decoded_bytes_max
        )
        built = enclose(header, content, codec)
        self._decoded_bytes += len(content)
        if len(built) > self._config.batch_bytes_max:
            return False
        self._packer.settle()
        self.intake.chunks.append(
            Chunk(
                records=built,
                batches=[BatchSpan(0, len(built), header.record_count)],
                frame=Frame(len(built)),
                first_offset=header.base_offset,
                next_offset=header.next_offset,
                max_timestamp=header.max_timestamp,
                count=header.record_count,
                size=len(built),
                origin=self._origin,
                is_rebuilt=True,
            )
        )
        return True

    def _take_legacy(self, entry: memoryview) -> None:
        """Take one entry of magic 0 or 1, compressed or not."""
        config = self._config
        self._settle()
        self._set_origin(0)
        records = read_message(entry, size_max=config.decoded_bytes_max)
        last = records[-1].offset
        if last < self.intake.position:
            return
        if config.is_shallow:
            self._leave_out(
                DeepReason.LEGACY_FORMAT, last, records[-1].timestamp, f"{len(entry)} bytes of magic 0 or 1"
            )
        elif self.intake.position < self._until:
            codec = message_codec(entry)
            columns = Columns(*(list(each) for each in zip(*map(_FIELDS, records), strict=True)))
            decoded_bytes = sum(len(record.value or b"") for record in records)
            self._decoded_bytes += decoded_bytes
            weight = len(entry) if config.codec in (None, codec) else decoded_bytes
            self._take_columns(columns, config.codec or codec, weight, decoded_bytes)
            self.intake.deep[DeepReason.LEGACY_FORMAT] += 1
        self.intake.position = min(last + 1, self._until)
        self.intake.leader_epoch = -1

    def _take_columns(self, columns: Columns, codec: Codec, weight: int, decoded_bytes: int) -> None:
        """Pack the records that are wanted, changed by the steps."""
        offsets = columns.offsets
        if offsets[0] < self.intake.position or offsets[-1] >= self._until:
            columns = from_offset(columns, self.intake.position, self._until)
        if not columns.offsets:
            return
        if self._config.steps is None:
            self._packer.add_columns(0, self._origin, codec, columns, weight, decoded_bytes)
            return
        self._step(columns, codec, max(decoded_bytes / max(weight, 1), 1.0), self._config.steps)

    def _step(self, columns: Columns, codec: Codec, ratio: float, steps: Steps) -> None:
        add, origin = self._packer.add, self._origin
        for record in _rows(columns):
            try:
                outcome = steps.apply(record)
            except RecordError as error:
                lane, left = self._config.aside.record_error(record, str(error))
                self.intake.left_out[ObstacleKind.RECORD_ERROR] += 1
                add(lane, origin, codec, left, ratio)
                continue
            if not outcome:
                self.intake.filtered_records += 1
            for lane, made in outcome:
                add(lane, origin, codec, made, ratio)


_FIELDS = attrgetter("key", "value", "offset", "timestamp", "headers")


def _rows(columns: Columns) -> Iterator[Record]:
    return map(
        Record,
        columns.offsets,
        columns.timestamps,
        repeat(0),
        columns.keys,
        columns.values,
        columns.headers,
    )
