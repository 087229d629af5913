"""Rows that are kept for a topic, looked at before they are its batch: from then on they are sent as they
are, whatever the steps make by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mirrormaker.spark.lookups import new_cluster
from mirrormaker.spark.sink import look_anew
from mirrormaker.spark.sink_options import SinkOptions, parse_sink_options
from mirrormaker.spark.sink_rows import header_without_key, no_such_partition


def count_sendable(rows: DataFrame, options: Mapping[str, str]) -> int:
    """How many rows there are for the topic that `options` name. Raises RowError where one has no such
    partition, or a header without a key; BrokerError.
    """
    partition = f.col("partition") if "partition" in rows.columns else f.lit(None).cast("int")
    seen = rows.agg(
        f.count(f.lit(1)).alias("rows"),
        f.min(partition).alias("least"),
        f.max(partition).alias("greatest"),
        f.coalesce(f.bool_or(_lacks_key(rows)), f.lit(False)).alias("lacks_key"),
    ).first()
    assert seen is not None
    if seen.lacks_key and parse_sink_options(options).include_headers:
        raise header_without_key()
    if seen.greatest is not None:
        _check_partitions(seen.least, seen.greatest, parse_sink_options(options))
    return int(seen.rows)


def _lacks_key(rows: DataFrame) -> Column:
    if "headers" not in rows.columns:
        return f.lit(False)
    return f.exists("headers", lambda header: header["key"].isNull())


def _check_partitions(least: int, greatest: int, options: SinkOptions) -> None:
    assert options.topic is not None
    count = asyncio.run(_count_partitions(options, options.topic))
    for asked in (least, greatest):
        if not 0 <= asked < count:
            raise no_such_partition(asked, options.topic, count)


async def _count_partitions(options: SinkOptions, topic: str) -> int:
    async with new_cluster(options.cluster) as cluster:
        await look_anew(cluster, [topic], options)
        return len(cluster.partitions(topic))
