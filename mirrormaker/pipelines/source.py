"""What a pipeline reads: its topics as a stream, or as they were between two points.

Of transactions the committed ones alone: what a route that delivers exactly once has given up is not data.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from broker.errors import ConfigurationError
from mirrormaker.clusters import open_cluster
from mirrormaker.pipelines.session import source_options
from mirrormaker.spark.given_options import KAFKA
from mirrormaker.topology.model import (
    ClusterSpec,
    Isolation,
    PipelineSpec,
    Start,
    StartAtTime,
    TopicSelection,
)
from mirrormaker.topology.naming import compile_naming

Offsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset, as Spark's checkpoints have them."""


def find_topics(cluster: ClusterSpec, pipeline: PipelineSpec) -> list[str]:
    """The topics that the pipeline reads now. Raises ConfigurationError when there are none, BrokerError."""
    assert pipeline.topics is not None
    selection = TopicSelection(include=pipeline.topics.include, exclude=pipeline.topics.exclude)
    naming = compile_naming(cluster.name, selection)
    names = asyncio.run(_topic_names(cluster))
    found = sorted(name for name in names if naming.selects(name))
    if not found:
        patterns = ", ".join(pipeline.topics.include)
        there = ", ".join(sorted(name for name in names if not name.startswith("__"))[:10]) or "none"
        raise ConfigurationError(
            [f"cluster {cluster.name!r} has no topic that matches {patterns}: there are {there}"]
        )
    return found


async def _topic_names(cluster: ClusterSpec) -> list[str]:
    async with open_cluster(cluster) as opened:
        return [name for name, topic in (await opened.refresh()).topics.items() if not topic.internal]


def cluster_topics(cluster: ClusterSpec) -> list[str]:
    """Names of all topics that are not internal. Raises BrokerError."""
    return asyncio.run(_topic_names(cluster))


def stream(
    spark: SparkSession, cluster: ClusterSpec, pipeline: PipelineSpec, topics: Sequence[str]
) -> DataFrame:
    """What comes, from where the checkpoint says, else from the pipeline's start."""
    options = {"subscribe": ",".join(topics), "maxOffsetsPerTrigger": str(pipeline.batch_records)}
    match pipeline.start:
        case StartAtTime(timestamp_ms=moment_ms):
            options["startingTimestamp"] = str(moment_ms)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        case Start():
            options["startingOffsets"] = pipeline.start.value
    return _load(spark.readStream.format("mirror").options(**source_options(cluster)), options)


def between(spark: SparkSession, cluster: ClusterSpec, *, start_ms: int | None, ends: Offsets) -> DataFrame:
    """What lies before `ends`, from the first record of `start_ms` or later on; all of it without."""
    topics = ",".join(sorted(ends))
    options = {"subscribe": topics, "endingOffsets": json.dumps(ends)}
    if start_ms is not None:
        options["startingTimestamp"] = str(start_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return _load(spark.read.format("mirror").options(**source_options(cluster)), options)


def first_records(spark: SparkSession, cluster: ClusterSpec, topics: Sequence[str]) -> DataFrame:
    """The topics as they are now."""
    options = {"subscribe": ",".join(topics)}
    return _load(spark.read.format("mirror").options(**source_options(cluster)), options)


def _load(reader: object, options: Mapping[str, str]) -> DataFrame:
    committed = {f"{KAFKA}isolation.level": Isolation.READ_COMMITTED.value}
    frame: DataFrame = reader.options(**committed, **options).load()  # type: ignore[attr-defined]
    return frame
