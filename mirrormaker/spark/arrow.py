"""Records as Arrow record batches with the columns of Spark's own Kafka source. Pure.

Keys and values are gathered by Arrow: the buffer that holds the records is looked at as an array of byte
strings, those wanted and what lies between them by turns, of which every other one is taken. Columns are made
of buffers: `pa.array` and `pa.scalar` would import pandas, a quarter of a second of each Python worker, to
find out whether what they are given is pandas' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker.records.record import Record
from mirrormaker.spark.record_fields import Fields
from mirrormaker.spark.record_headers import find_headers
from mirrormaker.spark.varints import Numbers, Positions

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", _TIMESTAMP),
    ("timestampType", pa.int32()),
]
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(_HEADER)
_MILLISECONDS_MAX = ((1 << 63) - 1) // 1000
"""What microseconds of 64 bits reach, into the year 294247; times beyond are taken for it."""


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Columns and types of every batch that the source yields."""
    return pa.schema([*_COLUMNS, ("headers", _HEADERS)] if include_headers else _COLUMNS)


def fields_to_arrow(
    data: bytes | memoryview, fields: Fields, topic: str, partition: int, *, include_headers: bool
) -> pa.RecordBatch:
    """One Arrow batch of the records, all of one partition, that lie in `data`.

    Raises UnicodeDecodeError for header keys that are not UTF-8, and IndexError for headers that are torn.
    """
    count = len(fields.offsets)
    columns: list[pa.Array[Any]] = [
        gather(data, fields.key_starts, fields.key_sizes),
        gather(data, fields.value_starts, fields.value_sizes),
        _repeated(topic, count),
        _numbers(np.full(count, partition, np.int32), pa.int32()),
        _numbers(fields.offsets, pa.int64()),
        _numbers(fields.timestamps.clip(-_MILLISECONDS_MAX, _MILLISECONDS_MAX) * 1000, _TIMESTAMP),
        _numbers(fields.timestamp_types, pa.int32()),
    ]
    if include_headers:
        columns.append(_headers(data, fields))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers=include_headers))


def to_arrow(
    records: Sequence[Record], topic: str, partition: int, *, include_headers: bool
) -> pa.RecordBatch:
    """One Arrow batch of `records`, all of one partition."""
    count = len(records)
    columns: list[pa.Array[Any]] = [
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([_microseconds(record.timestamp) for record in records], _TIMESTAMP),
        pa.array([record.timestamp_type for record in records], pa.int32()),
    ]
    if include_headers:
        columns.append(pa.array([_header_rows(record) for record in records], _HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers=include_headers))


def gather(data: bytes | memoryview, starts: Positions, sizes: Numbers) -> pa.Array[Any]:
    """The byte strings of `data` at rising positions, null where the size is -1."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[::2] = starts
    np.add(starts, np.maximum(sizes, 0), out=bounds[1::2], casting="unsafe")
    alternating = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds.data), pa.py_buffer(data)]
    )
    taken = alternating.take(_numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))
    null = sizes < 0
    if not null.any():
        return taken
    validity = pa.py_buffer(np.packbits(~null, bitorder="little").data)
    return pa.Array.from_buffers(pa.binary(), count, [validity, *taken.buffers()[1:]], offset=taken.offset)


def _numbers(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Numbers of the kind's width as they lie."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers.data)])


def _repeated(text: str, count: int) -> pa.Array[Any]:
    """The text so many times."""
    data = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds.data), pa.py_buffer(data * count)]
    )


def _headers(data: bytes | memoryview, fields: Fields) -> pa.Array[Any]:
    """The headers of each record, null where it has none."""
    found = find_headers(data, fields)
    keys = gather(data, found.key_starts, found.key_sizes)
    text = pa.Array.from_buffers(pa.string(), len(keys), keys.buffers(), offset=keys.offset)
    text.validate(full=True)
    values = gather(data, found.value_starts, found.value_sizes)
    each = pa.StructArray.from_arrays([text, values], fields=list(_HEADER))
    counts = fields.header_counts
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little").data)
    return pa.Array.from_buffers(
        _HEADERS, len(counts), [validity, pa.py_buffer(bounds.data)], children=[each]
    )


def _microseconds(milliseconds: int) -> int:
    return max(-_MILLISECONDS_MAX, min(milliseconds, _MILLISECONDS_MAX)) * 1000


def _header_rows(record: Record) -> list[dict[str, object]] | None:
    return [{"key": key, "value": value} for key, value in record.headers] or None
