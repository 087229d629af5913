from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.batch import HEADER_SIZE, Codec, read_header, rebase, verify_crc
from broker.records.builder import BatchBuilder, recompress
from broker.records.compression import decompress
from broker.records.plain_builder import PlainBuilder
from broker.records.reader import read_columns
from broker.records.record import TIMESTAMP_MAX, name_bytes, parse_records
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


@given(SAMPLES, CODECS)
def test_what_is_built_is_read_back(samples: list[Sample], codec: Codec) -> None:
    batch = build(samples, codec)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.size == len(batch)
    assert header.base_timestamp == samples[0].timestamp
    assert header.max_timestamp == max(sample.timestamp for sample in samples)
    records = read(batch)
    assert as_samples(records) == samples
    assert [record.offset for record in records] == list(range(len(samples)))
    assert {record.timestamp_type for record in records} == {0}


@given(SAMPLES, CODECS, st.integers(0, 400))
def test_the_plain_builder_makes_what_the_compiled_one_does(
    samples: list[Sample], codec: Codec, size_max: int
) -> None:
    builders = BatchBuilder(codec, size_max=size_max), PlainBuilder(codec, size_max=size_max)
    taken = [[builder.append(*sample) for sample in samples] for builder in builders]
    assert taken[0] == taken[1]
    compiled, plain = (builder.build() for builder in builders)
    assert plain[HEADER_SIZE:] == compiled[HEADER_SIZE:]
    assert read_header(plain) == read_header(compiled)


@given(st.lists(st.binary(max_size=6), min_size=1), CODECS)
def test_names_of_headers_are_any_bytes_where_exact_ones_are_asked_for(
    names: list[bytes], codec: Codec
) -> None:
    builder = PlainBuilder(codec, size_max=SIZE_MAX)
    for name in names:
        assert builder.append(NOW_MS, None, b"", [(name.decode("utf-8", "surrogateescape"), name)])
    batch = builder.build()
    header = read_header(batch)
    verify_crc(batch, 0, header)
    columns = read_columns(batch, header, size_max=SIZE_MAX, exact_names=True)
    assert [name_bytes(told) for ((told, _),) in columns.headers] == names
    assert [value for ((_, value),) in columns.headers] == names


FAR_APART = st.lists(
    st.sampled_from([-1, 0, 5, TIMESTAMP_MAX, TIMESTAMP_MAX - 1, -TIMESTAMP_MAX - 1]), min_size=1, max_size=6
)


@given(FAR_APART, CODECS)
@example([-1, TIMESTAMP_MAX], Codec.NONE)
@example([-2, TIMESTAMP_MAX], Codec.NONE)
def test_records_keep_their_timestamps_however_far_apart_these_are(times: list[int], codec: Codec) -> None:
    builder = BatchBuilder(codec, size_max=SIZE_MAX)
    assert all(builder.append(timestamp, b"key", b"value") for timestamp in times)
    batch = builder.build()
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))
    assert [record.timestamp for record in read(batch)] == times
    content = decompress(codec, batch[HEADER_SIZE:], size_max=SIZE_MAX)
    assert [record.timestamp for record in parse_records(content, header)] == times


def test_a_record_that_no_longer_fits_has_no_part_in_the_latest_time() -> None:
    builder = BatchBuilder(size_max=100)
    assert builder.append(-1, None, b"")
    assert not builder.append(TIMESTAMP_MAX, None, bytes(100))
    assert read_header(builder.build()).max_timestamp == -1


def test_a_builder_is_full_at_its_bound_and_not_before() -> None:
    whole = build(PLAIN_SAMPLES)
    builder = BatchBuilder(size_max=len(whole))
    assert [builder.append(*sample) for sample in PLAIN_SAMPLES] == [True] * 5
    assert (builder.size, builder.count) == (len(whole), 5)
    assert not builder.append(NOW_MS, None, None)
    assert (builder.size, builder.count) == (len(whole), 5)
    assert builder.build() == whole

    tight = BatchBuilder(size_max=len(whole) - 1)
    assert [tight.append(*sample) for sample in PLAIN_SAMPLES] == [True] * 4 + [False]


def test_the_first_record_fits_whatever_its_size() -> None:
    builder = BatchBuilder(size_max=100)
    assert builder.append(NOW_MS, None, bytes(1000))
    assert not builder.append(NOW_MS, None, b"")
    assert [record.value for record in read(builder.build())] == [bytes(1000)]


def test_an_empty_builder_builds_nothing() -> None:
    builder = BatchBuilder(size_max=100)
    assert (builder.size, builder.count) == (HEADER_SIZE, 0)
    with pytest.raises(ValueError, match="needs a record"):
        builder.build()


def test_a_builder_is_used_once() -> None:
    builder = BatchBuilder(size_max=100)
    builder.append(NOW_MS, None, b"")
    batch = builder.build()
    snapshot = bytes(batch)
    with pytest.raises(ValueError, match="already built"):
        builder.append(NOW_MS, None, b"")
    with pytest.raises(ValueError, match="already built"):
        builder.build()
    assert batch == snapshot


def test_what_is_no_record_leaves_the_batch_as_it_was() -> None:
    builder = BatchBuilder(size_max=1000)
    builder.append(NOW_MS, None, b"kept")
    with pytest.raises(TypeError):
        builder.append(NOW_MS, "text", b"")
    with pytest.raises(UnicodeEncodeError):
        builder.append(NOW_MS, None, b"", [("\ud800", b"")])
    assert [record.value for record in read(builder.build())] == [b"kept"]


def test_keys_and_values_may_be_any_buffer() -> None:
    builder = BatchBuilder(size_max=1000)
    builder.append(NOW_MS, memoryview(b"key"), bytearray(b"value"), (header for header in [("a", b"b")]))
    (record,) = read(builder.build())
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("a", b"b"),))


@pytest.mark.parametrize("timestamps", [[-1, -1], [-1, 5], [-1, NOW_MS, -1], [5, -1], [0, -1, 0]])
def test_records_without_a_timestamp_do_not_take_anothers(timestamps: list[int]) -> None:
    batch = build([Sample(timestamp, None, b"", []) for timestamp in timestamps])
    assert [record.timestamp for record in read(batch)] == timestamps
    assert read_header(batch).max_timestamp == max(timestamps)
    verify_crc(batch, 0, read_header(batch))


@given(SAMPLES, CODECS, CODECS)
def test_recompression_changes_the_codec_alone(samples: list[Sample], before: Codec, after: Codec) -> None:
    batch = build(samples, before, producer_id=1, producer_epoch=2, base_sequence=3)
    rebase(batch, 0, 1000, 9)
    changed = recompress(batch, read_header(batch), after, size_max=SIZE_MAX)
    header = read_header(changed)
    verify_crc(changed, 0, header)
    assert header.codec is after
    untouched = {"attributes": 0, "batch_length": 0, "crc": 0}
    assert header._replace(**untouched) == read_header(batch)._replace(**untouched)
    assert read(changed) == read(batch)


def test_recompression_is_bounded() -> None:
    batch = build([Sample(NOW_MS, None, bytes(10_000), [])], Codec.ZSTD)
    with pytest.raises(CorruptRecordsError):
        recompress(batch, read_header(batch), Codec.NONE, size_max=9_000)
