from __future__ import annotations

import contextlib
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records import legacy
from broker.records.batch import (
    Codec,
    iterate_batches,
    read_header,
    rebase,
    stamp_append_time,
    verify_crc,
)
from broker.records.compression import compress
from broker.records.control import Marker, MarkerType, build_marker
from broker.records.excerpt import excerpt, open_batch
from broker.records.legacy import from_batches, to_batches, to_message_set
from broker.records.message_set import build_message_set
from broker.records.reader import iterate_entries, read_all
from broker.records.record import Record, TimestampType
from broker.types import Buffer
from tests.records.samples import NOW_MS, PLAIN_SAMPLES, SAMPLES, SIZE_MAX, Sample, as_samples, build, read

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
MAGICS = [0, 1]


def read_message_set(message_set: Buffer, *, size_max: int) -> list[Record]:
    return list(legacy.read_message_set(message_set, size_max=size_max))


def old_records(samples: list[Sample], magic: int, base_offset: int = 0) -> list[Record]:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    return [
        Record(base_offset + index, sample.timestamp if magic else -1, kind, sample.key, sample.value, ())
        for index, sample in enumerate(samples)
    ]


def message(body: bytes, offset: int = 0, crc: int | None = None) -> bytes:
    """An entry of any body, from magic on, with a CRC that holds."""
    checked = (crc32(body) if crc is None else crc).to_bytes(4, "big") + body
    return offset.to_bytes(8, "big") + len(checked).to_bytes(4, "big") + checked


def field(content: bytes | None) -> bytes:
    return b"\xff" * 4 if content is None else len(content).to_bytes(4, "big") + content


@given(SAMPLES, st.sampled_from(MAGICS), st.sampled_from(OLD_CODECS), st.integers(0, 1 << 50))
def test_what_is_written_is_read_back(
    samples: list[Sample], magic: int, codec: Codec, base_offset: int
) -> None:
    records = old_records(samples, magic, base_offset)
    message_set = build_message_set(records, magic, codec)
    assert read_message_set(message_set, size_max=SIZE_MAX) == records
    assert list(read_all(message_set, size_max=SIZE_MAX)) == records


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_gaps_that_compaction_left_are_kept(magic: int, codec: Codec) -> None:
    records = [record for record in old_records(PLAIN_SAMPLES, magic, 70) if record.offset not in (70, 72)]
    assert read_message_set(build_message_set(records, magic, codec), size_max=SIZE_MAX) == records


@given(SAMPLES, st.sampled_from(MAGICS), st.sampled_from(OLD_CODECS))
def test_old_producers_are_converted_up(samples: list[Sample], magic: int, codec: Codec) -> None:
    records = old_records(samples, magic)
    batch = to_batches(build_message_set(records, magic, codec), size_max=SIZE_MAX)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert (header.size, header.codec, header.record_count) == (len(batch), codec, len(samples))
    assert as_samples(read(batch)) == as_samples(records)


def test_a_converted_set_is_split_where_a_batch_is_full() -> None:
    message_set = build_message_set(old_records(PLAIN_SAMPLES, 1), 1, Codec.GZIP)
    batches = to_batches(message_set, size_max=SIZE_MAX, codec=Codec.LZ4, batch_size_max=250)
    headers = [header for _, header in iterate_batches(batches)]
    assert [header.record_count for header in headers] == [2, 2, 1]
    assert {(header.base_offset, header.codec) for header in headers} == {(0, Codec.LZ4)}
    values = [record.value for record in read_all(batches, size_max=SIZE_MAX)]
    assert values == [sample.value for sample in PLAIN_SAMPLES]


def test_an_empty_set_gives_no_batch() -> None:
    assert to_batches(b"", size_max=SIZE_MAX) == b""
    assert from_batches(b"", 1, size_max=SIZE_MAX) == b""
    assert build_message_set([], 1, Codec.GZIP) == b""


@given(SAMPLES, st.sampled_from(MAGICS), st.sampled_from(OLD_CODECS), st.integers(0, 1 << 50))
def test_old_consumers_are_converted_down(
    samples: list[Sample], magic: int, codec: Codec, base_offset: int
) -> None:
    batch = build(samples, codec)
    rebase(batch, 0, base_offset, 5)
    message_set = from_batches(bytes(batch) + batch[:30], magic, size_max=SIZE_MAX)
    assert read_message_set(message_set, size_max=SIZE_MAX) == old_records(samples, magic, base_offset)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_time_survives_the_way_down(codec: Codec) -> None:
    batch = build(PLAIN_SAMPLES, codec)
    stamp_append_time(batch, 0, read_header(batch), NOW_MS + 77)
    records = read_message_set(from_batches(batch, 1, size_max=SIZE_MAX), size_max=SIZE_MAX)
    assert {(record.timestamp, record.timestamp_type) for record in records} == {(NOW_MS + 77, 1)}


def test_entries_old_enough_stay_and_newer_ones_change() -> None:
    oldest = build_message_set(old_records(PLAIN_SAMPLES, 0), 0, Codec.SNAPPY)
    older = build_message_set(old_records(PLAIN_SAMPLES, 1, 5), 1, Codec.SNAPPY)
    assert from_batches(oldest + older, 1, size_max=SIZE_MAX) == oldest + older
    down = from_batches(oldest + older, 0, size_max=SIZE_MAX)
    assert down.startswith(oldest)
    assert read_message_set(down[len(oldest) :], size_max=SIZE_MAX) == old_records(PLAIN_SAMPLES, 0, 5)


def test_markers_and_unwanted_batches_are_left_out_on_the_way_down() -> None:
    unwanted, wanted = build(PLAIN_SAMPLES), build(PLAIN_SAMPLES)
    marker = build_marker(
        Marker(type=MarkerType.ABORT, coordinator_epoch=0), producer_id=1, producer_epoch=1, timestamp_ms=5
    )
    rebase(wanted, 0, 6, 0)
    rebase(marker, 0, 5, 0)
    message_set = from_batches(unwanted + marker + wanted, 1, size_max=SIZE_MAX, first_offset=5)
    assert read_message_set(message_set, size_max=SIZE_MAX) == old_records(PLAIN_SAMPLES, 1, 6)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_batch_whose_end_was_compacted_away_is_left_out_for_who_read_the_rest(codec: Codec) -> None:
    batch = build(PLAIN_SAMPLES[:2], codec)
    opened = open_batch(batch, read_header(batch), size_max=SIZE_MAX)
    left = excerpt(opened, [True, False])
    assert from_batches(left, 1, size_max=SIZE_MAX, first_offset=1) == b""
    assert len(read_message_set(from_batches(left, 1, size_max=SIZE_MAX), size_max=SIZE_MAX)) == 1


def test_zstd_is_not_for_old_clients() -> None:
    with pytest.raises(ProtocolError) as refusal:
        from_batches(build(PLAIN_SAMPLES, Codec.ZSTD), 1, size_max=SIZE_MAX)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(ValueError, match="zstd"):
        build_message_set(old_records(PLAIN_SAMPLES, 1), 1, Codec.ZSTD)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_every_truncation_of_a_produced_set_is_refused(magic: int, codec: Codec) -> None:
    message_set = build_message_set(old_records(PLAIN_SAMPLES, magic), magic, codec)
    ends = {0} if codec else {len(message_set) // 5 * count for count in range(6)}
    for size in set(range(len(message_set))) - ends:
        with pytest.raises(CorruptRecordsError):
            read_message_set(message_set[:size], size_max=SIZE_MAX)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_every_flipped_bit_is_found(magic: int, codec: Codec) -> None:
    message_set = build_message_set(old_records(PLAIN_SAMPLES[:1], magic), magic, codec)
    for position in range(8, len(message_set)):
        for bit in range(8):
            damaged = bytearray(message_set)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptRecordsError):
                read_message_set(damaged, size_max=SIZE_MAX)


def test_the_bound_holds_for_all_wrappers_together() -> None:
    wrapper = build_message_set([Record(0, NOW_MS, 0, None, bytes(10_000), ())], 1, Codec.GZIP)
    assert len(read_message_set(wrapper * 3, size_max=31_000)) == 3
    with pytest.raises(CorruptRecordsError):
        read_message_set(wrapper * 4, size_max=31_000)


INNER = message(b"\1\0" + bytes(8) + field(None) + field(b"inner"))


@pytest.mark.parametrize(
    "body",
    [
        b"\2\0" + field(None) + field(b""),
        b"\0\0",
        b"\0\0" + field(None) + b"\0\0\0",
        b"\0\0" + field(None) + b"\0\0\0\2x",
        b"\0\0" + field(None) + b"\xff\xff\xff\xfe",
        b"\0\0" + b"\x7f\xff\xff\xff" + field(b""),
        b"\0\0" + field(None) + field(b"") + b"more",
        b"\1\0" + bytes(4) + field(None) + field(b""),
        b"\0\4" + field(None) + field(b""),
        b"\0\7" + field(None) + field(b""),
        b"\1\1" + bytes(8) + field(None) + field(None),
        b"\1\2" + bytes(8) + field(None) + field(b""),
        b"\1\2" + bytes(8) + field(None) + field(b"\0"),
        b"\1\2" + bytes(8) + field(None) + field(b"\x20garbage"),
    ],
)
def test_lying_messages_under_a_crc_that_holds_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptRecordsError):
        read_message_set(message(body), size_max=SIZE_MAX)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        INNER[:-1],
        INNER + b"more",
        INNER + bytes(12),
        message(b"\0\0" + field(None) + field(b"older inside")),
        message(b"\1\1" + bytes(8) + field(None) + field(b"compressed twice")),
        message(b"\1\0" + bytes(8) + field(None) + field(b"wrong CRC"), crc=1),
    ],
)
def test_lying_wrappers_under_a_crc_that_holds_are_refused(content: bytes) -> None:
    def wrapped(inner: bytes) -> bytes:
        value = compress(Codec.SNAPPY, inner)
        return message(b"\1\2" + bytes(8) + field(None) + field(value))

    assert [record.value for record in read_message_set(wrapped(INNER), size_max=SIZE_MAX)] == [b"inner"]
    with pytest.raises(CorruptRecordsError):
        read_message_set(wrapped(content), size_max=SIZE_MAX)


def test_offsets_that_leave_their_range_are_refused() -> None:
    inner = message(b"\1\0" + bytes(8) + field(None) + field(b"inner"), offset=1)
    value = compress(Codec.GZIP, INNER + inner)
    wrapper = message(b"\1\1" + bytes(8) + field(None) + field(value), offset=0)
    assert [record.offset for record in read_message_set(wrapper, size_max=SIZE_MAX)] == [-1, 0]
    with pytest.raises(CorruptRecordsError, match="inside"):
        read_message_set(b"\x80" + bytes(7) + wrapper[8:], size_max=SIZE_MAX)


@given(st.sampled_from(MAGICS), st.sampled_from(OLD_CODECS), st.data())
@settings(max_examples=200)
def test_damage_is_read_or_refused(magic: int, codec: Codec, data: st.DataObject) -> None:
    damaged = bytearray(build_message_set(old_records(PLAIN_SAMPLES, magic), magic, codec))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecordsError):
        list(read_all(damaged, size_max=SIZE_MAX, check_crc=False))


@pytest.mark.parametrize("answer_size_max", [0, 1, 100, 250])
def test_an_answer_for_an_old_client_ends_with_the_batch_that_fills_it(answer_size_max: int) -> None:
    batches = bytes(build(PLAIN_SAMPLES, Codec.GZIP)) * 5
    whole = from_batches(batches, 1, size_max=SIZE_MAX)
    cut = from_batches(batches, 1, size_max=SIZE_MAX, answer_size_max=answer_size_max)
    assert whole.startswith(cut)
    largest = max(size for _, size in iterate_entries(memoryview(whole)))
    assert answer_size_max <= len(cut) <= answer_size_max + largest


def test_what_comes_before_zstd_is_given_to_an_old_client() -> None:
    plain, zstd = (bytes(build(PLAIN_SAMPLES, codec)) for codec in (Codec.NONE, Codec.ZSTD))
    assert from_batches(plain + zstd, 1, size_max=SIZE_MAX) == from_batches(plain, 1, size_max=SIZE_MAX)
    with pytest.raises(ProtocolError) as refused:
        from_batches(zstd + plain, 1, size_max=SIZE_MAX)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_old_leaders_are_sent_messages(magic: int, codec: Codec, appended: bool) -> None:
    samples = [sample._replace(headers=[]) for sample in PLAIN_SAMPLES]
    batch = build(samples, codec)
    if appended:
        stamp_append_time(batch, 0, read_header(batch), NOW_MS)
        samples = [sample._replace(timestamp=NOW_MS) for sample in samples]
    message_set = to_message_set(batch, magic, size_max=SIZE_MAX)
    assert read_message_set(message_set, size_max=SIZE_MAX) == old_records(samples, magic)


@pytest.mark.parametrize(
    ("batch", "missing"),
    [
        (build([Sample(NOW_MS, None, b"v", [("h", b"")])]), "headers"),
        (build([Sample(NOW_MS, None, b"v", [])], Codec.ZSTD), "zstd"),
        (
            build([Sample(NOW_MS, None, b"v", [])], producer_id=5, producer_epoch=0, base_sequence=0),
            "idempotent",
        ),
    ],
)
def test_what_messages_have_no_place_for_is_refused(batch: bytearray, missing: str) -> None:
    with pytest.raises(ProtocolError, match=f"{missing}.* magic 2"):
        to_message_set(batch, 1, size_max=SIZE_MAX)
