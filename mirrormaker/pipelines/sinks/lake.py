"""Tables with a log of their own: Delta by their path, Iceberg by their name in a catalog of Spark's.

The log of the table notes the batch with its rows, in one commit: Delta as the transaction of an application
(`txnAppId`, `txnVersion`), Iceberg as a property of the snapshot. A property of the table says which
checkpoint counts the batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import AtomicType, ByteType, DataType, IntegerType, ShortType, StructType

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.pipelines.session import has_lake, missing_lake
from mirrormaker.pipelines.sinks.jdbc_connection import message_of
from mirrormaker.pipelines.sinks.sink import SinkPlace, partition_columns, span_condition
from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.pipelines.windows import DATE, HOUR, Span
from mirrormaker.topology.model import LakeFormat, LakeSink, SinkSpec

_NO_SOURCE = ("DATA_SOURCE_NOT_FOUND", "Failed to find data source")
_OF_ANOTHER_SPARK = (
    "AbstractMethodError",
    "IncompatibleClassChangeError",
    "NoClassDefFoundError",
    "NoSuchFieldError",
    "NoSuchMethodError",
)
"""Of Java: classes that do not fit each other."""


class LakeError(BrokerError):
    """The table, or the way to it, refused."""


class LakeTable(ABC):
    """One table; the two kinds say how."""

    def __init__(self, place: SinkPlace, sink: SinkSpec, frame: DataFrame) -> None:
        assert isinstance(sink.target, LakeSink)
        self._place = place
        self._spark = place.spark
        self._table = sink.target.table
        self._options = dict(sink.options)
        self._frame = frame
        self._layout = partition_columns(sink, frame)
        self._app = f"{place.owner}/{place.generation}"
        self._property = f"mirrormaker.{place.owner.replace('/', '.')}"

    @property
    def window_columns(self) -> tuple[str, ...]:
        columns = self._frame.columns
        return tuple(name for name in (DATE, HOUR) if name in columns) if DATE in columns else ()

    def claim(self) -> None:
        with _translated(self._table):
            if not self._exists():
                self._create()
            known = self._properties().get(self._property)
            if known is None:
                pair = f"{_quoted(self._property)} = {_quoted(self._place.generation)}"
                self._spark.sql(f"ALTER TABLE {self._identifier} SET TBLPROPERTIES ({pair})")
            elif known != self._place.generation:
                raise ConfigurationError(
                    [
                        f"{self._table}: was loaded by this pipeline with another checkpoint: bring it back,"
                        f" or delete its rows and the table's property {self._property}"
                    ]
                )

    def append(self, number: int, frame: DataFrame) -> int:
        rows = frame.persist()
        try:
            with _translated(self._table):
                if not self._has(number):
                    self._add(number, rows)
                return rows.count()
        finally:
            rows.unpersist()

    def holds(self, number: int) -> bool:
        with _translated(self._table):
            return self._exists() and self._may_have(number)

    def passes_over(self, number: int) -> bool:
        return False  # rows are counted in any case

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        condition = span_condition(asked, self.window_columns, lambda name: f"`{name}`")
        rows = frame.persist()
        try:
            with _translated(self._table):
                self._overwrite(condition, rows)
                return [f"{self._table} {asked}"], rows.count()
        finally:
            rows.unpersist()

    def _properties(self) -> dict[str, str]:
        told = self._spark.sql(f"SHOW TBLPROPERTIES {self._identifier}").collect()
        return {row["key"]: row["value"] for row in told}

    @property
    @abstractmethod
    def _identifier(self) -> str:
        """The table as SQL has it."""

    @abstractmethod
    def _exists(self) -> bool: ...

    @abstractmethod
    def _create(self) -> None: ...

    @abstractmethod
    def _has(self, number: int) -> bool:
        """Whether the batch is in the table; a kind that passes it over by itself says no."""

    def _may_have(self, number: int) -> bool:
        """Whether it may be in there."""
        return self._has(number)

    @abstractmethod
    def _add(self, number: int, rows: DataFrame) -> None: ...

    @abstractmethod
    def _overwrite(self, condition: str, rows: DataFrame) -> None: ...


class DeltaTable(LakeTable):
    """Delta."""

    @property
    def _identifier(self) -> str:
        return f"delta.`{self._table}`"

    def _exists(self) -> bool:
        return TableFiles(self._spark, self._table).exists("_delta_log")

    def _create(self) -> None:
        writer = self._frame.sparkSession.createDataFrame([], self._frame.schema).write.format("delta")
        writer.options(**self._options).partitionBy(*self._layout).mode("append").save(self._table)

    def _has(self, number: int) -> bool:
        return False  # Delta knows its transactions by itself

    def _may_have(self, number: int) -> bool:
        return True

    def _add(self, number: int, rows: DataFrame) -> None:
        writer = rows.write.format("delta").options(**self._options).mode("append")
        writer.option("txnAppId", self._app).option("txnVersion", str(number)).save(self._table)

    def _overwrite(self, condition: str, rows: DataFrame) -> None:
        writer = rows.write.format("delta").options(**self._options).mode("overwrite")
        writer.option("replaceWhere", condition).save(self._table)


class IcebergTable(LakeTable):
    """Iceberg. A batch is looked for in the snapshots that the table still has."""

    @property
    def _mark(self) -> str:
        """The property of snapshots that notes the batch. Iceberg gets options of a write in small letters;
        the checkpoint in it keeps pipelines apart whose names differ in case alone.
        """
        return f"mirrormaker.{self._app}".lower()

    @property
    def _identifier(self) -> str:
        return self._table

    def _exists(self) -> bool:
        return self._spark.catalog.tableExists(self._table)

    def _create(self) -> None:
        empty = self._spark.createDataFrame([], self._frame.schema)
        writer = empty.writeTo(self._table).using("iceberg")
        if self._layout:  # windows are replaced by whole files
            writer = writer.partitionedBy(*map(f.col, self._layout))
        writer.create()

    def _has(self, number: int) -> bool:
        noted = f.col("summary").getItem(self._mark).cast("long")
        found = self._spark.table(f"{self._table}.snapshots").select(f.max(noted).alias("last")).first()
        return found is not None and found["last"] is not None and int(found["last"]) >= number

    def _add(self, number: int, rows: DataFrame) -> None:
        writer = rows.writeTo(self._table).options(**self._options)
        writer.option(f"snapshot-property.{self._mark}", str(number)).append()

    def _overwrite(self, condition: str, rows: DataFrame) -> None:
        rows.writeTo(self._table).options(**self._options).overwrite(f.expr(condition))


def open_lake(place: SinkPlace, sink: SinkSpec, frame: DataFrame) -> LakeTable:
    """The table of a sink `delta` or `iceberg`."""
    assert isinstance(sink.target, LakeSink)
    match sink.target.format:
        case LakeFormat.DELTA:
            return DeltaTable(place, sink, frame)
        case LakeFormat.ICEBERG:
            return IcebergTable(place, sink, frame)


def reach_problem(spark: SparkSession, sink: LakeSink, frame: DataFrame) -> str | None:
    """Why the table cannot be written, None when it can; writes nothing."""
    missing = missing_lake(sink.format)
    if not has_lake(spark, sink.format):
        return missing
    try:
        match sink.format:
            case LakeFormat.DELTA:
                there = spark.read.format("delta").load(sink.table).schema
            case LakeFormat.ICEBERG:
                if not spark.catalog.tableExists(sink.table):
                    return None
                there = spark.table(sink.table).schema
    except (PySparkException, Py4JError) as error:
        text = message_of(error) if isinstance(error, Py4JError) else str(error).split("\n")[0]
        if any(word in text for word in _NO_SOURCE):
            return missing
        if any(word in text for word in _OF_ANOTHER_SPARK):
            return f"the jars of {sink.format.value} are for another Spark than {spark.version}: {text}"
        return None if "DELTA_TABLE_NOT_FOUND" in text or "PATH_NOT_FOUND" in text else text
    if strange := [name for name in frame.columns if name.lower() not in map(str.lower, there.names)]:
        return f"{sink.table}: has no column {', '.join(strange)}: there are {', '.join(there.names)}"
    if sink.format is LakeFormat.DELTA and (changed := changed_types(frame.schema, there)):
        return f"{sink.table}: {'; '.join(changed)}: choose another table, or cast it"
    return None


_SMALL = (ByteType, ShortType, IntegerType)
"""Whole numbers that are alike in files of Parquet, the narrowest first."""


def changed_types(now: StructType, there: StructType) -> list[str]:
    """Which columns have a type that Delta does not take for the table's, in words. What lists and structures
    hold it tells by itself.
    """
    known = {field.name.lower(): field.dataType for field in there}
    return [
        f"column {field.name!r} is {field.dataType.simpleString()}, and {kind.simpleString()} in the table"
        for field in now
        if (kind := known[field.name.lower()]) != field.dataType
        and (isinstance(kind, AtomicType) or isinstance(field.dataType, AtomicType))
        and not _is_narrower(field.dataType, kind)
    ]


def _is_narrower(now: DataType, there: DataType) -> bool:
    if not (isinstance(now, _SMALL) and isinstance(there, _SMALL)):
        return False
    return _SMALL.index(type(now)) < _SMALL.index(type(there))


@contextmanager
def _translated(table: str) -> Iterator[None]:
    """Raises LakeError for what Spark and the table's format say."""
    try:
        yield
    except PySparkException as error:
        raise LakeError(f"{table}: {error}") from error
    except Py4JError as error:
        raise LakeError(f"{table}: {message_of(error)}") from error


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
