"""Batches out of records that were decoded: gathered by lane, cut where they would be too large. Pure.

The records that were made of one record of the source stay in one batch: a position behind some of them would
lose or double the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.records.plain_builder import PlainBuilder
from broker.records.reader import Columns
from broker.records.record import Header, Record
from mirrormaker.flow.chunk import Chunk, Frame, SourceRun
from mirrormaker.flow.intake import BatchLimit

RECORD_BYTES = 16
"""About what a record takes beside its key and value."""
_NO_BOUND = 1 << 30
NO_SIDES: Mapping[int, BatchLimit] = {}
_Builder = BatchBuilder | PlainBuilder


@dataclass(slots=True, kw_only=True)
class Pack:
    """Records of one lane, origin and codec that are to share a batch, field by field."""

    lane: int
    origin: int
    codec: Codec
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[Header]] = field(default_factory=list)
    weight: float = 0
    """About what they take in the batch, compressed."""
    decoded_bytes: float = 0
    size_expected: int = 0
    """What a batch of them may well take: the largest that any of them came in."""

    def record(self, index: int) -> Record:
        """One of them as a record."""
        return Record(
            self.offsets[index],
            self.timestamps[index],
            0,
            self.keys[index],
            self.values[index],
            self.headers[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What batches may come to."""

    batch_bytes: int
    """A batch is cut when it grows beyond this, and beyond the batches that its records came in."""
    batch_bytes_max: int
    """No batch is larger."""
    split_bytes: int = _NO_BOUND
    """Nor is one of what can be split."""
    gather_bytes: float
    """Records of several batches of the source are put together up to this; 0: they are not."""
    decoded_bytes_max: int


class Packer:
    """Fills packs, and makes chunks of them."""

    def __init__(
        self,
        measure: Measure,
        chunks: list[Chunk],
        on_oversize: Callable[[Record, str], tuple[int, Record]],
        *,
        noted_lane: int | None,
        side_limits: Mapping[int, BatchLimit] = NO_SIDES,
    ) -> None:
        """Chunks are added to `chunks`, by lane in the order of offsets. `on_oversize` gives what stands for
        a record that is too large; what goes to `noted_lane` is kept till the end. `side_limits`: of lanes
        for which `measure` does not say how large batches may be.
        """
        self.floors: Sequence[int] = ()
        """By lane, the offset before which it has all that is added; none: nothing is left out."""
        self._measure = measure
        self._chunks = chunks
        self._on_oversize = on_oversize
        self._noted_lane = noted_lane
        self._side_limits = side_limits
        self._main_limit = BatchLimit(measure.batch_bytes_max, measure.split_bytes)
        self._packs: dict[int, Pack] = {}

    def _open(
        self, lane: int, origin: int, codec: Codec, weight: float, offset: int, gather_bytes: float = 0
    ) -> Pack:
        """The pack for more records, from `offset` on, which come to about `weight`. `gather_bytes`: they are
        put together with others up to this at least.
        """
        pack = self._packs.get(lane)
        if pack is not None:
            gather_bytes = max(self._measure.gather_bytes, gather_bytes)
            is_room = pack.weight + weight <= gather_bytes or pack.offsets[-1] == offset
            if lane == self._noted_lane or (is_room and pack.origin == origin and pack.codec is codec):
                return pack
            self._close(self._packs.pop(lane))
        pack = self._packs[lane] = Pack(lane=lane, origin=origin, codec=codec)
        return pack

    def add_columns(
        self,
        lane: int,
        origin: int,
        codec: Codec,
        columns: Columns,
        weight: int,
        decoded_bytes: int,
        *,
        is_batch: bool = True,
    ) -> None:
        """Add all of a batch, which came in `weight` bytes; or of a message that was in none: such go into
        whole batches.
        """
        if self.floors and columns.offsets[0] < self.floors[lane]:
            columns = from_offset(columns, self.floors[lane])
            if not columns.offsets:
                return
        gather_bytes = 0 if is_batch else self._measure.batch_bytes
        pack = self._open(lane, origin, codec, weight, columns.offsets[0], gather_bytes)
        pack.offsets += columns.offsets
        pack.timestamps += columns.timestamps
        pack.keys += columns.keys
        pack.values += columns.values
        pack.headers += columns.headers
        pack.weight += weight
        pack.decoded_bytes += decoded_bytes
        pack.size_expected = max(pack.size_expected, weight)

    def add(self, lane: int, origin: int, codec: Codec, record: Record, ratio: float) -> None:
        """Add one record, which is expected to take 1/`ratio` of its bytes."""
        if self.floors and record.offset < self.floors[lane] and lane != self._noted_lane:
            return
        key, value = record.key, record.value
        size = RECORD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        pack = self._open(lane, origin, codec, size / ratio, record.offset)
        pack.offsets.append(record.offset)
        pack.timestamps.append(record.timestamp)
        pack.keys.append(key)
        pack.values.append(value)
        pack.headers.append(record.headers)
        pack.weight += size / ratio
        pack.decoded_bytes += size

    def settle(self) -> None:
        """Close the packs: what comes next goes into other batches. Raises ObstacleMetError."""
        for lane in [lane for lane in self._packs if lane != self._noted_lane]:
            self._close(self._packs.pop(lane))

    def end(self) -> None:
        """Close all, the notes too. Raises ObstacleMetError."""
        self.settle()
        if self._noted_lane is not None and (pack := self._packs.pop(self._noted_lane, None)) is not None:
            self._close(_in_order(pack))

    # ---- closing

    def _close(self, pack: Pack) -> None:
        measure = self._measure
        size_max = min(self._limit_of(pack.lane))
        limit = min(size_max, max(measure.batch_bytes, pack.size_expected))
        ratio = 1.0 if pack.codec is Codec.NONE else max(pack.decoded_bytes / max(pack.weight, 1), 1.0)
        room = min(int(limit * ratio), measure.decoded_bytes_max)
        start, count = 0, len(pack.offsets)
        while start < count:
            builder, end = _fill(pack, start, count, room)
            end = self._whole_records(pack, start, end)
            if end - start != builder.count:
                builder, end = _fill(pack, start, end, _NO_BOUND)
            self._finish(pack, start, end, builder, size_max)
            start = end

    def _limit_of(self, lane: int) -> BatchLimit:
        """How large batches of the lane may be; a note by itself is never too large."""
        bounds = self._side_limits.get(lane)
        if lane == self._noted_lane:
            return BatchLimit(_NO_BOUND, _NO_BOUND if bounds is None else min(bounds))
        return self._main_limit if bounds is None else bounds

    @staticmethod
    def _whole_records(pack: Pack, start: int, end: int) -> int:
        """`end`, or where it does not part what was made of one record."""
        offsets = pack.offsets
        if end == len(offsets) or offsets[end] != offsets[end - 1]:
            return end
        first = bisect_left(offsets, offsets[end], start)
        return first if first > start else bisect_right(offsets, offsets[end], start)

    def _finish(self, pack: Pack, start: int, end: int, builder: _Builder, size_max: int) -> None:
        """Make a chunk of the records in the builder, or several where it is larger than `size_max`."""
        built = builder.build()
        if len(built) <= size_max:
            self._chunks.append(_chunk_of(pack, start, end, built))
            return
        middle = self._whole_records(pack, start, (start + end) // 2) if end - start > 1 else end
        if middle >= end:
            middle = bisect_left(pack.offsets, pack.offsets[end - 1], start, end)
        bytes_max = self._limit_of(pack.lane).bytes_max
        if middle <= start and len(built) <= bytes_max:
            self._chunks.append(_chunk_of(pack, start, end, built))
            return
        if middle <= start:
            problem = f"{len(built)} bytes, the destination takes {bytes_max}"
            lane, note = self._on_oversize(pack.record(start), problem)
            self.add(lane, 0, Codec.NONE, note, 1.0)
            return
        for first, last in ((start, middle), (middle, end)):
            half, _ = _fill(pack, first, last, _NO_BOUND)
            self._finish(pack, first, last, half, size_max)


def join_built(chunks: Iterable[Chunk], chunk_bytes: int, batches_max: int) -> list[Chunk]:
    """The chunks, of which those that were built anew and follow each other in a lane become one, as batches
    do that cross as they are. Nothing else refers to them yet.
    """
    joined: list[Chunk] = []
    last: dict[int, Chunk] = {}
    for chunk in chunks:
        before = last.get(chunk.lane)
        if (
            before is not None
            and _goes_on(before, chunk)
            and before.size + chunk.size <= chunk_bytes
            and before.batches + chunk.batches <= batches_max
        ):
            _join(before, chunk)
        else:
            last[chunk.lane] = chunk
            joined.append(chunk)
    return joined


def _goes_on(chunk: Chunk, following: Chunk) -> bool:
    """Whether both are alike: a chunk without gaps gets none."""
    if not (chunk.is_rebuilt and following.is_rebuilt) or chunk.origin != following.origin:
        return False
    if chunk.runs or following.runs:
        return bool(chunk.runs and following.runs)
    return following.first_offset == chunk.first_offset + chunk.count


def _join(chunk: Chunk, following: Chunk) -> None:
    chunk.records += following.records  # type: ignore[operator]
    chunk.batches += following.batches
    chunk.frame.size += following.size
    chunk.next_offset = following.next_offset
    chunk.max_timestamp = max(chunk.max_timestamp, following.max_timestamp)
    chunk.count += following.count
    chunk.size += following.size
    chunk.runs += following.runs


def from_offset(columns: Columns, first: int, end: int = 1 << 63) -> Columns:
    """The records with offsets from `first` up to `end`."""
    wanted = slice(bisect_left(columns.offsets, first), bisect_left(columns.offsets, end))
    return Columns(
        columns.keys[wanted],
        columns.values[wanted],
        columns.offsets[wanted],
        columns.timestamps[wanted],
        columns.headers[wanted],
    )


def _fill(pack: Pack, start: int, end: int, room: int) -> tuple[_Builder, int]:
    """A batch of the records from `start` on, at most up to `end`, and where it was full."""
    try:
        return _filled(pack, start, end, BatchBuilder(pack.codec, size_max=room))
    except UnicodeEncodeError:  # the name of a header is not UTF-8
        return _filled(pack, start, end, PlainBuilder(pack.codec, size_max=room))


def _filled(pack: Pack, start: int, end: int, builder: _Builder) -> tuple[_Builder, int]:
    append = builder.append
    rows: Iterable[tuple[int, bytes | None, bytes | None, Sequence[Header]]] = zip(
        pack.timestamps[start:end],
        pack.keys[start:end],
        pack.values[start:end],
        pack.headers[start:end],
        strict=True,
    )
    for timestamp, key, value, headers in rows:
        if not append(timestamp, key, value, headers):
            break
    return builder, start + builder.count


def _chunk_of(pack: Pack, start: int, end: int, built: bytearray) -> Chunk:
    offsets = pack.offsets[start:end]
    return Chunk(
        records=built,
        batches=1,
        frame=Frame(len(built)),
        first_offset=offsets[0],
        next_offset=offsets[-1] + 1,
        first_timestamp=pack.timestamps[start],
        max_timestamp=max(pack.timestamps[start:end]),
        count=len(offsets),
        size=len(built),
        lane=pack.lane,
        origin=pack.origin,
        runs=tuple(_runs_of(offsets)),
        is_rebuilt=True,
    )


def _runs_of(offsets: list[int]) -> Iterator[SourceRun]:
    """The source offsets of the records as runs without a gap; none where there is one run."""
    if offsets == list(range(offsets[0], offsets[0] + len(offsets))):
        return
    starts = [index for index in range(1, len(offsets)) if offsets[index] != offsets[index - 1] + 1]
    for start, end in pairwise((0, *starts, len(offsets))):
        yield SourceRun(offsets[start], end - start)


def _in_order(pack: Pack) -> Pack:
    order = sorted(range(len(pack.offsets)), key=pack.offsets.__getitem__)
    pack.offsets = [pack.offsets[index] for index in order]
    pack.timestamps = [pack.timestamps[index] for index in order]
    pack.keys = [pack.keys[index] for index in order]
    pack.values = [pack.values[index] for index in order]
    pack.headers = [pack.headers[index] for index in order]
    return pack
