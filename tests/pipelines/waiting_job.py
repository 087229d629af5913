"""A job that notes that it has begun, and waits for leave to end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from mirrormaker.topology.model import Topology
from tests.conftest import until


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> Mapping[str, str]:
    """Makes `DATA_DIR.PID` in the folder `begun`, and returns once there is `GO`."""
    folder = Path(arguments["folder"])
    (folder / f"{topology.data_dir.name}.{os.getpid()}").touch()
    until((folder / "GO").exists, seconds=300)
    return {}
