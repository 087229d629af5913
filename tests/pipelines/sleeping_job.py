"""A job that notes that it has begun, and has Spark work for five minutes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from mirrormaker.topology.model import Topology

_SLEEP = "java_method('java.lang.Thread', 'sleep', 300000L)"


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> Mapping[str, str]:
    """Makes `DATA_DIR.PID` in `folder` before it has Spark do so."""
    rows = spark.range(0, 1, 1, 1).selectExpr(_SLEEP)
    (Path(arguments["folder"]) / f"{topology.data_dir.name}.{os.getpid()}").touch()
    rows.collect()
    return {}
