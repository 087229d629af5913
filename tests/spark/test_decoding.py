"""Answers to fetches as Arrow record batches, beside what the record parser makes of the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.client.aborted import AbortedTransaction
from broker.client.fetch import FetchedBatches
from broker.errors import CorruptRecordsError
from broker.records.batch import HEADER_SIZE, Codec, read_header, rebase, write_header
from broker.records.builder import BatchBuilder
from broker.records.control import Marker, MarkerType, build_marker
from broker.records.reader import read_all
from broker.records.record import Header
from broker.types import TopicPartition
from mirrormaker.spark.answer_decoder import DecodingTerms, decode_answer
from mirrormaker.spark.arrow import arrow_schema
from mirrormaker.spark.offsets import ANY_TIME, OffsetRange, TimeRange

PARTITION = TopicPartition("flights", 3)
Row = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp, key, value and headers."""

sizes = st.one_of(st.integers(0, 5), st.integers(50, 70), st.integers(8180, 8200))
contents = st.one_of(st.none(), sizes.map(lambda size: b"x" * size))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)
timestamps = st.one_of(st.integers(-1, 200), st.integers(1 << 40, 1 << 41))
rows = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=12)


def batch_of(
    rows: Sequence[Row], base_offset: int = 0, codec: Codec = Codec.NONE, **builder: Any
) -> bytearray:
    batch = BatchBuilder(codec, size_max=1 << 24, **builder)
    for timestamp, key, value, row_headers in rows:
        assert batch.append(timestamp, key, value, row_headers)
    built = batch.build()
    rebase(built, 0, base_offset, 0)
    return built


def answer(
    batches: Sequence[bytes | bytearray], aborted: tuple[AbortedTransaction, ...] = ()
) -> FetchedBatches:
    return FetchedBatches(
        topic_partition=PARTITION,
        records=memoryview(bytearray(b"".join(batches))),
        start_offset=0,
        next_offset=0,
        leader_epoch=0,
        high_watermark=0,
        aborted=aborted,
    )


def decode(
    fetched: FetchedBatches,
    start: int = 0,
    end: int = 1 << 40,
    *,
    times: TimeRange = ANY_TIME,
    committed_only: bool = False,
) -> list[dict[str, Any]]:
    return decoded_table(fetched, start, end, times=times, committed_only=committed_only).to_pylist()


def decoded_table(
    fetched: FetchedBatches,
    start: int = 0,
    end: int = 1 << 40,
    *,
    times: TimeRange = ANY_TIME,
    committed_only: bool = False,
) -> pa.Table:
    terms = DecodingTerms(
        wanted=OffsetRange(partition=PARTITION, start=start, end=end),
        times=times,
        committed_only=committed_only,
        check_crcs=True,
        include_headers=True,
    )
    batches = list(decode_answer(fetched, terms))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(include_headers=True)
    return pa.Table.from_batches(batches, arrow_schema(include_headers=True))


def expected(fetched: FetchedBatches, start: int = 0, end: int = 1 << 40) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": record.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in read_all(fetched.records, size_max=1 << 24)
        if start <= record.offset < end
    ]


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Timestamps as microseconds: those of years that Python cannot name, too."""
    moments = pa.array([row["timestamp"] for row in found], pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return [{**row, "timestamp": moment} for row, moment in zip(found, moments.to_pylist(), strict=True)]


def test_a_time_beyond_those_of_spark_is_the_last_of_them() -> None:
    last = ((1 << 63) - 1) // 1000
    batch = batch_of([(last, None, None, ()), (last + 1, None, None, ()), ((1 << 63) - 1, None, None, ())])
    found = decoded_table(answer([batch])).column("timestamp").cast(pa.int64())
    assert found.to_pylist() == [last * 1000] * 3


@given(batches=st.lists(rows, min_size=1, max_size=24), codec=st.sampled_from(Codec), data=st.data())
def test_what_is_decoded_is_what_the_parser_reads(
    batches: list[list[Row]], codec: Codec, data: st.DataObject
) -> None:
    built, offset = [], 0
    for each in batches:
        built.append(batch_of(each, offset, codec))
        offset += len(each) + 3
    fetched = answer(built)
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset))
    assert plain(decode(fetched)) == expected(fetched)
    assert plain(decode(fetched, start, end)) == expected(fetched, start, end)
    moments = st.one_of(st.none(), st.sampled_from([row[0] for each in batches for row in each]))
    times = TimeRange(start=data.draw(moments), end=data.draw(moments))
    assert plain(decode(fetched, times=times)) == [
        row for row in expected(fetched) if times.has(row["timestamp"] // 1000)
    ]


def test_times_of_appending_are_those_of_the_batch() -> None:
    batch = batch_of([(1000, None, b"a", ()), (2000, None, b"b", ())])
    header = read_header(batch)
    write_header(batch, 0, header._replace(attributes=header.attributes | 0x08, max_timestamp=7777))
    found = decode(answer([batch]))
    assert plain(found) == expected(answer([batch]))
    assert {row["timestampType"] for row in found} == {1}
    assert len(decode(answer([batch]), times=TimeRange(start=7777, end=7778))) == 2
    assert not decode(answer([batch]), times=TimeRange(end=7777))
    assert not decode(answer([batch]), times=TimeRange(start=7778))


def test_records_of_aborted_transactions_and_markers_are_left_out_where_committed_ones_are_wanted() -> None:
    producing = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    given_up = batch_of([(0, None, b"given up", ())], 0, **producing)
    marker = build_marker(
        Marker(type=MarkerType.ABORT, coordinator_epoch=0), producer_id=7, producer_epoch=0, timestamp_ms=0
    )
    rebase(marker, 0, 1, 0)
    kept = batch_of([(0, None, b"kept", ())], 2, **producing)
    fetched = answer([given_up, marker, kept], (AbortedTransaction(7, 0),))
    assert [row["value"] for row in decode(fetched, committed_only=True)] == [b"kept"]
    assert [row["value"] for row in decode(fetched)] == [b"given up", b"kept"]


def test_header_keys_that_are_no_text_are_read_as_by_the_parser() -> None:
    batch = batch_of([(0, None, b"a", (("key", b"value"),)), (0, None, b"b", ())])
    position = batch.index(b"key")
    batch[position] = 0xFF
    header = read_header(batch)
    write_header(batch, 0, header)
    fetched = answer([batch])
    assert plain(decode(fetched)) == expected(fetched)
    assert decode(fetched)[0]["headers"][0]["key"] == "\ufffdey"


@example(rows=[(0, b"", None, [("", b"")])], position=1, byte=0x80, many=False)
@given(rows=rows, position=st.integers(0, 400), byte=st.integers(0, 255), many=st.booleans())
def test_bytes_that_make_no_sense_are_an_error_or_records_and_never_anything_else(
    rows: list[Row], position: int, byte: int, many: bool
) -> None:
    """Their checksums hold, so that nothing but the decoder looks."""
    bad = batch_of(rows)
    bad[HEADER_SIZE + position % (len(bad) - HEADER_SIZE)] = byte
    write_header(bad, 0, read_header(bad))
    fetched = answer([bad] * (20 if many else 1))
    try:
        reference = expected(fetched)
    except CorruptRecordsError:
        with pytest.raises(CorruptRecordsError):
            decode(fetched)
    else:
        assert plain(decode(fetched)) == reference


def test_a_batch_that_lies_about_its_count_is_refused() -> None:
    batch = batch_of([(0, None, b"a", ())])
    write_header(batch, 0, read_header(batch)._replace(record_count=1 << 30, last_offset_delta=(1 << 30) - 1))
    with pytest.raises(CorruptRecordsError):
        decode(answer([batch] * 20))
