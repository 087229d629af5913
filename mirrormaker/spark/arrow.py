"""Records into Arrow record batches with the columns of Spark's own Kafka source. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from broker.records.record import Record

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int"
)
SPARK_SCHEMA_WITH_HEADERS = f"{SPARK_SCHEMA}, headers array<struct<key: string, value: binary>>"


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Columns and types of every batch that the source yields."""
    return pa.schema([*_COLUMNS, ("headers", _HEADERS)] if include_headers else _COLUMNS)


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
        pa.array([record.timestamp * 1000 for record in records], pa.timestamp("us", tz="UTC")),
        pa.array([record.timestamp_type for record in records], pa.int32()),
    ]
    if include_headers:
        columns.append(pa.array([_headers(record) for record in records], _HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers=include_headers))


def _headers(record: Record) -> list[dict[str, object]] | None:
    return [{"key": key, "value": value} for key, value in record.headers] or None
