"""A scan finds what appends noted, wherever its buffer cuts the file, and ends where damage begins."""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import pack

from hypothesis import assume, given
from hypothesis import strategies as st

from broker.records.batch import HEADER_SIZE, BatchHeader, rebase
from broker.storage.appends import PlacedBatch
from broker.storage.index import IndexCache
from broker.storage.memory_disk import MemoryDisk
from broker.storage.open_files import FilePool
from broker.storage.producers import ProducerStates
from broker.storage.segment import Segment
from broker.storage.segment_scan import SegmentScan
from broker.storage.stored_batches import stored_header
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, build, numbered

BASE = 1000
LEGACY = 3
"""Stands for a message of magic 1 where a producer would; 2 is transactional, -1 has no producer id."""


@st.composite
def entries(draw: st.DrawFn) -> list[bytes]:
    """What a segment may hold: several producers, ascending leader epochs, messages of an older format."""
    offset, epoch, found = BASE, 0, []
    sequences = dict.fromkeys(range(LEGACY), 0)
    for _ in range(draw(st.integers(0, 12))):
        producer, count = draw(st.integers(-1, LEGACY)), draw(st.integers(1, 3))
        epoch += draw(st.sampled_from([0, 0, 0, 2]))
        timestamp = NOW_MS + draw(st.integers(-5, 5))
        if producer == LEGACY:
            found.append(legacy_message(offset, timestamp, b"old"))
            offset += 1
            continue
        batch = build(
            numbered(count, size=draw(st.integers(3, 90))),
            timestamps=[timestamp] * count,
            producer=(producer, 0, sequences[producer]) if producer >= 0 else (-1, -1, -1),
            transactional=producer == 2,
        )
        rebase(batch, 0, offset, epoch)
        sequences[producer] = sequences.get(producer, 0) + count
        found.append(bytes(batch))
        offset += count
    return found


def legacy_message(offset: int, timestamp: int, value: bytes) -> bytes:
    body = pack(">bbqii", 1, 0, timestamp, -1, len(value)) + value
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def appended(stored: list[bytes], interval: int) -> Segment:
    """A segment that was written entry by entry."""
    place = memory_place()
    segment = Segment.create(
        FilePool(place.disk), IndexCache(), place.path, BASE, index_interval_bytes=interval, now_ms=NOW_MS
    )
    for data in stored:
        header = stored_header(data, 0)
        segment.append(data, [PlacedBatch(0, len(data), header.last_offset, header.max_timestamp)])
    return segment


def scanned(data: bytes, interval: int, buffer_bytes: int) -> tuple[SegmentScan, list[BatchHeader]]:
    file = MemoryDisk().open(Path("/log"), create=True)
    file.pwrite(data, 0)
    scan = SegmentScan(file, len(data), BASE, first_offset=BASE, gaps=False, index_interval_bytes=interval)
    visited: list[BatchHeader] = []
    scan.run(lambda _, header: visited.append(header), latest_epoch=-1, buffer_bytes=buffer_bytes)
    return scan, visited


def replayed(headers: list[BatchHeader]) -> bytes:
    producers = ProducerStates()
    for header in headers:
        producers.replay(header, NOW_MS)
    return producers.snapshot()


def epoch_starts(headers: list[BatchHeader]) -> list[tuple[int, int]]:
    latest, found = -1, []
    for header in headers:
        if header.leader_epoch > latest:
            latest = header.leader_epoch
            found.append((latest, header.base_offset))
    return found


@given(
    stored=entries(), interval=st.sampled_from([0, 100, 4096]), buffer_bytes=st.integers(HEADER_SIZE, 1000)
)
def test_a_scan_finds_what_appends_noted(stored: list[bytes], interval: int, buffer_bytes: int) -> None:
    segment = appended(stored, interval)
    headers = [stored_header(data, 0) for data in stored]
    scan, visited = scanned(b"".join(stored), interval, buffer_bytes)
    assert scan.valid_size == segment.size
    assert scan.next_offset == (headers[-1].next_offset if headers else BASE)
    assert scan.offset_entries == segment.offsets.entries()
    assert scan.time_entries == segment.times.entries()
    assert scan.largest_timestamp == segment.largest_timestamp()
    assert replayed(visited) == replayed(headers)
    assert epoch_starts(visited) == epoch_starts(headers)


@given(stored=entries(), buffer_bytes=st.integers(HEADER_SIZE, 1000), data=st.data())
def test_a_scan_ends_before_the_first_damaged_entry(
    stored: list[bytes], buffer_bytes: int, data: st.DataObject
) -> None:
    assume(stored)
    index = data.draw(st.integers(0, len(stored) - 1))
    damaged = bytearray(stored[index])
    position = data.draw(st.integers(0, len(damaged) - 1))
    covered = not 12 <= position < 16 if damaged[16] == 2 else position >= 8
    assume(covered)  # by a checksum, or by the offsets of its neighbours
    damaged[position] ^= 0x10
    scan, _ = scanned(b"".join([*stored[:index], damaged, *stored[index + 1 :]]), 0, buffer_bytes)
    assert scan.valid_size == sum(map(len, stored[:index]))


def test_batches_that_follow_each_other_are_visited_as_one() -> None:
    stored = []
    for number in range(6):
        producer = (7, 0, number * 2 if number < 4 else number * 2 + 5)
        batch = build(numbered(2), producer=producer)
        rebase(batch, 0, BASE + number * 2, 0)
        stored.append(bytes(batch))
    _, visited = scanned(b"".join(stored), 0, 1000)
    assert [(header.base_offset, header.last_offset) for header in visited] == [
        (BASE, BASE + 7),
        (BASE + 8, BASE + 11),
    ]
