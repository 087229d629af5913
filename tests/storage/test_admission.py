"""What topics ask of produced records, and what they make of them."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from broker.errors import ErrorCode, ExpansionError, ProtocolError
from broker.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TIMESTAMP_TYPE_FLAG,
    Codec,
    iterate_batches,
    read_header,
    write_header,
)
from broker.records.builder import BatchBuilder
from broker.records.compression import compress
from broker.records.message_set import build_message_set
from broker.records.reader import read_all
from broker.records.record import Record, TimestampType
from broker.records.validation import InvalidRecordsError
from broker.storage.admission import Opening, Reason, Rules, admit, opened_at_once
from broker.storage.log_config import LogConfig

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
NEWEST = 11
SETTINGS = LogConfig(max_message_bytes=1 << 20)


def batch_of(*records: tuple[int, bytes | None, bytes], codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec, size_max=1 << 24)
    for timestamp, key, value in records:
        builder.append(timestamp, key, value)
    return builder.build()


def admitted(records: bytes | bytearray, *, version: int = NEWEST, **settings: str) -> bytes:
    """What is appended in the end."""
    config = SETTINGS.overridden({name.replace("_", "."): value for name, value in settings.items()})
    result = admit(records, Rules.of(config), version=version, now_ms=NOW_MS)
    return bytes(result.run() if isinstance(result, Opening) else result)


def values(batches: bytes) -> list[bytes | None]:
    return [record.value for record in read_all(batches, size_max=1 << 26)]


@pytest.mark.parametrize("codec", Codec)
def test_batches_stay_closed_without_a_reason_to_open_them(codec: Codec) -> None:
    batch = batch_of((NOW_MS, None, b"v"), codec=codec)
    result = admit(memoryview(batch), Rules.of(SETTINGS), version=NEWEST, now_ms=NOW_MS)
    assert isinstance(result, memoryview)
    assert result.obj is batch


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", Codec)
def test_batches_get_the_codec_of_their_topic(sent: Codec, wanted: str) -> None:
    codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    batch = batch_of((NOW_MS, b"k", b"v" * 1000), (NOW_MS + 1, None, b"w"), codec=sent)
    stored = admitted(batch * 2, compression_type=wanted)
    assert [header.codec for _, header in iterate_batches(stored)] == [codec, codec]
    assert values(stored) == [b"v" * 1000, b"w"] * 2
    if sent is codec:
        assert stored == bytes(batch * 2)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "1", "17"), ("zstd", "-5", "19")]
)
def test_levels_are_those_of_the_topic(codec: str, low: str, high: str) -> None:
    text = b" ".join(b"%d" % (number * number % 977) for number in range(20_000))
    batch = batch_of((NOW_MS, None, text))
    quick, small = (
        admitted(batch, **{"compression_type": codec, f"compression_{codec}_level": level})
        for level in (low, high)
    )
    assert len(small) < len(quick)
    assert values(small) == values(quick) == [text]


def test_records_outside_the_bounds_of_time_are_named() -> None:
    times = [NOW_MS, NOW_MS - DAY_MS, NOW_MS + 2 * DAY_MS, -1]
    batch = batch_of(*((time, None, b"v") for time in times), codec=Codec.ZSTD)
    bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": str(DAY_MS)}
    with pytest.raises(InvalidRecordsError) as refusal:
        admitted(batch, **bounds)
    assert refusal.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [problem.batch_index for problem in refusal.value.problems] == [1, 2]
    assert admitted(batch, message_timestamp_type="LogAppendTime", **bounds) == batch


def test_the_old_bound_holds_where_the_newer_ones_are_not_given() -> None:
    late, early = batch_of((NOW_MS - 2000, None, b"v")), batch_of((NOW_MS + 2000, None, b"v"))
    for batch in (late, early):
        with pytest.raises(InvalidRecordsError):
            admitted(batch, message_timestamp_difference_max_ms="1000")
    bounds = {"message_timestamp_difference_max_ms": "1000", "message_timestamp_before_max_ms": "3000"}
    assert admitted(late, **bounds) == late
    with pytest.raises(InvalidRecordsError):
        admitted(early, **bounds)


def test_what_a_topic_does_not_take_is_not_opened() -> None:
    batch = batch_of((NOW_MS, None, b"v" * 5000))
    with pytest.raises(ProtocolError) as refusal:
        admitted(batch, compression_type="gzip", max_message_bytes="4000")
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_producer_does_not_say_that_its_times_are_those_of_the_append() -> None:
    batch = batch_of((NOW_MS - 7, None, b"a"), (NOW_MS, None, b"b"))
    header = read_header(batch)
    write_header(batch, 0, header._replace(attributes=TIMESTAMP_TYPE_FLAG))
    stored = admitted(batch)
    assert not read_header(stored).is_log_append_time
    assert [record.timestamp for record in read_all(stored, size_max=1000)] == [NOW_MS - 7, NOW_MS]


def test_zstd_is_refused_wherever_it_stands_to_versions_that_do_not_know_it() -> None:
    plain, other = batch_of((NOW_MS, None, b"v")), batch_of((NOW_MS, None, b"v"), codec=Codec.ZSTD)
    for records in (other, plain + other):
        with pytest.raises(ProtocolError) as refusal:
            admitted(records, version=6)
        assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert admitted(records, version=7) == records


# Old producers


def old_set(*records: tuple[int, bytes | None, bytes], magic: int, codec: Codec = Codec.NONE) -> bytes:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    listed = [Record(offset, time, kind, key, value, ()) for offset, (time, key, value) in enumerate(records)]
    return build_message_set(listed, magic, codec)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_sets_become_batches_with_their_codec_or_that_of_the_topic(magic: int, codec: Codec) -> None:
    records = [(NOW_MS + index, b"k%d" % index, b"v%d" % index) for index in range(50)]
    message_set = old_set(*records, magic=magic, codec=codec)
    for settings, expected in (({}, codec), ({"compression_type": "zstd"}, Codec.ZSTD)):
        stored = admitted(message_set, version=2 if magic else 1, **settings)
        assert {header.codec for _, header in iterate_batches(stored)} == {expected}
        assert [
            (record.timestamp, record.key, record.value) for record in read_all(stored, size_max=1 << 20)
        ] == [(time if magic else -1, key, value) for time, key, value in records]


def test_old_sets_are_cut_into_batches_that_their_topic_takes() -> None:
    message_set = old_set(*((NOW_MS, None, b"v" * 900) for _ in range(10)), magic=1)
    stored = admitted(message_set, version=2, max_message_bytes="2000")
    sizes = [header.size for _, header in iterate_batches(stored)]
    assert len(sizes) == 5
    assert max(sizes) <= 2000
    with pytest.raises(ProtocolError) as refusal:
        admitted(message_set, version=2, max_message_bytes="900")
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_old_records_obey_the_rules_of_their_topic() -> None:
    message_set = old_set((NOW_MS, b"k", b"v"), (NOW_MS - DAY_MS, None, b"v"), magic=1, codec=Codec.GZIP)
    for settings, code in (
        ({"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),
        ({"message_timestamp_before_max_ms": "5"}, ErrorCode.INVALID_TIMESTAMP),
    ):
        with pytest.raises(InvalidRecordsError) as refusal:
            admitted(message_set, version=2, **settings)
        assert refusal.value.code is code
        assert [problem.batch_index for problem in refusal.value.problems] == [1]


# Bounds


def bomb(codec: Codec, size: int) -> bytearray:
    """A batch whose records section unpacks to `size` zeros."""
    if codec is Codec.GZIP:
        compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
        piece = bytes(1 << 20)
        content = b"".join(compressor.compress(piece) for _ in range(size >> 20)) + compressor.flush()
    elif codec is Codec.NONE:
        content = bytes(size)
    else:
        content = compress(codec, bytes(size))
    batch = batch_of((NOW_MS, b"k", b"v"))
    header = read_header(batch)
    batch = batch[:HEADER_SIZE] + content
    write_header(batch, 0, header._replace(attributes=codec, batch_length=len(batch) - LENGTH_OVERHEAD))
    return batch


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_bomb_takes_no_more_memory_than_its_bound(codec: Codec) -> None:
    batch = bomb(codec, 256 << 20)
    rules = Rules.of(LogConfig(compression_type="uncompressed", max_message_bytes=len(batch)))
    opening = admit(batch, rules, version=NEWEST, now_ms=NOW_MS)
    assert isinstance(opening, Opening)
    bound = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ExpansionError):
            opening.run(uncompressed_max=bound)
        assert tracemalloc.get_traced_memory()[1] < 4 * bound + 2 * len(batch)
    finally:
        tracemalloc.stop()


def test_what_is_large_is_left_to_a_thread_and_what_was_opened_is_counted() -> None:
    rules = Rules.of(LogConfig(compression_type="zstd", cleanup_policy=frozenset({"compact"})))
    small = admit(batch_of((NOW_MS, b"k", b"v")), rules, version=NEWEST, now_ms=NOW_MS)
    large = admit(
        batch_of((NOW_MS, b"k", bytes(1 << 17)), codec=Codec.GZIP), rules, version=NEWEST, now_ms=NOW_MS
    )
    assert isinstance(small, Opening)
    assert isinstance(large, Opening)
    assert opened_at_once(small) is not None
    assert small.reasons == {Reason.KEYS: 1, Reason.CODEC: 1}
    assert opened_at_once(large) is None
    assert values(bytes(large.run())) == [bytes(1 << 17)]
    assert large.reasons == {Reason.KEYS: 1, Reason.CODEC: 1}
