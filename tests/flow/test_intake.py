"""What becomes of the bytes of a fetch answer: as they are wherever that is exact, decoded where not."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.aborted import AbortedTransaction
from broker.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    iterate_batches,
    next_sequence,
    read_header,
    rebase,
    verify_crc,
    write_header,
)
from broker.records.builder import BatchBuilder
from broker.records.message_set import build_message_set
from broker.records.reader import read_records
from broker.records.record import Record, TimestampType
from mirrormaker.flow.chunk import Chunk, DeepReason, Frame, SourceRun
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.intake import Intake, IntakeConfig, OriginUnknownError
from mirrormaker.flow.stamp import stamp

SIZE_MAX = 1 << 20
ONE_BY_ONE = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=1)
TOGETHER = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=100)


def build(
    base_offset: int,
    count: int = 3,
    *,
    codec: Codec = Codec.SNAPPY,
    flags: int = 0,
    producer_id: int = 77,
    size: int = 10,
) -> bytearray:
    builder = BatchBuilder(
        codec, size_max=SIZE_MAX, producer_id=producer_id, producer_epoch=4, base_sequence=9
    )
    for offset in range(base_offset, base_offset + count):
        builder.append(5_000 + offset, b"key-%d" % offset, b"v" * size, [("header", b"%d" % offset)])
    batch = builder.build()
    rebase(batch, 0, base_offset, 3)
    if flags:
        header = read_header(batch)
        write_header(batch, 0, header._replace(attributes=header.attributes | flags))
    return batch


@pytest.mark.parametrize(
    "config", [ONE_BY_ONE, IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=1, deep=True)]
)
def test_an_answer_is_let_go_with_its_last_chunk_and_not_when_garbage_is_looked_for(
    config: IntakeConfig,
) -> None:
    answer = build(0) + build(3)
    gc.disable()
    try:
        intake = take_in(answer, 0, config, Frame(len(answer)))
        assert intake.position == 6
        del intake
        answer.append(0)  # refused while anything refers to its bytes
    finally:
        gc.enable()


def compacted(base_offset: int, kept: list[int], count: int) -> bytearray:
    """A batch of which compaction has kept only some records."""
    batch = build(base_offset, count, codec=Codec.NONE)
    header = read_header(batch)
    wanted = [record for record in read_records(batch, header, size_max=SIZE_MAX) if record.offset in kept]
    builder = BatchBuilder(Codec.NONE, size_max=SIZE_MAX)
    full, position = bytes(batch), 61
    body = b""
    for offset in range(base_offset, base_offset + count):
        length = (full[position] >> 1) + 1
        if offset in kept:
            body += full[position : position + length]
        position += length
    assert len(wanted) == len(kept)
    assert builder.count == 0
    result = bytearray(full[:61] + body)
    write_header(result, 0, header._replace(batch_length=len(result) - 12, record_count=len(kept)))
    return result


def records_of(chunk: Chunk) -> list[Record]:
    return [
        record
        for position, header in iterate_batches(chunk.records)
        for record in read_records(memoryview(chunk.records)[position:], header, size_max=SIZE_MAX)
    ]


def take(
    records: bytes | bytearray,
    position: int = 0,
    config: IntakeConfig = ONE_BY_ONE,
    **more: list[AbortedTransaction],
) -> Intake:
    return take_in(bytearray(records), position, config, Frame(len(records)), **more)


def test_plain_batches_pass_as_they_are_one_a_chunk() -> None:
    first, second = build(0), build(3, codec=Codec.ZSTD)
    intake = take(first + second)
    assert [bytes(chunk.records) for chunk in intake.chunks] == [bytes(first), bytes(second)]
    assert [(chunk.first_offset, chunk.next_offset, chunk.count) for chunk in intake.chunks] == [
        (0, 3, 3),
        (3, 6, 3),
    ]
    assert intake.position == 6
    assert not intake.deep


def test_batches_that_lie_side_by_side_share_a_chunk_where_the_destination_takes_that() -> None:
    first, second, third = build(0), build(3), build(6)
    (chunk,) = take(first + second + third, config=TOGETHER).chunks
    assert bytes(chunk.records) == bytes(first + second + third)
    assert (chunk.batches, chunk.count) == (3, 9)
    assert (chunk.next_offset, chunk.first_timestamp, chunk.max_timestamp) == (9, 5_000, 5_008)
    bounded = IntakeConfig(chunk_bytes=len(first) + len(second), chunk_batches_max=100)
    assert [chunk.batches for chunk in take(first + second + third, config=bounded).chunks] == [2, 1]


@given(cut=st.integers(0, 400))
def test_a_torn_batch_at_the_end_is_left_for_the_next_fetch(cut: int) -> None:
    first, second = build(0), build(3)
    whole = first + second
    intake = take(whole[: len(whole) - min(cut, len(second))])
    assert intake.position == (6 if cut == 0 else 3)
    assert intake.damage is None


def test_control_batches_are_dropped_and_the_position_passes_them() -> None:
    marker = build(3, 1, codec=Codec.NONE, flags=CONTROL_FLAG | TRANSACTIONAL_FLAG)
    intake = take(build(0, flags=TRANSACTIONAL_FLAG) + marker + build(4))
    assert [chunk.next_offset for chunk in intake.chunks] == [3, 7]
    assert intake.control_batches == 1
    only = take(marker, position=3)
    assert only.chunks == []
    assert only.position == 4


def test_aborted_transactions_are_dropped_up_to_their_marker() -> None:
    answer = (
        build(0, producer_id=1, flags=TRANSACTIONAL_FLAG)
        + build(3, producer_id=2, flags=TRANSACTIONAL_FLAG)
        + build(6, 1, producer_id=1, codec=Codec.NONE, flags=CONTROL_FLAG | TRANSACTIONAL_FLAG)
        + build(7, producer_id=1, flags=TRANSACTIONAL_FLAG)
        + build(10, producer_id=1)
    )
    intake = take(answer, aborted=[AbortedTransaction(1, 0)])
    assert [chunk.first_offset for chunk in intake.chunks] == [3, 7, 10]
    assert (intake.aborted_batches, intake.control_batches, intake.position) == (1, 1, 13)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [(TIMESTAMP_TYPE_FLAG, DeepReason.LOG_APPEND_TIME), (DELETE_HORIZON_FLAG, DeepReason.DELETE_HORIZON)],
)
def test_batches_whose_flags_forbid_passing_are_built_anew(flags: int, reason: DeepReason) -> None:
    intake = take(build(0, flags=flags))
    (chunk,) = intake.chunks
    header = read_header(chunk.records)
    assert header.codec is Codec.SNAPPY
    assert not header.is_log_append_time
    assert not header.has_delete_horizon
    verify_crc(chunk.records, 0, header)
    records = records_of(chunk)
    expected = [5_002] * 3 if reason is DeepReason.LOG_APPEND_TIME else [5_000, 5_001, 5_002]
    assert [record.timestamp for record in records] == expected
    assert {record.timestamp_type for record in records} == {TimestampType.CREATE_TIME}
    assert [(record.key, list(record.headers)) for record in records] == [
        (b"key-%d" % offset, [("header", b"%d" % offset)]) for offset in range(3)
    ]
    assert intake.deep == {reason: 1}


def test_a_compacted_batch_is_built_anew_and_its_holes_are_passed() -> None:
    intake = take(compacted(10, [11, 13], 6), position=10)
    (chunk,) = intake.chunks
    assert [record.key for record in records_of(chunk)] == [b"key-11", b"key-13"]
    assert intake.position == 16
    assert intake.deep == {DeepReason.COMPACTED: 1}


def test_a_batch_that_compaction_emptied_is_passed() -> None:
    intake = take(compacted(10, [], 6), position=10)
    assert intake.chunks == []
    assert intake.position == 16


def test_resuming_inside_a_batch_takes_only_what_is_wanted_of_it() -> None:
    intake = take(build(0, 5) + build(5), position=3)
    first, second = intake.chunks
    assert [record.key for record in records_of(first)] == [b"key-3", b"key-4"]
    assert (first.first_offset, first.next_offset, second.first_offset) == (3, 5, 5)
    assert intake.deep == {DeepReason.RESUMED_INSIDE: 1}


def test_a_batch_wholly_before_the_position_is_passed_over() -> None:
    intake = take(build(0) + build(3), position=3)
    assert [chunk.first_offset for chunk in intake.chunks] == [3]
    assert not intake.deep


def test_deep_routes_decode_everything_and_keep_the_codec() -> None:
    config = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=1, deep=True)
    intake = take(build(0, codec=Codec.LZ4), config=config)
    assert read_header(intake.chunks[0].records).codec is Codec.LZ4
    assert intake.deep == {DeepReason.FORCED: 1}


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_larger_than_the_destination_takes_is_split(codec: Codec) -> None:
    config = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=1, batch_bytes_max=180)
    intake = take(build(0, 10, size=40, codec=codec), config=config)
    assert len(intake.chunks) > 1
    assert all(chunk.size <= 180 for chunk in intake.chunks)
    assert intake.deep == {DeepReason.OVERSIZE: 1}
    assert [record.key for chunk in intake.chunks for record in records_of(chunk)] == [
        b"key-%d" % offset for offset in range(10)
    ]
    assert [chunk.next_offset for chunk in intake.chunks[:-1]] == [
        chunk.first_offset for chunk in intake.chunks[1:]
    ]


def test_a_chunk_ends_where_the_source_offsets_have_a_gap() -> None:
    intake = take(build(0) + build(3) + build(9), config=TOGETHER)
    assert [(chunk.first_offset, chunk.next_offset, chunk.count) for chunk in intake.chunks] == [
        (0, 6, 6),
        (9, 12, 3),
    ]
    assert all(chunk.runs == () for chunk in intake.chunks)


def test_what_is_built_anew_knows_the_source_offsets_of_its_records() -> None:
    (chunk,) = take(compacted(10, [11, 12, 15], 6), position=10).chunks
    assert chunk.runs == (SourceRun(11, 2), SourceRun(15, 1))


def test_batches_built_anew_share_a_chunk_where_the_destination_takes_that() -> None:
    config = replace(TOGETHER, codec=Codec.ZSTD)
    answer = build(0) + build(3) + build(6, codec=Codec.ZSTD) + build(9) + build(12) + build(16)
    intake = take(answer, config=config)
    assert [(chunk.first_offset, chunk.next_offset, chunk.batches) for chunk in intake.chunks] == [
        (0, 6, 2),
        (6, 9, 1),
        (9, 15, 2),
        (16, 19, 1),
    ]
    for chunk in intake.chunks:
        assert chunk.frame.size == chunk.size == len(chunk.records) or not chunk.is_rebuilt
        offsets = [int(dict(record.headers)["header"] or b"") for record in records_of(chunk)]
        assert offsets == list(range(chunk.first_offset, chunk.first_offset + chunk.count))
    few = take(answer, config=replace(config, chunk_bytes=150))
    assert [chunk.batches for chunk in few.chunks] == [1] * 6


def test_compacted_batches_that_share_a_chunk_keep_their_gaps() -> None:
    answer = compacted(0, [1, 2, 4], 6) + compacted(6, [6, 9], 6)
    (chunk,) = take(answer, config=TOGETHER).chunks
    assert (chunk.batches, chunk.count, chunk.next_offset) == (2, 5, 10)
    assert (chunk.first_timestamp, chunk.max_timestamp) == (5_001, 5_009)
    assert chunk.runs == (SourceRun(1, 2), SourceRun(4, 1), SourceRun(6, 1), SourceRun(9, 1))


class OriginsByProducer:
    """Batches of producer 77 are home, those of 66 and 67 have been there before, and 66 comes from there."""

    def origin_of(self, header: BatchHeader) -> int | None:
        return {77: 0, 66: None, 67: None}.get(header.producer_id, header.producer_id)

    def came_back(self, header: BatchHeader) -> bool:
        return header.producer_id == 66


@pytest.mark.parametrize("deep", [False, True])
def test_batches_of_different_origins_share_no_chunk_and_those_that_come_back_are_dropped(deep: bool) -> None:
    config = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=100, origins=OriginsByProducer(), deep=deep)
    ids = [77, 77, 5, 66, 5, 6]
    answer = b"".join(build(3 * index, producer_id=producer_id) for index, producer_id in enumerate(ids))
    intake = take(answer, config=config)
    origins = dict.fromkeys((chunk.first_offset, chunk.origin) for chunk in intake.chunks)
    assert list(origins) == [(0, 0), (6, 5), (12, 5), (15, 6)]
    assert (intake.position, intake.returned_batches) == (18, 1)


def test_an_answer_of_batches_that_all_come_back_moves_the_position_alone() -> None:
    config = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=1, origins=OriginsByProducer())
    intake = take(build(0, producer_id=66), config=config)
    assert (intake.chunks, intake.position) == ([], 3)


def test_it_is_told_where_what_came_straight_from_the_destination_lies() -> None:
    config = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=1, origins=OriginsByProducer())
    ids = [66, 77, 67, 66, 66]
    answer = b"".join(build(3 * index, producer_id=producer_id) for index, producer_id in enumerate(ids))
    intake = take(answer, position=1, config=config)
    assert (intake.returned, intake.returned_batches) == ([(1, 3), (9, 12), (12, 15)], 4)


class OriginsToFind:
    """Producers below 10 are known."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def origin_of(self, header: BatchHeader) -> int | None:
        if header.producer_id < 10:
            return header.producer_id
        self.asked.append(header.producer_id)
        raise OriginUnknownError

    def came_back(self, header: BatchHeader) -> bool:
        raise NotImplementedError


def test_the_walk_ends_before_a_batch_whose_origin_has_to_be_found_and_all_such_are_asked_for() -> None:
    origins = OriginsToFind()
    config = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=100, origins=origins)
    ids = [1, 1, 11, 2, 12]
    answer = b"".join(build(3 * index, producer_id=producer_id) for index, producer_id in enumerate(ids))
    intake = take(answer, config=config)
    assert [(chunk.first_offset, chunk.next_offset) for chunk in intake.chunks] == [(0, 6)]
    assert (intake.position, intake.awaits_origins, intake.damage) == (6, True, None)
    assert origins.asked == [11, 11, 12]


@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_old_formats_become_batches(magic: int) -> None:
    records = [
        Record(offset, 1_000 + offset, TimestampType.CREATE_TIME, b"key-%d" % offset, b"value", ())
        for offset in range(4)
    ]
    answer = build_message_set(records, magic, Codec.GZIP) + build(4)
    intake = take(answer, position=2)
    assert [record.key for record in records_of(intake.chunks[0])] == [b"key-2", b"key-3"]
    assert read_header(intake.chunks[0].records).codec is Codec.GZIP
    assert [chunk.next_offset for chunk in intake.chunks] == [4, 7]
    assert intake.deep == {DeepReason.LEGACY_FORMAT: 1}


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_that_are_not_compressed_share_batches(magic: int) -> None:
    records = [
        Record(offset, 1_000, TimestampType.CREATE_TIME, b"key-%d" % offset, b"v" * 100, ())
        for offset in range(500)
    ]
    answer = build_message_set(records, magic, Codec.NONE) + build(500)
    intake = take(answer, config=replace(ONE_BY_ONE, built_batch_bytes=30_000))
    assert len(intake.chunks) == 4
    assert all(chunk.size <= 30_000 for chunk in intake.chunks)
    keys = [record.key for chunk in intake.chunks for record in records_of(chunk)]
    assert keys == [b"key-%d" % offset for offset in range(503)]
    assert intake.deep == {DeepReason.LEGACY_FORMAT: 500}


@pytest.mark.parametrize("codec", list(Codec))
def test_entries_of_old_formats_get_the_codec_of_the_route(codec: Codec) -> None:
    records = [Record(0, 1_000, TimestampType.CREATE_TIME, b"key-0", b"value", ())]
    intake = take(build_message_set(records, 1, Codec.GZIP), config=replace(ONE_BY_ONE, codec=codec))
    assert read_header(intake.chunks[0].records).codec is codec


def test_damage_ends_the_walk_and_keeps_what_came_before() -> None:
    damaged = build(3, flags=TIMESTAMP_TYPE_FLAG)
    damaged[-1] ^= 1
    intake = take(build(0) + damaged)
    assert [chunk.next_offset for chunk in intake.chunks] == [3]
    assert intake.position == 3
    assert intake.damage is not None
    assert "CRC" in intake.damage


@given(
    codec=st.sampled_from(list(Codec)),
    count=st.integers(1, 40),
    producer_id=st.integers(0, 2**62),
    epoch=st.integers(0, 2**15 - 1),
    sequence=st.integers(0, 2**31 - 1),
    flags=st.sampled_from([0, TRANSACTIONAL_FLAG]),
    damage=st.booleans(),
    is_transactional=st.booleans(),
)
def test_a_stamp_changes_the_header_alone_and_neither_hides_nor_makes_damage(
    codec: Codec,
    count: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    flags: int,
    damage: bool,
    is_transactional: bool,
) -> None:
    batch = build(40, count, codec=codec, flags=flags)
    before, records = read_header(batch), bytes(batch[61:])
    if damage:
        batch[-1] ^= 0x40
        records = bytes(batch[61:])
    padded = bytearray(b"xyz" + batch + b"tail")
    inner = memoryview(padded)[3:-4]
    first = stamp(inner, producer_id, epoch, sequence, is_transactional)
    again = stamp(inner, producer_id, epoch, sequence, is_transactional)
    after = read_header(padded, 3)
    assert first == (before.crc, after.crc, next_sequence(sequence, count))
    assert again == (after.crc, after.crc, next_sequence(sequence, count))
    assert after == before._replace(
        base_offset=0,
        leader_epoch=-1,
        crc=after.crc,
        attributes=before.attributes & ~TRANSACTIONAL_FLAG | is_transactional * TRANSACTIONAL_FLAG,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    assert padded[64 : 3 + len(batch)] == records
    assert (padded[:3], padded[-4:]) == (b"xyz", b"tail")
    if damage:
        with pytest.raises(Exception, match="CRC of the batch"):
            verify_crc(padded, 3, after)
    else:
        verify_crc(padded, 3, after)


def test_a_stamp_holds_for_batches_of_several_mebibytes() -> None:
    builder = BatchBuilder(Codec.NONE, size_max=8 << 20)
    builder.append(1, None, bytes(3 << 20))
    batch = builder.build()
    stamp(batch, 5, 6, 7)
    verify_crc(batch, 0, read_header(batch))


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=6), sequence=st.integers(2**31 - 9, 2**31 - 1))
def test_batches_that_travel_together_take_sequences_one_behind_the_other(
    counts: list[int], sequence: int
) -> None:
    batches, offset = bytearray(), 0
    for count in counts:
        batches += build(offset, count)
        offset += count
    crcs = sum(header.crc for _, header in iterate_batches(batches))
    stamped = stamp(batches, 5, 6, sequence)
    for (position, header), count in zip(iterate_batches(batches), counts, strict=True):
        verify_crc(batches, position, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, sequence)
        sequence = next_sequence(sequence, count)
    after = sum(header.crc for _, header in iterate_batches(batches))
    assert stamped == (crcs, after, sequence)
