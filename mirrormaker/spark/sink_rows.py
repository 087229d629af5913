"""Rows as Spark hands them to a sink: which columns they have, and which partition each row goes to. Pure.

Columns are those of Spark's own Kafka sink (key, value, topic, partition, headers), by name, and `timestamp`
where it is one; others are passed over, so that what was read can be written, and what that sink takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.spark.key_hashes import choose_partitions
from mirrormaker.spark.row_encoder import Rows

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
).simpleString()
_TYPES: dict[str, tuple[str, ...]] = {
    "key": (BinaryType().simpleString(), StringType().simpleString()),
    "value": (BinaryType().simpleString(), StringType().simpleString()),
    "topic": (StringType().simpleString(),),
    "partition": (IntegerType().simpleString(),),
    "headers": (_HEADERS,),
}
_REQUIRED = "value"


class RowError(ValueError):
    """A row cannot be written as it is."""


def no_such_partition(asked: int, topic: str, count: int) -> RowError:
    return RowError(f"a row asks for partition {asked} of {topic}, which has {count}")


def header_without_key() -> RowError:
    """The format has none: nobody could read the record."""
    return RowError("a row has a header without a key")


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ConfigurationError for columns that are missing or of a type that cannot be written. Nobody
    looks at the column `topic` where the option says it.
    """
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if topic is not None:
        types.pop("topic", None)
    problems = [
        f"column {name} is {types[name].simpleString()}, not {' or '.join(allowed)}"
        for name, allowed in _TYPES.items()
        if name in types and types[name].simpleString() not in allowed
    ]
    if _REQUIRED not in types:
        problems.append(f"there is no column {_REQUIRED}: {', '.join(types)}")
    if topic is None and "topic" not in types:
        problems.append("neither an option nor a column says which topic to write to")
    if problems:
        raise ConfigurationError(problems)


def with_usual_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are written, without the types of more than 2 GiB that a setting of Spark chooses."""
    known = batch.select([field.name for field in batch.schema if field.name in _TYPES or _is_time(field)])
    usual = pa.schema([field.with_type(_usual(field.type)) for field in known.schema])
    return known if usual.equals(known.schema) else known.cast(usual)


def _is_time(field: pa.Field[Any]) -> bool:
    """Whether it says when a record was; a time of no zone does not."""
    return field.name == "timestamp" and pa.types.is_timestamp(field.type) and field.type.tz is not None


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(_usual(kind.value_type)))
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(_usual(field.type)) for field in kind])
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetedRows:
    """Rows, those for one partition together; `targets` are indices of `partitions`."""

    rows: Rows
    targets: NDArray[np.int64]
    partitions: list[TopicPartition]


def topics_of(batch: pa.RecordBatch, topic: str | None) -> list[str]:
    """The topics that the rows go to, all in one if given. Raises RowError for a row without one."""
    if topic is not None:
        return [topic]
    column = batch.column("topic")
    if column.null_count:
        raise RowError("a row has no topic, and there is no option topic")
    return [str(name) for name in pc.unique(column).to_pylist()]


def target_rows(
    batch: pa.RecordBatch,
    topic: str | None,
    partition_count: Callable[[str], int],
    *,
    now_ms: int,
    include_headers: bool,
) -> TargetedRows:
    """The rows of a batch sorted by partition, which is that of the column, or by the hash of the key, or for
    rows without a key one for all of them. Raises RowError for what has no topic or no such partition, and
    for headers without a key.
    """
    count = batch.num_rows
    rows = rows_of(batch, now_ms=now_ms, include_headers=include_headers)
    asked = _asked_partitions(batch) if "partition" in batch.schema.names else np.full(count, -1)
    names = topics_of(batch, topic)
    of_topic = np.zeros(count, np.int64)
    if topic is None:
        of_topic = np.asarray(pc.index_in(batch.column("topic"), pa.array(names))).astype(np.int64)
    numbers = np.empty(count, np.int64)
    for index, name in enumerate(names):
        mine = np.flatnonzero(of_topic == index)
        numbers[mine] = _choose(name, rows.keys.take(mine), asked[mine], partition_count(name))
    codes = of_topic << 32 | numbers
    order = np.argsort(codes, kind="stable")
    chosen, targets = np.unique(codes[order], return_inverse=True)
    partitions = [TopicPartition(names[code >> 32], code & 0xFFFF_FFFF) for code in chosen.tolist()]
    return TargetedRows(rows=rows.take(order), targets=targets.astype(np.int64), partitions=partitions)


def rows_of(batch: pa.RecordBatch, *, now_ms: int, include_headers: bool) -> Rows:
    """The rows of a batch as they stand there. Raises RowError for headers without a key."""
    columns = set(batch.schema.names)
    count = batch.num_rows
    return Rows(
        keys=_bytes(batch.column("key")) if "key" in columns else pa.nulls(count, pa.binary()),
        values=_bytes(batch.column("value")),
        timestamps=_timestamps(batch, now_ms) if "timestamp" in columns else np.full(count, now_ms),
        headers=_headers(batch) if "headers" in columns and include_headers else None,
    )


def _choose(topic: str, keys: pa.Array[Any], asked: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    strange = asked[(asked >= count) | (asked < -1)]
    if len(strange):
        raise no_such_partition(int(strange[0]), topic, count)
    chosen = choose_partitions(keys, count)
    chosen[np.asarray(keys.is_null())] = random.randrange(count)
    return np.where(asked < 0, chosen, asked)


def _asked_partitions(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """The column, -1 where it is null."""
    column = batch.column("partition")
    if pc.min(column).as_py() is not None and pc.min(column).as_py() < 0:
        raise RowError(f"a row asks for partition {pc.min(column)}")
    return np.asarray(column.fill_null(-1)).astype(np.int64)


def _bytes(column: pa.Array[Any]) -> pa.Array[Any]:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _headers(batch: pa.RecordBatch) -> pa.Array[Any]:
    """The column. Raises RowError."""
    column = batch.column("headers")
    each: pa.Array[Any] = pc.list_flatten(column)
    if each.null_count or pc.struct_field(each, "key").null_count:
        raise header_without_key()
    return column


def _timestamps(batch: pa.RecordBatch, now_ms: int) -> NDArray[np.int64]:
    """Milliseconds; now where there is none."""
    microseconds = batch.column("timestamp").cast(pa.int64()).fill_null(now_ms * 1000)
    return np.asarray(microseconds) // 1000
