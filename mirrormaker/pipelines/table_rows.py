"""The rows of a table, with all columns and as they were written.

Spark by itself has the columns of one file, takes names of subfolders for numbers, knows neither names nor
types of CSV, and has decimals of JSON for doubles: those are what its pipeline has noted. What is neither
number nor truth value stays text then, as it is in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from mirrormaker.pipelines.csv_values import quoted
from mirrormaker.pipelines.line_files import NAMES_AS_TEXT, LineFiles
from mirrormaker.pipelines.session import OWN_SETTINGS
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_files import AS_NAMED
from mirrormaker.pipelines.windows import columns_of
from mirrormaker.spark import MirrorDataSource
from mirrormaker.topology.model import FileFormat


def table_rows(spark: SparkSession, form: str, root: str, options: Mapping[str, str]) -> DataFrame:
    """`form` is a format of files, or any other that Spark can load. `options` are for reading, beside those
    that the table was written with. Raises ConfigurationError, and PySparkException for a table that cannot
    be read.
    """
    if form not in {each.value for each in FileFormat}:
        return spark.read.format(form).options(**options).load(root)
    session = spark.newSession()
    session.dataSource.register(MirrorDataSource)  # rows may be sent from here
    table = Table(session, root, TableLayout(format=form))
    known = table.column_types()
    for name, value in {**OWN_SETTINGS, **(NAMES_AS_TEXT if known else {})}.items():
        session.conf.set(name, value)
    table.layout = TableLayout(format=form, options={**table.noted_options(), **options})
    files = table.files.list_files("")
    if known and not files:
        return session.createDataFrame([], _types(known))
    named = [name for name in columns_of(next(iter(files), "").rpartition("/")[0]) if name in known]
    reader = session.read.format(form).options(**table.layout.options)
    if table.files.exists(""):
        reader = reader.options(**AS_NAMED)
    if form == FileFormat.CSV.value:
        rows = _values_of_csv(session, reader.option("multiLine", "true"), table, files, known, named)
    else:
        rows = reader.option("mergeSchema", "true").load(root)
        if form == FileFormat.JSON.value and known:
            exact = _with_numbers(rows.schema, _types(known))
            rows = rows if exact == rows.schema else reader.schema(exact).load(root)
    return rows.withColumns({name: f.col(quoted(name)).cast(known[name]) for name in named})


def _values_of_csv(
    session: SparkSession,
    reader: DataFrameReader,
    table: Table,
    files: list[str],
    known: Mapping[str, str],
    named: list[str],
) -> DataFrame:
    """Files that begin with names have their columns by those, others in the order that was noted."""
    inside = {name: kind for name, kind in known.items() if name not in named}
    if table.layout.has_names and files:
        groups = LineFiles(session, table.layout).groups(map(table.files.url, files))
        parts = [reader.option("basePath", table.files.root).load(group) for group in groups]
        rows = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
    else:
        texts = StructType([StructField(name, StringType()) for name in inside])
        rows = (reader.schema(texts) if inside else reader).load(table.files.root)
    return rows.withColumns(
        {
            each.name: f.col(quoted(each.name)).cast(each.dataType)
            for each in _types(inside)
            if each.name in rows.columns and isinstance(each.dataType, NumericType | BooleanType)
        }
    )


def _types(known: Mapping[str, str]) -> StructType:
    """Of columns, as they have been noted."""
    types = StructType.fromDDL(", ".join(f"{quoted(name)} {kind}" for name, kind in known.items()))
    assert isinstance(types, StructType)
    return types


def _with_numbers(found: StructType, written: StructType) -> StructType:
    """The types that Spark has found, but for numbers that were written as decimals, or are none."""
    kinds = {each.name: each.dataType for each in written}
    return StructType(
        [
            StructField(
                each.name, _exact(each.dataType, kinds[each.name]) if each.name in kinds else each.dataType
            )
            for each in found
        ]
    )


def _exact(found: DataType, written: DataType) -> DataType:
    match found, written:
        case NumericType(), DecimalType():
            return written
        case StringType(), FloatType() | DoubleType():  # NaN and Infinity are written as text
            return written
        case StructType(), StructType():
            return _with_numbers(found, written)
        case StructType(), MapType(valueType=values):
            return StructType([StructField(each.name, _exact(each.dataType, values)) for each in found])
        case ArrayType(elementType=item), ArrayType(elementType=items):
            return ArrayType(_exact(item, items))
    return found
