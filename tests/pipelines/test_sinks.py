"""Sinks beside files: each batch is in them once, whatever has been cut off."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from broker.errors import ConfigurationError
from mirrormaker.pipelines.runner import RunFailedError
from mirrormaker.pipelines.sinks.database import NOTES, DatabaseSink, match_columns
from mirrormaker.pipelines.sinks.jdbc_connection import DatabaseError, JdbcConnection
from mirrormaker.pipelines.sinks.lake import changed_types
from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.sinks.sink import SinkPlace, sink_identity
from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.topology.model import (
    ClusterName,
    FileFormat,
    FileSink,
    JdbcSink,
    PipelineName,
    PipelineSpec,
    SinkSpec,
    SinkTarget,
    TopicSink,
    Topology,
)
from tests.pipelines.place import Place, order
from tests.spark.topics import new_topic

SCHEMA = "format: json\n    schema: id int, price double\n"
STRUCT = "struct<id:int,price:double>"
FLAT = "{name: flat, sql: 'select value.id, value.price, topic, date, hour from records'}"


@pytest.fixture
def url(spark: SparkSession, tmp_path: Path) -> str:
    """Of a database in the memory of Spark's Java."""
    java: Any = spark._jvm
    java.System.setProperty("derby.system.home", str(tmp_path))  # where it keeps its log
    return f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"


def rows(spark: SparkSession, url: str, table: str) -> list[Any]:
    return list(spark.read.format("jdbc").options(url=url, dbtable=table).load().collect())


@pytest.mark.parametrize(
    ("now", "there", "is_taken"),
    [
        ("v int", "v int", True),
        ("V int", "v int", True),
        ("v tinyint", "v int", True),
        ("v bigint", "v int", False),
        ("v int", "v bigint", False),
        ("v string", "v double", False),
        ("v double", "v string", False),
        ("v decimal(10,2)", "v decimal(12,2)", False),
        ("v struct<a: int>", "v struct<a: int, b: int>", True),
        ("v string", "v struct<a: int>", False),
    ],
)
def test_a_table_of_delta_keeps_the_types_of_its_columns(
    spark: SparkSession, now: str, there: str, is_taken: bool
) -> None:
    told = changed_types(*(spark.createDataFrame([], columns).schema for columns in (now, there)))
    assert (told == []) is is_taken


def test_sinks_are_known_by_what_they_write_and_no_two_alike() -> None:
    jdbc = JdbcSink(url="jdbc:x", table="t")
    sinks: list[tuple[SinkTarget, str | None]] = [
        (TopicSink(topic="x"), "totals"),
        (TopicSink(topic="x"), "late"),
        (TopicSink(topic="x", cluster=ClusterName("agg-1")), None),
        (TopicSink(topic="x"), None),
        (jdbc, "totals"),
        (jdbc, "late"),
        (FileSink(format=FileFormat.PARQUET, path="out"), "late"),
    ]
    known = identities(sinks)
    assert len(set(known)) == len(sinks)
    assert known == list(reversed(identities(list(reversed(sinks)))))
    same = identities([(TopicSink(topic="x"), None), *sinks[2:4]])
    assert len(set(same)) == 3


def test_what_a_sink_is_known_by_fits_where_it_is_kept() -> None:
    long = ["t" * 249, "t" * 248 + "u", "u"]
    known = identities([(TopicSink(topic=topic), None) for topic in (*long, *long)])
    assert len(set(known)) == 6
    assert all(len(f"{'p' * 80}/{each}") < 200 for each in known)


def identities(sinks: list[tuple[SinkTarget, str | None]]) -> list[str]:
    specs = tuple(SinkSpec(target=target, source=source) for target, source in sinks)
    pipeline = PipelineSpec(name=PipelineName("p"), cluster=ClusterName("agg"), sinks=specs)
    return [sink_identity(pipeline, number) for number in range(len(sinks))]


def test_a_database_without_room_is_told_with_its_sink(place: Place, url: str) -> None:
    """Spark tells of its driver's words alone, which need not name any place."""
    step = "{name: s, sql: 'select \"No space left on device\" as name from records'}"
    options = "options: {createTableColumnTypes: name VARCHAR(3)}"
    sink = f"{{jdbc: {{url: '{url}', table: orders}}, {options}}}"
    place.keys = f"{SCHEMA}    steps: [{step}]\n    sinks: [{sink}]\n"
    place.produce([order(1, 0)])
    said = r": out of space: pipelines\[0\]\.sinks\[0\]: .*shrink VARCHAR 'No space left on device'"
    with pytest.raises(RunFailedError, match=said):
        place.run()
    assert rows(place.spark, url, "orders") == []


@pytest.mark.long
def test_a_database_has_every_record_once_whatever_was_cut_off(
    place: Place, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.keys = f"{SCHEMA}    steps: [{FLAT}]\n    sinks: [{{jdbc: {{url: '{url}', table: orders}}}}]\n"
    place.produce(order(number, number // 10) for number in range(30))
    append = DatabaseSink.append

    def cut_off(sink: DatabaseSink, number: int, frame: Any) -> int:
        append(sink, number, frame)
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseSink, "append", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    with monkeypatch.context() as patched:
        patched.setattr(JdbcConnection, "change", dying_at(f"UPDATE {NOTES} SET batch"))
        place.produce([order(30, 2)])
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    assert len(rows(place.spark, url, "orders")) == 30
    assert place.run().rows_written == {"0-jdbc": 1}
    with monkeypatch.context() as patched:
        patched.setattr(DatabaseSink, "append", cut_off)
        place.produce([order(31, 2)])
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    with pytest.raises(RunFailedError, match="may be in 0-jdbc already"):
        place.reload(1, 2)
    place.run()
    assert sorted(row.id for row in rows(place.spark, url, "orders")) == list(range(32))
    (note,) = rows(place.spark, url, NOTES)
    assert (note.SINK, note.BATCH, note.STAGING) == ("p/jdbc-orders", 2, None)

    place.keys = place.keys.replace("value.price", "-value.price as price")
    record = place.reload(1, 2)
    assert record.rows_written == {"0-jdbc": 10}
    negative = sorted(row.id for row in rows(place.spark, url, "orders") if row.price < 0)
    assert negative == list(range(10, 20))
    assert len(rows(place.spark, url, "orders")) == 32

    place.keys = place.keys.replace("topic, date", "topic, 1 as version, date")
    with pytest.raises(RunFailedError, match=r"sinks\[0\]: orders: has no column version: there are"):
        place.run()
    shutil.rmtree(place.folder / "data/pipelines/p/checkpoint")
    place.keys = place.keys.replace("1 as version, ", "")
    with pytest.raises(RunFailedError, match="another checkpoint"):
        place.run()


def database_sink(spark: SparkSession, url: str, table: str, frame: DataFrame) -> DatabaseSink:
    """Of a pipeline `p`, as a run has it."""
    spec = SinkSpec(target=JdbcSink(url=url, table=table))
    pipeline = PipelineSpec(name=PipelineName("p"), sinks=(spec,))
    place = SinkPlace(
        spark=spark,
        topology=Topology(clusters={}, routes=(), data_dir=Path("data"), pipelines=(pipeline,)),
        pipeline=pipeline,
        identity=sink_identity(pipeline, 0),
        generation="g",
        checkpoint=TableFiles(spark, "checkpoint"),
    )
    return DatabaseSink(place, spec, frame)


def test_types_that_a_table_does_not_take_are_told_before_anything_is_written(place: Place, url: str) -> None:
    database = f"{{jdbc: {{url: '{url}', table: orders}}}}"
    place.keys = f"{SCHEMA}    steps: [{FLAT}]\n    sinks: [{database}]\n"
    place.produce([order(0, 0)])
    place.run()
    place.produce([order(1, 0)])
    place.keys = place.keys.replace("value.price", "string(value.price) as price")
    place.keys = place.keys.replace("sinks: [", "sinks: [{parquet: out}, ")
    with pytest.raises(RunFailedError, match=r"orders: .*'DOUBLE' cannot hold values of type 'CLOB'"):
        place.run()
    assert not place.files()
    place.keys = place.keys.replace("string(value.price)", "value.price")
    assert place.run().rows_written == {"0-parquet": 1, "1-jdbc": 1}
    (note,) = rows(place.spark, url, NOTES)
    assert (note.BATCH, note.STAGING) == (1, None)


def test_a_database_takes_rows_without_any_text(spark: SparkSession, url: str) -> None:
    frame = spark.range(3).selectExpr("id", "id / 2 as price")
    sink = database_sink(spark, url, "orders", frame)
    sink.claim()
    assert sink.append(0, frame) == sink.append(0, frame) == 3
    assert sorted(tuple(row) for row in rows(spark, url, "orders")) == [(0, 0.0), (1, 0.5), (2, 1.0)]


def test_a_table_that_lacks_batches_takes_no_later_ones(spark: SparkSession, url: str) -> None:
    """As one that was put back from a copy."""
    frame = spark.range(3).selectExpr("id")
    sink = database_sink(spark, url, "orders", frame)
    sink.claim()
    assert sink.append(4, frame) == 3, "it is new to the pipeline"
    for number, lacking in ((6, "batch 5"), (8, "batches 5 to 7")):
        with pytest.raises(DatabaseError, match=rf"^orders: {lacking} .* say batch {number - 1} for 'p/jdbc"):
            sink.append(number, frame)
    assert len(rows(spark, url, "orders")) == 3
    with JdbcConnection.open(spark, {"url": url}) as connection:
        connection.change(f"UPDATE {NOTES} SET batch = ?", 7)
    assert sink.append(8, frame) == 3


def test_what_a_database_fails_on_is_told_where_it_ends_by_that(spark: SparkSession, url: str) -> None:
    """As H2 does on a full disk: what is rolled back and closed then fails, too."""

    def fail_as_it_ends(connection: JdbcConnection) -> None:
        try:
            connection.change("DELETE FROM nowhere")
        finally:
            end = url.replace("create", "drop")
            with pytest.raises(DatabaseError, match="dropped"), JdbcConnection.open(spark, {"url": end}):
                pass

    opened = JdbcConnection.open(spark, {"url": url})
    with pytest.raises(DatabaseError, match="NOWHERE"), opened as connection, connection.transaction():
        fail_as_it_ends(connection)


@pytest.mark.usefixtures("url")
def test_what_a_database_failed_on_at_last_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """As H2 does on a full disk: what it says itself is that it could not write."""
    opened = JdbcConnection.open(spark, {"url": f"jdbc:derby:{tmp_path};create=true"})
    with pytest.raises(DatabaseError, match=r"^cannot be reached: .* create .*already exists"), opened:
        pass


def test_whatever_a_database_fails_on_is_told_with_the_table(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words for a statement of ours need not name any place."""
    frame = spark.range(3).selectExpr("id")
    sink = database_sink(spark, url, "orders", frame)
    sink.claim()
    change = JdbcConnection.change
    for failing in ("UPDATE", "INSERT INTO", "DROP"):

        def fail(connection: JdbcConnection, statement: str, *values: object, word: str = failing) -> int:
            if statement.startswith(word):
                raise DatabaseError("No space left on device")
            return change(connection, statement, *values)

        with monkeypatch.context() as patched:
            patched.setattr(JdbcConnection, "change", fail)
            with pytest.raises(DatabaseError, match=r"^orders: No space left on device$"):
                sink.append(0, frame)
    sink.append(0, frame)
    assert sorted(row.id for row in rows(spark, url, "orders")) == [0, 1, 2]


def test_a_batch_that_a_database_took_and_has_not_kept_comes_again(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As H2 does, which writes what was committed when its last connection is closed: where it cannot, it
    says nothing.
    """

    @contextmanager
    def forgotten(connection: JdbcConnection) -> Iterator[None]:
        connection._connection.setAutoCommit(False)
        yield
        connection._connection.rollback()
        connection._connection.setAutoCommit(True)

    frame = spark.range(3).selectExpr("id")
    sink = database_sink(spark, url, "orders", frame)
    sink.claim()
    with monkeypatch.context() as patched:
        patched.setattr(JdbcConnection, "transaction", forgotten)
        with pytest.raises(DatabaseError, match=r"^orders: .* has batch 0, and has not kept it"):
            sink.append(0, frame)
    assert sink.append(0, frame) == 3
    assert sorted(row.id for row in rows(spark, url, "orders")) == [0, 1, 2]


def test_a_database_that_is_full_before_the_first_batch_is_told_with_its_sink(
    place: Place, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Spark's writer, which makes the table, fails in Java."""

    def fail(sink: DatabaseSink, frame: DataFrame, table: str, mode: str) -> None:
        raise Py4JError("java.io.IOException: No space left on device")

    place.keys = f"{SCHEMA}    steps: [{FLAT}]\n    sinks: [{{jdbc: {{url: '{url}', table: orders}}}}]\n"
    place.produce([order(1, 0)])
    with monkeypatch.context() as patched:
        patched.setattr(DatabaseSink, "_write", fail)
        with pytest.raises(RunFailedError, match=r": out of space: pipelines\[0\]\.sinks\[0\]: .*No space"):
            place.run()
    assert place.run().rows_written == {"0-jdbc": 1}


@pytest.mark.parametrize("count", [pytest.param(0, marks=pytest.mark.long), 3])
def test_rows_of_a_task_that_was_run_twice_are_not_moved_in(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """As where an executor is lost after it has committed, before the driver has heard of it."""
    frame = spark.range(count).selectExpr("id")
    sink = database_sink(spark, url, "orders", frame)
    sink.claim()
    write = DatabaseSink._write

    def write_again(sink: DatabaseSink, frame: DataFrame, table: str, mode: str) -> None:
        write(sink, frame, table, mode)
        with JdbcConnection.open(spark, {"url": url}) as connection:
            connection.change(f"INSERT INTO {table} VALUES (1)")

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseSink, "_write", write_again)
        with pytest.raises(DatabaseError, match=f"^orders: {count + 1} rows were written aside, not {count}"):
            sink.append(0, frame)
    assert not sink.holds(0)
    assert rows(spark, url, "orders") == []
    assert sink.append(0, frame) == count
    assert sorted(row.id for row in rows(spark, url, "orders")) == list(range(count))
    tables = [row.TABLENAME for row in rows(spark, url, "sys.systables") if row.TABLETYPE == "T"]
    assert sorted(tables) == ["MIRRORMAKER_BATCHES", "ORDERS"]


def test_a_table_that_cannot_be_read_for_a_moment_stays(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while somebody else has it locked for longer than the database lets a query wait."""
    frame = spark.range(3).selectExpr("id")
    sink = database_sink(spark, url, "orders", frame)
    sink.claim()
    sink.append(0, frame)
    has_table = JdbcConnection.has_table
    monkeypatch.setattr(
        JdbcConnection, "has_table", lambda self, name: name != "orders" and has_table(self, name)
    )
    sink.claim()
    assert sorted(row.id for row in rows(spark, url, "orders")) == [0, 1, 2]


@pytest.mark.long
def test_a_table_may_have_a_name_as_long_as_the_database_takes(spark: SparkSession, url: str) -> None:
    frame = spark.range(3).selectExpr("id", "'t' as topic")
    for schema in ("", "other."):
        table = f"{schema}{'t' * 128}"
        sink = database_sink(spark, url, table, frame)
        sink.claim()
        assert [sink.append(number, frame) for number in range(2)] == [3, 3]
        assert len(rows(spark, url, table)) == 6
    tables = [row.TABLENAME for row in rows(spark, url, "sys.systables") if row.TABLETYPE == "T"]
    assert sorted(tables) == ["MIRRORMAKER_BATCHES"] * 2 + ["T" * 128] * 2


def test_windows_of_a_table_that_several_sinks_write_are_left_alone(place: Place, url: str) -> None:
    place.produce([order(1, 0)])
    sink = f"{{jdbc: {{url: '{url}', table: orders}}}}"
    place.keys = f"{SCHEMA}    steps: [{FLAT}]\n    sinks: [{sink}, {sink}]\n"
    with pytest.raises(RunFailedError) as failed:
        place.reload(0, 1)
    assert (failed.value.record.problem or "").splitlines() == [
        f"pipelines[0].sinks[{one}]: its windows of orders cannot be written anew, as "
        f"pipelines[0].sinks[{other}] writes that table, too"
        for one, other in ((0, 1), (1, 0))
    ]


def dying_at(beginning: str) -> Any:
    change = JdbcConnection.change

    def changed(connection: JdbcConnection, statement: str, *values: object) -> int:
        done = change(connection, statement, *values)
        if statement.startswith(beginning):
            raise OSError("cut off")
        return done

    return changed


def test_columns_are_found_as_databases_spell_them() -> None:
    assert match_columns("t", ("id", "Name"), ["ID", "Name"]) == {"id": "ID", "Name": "Name"}
    with pytest.raises(ConfigurationError, match="t: has no column y: there are x"):
        match_columns("t", ("x", "y"), ["x"])


@pytest.mark.long
def test_a_topic_has_every_record_once_for_readers_of_what_is_committed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = new_topic(place.bootstrap, partitions=2)
    step = "{name: s, sql: 'select to_json(value) as value, uuid() as key from records'}"
    place.keys = f"{SCHEMA}    steps: [{step}]\n    sinks: [{{topic: {sink}}}]\n"
    place.produce(order(number, 0) for number in range(40))
    send = Outbox._send

    def cut_off(self: Outbox, number: int, staged: str, options: Mapping[str, str]) -> None:
        send(self, number, staged, options)
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "_send", cut_off)
        for _ in range(2):
            with pytest.raises(RunFailedError, match="cut off"):
                place.run()
    assert place.run().rows_written == {"0-topic": 40}
    outbox = place.folder / "data/pipelines/p/checkpoint/outbox"
    (sent,) = outbox.glob("*/*/0.json")
    left = sent.parent / "left-by-a-crash"
    left.mkdir()
    (left / "part.parquet").write_bytes(b"PAR1")
    place.produce([order(40, 0)])
    assert place.run().rows_written == {"0-topic": 1}
    options = {"kafka.bootstrap.servers": place.bootstrap, "kafka.isolation.level": "read_committed"}
    frame = place.spark.read.format("mirror").options(subscribe=sink, **options).load()
    ids = [json.loads(row.value)["id"] for row in frame.collect()]
    assert sorted(ids) == list(range(41))
    assert not list(outbox.glob("**/*.parquet"))


def test_sinks_that_cannot_be_written_are_told_before_anything_is(place: Place, url: str) -> None:
    assert url
    place.produce([order(1, 0)])
    steps = (
        "{name: spans, sql: 'select make_interval(1) as span, 1 as one from records'}, "
        "{name: twice, from: records, sql: 'select value.id, value.price as ID, date from records'}, "
        "{name: s, from: records, sql: 'select to_json(value) as value from records'}"
    )
    sinks = {
        "{jdbc: {url: 'jdbc:derby:nowhere', table: t}}": "cannot be reached: java.sql.SQLException",
        "{jdbc: {url: 'jdbc:what:x', table: t}}": "Spark has no driver for jdbc:what: name its jar",
        "{jdbc: {url: 'jdbc:x', driver: a.B, table: t}}": "Spark has no driver 'a.B' for jdbc:x",
        "{jdbc: {url: 'jdbc:x', table: t, password: env:NOT}}": "password: the environment has no variable",
        "{jdbc: {url: 'jdbc:x', table: t}, from: records}": "column 'value' is struct",
        "{delta: out-2}": "Spark has no delta: name the jars",
        "{iceberg: a.b.c}": "Spark has no iceberg: name the jars",
        "{topic: t, options: {delivery: sometimes}}": "option delivery: 'sometimes' is none of",
        "{topic: u, options: {akcs: all}}": "option akcs is unknown",
        "{topic: v, from: records}": "the column 'value' must be text or bytes",
        "{csv: out-3, from: records}": f"column 'value' is {STRUCT}, which files of csv cannot have",
        "{parquet: out-4, from: spans}": "column 'span' is interval, which files of parquet cannot have",
        "{parquet: out-6, from: twice}": "columns stand there twice: ID, id",
        "{json: out-5, from: records, partition_by: [value]}": f"column 'value' is {STRUCT}, which cannot",
    }
    listed = ", ".join(["{parquet: out}", *sinks])
    place.keys = f"{SCHEMA}    steps: [{steps}]\n    sinks: [{listed}]\n"
    problems = "\n".join(place.runner().check())
    for number, told in enumerate(sinks.values(), start=1):
        assert f"sinks[{number}]: {told}" in problems
    assert not place.files()
