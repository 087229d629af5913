"""Batches, clocks and logs for the storage tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.records.reader import read_all
from broker.records.record import Record, TimestampType
from broker.storage.disk import Disk
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_opening import open_log
from broker.types import TopicPartition

PARTITION = TopicPartition("flights", 0)
NOW_MS = 1_700_000_000_000
SIZE_MAX = 1 << 24
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=0)
"""Several segments after a few batches, every batch but the first of a segment indexed."""


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def advance(self, by_ms: int) -> None:
        self.time_ms += by_ms


@dataclass(frozen=True, slots=True)
class DiskAt:
    """A disk and a directory on it that is there."""

    disk: Disk
    path: Path

    def log(self, config: LogConfig = SMALL, *, clock: ManualClock | None = None, **options: Any) -> Log:
        """The log in the directory; as after a crash unless `clean` says otherwise."""
        options.setdefault("clean", False)
        place = self.path / str(PARTITION)
        return open_log(
            self.disk, place, config, clock or ManualClock(), topic_partition=PARTITION, **options
        )

    def files(self) -> dict[str, bytes]:
        """Every file of the log by name."""
        place = self.path / str(PARTITION)
        return {
            entry.name: self.disk.read_file(place / entry.name) for entry in self.disk.list_directory(place)
        }

    def overwrite(self, name: str, data: bytes) -> None:
        """Replace one file of the log."""
        self.disk.write_file(self.path / str(PARTITION) / name, data)


def build(
    values: Sequence[bytes],
    *,
    timestamps: Sequence[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    transactional: bool = False,
) -> bytearray:
    """One batch of values without keys; `producer` is id, epoch and base sequence."""
    times = timestamps or [NOW_MS] * len(values)
    records = [
        Record(-1, at, TimestampType.CREATE_TIME, None, value, [])
        for at, value in zip(times, values, strict=True)
    ]
    return build_records(records, producer=producer, codec=codec, transactional=transactional)


def build_records(
    records: Sequence[Record],
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    transactional: bool = False,
) -> bytearray:
    """One batch of records, whose offsets do not matter."""
    builder = BatchBuilder(
        codec,
        size_max=SIZE_MAX,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )
    for record in records:
        assert builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build()


def append(log: Log, *values: bytes, epoch: int = 0, now_ms: int = NOW_MS, **options: Any) -> int:
    """Append one batch of these values; its first offset."""
    return log.append(build(values, **options), epoch, now_ms=now_ms).first_offset


def contents(log: Log) -> list[tuple[int, bytes]]:
    """Every record from the log's start, by offset and value, read as a consumer does."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, up_to=log.log_end_offset)
        assert part.next_offset > offset
        found += [
            (r.offset, r.value or b"") for r in read_all(part.read(), start_offset=offset, size_max=SIZE_MAX)
        ]
        offset = part.next_offset
    return found


def numbered(count: int, *, size: int = 3) -> list[bytes]:
    """Distinct values."""
    return [b"%0*d" % (size, index) for index in range(count)]
