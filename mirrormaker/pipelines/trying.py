"""Columns that may be impossible to compute for a row, where Spark would fail all of them."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column


def tried(column: Column) -> Column:
    """Null where computing it is an error; Spark has that for single functions alone."""
    context = SparkContext._active_spark_context
    assert context is not None
    jvm: Any = context._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    computed = expressions.expression(column._jc)
    return Column(expressions.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(computed)))
