"""A job that asks for records of a time before one that Python has not got."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from mirrormaker.spark.jobs.tier_audit import load
from mirrormaker.topology.model import Topology

YEAR_10000_MS = 253_402_300_800_000


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> Mapping[str, int]:
    """How many there are in the cluster's topic."""
    records = load(spark, topology, arguments["cluster"], arguments["topic"])
    return {"rows": records.where(f"timestamp < timestamp_millis({YEAR_10000_MS})").count()}
