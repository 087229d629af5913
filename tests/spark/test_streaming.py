"""Streaming queries on a real node, in a real Spark."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import HostPort
from mirrormaker.pipelines.slow_starts import STARTS_MAX, is_slow_start
from tests.spark.topics import append, fill


def run(spark: SparkSession, bootstrap: str, directory: Path, **options: str) -> StreamingQuery:
    """Load what there is since the last run into files below `directory`."""
    for _ in range(STARTS_MAX - 1):
        try:
            return run_once(spark, bootstrap, directory, **options)
        except StreamingQueryException as error:
            if not is_slow_start(error):
                raise
    return run_once(spark, bootstrap, directory, **options)


def run_once(spark: SparkSession, bootstrap: str, directory: Path, **options: str) -> StreamingQuery:
    query = (
        spark.readStream.format("mirror")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(**{"startingOffsets": "earliest", **options})
        .load()
        .selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "data"))
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def loaded(spark: SparkSession, directory: Path) -> list[int]:
    rows = spark.read.parquet(str(directory / "data")).collect()
    return sorted(int(row.value.split()[1]) for row in rows)


def add_partitions(bootstrap: str, topic: str, count: int) -> None:
    async def add() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).create_partitions({topic: count})

    asyncio.run(add())


def test_runs_go_on_where_the_last_one_stopped_and_find_new_partitions(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    topic = fill(bootstrap, partitions=2, count=100)
    query = run(spark, bootstrap, tmp_path, subscribe=topic, maxOffsetsPerTrigger="40")
    assert loaded(spark, tmp_path) == list(range(100))
    progress = [each for each in query.recentProgress if each.numInputRows]
    assert [each.numInputRows for each in progress] == [40, 40, 20]
    append(bootstrap, topic, range(100, 110), partitions=2)
    add_partitions(bootstrap, topic, 3)
    append(bootstrap, topic, range(110, 140), partitions=3)
    query = run(spark, bootstrap, tmp_path, subscribe=topic)
    assert loaded(spark, tmp_path) == list(range(140))
    (progress,) = [each for each in query.recentProgress if each.numInputRows]
    assert progress.numInputRows == 40
    assert progress.sources[0].endOffset == progress.sources[0].latestOffset
