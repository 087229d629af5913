"""The Spark session and the node of the tests of the data source serve pipelines too."""

from __future__ import annotations

from tests.spark.conftest import bootstrap, spark

__all__ = ["bootstrap", "spark"]
