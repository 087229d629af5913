"""Logs to be compacted, passes over them, and what a consumer sees of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.client.aborted import AbortedBatches, AbortedTransaction
from broker.records.batch import BatchHeader, Codec
from broker.records.control import Marker, MarkerType, build_marker
from broker.records.reader import read_batches
from broker.records.record import Record, TimestampType
from broker.storage.compaction.cleanable import DirtySegment, cleanable_range
from broker.storage.compaction.cleaning import Cleaning, CleaningBounds, CleaningReport
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from tests.storage.samples import NOW_MS, SIZE_MAX, build_records

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=400,
    index_interval_bytes=0,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1_000,
)
"""Segments of a few batches, every batch but the first of a segment indexed."""
BOUNDS = CleaningBounds(map_bytes=1 << 20, map_load_factor=0.9, buffer_bytes=256, batch_size_max=SIZE_MAX)

Pair = tuple[bytes | None, bytes | None]


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def keyed(
    pairs: Sequence[Pair],
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    transactional: bool = False,
    timestamp: int = NOW_MS,
) -> bytearray:
    """One batch of keys and values; `producer` is id, epoch and base sequence."""
    records = [
        Record(-1, timestamp + at, TimestampType.CREATE_TIME, key, value, [("h", b"\xff")] if at % 2 else [])
        for at, (key, value) in enumerate(pairs)
    ]
    return build_records(records, producer=producer, codec=codec, transactional=transactional)


def put(log: Log, *pairs: Pair, now_ms: int = NOW_MS, **options: object) -> int:
    """Append one batch; its first offset."""
    return log.append(keyed(pairs, **options), 0, now_ms=now_ms).first_offset  # type: ignore[arg-type]


def compact(
    log: Log,
    *,
    now_ms: int = NOW_MS,
    bounds: CleaningBounds = BOUNDS,
    end_offset_max: int | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> CleaningReport:
    """One pass over all that may be compacted, whether it is worth it or not."""
    bases = [segment.base_offset for segment in log.segments]
    segments = [
        DirtySegment(s.base_offset, after, s.size, s.first_timestamp, s.largest_timestamp)
        for s, after in zip(log.segments[:-1], bases[1:], strict=True)
    ]
    found = cleanable_range(
        segments,
        log.config,
        first_dirty_offset=max(log.compacted_end or 0, log.log_start_offset),
        end_offset_max=log.log_end_offset if end_offset_max is None else end_offset_max,
        now_ms=now_ms,
    )
    cleaning = Cleaning(log, found, bounds, now_ms=now_ms, checkpoint=checkpoint)
    for step in cleaning.steps():
        step()
    return cleaning.report


def seen(log: Log, start: int | None = None, *, max_bytes: int = 1 << 20) -> list[Seen]:
    """Every record from an offset on, as a consumer reads them that goes on where each answer ends."""
    found: list[Seen] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=max_bytes, up_to=log.log_end_offset)
        if not len(part):
            break
        for batch in read_batches(part.read(), start_offset=offset, size_max=SIZE_MAX):
            if batch.header is None or not batch.header.is_control:
                found += [Seen(r.offset, r.key, r.value, r.timestamp) for r in batch.records]
        assert part.next_offset > offset
        offset = part.next_offset
    return found


def table(records: Sequence[Seen]) -> dict[bytes, bytes]:
    """What a reader of the whole knows in the end: the newest value of each key that no tombstone took."""
    values: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def end_transaction(log: Log, producer_id: int, kind: MarkerType, *, now_ms: int = NOW_MS) -> int:
    """Append the marker of a producer's transaction; its offset."""
    marker = Marker(type=kind, coordinator_epoch=0)
    batch = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=now_ms)
    return log.append_marker(batch, marker, 0, now_ms=now_ms).first_offset


def committed(log: Log, start: int = 0, *, max_bytes: int = 200) -> list[Seen]:
    """Every record from an offset on, as a consumer of committed records reads them."""
    found: list[Seen] = []
    offset, end = max(start, log.log_start_offset), log.last_stable_offset(log.log_end_offset)
    while offset < end:
        part = log.read(offset, max_bytes=max_bytes, up_to=end)
        if not len(part):
            break
        aborted = AbortedBatches(
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in log.aborted_transactions(offset, part.next_offset)
        )
        for batch in read_batches(part.read(), start_offset=offset, size_max=SIZE_MAX):
            assert batch.header is not None
            if not aborted.includes(batch.header) and not batch.header.is_control:
                found += [Seen(r.offset, r.key, r.value, r.timestamp) for r in batch.records]
        offset = part.next_offset
    return found


def headers(log: Log) -> list[BatchHeader]:
    """Of every batch of the log, in order."""
    return [header for segment in log.segments for _, header in segment.headers(0)]
