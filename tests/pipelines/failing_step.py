"""A step that fails on rows of one kind."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def divided(rows: DataFrame) -> DataFrame:
    """There is no result for the id 7."""
    return rows.select((1 / (f.col("id") - 7)).alias("part"), "date")
