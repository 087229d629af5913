"""What a pipeline reads: its topics as a stream, or as they were between two points.

Of transactions the committed ones alone: what a route that delivers exactly once has given up is not data.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.clusters import open_cluster
from mirrormaker.pipelines.session import source_options
from mirrormaker.spark.given_options import KAFKA
from mirrormaker.topology.model import (
    ClusterSpec,
    Isolation,
    PipelineSpec,
    Start,
    StartAtOffsets,
    StartAtTime,
    TopicSelection,
)
from mirrormaker.topology.naming import INTERNAL_PREFIX, TopicNaming, compile_naming

Offsets = Mapping[str, Mapping[str, int]]
"""Topic -> partition -> offset, as Spark's checkpoints have them."""
_ONLY_STREAMING = ("minoffsetspertrigger", "maxtriggerdelay")
_ON_LOSS = "failOnDataLoss"


def topic_naming(cluster: ClusterSpec, pipeline: PipelineSpec) -> TopicNaming:
    """Which topics the pipeline reads, by their names."""
    assert pipeline.topics is not None
    selection = TopicSelection(include=pipeline.topics.include, exclude=pipeline.topics.exclude)
    return compile_naming(cluster.name, selection)


def find_topics(cluster: ClusterSpec, pipeline: PipelineSpec) -> list[str]:
    """The topics that the pipeline reads now. Raises ConfigurationError when there are none, BrokerError."""
    assert pipeline.topics is not None
    naming = topic_naming(cluster, pipeline)
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


def stream_options(cluster: ClusterSpec, pipeline: PipelineSpec) -> dict[str, str]:
    """Options of the data source for what comes, but for where it begins: every batch looks for topics."""
    assert pipeline.topics is not None
    patterns = {
        "include": pipeline.topics.include,
        "exclude": (*pipeline.topics.exclude, f"{re.escape(INTERNAL_PREFIX)}.*"),
    }
    return {
        **_reading(cluster),
        **pipeline.source_options,
        "subscribePatterns": json.dumps(patterns),
        "maxOffsetsPerTrigger": str(pipeline.batch_records),
    }


def start_options(pipeline: PipelineSpec) -> dict[str, str]:
    """Where the pipeline says that its first run starts, in partitions whose offsets it does not name."""
    match pipeline.start:
        case StartAtTime(timestamp_ms=moment_ms):
            return {
                "startingTimestamp": str(moment_ms),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        case StartAtOffsets():
            return {"startingOffsets": Start.EARLIEST.value}
        case Start():
            return {"startingOffsets": pipeline.start.value}


def stream(
    spark: SparkSession,
    cluster: ClusterSpec,
    pipeline: PipelineSpec,
    beginning: Offsets | None = None,
) -> DataFrame:
    """What comes, from where the checkpoint says; while there is nothing in that, from `beginning`, and in
    partitions that are not in it, as they have come since, from their first record.
    """
    options = stream_options(cluster, pipeline)
    if beginning:
        options["startingOffsets"] = json.dumps(beginning)
        options["startingOffsetsElsewhere"] = Start.EARLIEST.value
    return _load(spark.readStream.format("mirror"), options)


def between(
    spark: SparkSession, cluster: ClusterSpec, pipeline: PipelineSpec, starts: Offsets, ends: Offsets
) -> DataFrame:
    """What lies between these offsets, which name the same partitions; all of it, or reading it fails."""
    passed = (*_ONLY_STREAMING, _ON_LOSS.lower())
    options = {
        **_reading(cluster),
        **{name: value for name, value in pipeline.source_options.items() if name.lower() not in passed},
        _ON_LOSS: "true",
        **range_options(starts, ends),
    }
    return _load(spark.read.format("mirror"), options)


def range_options(starts: Offsets, ends: Offsets) -> dict[str, str]:
    """Options of the data source for what lies between these offsets. Partitions without anything there are
    left out: their logs may have neither offset any more.
    """
    low: dict[str, dict[str, int]] = {}
    high: dict[str, dict[str, int]] = {}
    for topic, parts in ends.items():
        for number, end in parts.items():
            if starts[topic][number] < end:
                low.setdefault(topic, {})[number] = starts[topic][number]
                high.setdefault(topic, {})[number] = end
    return {
        "assign": json.dumps({topic: list(map(int, parts)) for topic, parts in high.items()}),
        "startingOffsets": json.dumps(low),
        "endingOffsets": json.dumps(high),
    }


def first_records(spark: SparkSession, cluster: ClusterSpec, topics: Sequence[str]) -> DataFrame:
    """The topics as they are now."""
    options = {**_reading(cluster), "subscribe": ",".join(topics)}
    return _load(spark.read.format("mirror"), options)


def hour_of_record() -> Column:
    """The hour (`2013-01-31T07`) of a record's timestamp."""
    return f.date_format("timestamp", "yyyy-MM-dd'T'HH")


def _reading(cluster: ClusterSpec) -> dict[str, str]:
    committed = {f"{KAFKA}isolation.level": Isolation.READ_COMMITTED.value}
    return source_options(cluster) | committed


def _load(reader: object, options: Mapping[str, str]) -> DataFrame:
    frame: DataFrame = reader.options(**options).load()  # type: ignore[attr-defined]
    return frame
