"""Audit of two tiers in Spark: whether a topic holds what another one does, record by record.

    job: mirrormaker.spark.jobs.tier_audit:run
    arguments: {from: jfk, to: aggregate, topic: flights, copy: jfk.flights}

Committed records are told apart by the hash of key and value; partitions and offsets may differ, times and
headers too. Fails when something is missing, doubled or of nobody knows where (unexplained), and says the
first record that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.audit.windows import format_time
from mirrormaker.pipelines.session import source_options
from mirrormaker.pipelines.source import cluster_topics
from mirrormaker.topology.model import ClusterName, Isolation, Topology

_KNOWN = ("from", "to", "topic", "copy")
_TIERS = (("from", "topic"), ("to", "copy"))
"""Arguments that say where a topic is, and its name there."""


class TiersDifferError(BrokerError):
    """The copy does not hold what the original does."""


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Compare; returns the counts. Raises ConfigurationError, TiersDifferError."""
    problems = [f"arguments.{name}: unknown" for name in sorted(arguments.keys() - set(_KNOWN))]
    problems += [f"arguments: lack {name!r}" for name in _KNOWN if name not in arguments]
    for key in ("from", "to"):
        if key in arguments and arguments[key] not in topology.clusters:
            problems.append(f"arguments.{key}: there is no cluster {arguments[key]!r}")
    if problems := problems or list(_missing(topology, arguments)):
        raise ConfigurationError(problems)
    return compare(
        *(hashed(load(spark, topology, arguments[cluster], arguments[topic])) for cluster, topic in _TIERS)
    )


def _missing(topology: Topology, arguments: Mapping[str, str]) -> Iterator[str]:
    """Of both tiers, as Spark tells of the first that it asks alone."""
    for cluster, topic in _TIERS:
        name = ClusterName(arguments[cluster])
        try:
            if arguments[topic] not in cluster_topics(topology.clusters[name]):
                yield f"arguments.{topic}: cluster {name!r} has no topic {arguments[topic]!r}"
        except BrokerError as error:
            yield f"arguments.{cluster}: {error}"


def load(spark: SparkSession, topology: Topology, cluster: str, topic: str) -> DataFrame:
    """A topic as it is now."""
    options = source_options(topology.clusters[ClusterName(cluster)])
    committed = {"kafka.isolation.level": Isolation.READ_COMMITTED.value, "subscribe": topic}
    return spark.read.format("mirror").options(**options, **committed).load()


def hashed(records: DataFrame) -> DataFrame:
    """How often each record is there, and where first."""
    parts = (f.coalesce(f.sha2(part, 256), f.lit("null")) for part in ("key", "value"))
    place = f.struct(f.unix_millis("timestamp").alias("at_ms"), "partition", "offset")
    return records.groupBy(f.concat_ws("/", *parts).alias("hash")).agg(
        f.count("*").alias("times"), f.min(place).alias("place")
    )


def compare(original: DataFrame, copy: DataFrame) -> dict[str, Any]:
    """The counts of both. Raises TiersDifferError."""
    left = original.select("hash", f.col("times").alias("left"), f.col("place").alias("left_place"))
    right = copy.select("hash", f.col("times").alias("right"), f.col("place").alias("right_place"))
    both = left.join(right, "hash", "full_outer").fillna(0, ["left", "right"])
    is_known = f.col("left") > 0
    place = f.struct(
        f.coalesce("left_place", "right_place").alias("place"),
        f.when(is_known, "the original").otherwise("the copy").alias("side"),
    )
    lacking, beyond = f.greatest(f.col("left") - f.col("right"), f.lit(0)), f.col("right") - f.col("left")
    row = both.agg(
        f.sum("left").alias("records"),
        f.sum("right").alias("copied"),
        f.sum(lacking).alias("missing"),
        f.sum(f.when(is_known, f.greatest(beyond, f.lit(0)))).alias("doubled"),
        f.sum(f.when(~is_known, beyond)).alias("unexplained"),
        f.min(f.when(f.col("left") != f.col("right"), place)).alias("first"),
    ).first()
    assert row is not None
    names = ("records", "copied", "missing", "doubled", "unexplained")
    figures = {name: int(row[name] or 0) for name in names}
    if row["first"] is not None:
        first, side = row["first"]
        told = ", ".join(f"{name} {figures[name]}" for name in names)
        raise TiersDifferError(
            f"{told}; first difference: partition {first.partition}, offset {first.offset} of {side},"
            f" {format_time(first.at_ms)}"
        )
    return figures
