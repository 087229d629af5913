"""One connection of the driver of Spark to a database, as Spark's own writer would open it. Calls block.

Nothing that goes wrong shows the password, which is read from where the topology refers to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType, VariantType

from broker.client.security.disclosure import disclose
from broker.client.security.text_source import TextSource
from broker.errors import BrokerError, ConfigurationError
from mirrormaker.topology.model import JdbcSink

_NO_DRIVER = "No suitable driver"
_CAUSED = "Caused by: "
_NOT_PORTABLE = (ArrayType, MapType, StructType, NullType, VariantType)


class DatabaseError(BrokerError):
    """A database, or the way to it, refused."""


def options_of(sink: JdbcSink) -> dict[str, str]:
    """Of Spark's writer, the password in the clear. Raises ConfigurationError when that cannot be read."""
    options = {"url": sink.url}
    if sink.driver is not None:
        options["driver"] = sink.driver
    if sink.user is not None:
        options["user"] = sink.user
    if sink.password is not None:
        options["password"] = disclose(TextSource.parse("password", sink.password))
    return options


def is_portable(kind: DataType) -> bool:
    """Whether databases have the like of a type."""
    return not isinstance(kind, _NOT_PORTABLE)


class JdbcConnection:
    """Open until its `with` ends; each change is a transaction of its own but within `transaction`."""

    def __init__(self, connection: Any, quote: Any) -> None:
        self._connection = connection
        self._quote = quote

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, options: dict[str, str]) -> Iterator[Self]:
        """Raises ConfigurationError when there is no driver for the URL, DatabaseError."""
        jvm: Any = spark._jvm
        try:
            dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
            read = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
                options["url"], "none", jvm.PythonUtils.toScalaMap({**options, "dbtable": "none"})
            )
            connection = dialect.createConnectionFactory(read).apply(-1)
        except Py4JError as error:
            said = _said(error)
            if _NO_DRIVER in said or "ClassNotFoundException" in said:
                raise ConfigurationError([_driver_problem(options)]) from error
            raise DatabaseError(f"cannot be reached: {message_of(error)}") from error
        try:
            yield cls(connection, dialect.quoteIdentifier)
        finally:
            _close(connection)

    def quote(self, name: str) -> str:
        """A column's name as SQL has it."""
        return str(self._quote(name))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is changed within is there as a whole, or not at all."""
        self._ask(lambda: self._connection.setAutoCommit(False))
        try:
            yield
            self._ask(self._connection.commit)
        except BaseException:
            with suppress(DatabaseError):  # a database that is gone by then has nothing of it
                self._ask(self._connection.rollback)
                self._ask(lambda: self._connection.setAutoCommit(True))
            raise
        self._ask(lambda: self._connection.setAutoCommit(True))

    def change(self, statement: str, *values: object) -> int:
        """Carry out a statement; returns how many rows it was for. Raises DatabaseError."""
        with self._prepared(statement, values) as prepared:
            return int(self._ask(prepared.executeUpdate))

    def row(self, query: str, *values: object) -> list[object] | None:
        """The first row of a query, None when there is none. Raises DatabaseError."""
        with self._prepared(query, values) as prepared:
            found = self._ask(prepared.executeQuery)
            count = int(found.getMetaData().getColumnCount())
            if not self._ask(found.next):
                return None
            return [self._ask(lambda at=at: found.getObject(at)) for at in range(1, count + 1)]

    def has_table(self, table: str) -> bool:
        """Whether it is there, and may be read."""
        try:
            self.columns(table)
        except DatabaseError:
            return False
        return True

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns. Raises DatabaseError."""
        with self._prepared(f"SELECT * FROM {table} WHERE 1 = 0", ()) as prepared:
            told = self._ask(lambda: prepared.executeQuery().getMetaData())
            return [str(told.getColumnName(at)) for at in range(1, int(told.getColumnCount()) + 1)]

    @contextmanager
    def _prepared(self, statement: str, values: tuple[object, ...]) -> Iterator[Any]:
        prepared = self._ask(lambda: self._connection.prepareStatement(statement))
        try:
            for at, value in enumerate(values, start=1):
                self._ask(lambda at=at, value=value: prepared.setObject(at, value))
            yield prepared
        finally:
            _close(prepared)

    def _ask(self, call: Any) -> Any:
        try:
            return call()
        except Py4JError as error:
            raise DatabaseError(message_of(error)) from error


def _close(what: Any) -> None:
    """Where it cannot be closed, what failed before tells why."""
    with suppress(Py4JError):
        what.close()


def message_of(error: Py4JError) -> str:
    """What Java said, and what that came of at last, without any stack."""
    said, lines = _said(error), map(str.strip, str(error).split("\n"))
    cause = [line.removeprefix(_CAUSED) for line in lines if line.startswith(_CAUSED)][-1:]
    new = [each for each in cause if each.partition(": ")[2].removesuffix("]") not in said]
    return ": ".join([said.removesuffix(":"), *new] if new else [said])


def _said(error: Py4JError) -> str:
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        return str(cause.toString()).split("\n")[0]
    return str(error).split("\n")[0]


def _driver_problem(options: dict[str, str]) -> str:
    kind = ":".join(options["url"].split(":")[:2])
    named = f" {options['driver']!r}" if "driver" in options else ""
    return (
        f"Spark has no driver{named} for {kind}: name its jar in 'spark', as spark.jars or"
        " spark.jars.packages, and its class in 'driver'"
    )
