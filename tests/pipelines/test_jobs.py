"""Shipped jobs where what they are given is not as it should be."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from broker.types import HostPort
from mirrormaker.pipelines.run_record import RunRecord
from mirrormaker.pipelines.runner import RunFailedError, Runner, RunRequest
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.spark.jobs import compaction
from mirrormaker.spark.jobs.export import place_of
from mirrormaker.spark.jobs.tier_audit import TiersDifferError, compare, hashed, load
from mirrormaker.spark.jobs.tier_audit import run as audit_tiers
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import CallFunction, ClusterName, Topology
from tests.daemon.conftest import mirrormaker
from tests.pipelines.place import START_MS, Place, give_up, order, produce

BY_HAND = RunRequest()


def topology_of(place: Place, **arguments: str) -> Topology:
    pipeline = {
        "name": "p",
        "job": "mirrormaker.spark.jobs.export:run",
        "arguments": {"cluster": "a", "topic": place.topic, **arguments},
    }
    clusters = {"a": {"bootstrap": [place.bootstrap]}}
    file = place.folder / "topology.yaml"
    file.write_text(yaml.safe_dump({"clusters": clusters, "routes": [], "pipelines": [pipeline]}))
    return load_topology(file)


def export(place: Place, request: RunRequest = BY_HAND, **arguments: str) -> RunRecord:
    topology = topology_of(place, **arguments)
    session = nullcontext(place.spark.newSession())
    return Runner(topology, topology.pipelines[0], SystemClock(), session=session).run(request)


@pytest.mark.long
def test_an_export_of_a_table_that_is_not_there_is_given_up_once_another_is_named(place: Place) -> None:
    place.produce([])
    table = str(place.folder / "table")
    place.spark.range(3).write.parquet(table)
    with pytest.raises(RunFailedError, match="PATH_NOT_FOUND"):
        export(place, table=f"{table}s")
    with pytest.raises(RunFailedError, match="nothing"):
        export(place, table=table, where="nothing = 1")
    with pytest.raises(RunFailedError, match="has no topic 'nowhere'"):
        export(place, table=table, topic="nowhere")
    assert export(place, table=table).figures == {"rows": 3}


@pytest.mark.long
def test_an_export_of_a_table_that_its_file_names_and_that_has_no_rows_yet(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is below the folder of the file, wherever the command is called."""
    place.produce([])
    monkeypatch.chdir("/")
    rows = place.spark.createDataFrame([(1, "AA")], "id int, carrier string")
    layout = TableLayout(format="parquet", partition_by=("carrier",))
    table = Table(place.spark, str(place.folder / "table"), layout)
    table.note_layout()
    table.note_columns(rows)
    arguments = {"table": "./table", "where": "carrier = 'AA'", "key": "carrier"}
    assert export(place, **arguments).figures == {"rows": 0}
    table.append("batch", 0, rows)
    assert export(place, **arguments).figures == {"rows": 1}


@pytest.mark.parametrize(
    ("form", "table", "place"),
    [
        ("csv", "tables/flights", "/srv/tables/flights"),
        ("delta", "/tables/flights", "/tables/flights"),
        ("json", "file:/tables/flights", "file:/tables/flights"),
        ("json", "s3a://tables/flights", "s3a://tables/flights"),
        ("iceberg", "lake.flights", "lake.flights"),
    ],
)
def test_tables_that_are_no_folders_have_names(form: str, table: str, place: str) -> None:
    topology = Topology(clusters={}, routes=(), data_dir=Path("data"), folder=Path("/srv"))
    assert place_of(topology, form, table) == place


@pytest.mark.long
def test_an_export_whose_record_was_lost_is_that_of_a_run_by_hand_and_of_its_retry(place: Place) -> None:
    place.produce([])
    table = str(place.folder / "table")
    place.spark.range(3).write.parquet(table)

    def exported(request: RunRequest) -> int:
        """Records in the topic after a run."""
        topology = topology_of(place, table=table)
        assert export(place, request, table=table).figures == {"rows": 3}
        return load(place.spark, topology, "a", place.topic).count()

    retry = RunRequest(trigger="retry", attempt=2, due_ms=1)
    assert exported(RunRequest(trigger="schedule", due_ms=1)) == 3
    runs = place.folder / "data/pipelines/p/runs.jsonl"
    runs.write_text("".join(runs.read_text().splitlines(keepends=True)[:-1]))
    assert exported(BY_HAND) == 3
    assert exported(retry) == 3
    assert exported(BY_HAND) == 6
    assert exported(retry) == 6
    assert exported(RunRequest(trigger="schedule", due_ms=SystemClock().now_ms())) == 9


@pytest.mark.long
def test_an_export_has_every_column_as_it_was_written(place: Place) -> None:
    place.produce([])
    table = Table(
        place.spark,
        str(place.folder / "table"),
        TableLayout(format="parquet", partition_by=("carrier", "hour")),
    )
    for number, columns in enumerate((["id", "carrier", "hour"], ["id", "later", "carrier", "hour"])):
        values = {
            "id": "1 as id",
            "later": "'x' as later",
            "carrier": "'007' as carrier",
            "hour": "7 as hour",
        }
        rows = place.spark.range(1).selectExpr(*(values[name] for name in columns))
        table.files.make_folder("_mirrormaker")
        table.note_columns(rows)
        table.append("a", number, rows)
    assert export(place, table=table.files.root).figures == {"rows": 2}
    topology = topology_of(place, table=table.files.root)
    exported = [json.loads(row.value) for row in load(place.spark, topology, "a", place.topic).collect()]
    before = {"id": 1, "carrier": "007", "hour": 7}
    assert sorted(exported, key=len) == [before, {**before, "later": "x"}]


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.long), {"header": "true", "sep": ";"}]
)
def test_an_export_of_csv_has_the_columns_that_were_written(place: Place, options: dict[str, str]) -> None:
    place.produce([])
    layout = TableLayout(format="csv", partition_by=("hour",), options=options)
    table = Table(place.spark, str(place.folder / "table"), layout)
    table.files.make_folder("_mirrormaker")
    before = {"id": "1 as id", "is_late": "true as is_late", "name": "'0;\\n,7' as name", "hour": "7 as hour"}
    after = {**before, "later": "2.5D as later", "name": "cast(null as string) as name"}
    if options:
        after = dict(reversed(after.items()))  # names tell columns
    for number, columns in enumerate((before, after)):
        rows = place.spark.range(1).selectExpr(*columns.values())
        table.note_layout()
        table.note_columns(rows)
        table.append("a", number, rows)
    arguments = {"table": table.files.root, "format": "csv"}
    assert export(place, **arguments).figures == {"rows": 2}
    topology = topology_of(place, **arguments)
    exported = [json.loads(row.value) for row in load(place.spark, topology, "a", place.topic).collect()]
    said = {"id": 1, "is_late": True, "hour": 7}
    assert sorted(exported, key=str) == sorted([{**said, "name": "0;\n,7"}, {**said, "later": 2.5}], key=str)


def test_an_export_of_json_has_numbers_to_the_last_digit_and_times_to_the_microsecond(place: Place) -> None:
    place.produce([])
    columns = {
        "price": "12345678901234567.89BD",
        "count": "1.5D",
        "paid": "array(named_struct('by', 'x', 'sums', map('a', 98765432109876543.21BD)))",
        "date": "'2013-01-01'",
    }
    layout = TableLayout(format="json", partition_by=("date",))
    table = Table(place.spark, str(place.folder / "table"), layout)
    rows = place.spark.range(1).selectExpr(*(f"{value} as {name}" for name, value in columns.items()))
    table.files.make_folder("_mirrormaker")
    table.note_columns(rows)
    table.append("a", 0, rows)
    assert export(place, table=table.files.root, format="json").figures == {"rows": 1}
    times = str(place.folder / "times")
    place.spark.sql("select timestamp'2013-01-01T00:00:00.123456Z' as at").write.parquet(times)
    assert export(place, table=times).figures == {"rows": 1}
    topology = topology_of(place)
    sent = load(place.spark, topology, "a", place.topic).selectExpr("cast(value as string) as text").collect()
    assert sorted(row.text for row in sent) == [
        '{"at":"2013-01-01T00:00:00.123456Z"}',
        '{"count":1.5,"paid":[{"by":"x","sums":{"a":98765432109876543.21}}],"price":12345678901234567.89,'
        '"date":"2013-01-01"}',
    ]


def test_files_of_csv_that_no_pipeline_has_written_are_read_as_the_arguments_say(place: Place) -> None:
    place.produce([])
    folder = place.folder / "table"
    folder.mkdir()
    (folder / "a.csv").write_text("id;name\n1;x\n")
    arguments = {"table": str(folder), "format": "csv", "options.header": "true", "options.sep": ";"}
    assert export(place, **arguments).figures == {"rows": 1}
    topology = topology_of(place, **arguments)
    exported = [json.loads(row.value) for row in load(place.spark, topology, "a", place.topic).collect()]
    assert exported == [{"id": "1", "name": "x"}]


def counted(spark: SparkSession, topology: Topology, arguments: dict[str, str]) -> dict[object, object]:
    """A job that returns what JSON cannot have."""
    return {(True, date(2013, 1, 1)): spark.range(3).agg(f.max("id")).first()}


def test_a_job_ends_well_whatever_it_returns(place: Place) -> None:
    topology = topology_of(place)
    pipeline = replace(topology.pipelines[0], job=CallFunction(module=__name__, name=counted.__name__))
    topology = replace(topology, pipelines=(pipeline,))
    session = nullcontext(place.spark.newSession())
    record = Runner(topology, pipeline, SystemClock(), session=session).run(RunRequest())
    assert record.figures == {"(True, datetime.date(2013, 1, 1))": [2]}


@pytest.mark.long
def test_conditions_on_times_that_python_has_not_got_hold_in_a_pipeline(place: Place) -> None:
    place.produce([order(1, 0), order(2, 0)])
    topology_of(place, table="none")
    file = place.folder / "topology.yaml"
    file.write_text(file.read_text().replace("mirrormaker.spark.jobs.export", "tests.pipelines.far_times"))
    done = mirrormaker("pipeline", "run", str(file), "p", "--output", "json", seconds=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["figures"] == {"rows": 2}


def test_arguments_of_a_compaction_that_are_none_are_named(spark: SparkSession, place: Place) -> None:
    wrong = {"file_bytes": "abc", "files_min": "0", "files": "1"}
    with pytest.raises(ConfigurationError) as refused:
        compaction.run(spark, topology_of(place, table="t"), wrong)
    assert refused.value.problems == [
        "arguments.files: unknown, there are pipeline, file_bytes, files_min",
        "arguments: lack 'pipeline', whose tables are meant",
        "arguments.file_bytes: 'abc' is no whole number greater than 0",
        "arguments.files_min: '0' is no whole number greater than 0",
    ]


def records(spark: SparkSession, *values: str) -> DataFrame:
    rows = [(b"key", each.encode(), 0, place) for place, each in enumerate(values)]
    frame = spark.createDataFrame(rows, "key binary, value binary, partition int, offset long")
    return hashed(frame.withColumn("timestamp", f.timestamp_millis(f.lit(START_MS))))


@pytest.mark.parametrize(
    ("copy", "told"),
    [
        ("abbb", "records 4, copied 4, missing 1, doubled 1, unexplained 0; .* offset 1 of the original"),
        ("abbcd", "records 4, copied 5, missing 0, doubled 0, unexplained 1; .* offset 4 of the copy"),
    ],
)
def test_what_differs_between_two_tiers_is_counted_by_what_it_is(
    spark: SparkSession, copy: str, told: str
) -> None:
    with pytest.raises(TiersDifferError, match=told):
        compare(records(spark, *"abbc"), records(spark, *copy))


@pytest.mark.parametrize(
    ("tiers", "told"),
    [
        (
            {"from": "a", "topic": "nowhere", "to": "a", "copy": "nowhere.either"},
            ["topic: cluster 'a' has no topic 'nowhere'", "copy: cluster 'a' has no topic 'nowhere.either'"],
        ),
        (
            {"from": "a", "topic": "nowhere", "to": "away", "copy": "flights"},
            ["topic: cluster 'a' has no topic 'nowhere'", "to: cluster 'away': no node can be reached"],
        ),
    ],
)
def test_what_both_tiers_lack_is_told_at_once(place: Place, tiers: dict[str, str], told: list[str]) -> None:
    topology = topology_of(place)
    name = ClusterName("away")
    away = replace(topology.clusters[ClusterName("a")], name=name, bootstrap=(HostPort("127.0.0.1", 1),))
    clusters = {**topology.clusters, name: away}
    with pytest.raises(ConfigurationError) as refused:
        audit_tiers(place.spark, replace(topology, clusters=clusters), tiers)
    for problem, words in zip(refused.value.problems, told, strict=True):
        assert problem.startswith(f"arguments.{words}")


@pytest.mark.long
def test_what_was_aborted_is_in_no_tier(place: Place, tmp_path: Path) -> None:
    produce(place.bootstrap, place.topic, [order(1, 0)])
    give_up(place.bootstrap, place.topic, order(2, 0))
    read = load(place.spark, topology_of(place, table=str(tmp_path)), "a", place.topic)
    assert [bytes(row.value) for row in read.collect()] == [order(1, 0)[1]]
