from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    CRC_POSITION,
    HEADER_SIZE,
    MAGIC_POSITION,
    SEQUENCE_LIMIT,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    iterate_batches,
    joint_attributes,
    next_sequence,
    peek_producer,
    peek_size,
    read_header,
    rebase,
    restamp,
    stamp_append_time,
    verify_crc,
    write_header,
)
from tests.records.samples import CODECS, NOW_MS, PLAIN_SAMPLES, SAMPLES, Sample, as_samples, build, read


@pytest.mark.parametrize("codec", Codec)
def test_the_header_tells_what_was_built(codec: Codec) -> None:
    batch = build(PLAIN_SAMPLES, codec, producer_id=7, producer_epoch=2, base_sequence=11, transactional=True)
    header = read_header(batch)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(batch) - 12,
        leader_epoch=-1,
        magic=2,
        crc=header.crc,
        attributes=codec | TRANSACTIONAL_FLAG,
        last_offset_delta=4,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        record_count=5,
    )
    verify_crc(batch, 0, header)
    assert (header.size, header.codec, header.last_offset, header.next_offset) == (len(batch), codec, 4, 5)
    assert header.last_sequence == 15
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert not header.has_delete_horizon


@given(SAMPLES, CODECS, st.integers(0, 1 << 60), st.integers(-1, (1 << 31) - 1))
def test_a_rebased_batch_keeps_its_crc_and_its_records_move(
    samples: list[Sample], codec: Codec, base_offset: int, leader_epoch: int
) -> None:
    batch = bytearray(b"before") + build(samples, codec) + b"after"
    before = bytes(batch)
    rebase(batch, 6, base_offset, leader_epoch)
    header = read_header(batch, 6)
    verify_crc(batch, 6, header)
    assert (header.base_offset, header.leader_epoch) == (base_offset, leader_epoch)
    assert (batch[:6], batch[-5:]) == (before[:6], before[-5:])
    records = read(memoryview(batch)[6:])
    assert [record.offset for record in records] == [base_offset + index for index in range(len(samples))]
    assert as_samples(records) == samples


@given(SAMPLES, CODECS, st.integers(0, 1 << 60), st.integers(0, 32767), st.integers(0, SEQUENCE_LIMIT - 1))
def test_a_restamped_batch_equals_a_fresh_build(
    samples: list[Sample], codec: Codec, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    stamped = build(samples, codec)
    restamp(
        stamped,
        0,
        len(stamped),
        attributes=codec | TRANSACTIONAL_FLAG,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    assert stamped == build(
        samples,
        codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=True,
    )


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_in_the_middle_of_a_buffer_is_stamped_alone(codec: Codec) -> None:
    batch = build(PLAIN_SAMPLES, codec)
    buffer = batch * 3
    restamp(
        memoryview(buffer),
        len(batch),
        len(batch),
        attributes=codec,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
    )
    assert buffer[: len(batch)] == buffer[2 * len(batch) :] == batch
    verify_crc(buffer, len(batch), read_header(buffer, len(batch)))


@pytest.mark.parametrize("codec", Codec)
def test_append_time_speaks_for_every_record(codec: Codec) -> None:
    batch = build(PLAIN_SAMPLES, codec)
    stamp_append_time(batch, 0, read_header(batch), NOW_MS + 1000)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW_MS + 1000)
    assert {(record.timestamp, record.timestamp_type) for record in read(batch)} == {(NOW_MS + 1000, 1)}


def test_sequences_wrap_from_the_greatest_to_zero() -> None:
    assert next_sequence(SEQUENCE_LIMIT - 1, 0) == SEQUENCE_LIMIT - 1
    assert next_sequence(SEQUENCE_LIMIT - 1, 1) == 0
    assert next_sequence(SEQUENCE_LIMIT - 3, 5) == 2
    batch = build(PLAIN_SAMPLES, producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_LIMIT - 2)
    assert read_header(batch).last_sequence == 2


def test_every_truncation_of_a_stream_yields_its_whole_batches() -> None:
    batches = [build(PLAIN_SAMPLES[:count], codec) for count, codec in ((1, Codec.NONE), (5, Codec.ZSTD))]
    stream = b"".join(batches)
    ends = [len(batches[0]), len(stream)]
    for size in range(len(stream) + 1):
        found = [position + header.size for position, header in iterate_batches(stream[:size])]
        assert joint_attributes(stream[:size]) == (Codec.ZSTD if ends[1] in found else 0)
        assert found == [end for end in ends if end <= size]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_every_flipped_bit_is_found(codec: Codec) -> None:
    """Save for base offset and leader epoch, which stand before what the CRC covers."""
    batch = build(PLAIN_SAMPLES[:2], codec)
    for position in range(8, len(batch)):
        if 12 <= position < 16:
            continue
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptRecordsError):
                verify_crc(damaged, 0, read_header(damaged))


@given(st.binary(max_size=150))
@settings(max_examples=200)
def test_garbage_raises_nothing_but_corruption(garbage: bytes) -> None:
    for action in (read_header, peek_size, joint_attributes, lambda buffer: list(iterate_batches(buffer))):
        try:
            action(garbage)
        except CorruptRecordsError:
            continue


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"magic": 1}, "magic 1"),
        ({"magic": 3}, "magic 3"),
        ({"batch_length": 48}, "too small"),
        ({"batch_length": -1}, "too small"),
        ({"last_offset_delta": -1}, "negative"),
        ({"record_count": -1}, "negative"),
        ({"base_offset": -1}, "negative"),
        ({"base_offset": (1 << 63) - 1}, "past the last offset"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(lie: dict[str, int], message: str) -> None:
    batch = build(PLAIN_SAMPLES)
    header = read_header(batch)
    lying = bytearray(batch) + bytes(16)
    write_header(lying, 0, header._replace(**(lie | {"batch_length": header.batch_length})))
    if "batch_length" in lie:
        lying[8:12] = lie["batch_length"].to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordsError, match=message):
        read_header(lying)


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(CorruptRecordsError, match="codec 5"):
        _ = read_header(build(PLAIN_SAMPLES))._replace(attributes=5).codec


def test_torn_headers_and_sizes_are_told() -> None:
    batch = build(PLAIN_SAMPLES)
    assert peek_size(batch) == len(batch)
    assert peek_size(batch[:11]) is None
    with pytest.raises(CorruptRecordsError, match="torn"):
        read_header(batch[: HEADER_SIZE - 1])
    with pytest.raises(CorruptRecordsError, match="too small"):
        peek_size(bytes(12))


def test_producers_are_told_of_batches_alone() -> None:
    batch = build(PLAIN_SAMPLES, producer_id=7, producer_epoch=2, base_sequence=40)
    assert peek_producer(batch) == (7, 2, 40)
    assert peek_producer(build(PLAIN_SAMPLES)) == (-1, -1, -1)
    assert peek_producer(batch[: HEADER_SIZE - 1]) is None
    batch[MAGIC_POSITION] = 1
    assert peek_producer(batch) is None


def test_a_wrong_crc_names_both_values() -> None:
    batch = build(PLAIN_SAMPLES)
    header = read_header(batch)
    batch[CRC_POSITION : CRC_POSITION + 4] = bytes(4)
    with pytest.raises(CorruptRecordsError, match=f"{header.crc:#010x}, not 0x00000000"):
        verify_crc(batch, 0, read_header(batch))
