"""The Spark session and the node of the tests of the data source serve pipelines too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.place import Place
from tests.spark.conftest import bootstrap, spark

__all__ = ["bootstrap", "spark"]


@pytest.fixture
def place(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Place:
    return Place(spark, bootstrap, tmp_path)
