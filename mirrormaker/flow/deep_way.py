"""What becomes of batches that cannot cross as they are: decoded and built anew, given another codec, or
noted and left out. Pure.

It takes time: `effort` says how much of it, in bytes decoded in this turn. Functions of the file may take any
time for a record: then the turn ends within a batch, which is decoded again for what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter

from broker.errors import ExpansionError
from broker.records.batch import HEADER_SIZE, BatchHeader, Codec, verify_crc
from broker.records.builder import enclose
from broker.records.compression import decompress_view
from broker.records.excerpt import open_batch
from broker.records.message_set import message_codec, message_place, read_message
from broker.records.reader import Columns
from broker.records.record import Record
from mirrormaker.flow.chunk import Chunk, DeepReason, Frame
from mirrormaker.flow.intake import TURN_NS_PER_BYTE, Intake, IntakeConfig, Steps
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.packing import Measure, Packer, from_offset
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.steps.record import RecordError


class DeepWay:
    """Of one answer. What it takes in goes into the chunks of `intake`, from its position on; nothing from
    `until` on.
    """

    def __init__(self, intake: Intake, config: IntakeConfig, until: int) -> None:
        self.decoded_bytes = 0
        self.cut_at: int | None = None
        """The offset, within the batch at hand, at which another turn goes on."""
        self._called_ns = config.called_ns
        self._called_before_ns = 0 if config.called_ns is None else config.called_ns()
        self._intake = intake
        self._config = config
        self._until = until
        self._packer = Packer(
            Measure(
                batch_bytes=config.built_batch_bytes,
                batch_bytes_max=config.batch_bytes_max,
                split_bytes=config.split_bytes,
                gather_bytes=config.gather_bytes if config.steps is None else config.built_batch_bytes,
                decoded_bytes_max=config.decoded_bytes_max,
            ),
            intake.chunks,
            partial(_note_oversize, config.aside, intake),
            noted_lane=config.aside.skipped_lane,
            side_limits=config.side_limits,
        )

    @property
    def floors(self) -> Sequence[int]:
        """By lane, the offset before which it has everything that comes next."""
        return self._packer.floors

    @floors.setter
    def floors(self, floors: Sequence[int]) -> None:
        self._packer.floors = floors

    @property
    def effort(self) -> int:
        """What this turn took so far: decoded bytes, and what the time of functions counts as."""
        return self.decoded_bytes + self._called_now_ns // TURN_NS_PER_BYTE

    @property
    def _called_now_ns(self) -> int:
        return 0 if self._called_ns is None else self._called_ns() - self._called_before_ns

    def settle(self) -> None:
        """What was taken in so far becomes chunks, but for notes."""
        self._packer.settle()

    def end(self) -> None:
        """Nothing more comes."""
        self._packer.end()

    def gather(self, entry: memoryview, header: BatchHeader, origin: int) -> bool:
        """Take one batch in along with those beside it; False where it is better off as it is. Raises
        CorruptRecordsError.
        """
        verify_crc(entry, 0, header)
        try:
            self._take_decoded(entry, header, DeepReason.GATHERED, origin)
        except ExpansionError:
            self.decoded_bytes += header.size  # at least
            return False
        return True

    def take(self, entry: memoryview, header: BatchHeader, reason: DeepReason, origin: int) -> None:
        """Take one batch in by decoding it. Raises CorruptRecordsError, and ObstacleMetError by the policy
        where its records take more than is ever decoded at once.
        """
        verify_crc(entry, 0, header)
        try:
            self._take_decoded(entry, header, reason, origin)
        except ExpansionError as error:
            problem = f"offsets {header.base_offset} to {header.last_offset}: {error.message}"
            self.leave_out(TroubleKind.OVERSIZE, header.last_offset, header.max_timestamp, problem)

    def _take_decoded(self, entry: memoryview, header: BatchHeader, reason: DeepReason, origin: int) -> None:
        config = self._config
        codec = config.codec if config.codec is not None else header.codec
        is_whole = reason is DeepReason.CODEC and not config.gather_bytes
        if not (is_whole and self._take_repacked(entry, header, codec, origin)):
            opened = open_batch(entry, header, size_max=config.decoded_bytes_max, exact_names=True)
            decoded_bytes = len(opened.content)
            self.decoded_bytes += decoded_bytes
            weight = len(entry) if codec is header.codec else decoded_bytes
            self._take_columns(opened.columns, codec, weight, decoded_bytes, origin)
        self._intake.deep[reason] += self.cut_at is None

    def take_legacy(self, entry: memoryview) -> None:
        """Take one entry of magic 0 or 1, compressed or not. Raises CorruptRecordsError, and ObstacleMetError
        by the policy where it is not to be decoded, or takes more than is ever decoded at once.
        """
        if self._config.is_shallow:
            self._leave_out_legacy(entry, TroubleKind.NOT_SHALLOW, f"{len(entry)} bytes of magic 0 or 1")
            return
        try:
            records = read_message(entry, size_max=self._config.decoded_bytes_max)
        except ExpansionError as error:
            self._leave_out_legacy(entry, TroubleKind.OVERSIZE, error.message)
            return
        last = records[-1].offset
        if last < self._intake.position:
            return
        if self._intake.position < self._until:
            self._take_messages(records, len(entry), message_codec(entry))
        self._pass_legacy(last)

    def _leave_out_legacy(self, entry: memoryview, kind: TroubleKind, problem: str) -> None:
        last, timestamp = message_place(entry)
        if last < self._intake.position:
            return
        if self._intake.position < self._until:
            self.leave_out(kind, last, timestamp, f"offsets up to {last}: {problem}")
        self._pass_legacy(last)

    def _take_messages(self, records: list[Record], size: int, came_in: Codec) -> None:
        """Take the records of an entry of so many bytes in."""
        codec = came_in if self._config.codec is None else self._config.codec
        columns = Columns(*(list(each) for each in zip(*map(_FIELDS, records), strict=True)))
        decoded_bytes = sum(len(record.value or b"") for record in records)
        self.decoded_bytes += decoded_bytes
        weight = size if codec is came_in else decoded_bytes
        is_batch = came_in is not Codec.NONE
        self._take_columns(columns, codec, weight, decoded_bytes, 0, is_batch=is_batch)
        self._intake.deep[DeepReason.LEGACY_FORMAT] += self.cut_at is None

    def _pass_legacy(self, last: int) -> None:
        """The entry with this last offset has been dealt with."""
        self._intake.position = min(last + 1, self._until) if self.cut_at is None else self.cut_at
        self._intake.leader_epoch = -1

    def leave_out(self, kind: TroubleKind, last_offset: int, timestamp: int, problem: str) -> None:
        """Note a batch that would have to be decoded and is not. Raises ObstacleMetError by the policy."""
        aside, intake = self._config.aside, self._intake
        leave = aside.oversize_batch if kind is TroubleKind.OVERSIZE else aside.not_shallow
        lane, note = leave(intake.position, last_offset, timestamp, problem)
        intake.left_out[intake.position] = kind
        self._packer.add(lane, 0, Codec.NONE, note, 1.0)

    def _take_repacked(self, entry: memoryview, header: BatchHeader, codec: Codec, origin: int) -> bool:
        """Give the batch another codec, its records staying closed; False where that makes it too large."""
        content = decompress_view(
            header.codec, entry[HEADER_SIZE : header.size], size_max=self._config.decoded_bytes_max
        )
        built = enclose(header, content, codec)
        self.decoded_bytes += len(content)
        if len(built) > min(self._config.batch_bytes_max, self._config.split_bytes):
            return False
        self._packer.settle()
        self._intake.chunks.append(
            Chunk(
                records=built,
                batches=1,
                frame=Frame(len(built)),
                first_offset=header.base_offset,
                next_offset=header.next_offset,
                first_timestamp=header.base_timestamp,
                max_timestamp=header.max_timestamp,
                count=header.record_count,
                size=len(built),
                origin=origin,
                is_rebuilt=True,
            )
        )
        return True

    def _take_columns(
        self,
        columns: Columns,
        codec: Codec,
        weight: int,
        decoded_bytes: int,
        origin: int,
        *,
        is_batch: bool = True,
    ) -> None:
        """Pack the records that are wanted, changed by the steps."""
        offsets, position = columns.offsets, self._intake.position
        if offsets[0] < position or offsets[-1] >= self._until:
            columns = from_offset(columns, position, self._until)
        if not columns.offsets:
            return
        if self._config.steps is None:
            self._packer.add_columns(0, origin, codec, columns, weight, decoded_bytes, is_batch=is_batch)
            return
        self._step(columns, codec, max(decoded_bytes / max(weight, 1), 1.0), self._config.steps, origin)

    def _step(self, columns: Columns, codec: Codec, ratio: float, steps: Steps, origin: int) -> None:
        add, may_be_slow = self._packer.add, self._called_ns is not None
        called_max_ns = self._config.turn_bytes * TURN_NS_PER_BYTE
        for record in _rows(columns):
            if may_be_slow and self._called_now_ns >= called_max_ns:
                self.cut_at = record.offset
                return
            try:
                outcome = steps.apply(record)
            except RecordError as error:
                lane, left = self._config.aside.record_error(record, str(error))
                self._intake.left_out[record.offset] = TroubleKind.RECORD_ERROR
                add(lane, origin, codec, left, ratio)
                continue
            if not outcome:
                self._intake.filtered_records += 1
            for lane, made in outcome:
                add(lane, origin, codec, made, ratio)


def _note_oversize(aside: Aside, intake: Intake, record: Record, problem: str) -> tuple[int, Record]:
    """Not a method: what refers to itself, and to all that was taken in, stays until it is looked for."""
    noted = aside.oversize(record, problem)
    intake.left_out[record.offset] = TroubleKind.OVERSIZE
    return noted


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
