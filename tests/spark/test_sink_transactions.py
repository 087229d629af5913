"""When the rows of a task that is tried again are those that it has written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.group_offsets import OffsetAndMetadata
from broker.types import TopicPartition
from mirrormaker.spark import sink_transactions
from mirrormaker.spark.fingerprint import Fingerprint
from mirrormaker.spark.sink_options import parse_sink_options
from mirrormaker.spark.sink_transactions import ChangedRowsError, TaskIdentity, write_once

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
ROW: dict[str, Any] = {
    "topic": "t",
    "partition": None,
    "key": b"k",
    "value": b"v",
    "headers": [{"key": "h", "value": b"x"}],
}
data = st.one_of(st.none(), st.binary(max_size=2))
row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t", "u"]),
        "partition": st.one_of(st.none(), st.integers(0, 3)),
        "key": data,
        "value": data,
        "headers": st.one_of(
            st.none(),
            st.lists(st.fixed_dictionaries({"key": st.text("ab", max_size=2), "value": data}), max_size=2),
        ),
    }
)


def told(*batches: Sequence[dict[str, Any]]) -> str:
    fingerprint = Fingerprint()
    for _ in fingerprint.passing(pa.RecordBatch.from_pylist(list(each), SCHEMA) for each in batches):
        pass
    return str(fingerprint)


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "u"},
        {"partition": 0},
        {"key": b"l"},
        {"key": None},
        {"key": b""},
        {"value": b"w"},
        {"headers": None},
        {"headers": [{"key": "i", "value": b"x"}]},
        {"headers": [{"key": "h", "value": None}]},
        {"headers": ROW["headers"] * 2},
    ],
    ids=str,
)
def test_rows_are_others_where_any_of_their_columns_is(changed: dict[str, Any]) -> None:
    assert told([ROW, ROW]) != told([ROW, ROW | changed]) != told([ROW | changed, ROW])


def test_bytes_that_moved_from_a_row_to_another_are_other_rows() -> None:
    rows = [
        [ROW | {"value": first}, ROW | {"value": second}] for first, second in ((b"ab", b"c"), (b"a", b"bc"))
    ]
    assert told(rows[0]) != told(rows[1])


@given(st.lists(row, min_size=1, max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_rows_are_the_same_however_they_are_cut_into_batches(
    rows: list[dict[str, Any]], first: int, second: int
) -> None:
    whole = pa.RecordBatch.from_pylist([ROW, *rows], SCHEMA)
    low, high = sorted(min(each, len(rows)) for each in (first, second))
    fingerprint = Fingerprint()
    parts: Iterator[pa.RecordBatch] = (
        whole.slice(1).slice(start, end - start) for start, end in ((0, low), (low, high), (high, len(rows)))
    )
    assert sum(part.num_rows for part in fingerprint.passing(parts)) == len(rows)
    assert str(fingerprint) == told(rows)


def test_a_task_that_has_no_rows_any_more_has_changed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: dict[TopicPartition, OffsetAndMetadata] = {}

    async def fetch(*asked: object) -> dict[TopicPartition, OffsetAndMetadata]:
        return marks

    monkeypatch.setattr(sink_transactions, "fetch_offsets", fetch)
    options = parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "delivery": "exactly_once"})

    def write(epoch: int) -> int:
        identity = TaskIdentity(job="j", epoch=epoch, partition=0)
        return asyncio.run(write_once(None, options, identity, iter(()), None))  # type: ignore[arg-type]

    assert write(3) == 0
    marks[TopicPartition("t", 0)] = OffsetAndMetadata(offset=4, metadata=told([ROW]))
    assert write(4) == 0
    with pytest.raises(ChangedRowsError, match=r"task 0 of trigger 3 has written 1 rows .* now has 0 rows"):
        write(3)
