from __future__ import annotations

import contextlib
from collections.abc import Sequence
from struct import pack_into
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    HEADER_SIZE,
    BatchHeader,
    Codec,
    read_header,
    rebase,
    restamp,
    stamp_append_time,
    verify_crc,
    write_header,
)
from broker.records.control import Marker, MarkerType, build_marker
from broker.records.message_set import build_message_set
from broker.records.reader import (
    iterate_entries,
    iterate_records,
    read_all,
    read_batches,
    read_columns,
    read_records,
    read_shaped_batches,
)
from broker.records.record import Header, Record, parse_records
from broker.records.record_shape import RecordShape
from tests.records.samples import (
    CODECS,
    NOW_MS,
    PLAIN_SAMPLES,
    SAMPLES,
    SIZE_MAX,
    Sample,
    as_samples,
    build,
    read,
)

FULL_RECORD = bytes([30, 0, 0, 0, 6]) + b"key" + bytes([4]) + b"ab" + bytes([2, 2]) + b"h" + bytes([2]) + b"v"
"""One record of offset delta 0 with key, value and one header, by hand."""


def claim(content: bytes, **lies: int) -> tuple[bytearray, BatchHeader]:
    """A batch of one record whose CRC holds, over any content, with any header."""
    batch = bytearray(HEADER_SIZE) + content
    base = read_header(build(PLAIN_SAMPLES[:1]))
    header = base._replace(batch_length=len(batch) - 12, **lies)
    write_header(batch, 0, header)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    return batch, header


def read_every_way(batch: bytearray, header: BatchHeader) -> list[Record]:
    """Reads the batch in every way, which must agree, also about its being corrupt."""
    results: list[list[Record] | None] = []
    for way in (
        lambda: read_records(batch, header, size_max=SIZE_MAX),
        lambda: list(iterate_records(batch, header, size_max=SIZE_MAX)),
        lambda: read_columns(batch, header, size_max=SIZE_MAX),
    ):
        try:
            results.append(way())
        except CorruptRecordsError:
            results.append(None)
    assert results[0] == results[1]
    assert (results[0] is None) == (results[2] is None)
    if results[0] is None:
        raise CorruptRecordsError("in every way")
    return results[0]


@given(SAMPLES, CODECS, st.integers(0, 1 << 50))
def test_columns_hold_what_records_hold(samples: list[Sample], codec: Codec, base_offset: int) -> None:
    batch = build(samples, codec)
    rebase(batch, 0, base_offset, 0)
    records, columns = read(batch), read_columns(batch, read_header(batch), size_max=SIZE_MAX)
    assert list(columns.keys) == [record.key for record in records]
    assert list(columns.values) == [record.value for record in records]
    assert list(columns.offsets) == [record.offset for record in records]
    assert list(columns.timestamps) == [record.timestamp for record in records]
    assert list(columns.headers) == [record.headers for record in records]


@given(SAMPLES)
def test_the_plain_parser_agrees_with_the_compiled_one(samples: list[Sample]) -> None:
    batch = build(samples)
    assert list(parse_records(batch[HEADER_SIZE:], read_header(batch))) == read(batch)
    stamp_append_time(batch, 0, read_header(batch), NOW_MS)
    assert list(parse_records(batch[HEADER_SIZE:], read_header(batch))) == read(batch)


@pytest.mark.parametrize("count", [127, 128, 129, 4095, 4096, 4097, 8192, 10_000])
def test_batches_of_many_records_are_read_in_every_way(count: int) -> None:
    batch = build([Sample(NOW_MS + index, None, b"%d" % index, []) for index in range(count)], Codec.LZ4)
    records = read_every_way(batch, read_header(batch))
    assert [int(record.value or b"") for record in records] == list(range(count))


def test_headers_are_tuples_whether_there_are_any_or_not() -> None:
    batch = build([Sample(NOW_MS, None, b"", []), Sample(NOW_MS, None, b"", [("h", b"v")])])
    assert [record.headers for record in read_every_way(batch, read_header(batch))] == [(), (("h", b"v"),)]
    without = build([Sample(NOW_MS, None, b"", [])])
    assert [record.headers for record in read_every_way(without, read_header(without))] == [()]


def test_records_are_read_in_the_shape_asked_for() -> None:
    class Placed(NamedTuple):
        place: str
        offset: int
        timestamp: int
        timestamp_type: int
        key: bytes | None
        value: bytes | None
        headers: Sequence[Header]

    records = [Record(offset, NOW_MS + offset, 0, None, b"v", ()) for offset in range(3)]
    stream = build_message_set(records[:1], 1, Codec.NONE) + build(as_samples(records))
    shape = RecordShape(Placed, prefix=("here",))
    batches = list(read_shaped_batches(stream, shape, size_max=SIZE_MAX))
    assert [batch.records for batch in batches] == [
        [Placed("here", *records[0])],
        [Placed("here", *record) for record in records],
    ]
    assert all(type(record) is Placed for batch in batches for record in batch.records)
    later = list(read_shaped_batches(stream, shape, start_offset=2, size_max=SIZE_MAX))
    assert [batch.records for batch in later] == [[Placed("here", *records[2])]]


def test_a_batch_may_be_followed_by_more() -> None:
    batch = build(PLAIN_SAMPLES)
    assert as_samples(read(memoryview(bytes(batch) + b"more"))) == PLAIN_SAMPLES


def test_a_torn_batch_is_refused() -> None:
    batch = build(PLAIN_SAMPLES)
    with pytest.raises(CorruptRecordsError, match="torn"):
        read_records(batch[:-1], read_header(batch), size_max=SIZE_MAX)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_more_than_the_bound_is_refused(codec: Codec) -> None:
    batch = build([Sample(NOW_MS, None, bytes(10_000), [])], codec)
    with pytest.raises(CorruptRecordsError):
        read(batch, size_max=10_000)


def test_records_without_a_timestamp_under_append_time_have_its_type() -> None:
    batch = build(PLAIN_SAMPLES)
    stamp_append_time(batch, 0, read_header(batch), -1)
    assert {(record.timestamp, record.timestamp_type) for record in read(batch)} == {(-1, 1)}


def test_header_keys_that_are_not_utf_8_are_replaced_as_in_java() -> None:
    content = FULL_RECORD.replace(b"h", b"\xff")
    (record,) = read_every_way(*claim(content))
    assert record == Record(0, NOW_MS, 0, b"key", b"ab", (("\ufffd", b"v"),))


def test_the_reading_goes_on_in_the_plain_parser_where_the_compiled_one_stopped() -> None:
    samples = [Sample(NOW_MS + index, None, b"%d" % index, [("h", b"")]) for index in range(5000)]
    batch = build(samples)
    position = batch.rindex(b"h")
    batch[position] = 0xFF
    header = read_header(batch)
    records = read_every_way(batch, header)
    assert len(records) == 5000
    assert records[-1].headers == (("\ufffd", b""),)
    assert as_samples(records[:-1]) == samples[:-1]


def test_compacted_batches_keep_the_offsets_that_are_left() -> None:
    def record(offset_delta: int) -> bytes:
        return bytes([12, 0, 0, offset_delta << 1, 1, 1, 0])

    batch, header = claim(record(1) + record(4), record_count=2, last_offset_delta=6, base_offset=100)
    assert [each.offset for each in read_every_way(batch, header)] == [101, 104]
    empty, header = claim(b"", record_count=0, last_offset_delta=6)
    assert read_every_way(empty, header) == []
    for deltas in ((4, 1), (1, 1), (1, 7), (0, 63)):
        lying, header = claim(record(deltas[0]) + record(deltas[1]), record_count=2, last_offset_delta=6)
        with pytest.raises(CorruptRecordsError):
            read_every_way(lying, header)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x0c",
        FULL_RECORD[:-1],
        FULL_RECORD + b"\x00",
        FULL_RECORD * 2,
        b"\xff" * 40,
        b"\x80" * 40,
        # absurd lengths of the record, key, value, a header's key and value; absurd header counts
        b"\xff" * 9 + b"\x01" + FULL_RECORD[1:],
        bytes([30, 0, 0, 0]) + b"\xfe" + b"\xff" * 8 + b"\x01" + FULL_RECORD[8:],
        bytes([30, 0, 0, 0]) + b"\x82" + b"\xff" * 8 + b"\x01" + FULL_RECORD[8:],
        bytes([30, 0, 0, 0, 1]) + b"\xfe" + b"\xff" * 8 + b"\x01" + FULL_RECORD[8:],
        bytes([30, 0, 0, 0, 1, 1, 2]) + b"\xfe" + b"\xff" * 8 + b"\x01",
        bytes([30, 0, 0, 0, 1, 1, 2, 2]) + b"h\xfe" + b"\xff" * 8 + b"\x01",
        bytes([30, 0, 0, 0, 1, 1]) + b"\x80\x80\x80\x80\x80\x40",
        bytes([30, 0, 0, 0, 1, 1, 1]),
        bytes([30, 0, 0, 0, 1, 1, 2, 1]),
    ],
)
def test_lying_records_under_a_crc_that_holds_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptRecordsError):
        read_every_way(*claim(content))


@pytest.mark.parametrize("count", [0, 2, 1000, (1 << 31) - 1])
def test_lying_record_counts_are_refused(count: int) -> None:
    assert len(FULL_RECORD) == 16
    assert len(read_every_way(*claim(FULL_RECORD))) == 1
    with pytest.raises(CorruptRecordsError):
        read_every_way(*claim(FULL_RECORD, record_count=count))


@given(st.binary(max_size=80), st.integers(0, 20))
@settings(max_examples=200)
def test_any_content_under_a_crc_that_holds_is_read_or_refused(content: bytes, count: int) -> None:
    with contextlib.suppress(CorruptRecordsError):
        read_every_way(*claim(content, record_count=count, last_offset_delta=19))


@given(st.data())
@settings(max_examples=300)
def test_damaged_records_under_a_crc_that_holds_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(build(PLAIN_SAMPLES)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecordsError):
        read_every_way(*claim(bytes(content), record_count=5, last_offset_delta=4))


@pytest.mark.parametrize("codec", Codec)
def test_every_truncation_of_a_batch_under_a_crc_that_holds_is_refused(codec: Codec) -> None:
    whole = build(PLAIN_SAMPLES, codec)
    for size in range(len(whole) - HEADER_SIZE):
        content = bytes(whole[HEADER_SIZE : HEADER_SIZE + size])
        with pytest.raises(CorruptRecordsError):
            read_every_way(*claim(content, record_count=5, last_offset_delta=4, attributes=codec))


def fetch_answer() -> tuple[bytes, list[int]]:
    """Batches of every kind, and where each ends."""
    old = [Record(index, NOW_MS + index, 0, b"k", b"old %d" % index, ()) for index in range(4)]
    parts = [
        build_message_set(old[:2], 1, Codec.NONE),
        build_message_set(old[2:], 1, Codec.GZIP),
        build(PLAIN_SAMPLES, Codec.ZSTD),
        build_marker(
            Marker(type=MarkerType.COMMIT, coordinator_epoch=1),
            producer_id=1,
            producer_epoch=1,
            timestamp_ms=NOW_MS,
        ),
        build(PLAIN_SAMPLES[:2], Codec.NONE),
    ]
    for part, base_offset in zip(parts[2:], (4, 9, 10), strict=True):
        rebase(part, 0, base_offset, 3)
    stream = b"".join(parts)
    return stream, [position + size for position, size in iterate_entries(stream)]


def test_a_fetch_answer_of_all_formats_is_read() -> None:
    stream, _ = fetch_answer()
    assert [record.offset for record in read_all(stream, size_max=SIZE_MAX)] == [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        10,
        11,
    ]
    batches = list(read_batches(stream, size_max=SIZE_MAX))
    assert [batch.next_offset for batch in batches] == [1, 2, 4, 9, 10, 12]
    assert [batch.header is None for batch in batches] == [True, True, True, False, False, False]
    assert [len(batch.records) for batch in batches] == [1, 1, 2, 5, 1, 2]


@pytest.mark.parametrize("start_offset", range(13))
def test_records_below_the_offset_asked_for_are_left_out(start_offset: int) -> None:
    stream, _ = fetch_answer()
    everything = [record for record in read_all(stream, size_max=SIZE_MAX) if record.offset >= start_offset]
    assert list(read_all(stream, size_max=SIZE_MAX, start_offset=start_offset)) == everything


def test_every_truncation_of_a_fetch_answer_yields_its_whole_batches() -> None:
    stream, ends = fetch_answer()
    counts = [len(batch.records) for batch in read_batches(stream, size_max=SIZE_MAX)]
    for size in range(len(stream) + 1):
        found = [len(batch.records) for batch in read_batches(stream[:size], size_max=SIZE_MAX)]
        assert found == counts[: sum(end <= size for end in ends)]


def test_batches_that_are_not_wanted_are_not_decompressed() -> None:
    batch = build(PLAIN_SAMPLES, Codec.GZIP)
    batch[-10] ^= 0xFF
    restamp(batch, 0, len(batch), attributes=Codec.GZIP, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    assert list(read_all(batch, start_offset=5, size_max=SIZE_MAX)) == []
    with pytest.raises(CorruptRecordsError):
        list(read_all(batch, start_offset=4, size_max=SIZE_MAX))


def test_the_crc_is_checked_unless_told_otherwise() -> None:
    batch = build(PLAIN_SAMPLES)
    pack_into(">q", batch, ATTRIBUTES_POSITION + 6, NOW_MS + 5)
    with pytest.raises(CorruptRecordsError, match="CRC"):
        list(read_all(batch, size_max=SIZE_MAX))
    assert len(list(read_all(batch, size_max=SIZE_MAX, check_crc=False))) == 5


def test_control_batches_are_left_to_those_who_ask_for_batches() -> None:
    batch = build(PLAIN_SAMPLES[:1])
    restamp(batch, 0, len(batch), attributes=CONTROL_FLAG, producer_id=1, producer_epoch=1, base_sequence=-1)
    assert list(read_all(batch, size_max=SIZE_MAX)) == []
    assert [fetched.next_offset for fetched in read_batches(batch, size_max=SIZE_MAX)] == [1]


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_a_garbage_fetch_answer_is_read_or_refused(garbage: bytes) -> None:
    with contextlib.suppress(CorruptRecordsError):
        list(read_all(garbage, size_max=SIZE_MAX, check_crc=False))
