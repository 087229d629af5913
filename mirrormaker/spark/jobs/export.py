"""Export: the rows of a table go back to a topic, as JSON.

job: mirrormaker.spark.jobs.export:run
arguments: {table: ./data/tables/flights, format: parquet, cluster: aggregate, topic: flights-again,
            where: "date = '2013-01-01'", key: carrier}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.pipelines.session import source_options
from mirrormaker.topology.model import ClusterName, Topology

_NEEDED = ("table", "cluster", "topic")
_KNOWN = (*_NEEDED, "format", "where", "key")


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Export; returns how many rows there were. Raises ConfigurationError."""
    problems = [f"arguments.{name}: unknown" for name in sorted(arguments.keys() - set(_KNOWN))]
    problems += [f"arguments: lack {name!r}" for name in _NEEDED if name not in arguments]
    cluster = topology.clusters.get(ClusterName(arguments.get("cluster", "")))
    if cluster is None and "cluster" in arguments:
        problems.append(f"arguments.cluster: there is no cluster {arguments['cluster']!r}")
    if problems or cluster is None:
        raise ConfigurationError(problems)
    rows = spark.read.format(arguments.get("format", "parquet")).load(arguments["table"])
    rows = rows.where(arguments["where"]) if "where" in arguments else rows
    columns = [f.to_json(f.struct(*rows.columns)).alias("value")]
    if "key" in arguments:
        columns.append(f.col(arguments["key"]).cast("string").alias("key"))
    exported = rows.select(*columns).persist()
    try:
        writer = exported.write.format("mirror").options(**source_options(cluster))
        writer.option("topic", arguments["topic"]).mode("append").save()
        return {"rows": exported.count()}
    finally:
        exported.unpersist()
