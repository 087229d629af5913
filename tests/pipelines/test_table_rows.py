"""What is read of a table, as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_rows import table_rows

AS_JSON = "to_json(struct(id, high, low, more))"


def test_numbers_stay_numbers_beside_those_that_are_none(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "table"), TableLayout(format="json"))
    rows = spark.range(2).selectExpr(
        "id",
        "if(id = 0, 1.5D, double('NaN')) as high",
        "if(id = 0, 2.5F, float('-Infinity')) as low",
        "array(named_struct('a', map('b', double('Infinity'), 'c', 0.5D))) as more",
    )
    table.files.make_folder("_mirrormaker")
    table.note_columns(rows)
    table.append("a", 0, rows)
    read = table_rows(spark, "json", table.files.root, {})
    one, other = (sorted(told.selectExpr(AS_JSON).collect()) for told in (rows, read))
    assert one == other


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_read_that_is_called_as_a_pattern(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Table(spark, str(tmp_path / "a[b]"), TableLayout(format=kind))
    rows = spark.range(2).selectExpr("id", "'x' as text")
    table.files.make_folder("_mirrormaker")
    table.note_layout()
    table.note_columns(rows)
    table.append("a", 0, rows)
    assert sorted(table_rows(spark, kind, table.files.root, {}).collect()) == [(0, "x"), (1, "x")]
