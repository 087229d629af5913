"""Rows that are kept for a topic, looked at before they are its batch: from then on they are sent as they
are, whatever the steps make by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mirrormaker.spark.lookups import new_cluster
from mirrormaker.spark.row_encoder import BatchTerms, encode_rows
from mirrormaker.spark.sink import look_anew
from mirrormaker.spark.sink_options import SinkOptions, parse_sink_options
from mirrormaker.spark.sink_rows import header_without_key, no_such_partition, rows_of, with_usual_types
from mirrormaker.spark.sink_transactions import TaskIdentity, has_written
from mirrormaker.spark.topic_limits import TopicLimits, find_limits

_RECORD_BYTES, _HEADER_BYTES = 128, 16
"""More than what a record, or a header, has beside keys and values."""


def count_sendable(rows: DataFrame, options: Mapping[str, str]) -> int:
    """How many rows there are for the topic that `options` name. Raises RowError where one has no such
    partition, or a header or, where the topic needs one, itself no key, or is larger than the topic takes;
    BrokerError.
    """
    parsed = parse_sink_options(options)
    partition = f.col("partition") if "partition" in rows.columns else f.lit(None).cast("int")
    size = _size(rows, parsed)
    seen = rows.agg(
        f.count(f.lit(1)).alias("rows"),
        f.min(partition).alias("least"),
        f.max(partition).alias("greatest"),
        f.coalesce(f.bool_or(_lacks_key(rows)), f.lit(False)).alias("lacks_key"),
        f.count(f.col("key") if "key" in rows.columns else f.lit(None)).alias("keys"),
        f.max(size).alias("size"),
    ).first()
    assert seen is not None
    if not seen.rows:
        return 0
    if seen.lacks_key and parsed.include_headers:
        raise header_without_key()
    topic = asyncio.run(_look(parsed))
    if seen.greatest is not None:
        for asked in (seen.least, seen.greatest):
            if not 0 <= asked < topic.partitions:
                raise no_such_partition(asked, topic.limits.topic, topic.partitions)
    if topic.limits.needs_keys and seen["keys"] < seen.rows:
        raise topic.limits.row_without_key()
    if seen["size"] > topic.limits.bytes_max:
        large = rows.where(size > topic.limits.bytes_max)
        encoded = _EncodedSizes(parsed.batches, include_headers=parsed.include_headers)
        found = large.mapInArrow(encoded, "size bigint").agg(f.max("size").alias("size")).first()
        assert found is not None
        topic.limits.check_size(found["size"])
    return int(seen.rows)


def can_be_given_up(options: Mapping[str, str], job: str, number: int, tasks: int) -> bool:
    """Whether none of the tasks that were to send this batch has, nor will. Raises BrokerError."""
    identities = [TaskIdentity(job=job, epoch=number, partition=task) for task in range(tasks)]
    return not asyncio.run(_has_written(parse_sink_options(options), identities))


async def _has_written(options: SinkOptions, tasks: list[TaskIdentity]) -> bool:
    async with new_cluster(options.cluster) as cluster:
        return await has_written(cluster, options, tasks)


def _lacks_key(rows: DataFrame) -> Column:
    if "headers" not in rows.columns:
        return f.lit(False)
    return f.exists("headers", lambda header: header["key"].isNull())


def _size(rows: DataFrame, options: SinkOptions) -> Column:
    """More than a row takes in a batch of its own that is not compressed."""
    size = f.lit(_RECORD_BYTES).cast("bigint")
    for name in {"key", "value"} & set(rows.columns):
        size += _bytes(f.col(name))
    if "headers" not in rows.columns or not options.include_headers:
        return size
    headers = f.aggregate(
        "headers",
        f.lit(0).cast("bigint"),
        lambda known, header: known + _HEADER_BYTES + _bytes(header["key"]) + _bytes(header["value"]),
    )
    return size + f.coalesce(headers, f.lit(0))


def _bytes(column: Column) -> Column:
    return f.coalesce(f.octet_length(column), f.lit(0)).cast("bigint")


class _EncodedSizes:
    """Bytes of each row in a batch of its own, as it is sent."""

    def __init__(self, terms: BatchTerms, *, include_headers: bool) -> None:
        self._terms = terms
        self._include_headers = include_headers

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(with_usual_types, batches):
            for row in range(batch.num_rows):
                rows = rows_of(batch.slice(row, 1), now_ms=0, include_headers=self._include_headers)
                ((_, encoded),) = encode_rows(rows, np.zeros(1, np.int64), self._terms)
                yield pa.RecordBatch.from_pydict({"size": pa.array([len(encoded)], pa.int64())})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """As it is now."""

    partitions: int
    limits: TopicLimits


async def _look(options: SinkOptions) -> _Topic:
    topic = options.topic
    assert topic is not None
    async with new_cluster(options.cluster) as cluster:
        await look_anew(cluster, [topic], options)
        limits = await find_limits(cluster, [topic], options.producer.max_request_bytes)
        return _Topic(partitions=len(cluster.partitions(topic)), limits=limits[topic])
