"""Small files of many windows, each window's put together into one, by one job of Spark.

Rows are handed to a task by the columns that windows are named by, and keep the order of their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrormaker.pipelines.line_files import NAMES_AS_TEXT, LineFiles
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_files import AS_NAMED

Sizes = Mapping[str, int]
"""Bytes of files, by their addresses."""
_FILE, _ROW = "_mirrormaker_file", "_mirrormaker_row"
_TASKS_PER_CORE = 2
_ROWS = "parquet"


def can_go_together(layout: TableLayout, columns: Sequence[str]) -> bool:
    """Whether files of windows that are named by these columns can."""
    if not columns:
        return False
    return layout.format == _ROWS or (not layout.has_names and "value" not in columns)


def stage_together(
    spark: SparkSession, table: Table, columns: Sequence[str], windows: Mapping[str, Sizes]
) -> str:
    """Write one file of each window aside; returns where."""
    urls = [url for sizes in windows.values() for url in sizes]
    tasks = min(len(windows), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    if table.layout.format == _ROWS:
        rows = _rows(spark, table, urls)
        layout = replace(table.layout, partition_by=tuple(columns))
        return table.stage(_by_window(rows, columns, tasks), layout)
    files = LineFiles(spark, table.layout)
    lines = files.lines_of_windows(urls, table.files.root, columns, file=_FILE, row=_ROW)
    layout = replace(files.layout, partition_by=tuple(columns))
    staged = table.stage(_by_window(lines, columns, tasks), layout)
    name_as_table(table, files, staged)
    return staged


def name_as_table(table: Table, files: LineFiles, staged: str) -> None:
    """What was written as text gets the names that files of the table have."""
    for name in table.files.list_files(staged):
        table.files.rename(f"{staged}/{name}", f"{staged}/{files.named(name)}")


def _rows(spark: SparkSession, table: Table, urls: list[str]) -> DataFrame:
    session = spark.newSession()
    for name, value in NAMES_AS_TEXT.items():
        session.conf.set(name, value)
    reader = session.read.format(_ROWS).options(**table.layout.options)
    reader = reader.options(mergeSchema="true", **AS_NAMED)  # not all files have columns that came later
    rows = reader.option("basePath", table.files.root).load(urls)
    return rows.select(
        "*", f.col("_metadata.file_path").alias(_FILE), f.col("_metadata.row_index").alias(_ROW)
    )


def _by_window(rows: DataFrame, columns: Sequence[str], tasks: int) -> DataFrame:
    named = [f.col(f"`{name}`") for name in columns]
    return rows.repartition(tasks, *named).sortWithinPartitions(*named, _FILE, _ROW).drop(_FILE, _ROW)
