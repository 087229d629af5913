"""A job that writes times into a database."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from mirrormaker.topology.model import Topology

BACK_MS = 1_383_456_600_000
"""Half an hour before clocks in New York were put back to what they showed at this moment."""


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> Mapping[str, object]:
    """What is read of two that were written, an hour apart."""
    table = {"url": "jdbc:derby:memory:times;create=true", "dbtable": "times"}
    rows = spark.range(2).selectExpr(f"timestamp_millis({BACK_MS} + id * 3600000) as moment")
    rows.write.format("jdbc").options(**table).mode("append").save()
    found = (
        spark.read.format("jdbc").options(**table).load().selectExpr("unix_millis(moment) as at").collect()
    )
    return {"times": sorted(row["at"] - BACK_MS for row in found)}
