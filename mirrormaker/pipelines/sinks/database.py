"""A table of a database, through the driver of Java that Spark's own writer uses.

Spark's tasks write the rows of a batch into a table of their own. Then one transaction, of the driver of
Spark, moves them and notes the batch in `mirrormaker_batches`, which stands beside the table:

    sink         whose batches they are: PIPELINE/jdbc-TABLE, or PIPELINE/jdbc-TABLE@STEP where it says `from`
    loaded_by    the checkpoint that counts them
    batch        the last one that is in the table
    row_count    how many rows it had
    staging      the table that rows are being written into, removed by the next run if this one dies

So the database itself says which batches it holds; a batch that comes again is passed over, and none is taken
while one before it is lacking. It is asked once more by another connection when a batch is in: some databases
write what was committed only later, as H2 does, and forget it where there is no room.

Each task of Spark's writer commits by itself: one that is run again, as its machine was lost before the
driver heard of the first, has written its rows twice. So rows are counted on their way, and none is moved in
when there are more aside.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.pipelines.sinks.jdbc_connection import DatabaseError, JdbcConnection, is_portable, options_of
from mirrormaker.pipelines.sinks.sink import SinkPlace, span_condition
from mirrormaker.pipelines.windows import DATE, HOUR, Span
from mirrormaker.topology.model import JdbcSink, SinkSpec

NOTES = "mirrormaker_batches"
_NO_BATCH = -1
_TEXT_SIZES = {"topic": 249, DATE: 10}


class DatabaseSink:
    """A sink `jdbc`."""

    def __init__(self, place: SinkPlace, sink: SinkSpec, frame: DataFrame) -> None:
        assert isinstance(sink.target, JdbcSink)
        self._place = place
        self._table = sink.target.table
        schema, dot, _ = self._table.rpartition(".")
        self._schema_dot = f"{schema}{dot}"
        self._notes = f"{self._schema_dot}{NOTES}"
        self._columns = tuple(frame.columns)
        self._schema = frame.schema
        self._options = {**column_types(frame), **sink.options, **options_of(sink.target)}
        self._names: dict[str, str] = {}
        """Column of a frame -> of the table."""

    @property
    def window_columns(self) -> tuple[str, ...]:
        return tuple(name for name in (DATE, HOUR) if name in self._columns) if DATE in self._columns else ()

    def claim(self) -> None:
        with self._connected() as connection:
            self._have_notes(connection)
            known = connection.row(f"SELECT loaded_by FROM {self._notes} WHERE sink = ?", self._place.owner)
            if known is None:
                values = (self._place.owner, self._place.generation, _NO_BATCH, 0)
                columns = "sink, loaded_by, batch, row_count"
                connection.change(f"INSERT INTO {self._notes} ({columns}) VALUES (?, ?, ?, ?)", *values)
            elif known[0] != self._place.generation:
                raise ConfigurationError(
                    [
                        f"{self._table}: was loaded by this pipeline with another checkpoint: bring it back,"
                        f" or delete the rows and that of {self._place.owner!r} in {self._notes}"
                    ]
                )
            was_there = self._have_table(connection)
            self._names = match_columns(self._table, self._columns, connection.columns(self._table))
            self._drop_staging(connection)
            if was_there:
                self._try_types(connection)

    def append(self, number: int, frame: DataFrame) -> int:
        with self._connected() as connection:
            noted, rows = self._noted(connection)
            if noted >= number:
                return rows
            if _NO_BATCH < noted < number - 1:
                raise DatabaseError(self._gap(noted, number))

            def note(moved: int) -> None:
                told = f"UPDATE {self._notes} SET batch = ?, row_count = ? WHERE sink = ? AND batch = ?"
                if connection.change(told, number, moved, self._place.owner, noted) != 1:
                    raise DatabaseError(f"another run has written batch {number} meanwhile")

            rows = self._move_in(connection, frame, "", note)
        if not self.holds(number):
            raise DatabaseError(
                f"{self._table}: the database has said that it has batch {number}, and has not kept it, as"
                " some do without room: the batch comes again"
            )
        return rows

    def holds(self, number: int) -> bool:
        with self._connected() as connection:
            if not connection.has_table(self._notes):
                return False
            told = self._note_of(connection)
            return told is not None and int(str(told[0])) >= number

    def passes_over(self, number: int) -> bool:
        return self.holds(number)

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        with self._connected() as connection:
            condition = span_condition(
                asked, self.window_columns, lambda name: connection.quote(self._names[name])
            )
            rows = self._move_in(
                connection, frame, f"DELETE FROM {self._table} WHERE {condition}", lambda moved: None
            )
        return [f"{self._table} {asked}"], rows

    def _move_in(
        self, connection: JdbcConnection, frame: DataFrame, first: str, note: Callable[[int], None]
    ) -> int:
        """Write rows aside, then have them in the table in one transaction; returns how many. The name of the
        table aside does not begin with the table's own, of which a database may take the beginning alone.
        Raises DatabaseError, with the table as it was, when other rows are aside than were to be.
        """
        self._drop_staging(connection)
        staging = f"{self._schema_dot}mirrormaker_{uuid.uuid4().hex[:12]}"
        set_staging = f"UPDATE {self._notes} SET staging = ? WHERE sink = ?"
        connection.change(set_staging, staging, self._place.owner)
        seen = Observation()
        self._write(frame.observe(seen, f.count(f.lit(1)).alias("rows")), staging, "overwrite")
        names = ", ".join(connection.quote(self._names[name]) for name in self._columns)
        staged = ", ".join(map(connection.quote, self._columns))
        with connection.transaction():
            if first:
                connection.change(first)
            rows = connection.change(f"INSERT INTO {self._table} ({names}) SELECT {staged} FROM {staging}")
            self._check_staged(connection, staging, int(seen.get["rows"]))
            note(rows)
        self._drop_staging(connection)
        return rows

    def _check_staged(self, connection: JdbcConnection, staging: str, rows: int) -> None:
        """Once they are moved: rows aside only become more, so what is there now is what has been moved. The
        move's own count is no measure, since triggers of the table may take rows elsewhere.
        """
        counted = connection.row(f"SELECT COUNT(*) FROM {staging}")
        assert counted is not None
        if int(str(counted[0])) != rows:
            raise DatabaseError(
                f"{counted[0]} rows were written aside, not {rows}, as a task of Spark was run again: none is"
                " moved in, and the batch comes again"
            )

    def _write(self, frame: DataFrame, table: str, mode: str) -> None:
        options = {**self._options, "dbtable": table, "truncate": "false"}
        try:
            frame.select(*self._columns).write.format("jdbc").options(**options).mode(mode).save()
        except PySparkException as error:
            raise DatabaseError(str(error)) from error

    def _noted(self, connection: JdbcConnection) -> tuple[int, int]:
        told = self._note_of(connection)
        if told is None:
            raise DatabaseError(f"{self._notes}: the row of {self._place.owner!r} is gone")
        return int(str(told[0])), int(str(told[1]))

    def _gap(self, noted: int, number: int) -> str:
        lacking = f"batch {noted + 1}" if noted == number - 2 else f"batches {noted + 1} to {number - 1}"
        return (
            f"{lacking} of this pipeline never came into it: it is older than the checkpoint, as a copy that"
            " was put back, or was no sink meanwhile. Put the right one back; or reload what it lacks, and"
            f" have {self._notes} say batch {number - 1} for {self._place.owner!r}"
        )

    def _note_of(self, connection: JdbcConnection) -> list[object] | None:
        """The last batch and its rows."""
        return connection.row(
            f"SELECT batch, row_count FROM {self._notes} WHERE sink = ? AND loaded_by = ?",
            *(self._place.owner, self._place.generation),
        )

    def _have_notes(self, connection: JdbcConnection) -> None:
        if not connection.has_table(self._notes):
            connection.change(
                f"CREATE TABLE {self._notes} (sink VARCHAR(200) NOT NULL PRIMARY KEY,"
                " loaded_by VARCHAR(40) NOT NULL, batch BIGINT NOT NULL, row_count BIGINT NOT NULL,"
                " staging VARCHAR(300))"
            )

    def _have_table(self, connection: JdbcConnection) -> bool:
        """Make it where it is lacking; returns whether it was there. One that could not be read just now may
        be there, and stays.
        """
        if connection.has_table(self._table):
            return True
        self._write(self._no_rows(), self._table, "ignore")
        return False

    def _try_types(self, connection: JdbcConnection) -> None:
        """Move no rows in, as those of a batch are: many databases tell then what types they do not take."""
        self._move_in(connection, self._no_rows(), "", lambda moved: None)

    def _no_rows(self) -> DataFrame:
        return self._place.spark.createDataFrame([], self._schema)

    def _drop_staging(self, connection: JdbcConnection) -> None:
        told = connection.row(f"SELECT staging FROM {self._notes} WHERE sink = ?", self._place.owner)
        if told is not None and told[0] is not None:
            if connection.has_table(str(told[0])):
                connection.change(f"DROP TABLE {told[0]}")
            connection.change(f"UPDATE {self._notes} SET staging = NULL WHERE sink = ?", self._place.owner)

    @contextmanager
    def _connected(self) -> Iterator[JdbcConnection]:
        """Raises DatabaseError, for whatever was asked in the block, with the name of the table."""
        try:
            with JdbcConnection.open(self._place.spark, self._options) as connection:
                yield connection
        except DatabaseError as error:
            raise DatabaseError(f"{self._table}: {error}") from error


def column_types(frame: DataFrame) -> dict[str, str]:
    """The option for text columns that windows are known by, where there are some: as any text they could not
    be compared in some databases.
    """
    texts = {name for name, kind in frame.dtypes if kind == "string"}
    types = ", ".join(f"{name} VARCHAR({size})" for name, size in _TEXT_SIZES.items() if name in texts)
    return {"createTableColumnTypes": types} if types else {}


def match_columns(table: str, wanted: tuple[str, ...], there: list[str]) -> dict[str, str]:
    """Column of a frame -> of a table, as Spark's writer finds them. Raises ConfigurationError."""
    by_case = {name.lower(): name for name in there} | {name: name for name in there}
    found = {name: by_case.get(name, by_case.get(name.lower())) for name in wanted}
    missing = [name for name, column in found.items() if column is None]
    if missing:
        raise ConfigurationError(
            [f"{table}: has no column {', '.join(missing)}: there are {', '.join(there)}"]
        )
    return {name: column for name, column in found.items() if column is not None}


def reach_problem(spark: SparkSession, sink: JdbcSink, frame: DataFrame) -> str | None:
    """Why the rows of `frame` cannot be written, None when they can; writes nothing."""
    for field in frame.schema:
        if not is_portable(field.dataType):
            return f"column {field.name!r} is {field.dataType.simpleString()}, which no database has"
    try:
        with JdbcConnection.open(spark, options_of(sink)) as connection:
            if connection.has_table(sink.table):
                match_columns(sink.table, tuple(frame.columns), connection.columns(sink.table))
    except (ConfigurationError, DatabaseError) as error:
        return str(error)
    return None
