"""Options of Spark's readers and writers of files and values, which pass over those that they do not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from mirrormaker.topology.document import suggestion

_CLASSES = {
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
}
_OF_ALL_FILES = (
    *("ignoreCorruptFiles", "ignoreMissingFiles", "pathGlobFilter", "recursiveFileLookup", "basePath"),
    *("modifiedAfter", "modifiedBefore", "mergeSchema", "maxRecordsPerFile", "inferSchema"),
)


def option_problems(spark: SparkSession, form: str, options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names that no reader and no writer of that format knows, each with what is wrong. Names with a dot are
    settings of Hadoop and of what lies below, whose names are known to nobody here.
    """
    said = [name for name in options if "." not in name]
    if not said or form not in _CLASSES:
        return
    known = [*_names(spark, _CLASSES[form]), *_OF_ALL_FILES]
    lower = {name.lower() for name in known}
    for name in said:
        if name.lower() not in lower:
            yield name, f"{form!r} has no such option{suggestion(name, known)}"


def _names(spark: SparkSession, options: str) -> list[str]:
    """All that Spark has registered."""
    jvm = spark._jvm
    assert jvm is not None
    found = getattr(jvm, options).getAllOptions()
    return sorted(map(str, jvm.scala.jdk.javaapi.CollectionConverters.asJava(found)))
