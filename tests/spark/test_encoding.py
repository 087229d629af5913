"""Rows of Arrow as batches of Kafka's format."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from broker.client.partitioner import murmur2
from broker.errors import ConfigurationError
from broker.records.batch import Codec, read_header, verify_crc
from broker.records.reader import read_records
from broker.types import TopicPartition
from mirrormaker.spark.key_hashes import choose_partitions
from mirrormaker.spark.row_encoder import BatchTerms, Rows, encode_rows, encode_within
from mirrormaker.spark.sink_options import SinkDelivery, WriteId, parse_sink_options
from mirrormaker.spark.sink_rows import RowError, check_columns, target_rows, with_usual_types
from mirrormaker.spark.varints import NumberBuffer, pack_numbers

NOW_MS = 1_760_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}

texts = st.one_of(st.none(), st.binary(max_size=9), st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 9000]))
headers = st.one_of(
    st.none(),
    st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=70))), max_size=3),
)
row = st.tuples(texts, texts, st.one_of(st.just(-1), st.integers(0, 1 << 41)), headers)


@given(st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1, max_size=50))
def test_numbers_are_read_as_they_were_packed(numbers: list[int]) -> None:
    data, bounds = pack_numbers([np.array(numbers, np.int64)])
    found, after = NumberBuffer(bytes(data) + b"\0").read(bounds[:-1])
    assert found.tolist() == numbers
    assert after.tolist() == bounds[1:].tolist()


@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(1, 100))
def test_keys_go_where_every_other_client_sends_them(keys: list[bytes], count: int) -> None:
    chosen = choose_partitions(pa.array([b"before", *keys], pa.binary())[1:], count)
    assert chosen.tolist() == [(murmur2(key) & 0x7FFFFFFF) % count for key in keys]


@given(
    rows=st.lists(st.tuples(row, st.integers(0, 2)), min_size=1, max_size=30),
    codec=st.sampled_from(Codec),
    bytes_max=st.sampled_from([0, 1, 200, 1 << 20]),
    has_headers=st.booleans(),
)
def test_batches_hold_the_rows_of_their_target_in_order(
    rows: list[tuple[tuple[Any, ...], int]], codec: Codec, bytes_max: int, has_headers: bool
) -> None:
    rows = sorted(rows, key=lambda each: each[1])
    columns = Rows(
        keys=pa.array([each[0] for each, _ in rows], pa.binary()),
        values=pa.array([each[1] for each, _ in rows], pa.binary()),
        timestamps=np.array([each[2] for each, _ in rows], np.int64),
        headers=pa.array(
            [each[3] and [{"key": key, "value": value} for key, value in each[3]] for each, _ in rows],
            HEADERS,
        )
        if has_headers
        else None,
    )
    targets = np.array([target for _, target in rows], np.int64)
    written = defaultdict(list)
    for target, batch in encode_rows(columns, targets, BatchTerms(codec=codec, bytes_max=bytes_max)):
        header = read_header(batch)
        verify_crc(batch, 0, header)
        records = read_records(batch, header, size_max=1 << 24)
        assert header.record_count == len(records) == header.last_offset + 1
        assert header.max_timestamp == max(record.timestamp for record in records)
        written[target] += [
            (record.key, record.value, record.timestamp, list(record.headers)) for record in records
        ]
    expected = defaultdict(list)
    for (key, value, timestamp, row_headers), target in rows:
        expected[target].append((key, value, timestamp, list(row_headers or ()) if has_headers else []))
    assert written == expected


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_batches_that_grow_by_compression_have_fewer_rows(codec: Codec) -> None:
    noise = np.random.default_rng(7).bytes(4 * 1000)
    rows = Rows(
        keys=pa.nulls(8, pa.binary()),
        values=pa.array([noise[start : start + 1000] for start in range(0, 4000, 1000)] * 2, pa.binary()),
        timestamps=np.full(8, NOW_MS),
    )
    plain = BatchTerms(codec=Codec.NONE, bytes_max=1 << 20)
    targets = np.repeat([0, 1], 4)
    (_, whole), _ = encode_rows(rows, targets, plain)
    limits = [len(whole), 1 << 20]
    batches = list(encode_within(rows, targets, replace(plain, codec=codec), limits.__getitem__))
    read = [(target, read_records(batch, read_header(batch), size_max=1 << 24)) for target, batch in batches]
    assert [target for target, _ in read] == [0, 0, 1]
    assert all(len(batch) <= limits[target] for target, batch in batches)
    values = [bytes(record.value or b"") for _, records in read for record in records]
    assert values == rows.values.to_pylist()
    least = encode_within(rows, targets, replace(plain, codec=codec), lambda target: 1)
    assert len(list(least)) == 8


def batch_of(**columns: pa.Array[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_row_goes_where_its_column_or_else_its_key_says() -> None:
    batch = batch_of(
        value=pa.array(["a", "b", "c", "d"]),
        key=pa.array([b"k", None, b"k", b"l"]),
        topic=pa.array(["t", "t", "u", "t"]),
        partition=pa.array([None, 2, 0, None], pa.int32()),
        offset=pa.array([1, 2, 3, 4]),
    )
    found = target_rows(batch, None, lambda topic: 3, now_ms=NOW_MS, include_headers=True)
    by_target: dict[TopicPartition, set[bytes]] = defaultdict(set)
    for target, value in zip(found.targets.tolist(), found.rows.values.to_pylist(), strict=True):
        by_target[found.partitions[target]].add(value)
    of_k, of_l = ((murmur2(key) & 0x7FFFFFFF) % 3 for key in (b"k", b"l"))
    expected: dict[TopicPartition, set[bytes]] = defaultdict(set)
    for topic, partition, value in (("t", of_k, b"a"), ("t", 2, b"b"), ("u", 0, b"c"), ("t", of_l, b"d")):
        expected[TopicPartition(topic, partition)].add(value)
    assert by_target == expected
    assert set(found.rows.timestamps.tolist()) == {NOW_MS}


def test_types_of_more_than_two_gibibytes_are_written_as_the_usual_ones() -> None:
    header = {"key": "k", "value": b"v"}
    usual = batch_of(
        key=pa.array([b"k", None]),
        value=pa.array(["a", None]),
        topic=pa.array(["t", "u"]),
        headers=pa.array([[header], None], HEADERS),
    )
    large = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    batch = batch_of(
        key=usual["key"].cast(pa.large_binary()),
        value=usual["value"].cast(pa.large_string()),
        topic=usual["topic"].cast(pa.large_string()),
        headers=usual["headers"].cast(large),
        other=pa.array([1, 2]),
    )
    assert with_usual_types(batch).equals(usual)
    assert with_usual_types(usual) == usual


def test_rows_that_can_go_nowhere_are_errors() -> None:
    asked = batch_of(value=pa.array(["a"]), partition=pa.array([3], pa.int32()))
    with pytest.raises(RowError, match="partition 3 of t, which has 3"):
        target_rows(asked, "t", lambda topic: 3, now_ms=NOW_MS, include_headers=True)
    nowhere = batch_of(value=pa.array(["a"]), topic=pa.array([None], pa.string()))
    with pytest.raises(RowError, match="a row has no topic"):
        target_rows(nowhere, None, lambda topic: 3, now_ms=NOW_MS, include_headers=True)


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_headers_without_a_key_are_errors_unless_nobody_writes_them(header: dict[str, Any] | None) -> None:
    keyed = {"key": "k", "value": None}
    headers = pa.array([None, [], [keyed], [keyed, header]], HEADERS)
    batch = batch_of(value=pa.array(["a", "b", "c", "d"]), headers=headers)
    with pytest.raises(RowError, match="a header without a key"):
        target_rows(batch, "t", lambda topic: 3, now_ms=NOW_MS, include_headers=True)
    for fine, include_headers in ((batch[:3], True), (batch, False)):
        found = target_rows(fine, "t", lambda topic: 3, now_ms=NOW_MS, include_headers=include_headers)
        assert len(found.targets) == fine.num_rows


def test_columns_that_cannot_be_written_are_told_all_at_once() -> None:
    schema = StructType().add("key", IntegerType()).add("partition", StringType())
    with pytest.raises(ConfigurationError) as caught:
        check_columns(schema, None)
    assert caught.value.problems == [
        "column key is int, not binary or string",
        "column partition is string, not int",
        "there is no column value: key, partition",
        "neither an option nor a column says which topic to write to",
    ]
    header = StructType().add("key", StringType()).add("value", BinaryType())
    check_columns(StructType().add("value", StringType()).add("headers", ArrayType(header)), "t")


def test_columns_are_passed_over_that_nobody_asks() -> None:
    columns = (
        StructType().add("value", StringType()).add("topic", IntegerType()).add("timestamp", StringType())
    )
    check_columns(columns, "t")
    with pytest.raises(ConfigurationError, match="column topic is int, not string"):
        check_columns(columns, None)
    time = pa.array([1_000_000], pa.timestamp("us", tz="UTC"))
    for passed_over in (pa.array(["noon"]), time.cast(pa.timestamp("us")), pa.array([1])):
        batch = with_usual_types(batch_of(value=pa.array(["a"]), timestamp=passed_over))
        assert batch.schema.names == ["value"]
    batch = with_usual_types(batch_of(value=pa.array(["a"]), timestamp=time, topic=pa.array([7])))
    found = target_rows(batch, "t", lambda topic: 3, now_ms=NOW_MS, include_headers=True)
    assert found.rows.timestamps.tolist() == [1000]
    assert [each.topic for each in found.partitions] == ["t"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("topik", "t", "unknown, did you mean topic"),
        ("subscribe", "t", "is for reading: a view on topics cannot be written"),
        ("delivery", "twice", "none of at_least_once, exactly_once"),
        ("transactionalIdPrefix", "a", "no effect without delivery=exactly_once"),
        ("kafka.acks", "2", "none of all, -1, 1, 0"),
        ("kafka.compression.type", "rar", "none of none, gzip, snappy, lz4, zstd"),
        ("kafka.compression.zstd.level", "3", "no effect with compression.type none"),
        ("kafka.value.serializer", "X", "functions of Spark"),
        ("kafka.transactional.id", "X", "delivery=exactly_once"),
    ],
)
def test_a_bad_option_of_writing_is_named(option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        parse_sink_options({**SERVERS, option: value})
    (problem,) = failure.value.problems
    assert option.lower() in problem.lower()
    assert message in problem


def test_options_of_writing_are_those_of_the_producer() -> None:
    options = parse_sink_options(
        {
            **SERVERS,
            "topic": "t",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "7",
            "kafka.batch.size": "1000",
        }
    )
    assert parse_sink_options({**SERVERS, "kafka.batch.size": "0"}).batches.bytes_max == 0
    assert (options.producer.acks, options.producer.idempotent) == (1, False)
    assert options.batches == BatchTerms(codec=Codec.ZSTD, level=7, bytes_max=1000)
    assert options.delivery is SinkDelivery.AT_LEAST_ONCE
    with pytest.raises(ConfigurationError, match="idempotent"):
        parse_sink_options({**SERVERS, "kafka.acks": "1", "delivery": "exactly_once"})


def test_what_spark_hands_over_of_a_query_is_for_spark() -> None:
    options = parse_sink_options({**SERVERS, "queryname": "delays", "checkpointlocation": "state"})
    assert options == parse_sink_options(SERVERS)


def test_a_write_is_known_by_both_its_options() -> None:
    exactly = {**SERVERS, "delivery": "exactly_once"}
    assert parse_sink_options({**exactly, "txnAppId": "a", "txnVersion": "7"}).write_id == WriteId(
        app="a", version=7
    )
    with pytest.raises(ConfigurationError, match="one has no effect without the other"):
        parse_sink_options({**exactly, "txnAppId": "a"})
    with pytest.raises(ConfigurationError, match="without delivery=exactly_once"):
        parse_sink_options({**SERVERS, "txnAppId": "a", "txnVersion": "7"})
