"""Loads of pipelines in a real Spark, from a real node, into real files."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from mirrormaker.pipelines.checkpoint import Checkpoint
from mirrormaker.pipelines.loading import Load, LoadFigures, describe_failure
from mirrormaker.pipelines.run_log import PipelineBusyError, PipelineFolder
from mirrormaker.pipelines.run_record import RunKind, RunState
from mirrormaker.pipelines.runner import RunFailedError, RunRequest
from mirrormaker.pipelines.source import Offsets
from mirrormaker.pipelines.table import Table
from mirrormaker.pipelines.windows import END_MS, Span
from mirrormaker.topology.model import PipelineName, PipelineSpec
from tests.conftest import until
from tests.node.file_systems import mounted_tmpfs
from tests.pipelines.place import HOUR_MS, START_MS, Place, give_up, order


@pytest.mark.timeout(400)  # many runs, each of which Spark begins anew
def test_runs_load_every_record_once_and_note_what_they_did(place: Place) -> None:
    place.produce(order(number, number // 10) for number in range(30))
    bad = [(START_MS, b"{"), (START_MS + 1, b'{"id": "x", "price": 1}'), (START_MS + 2, b"\xff\xfe")]
    place.produce(bad)
    record = place.run()
    assert place.ids() == list(range(30))
    hours = {name.split("/")[2] for name in place.files()}
    assert hours == {"hour=0", "hour=1", "hour=2"}
    assert (record.kind, record.state, record.batches) == (RunKind.LOAD, RunState.SUCCEEDED, 1)
    assert (record.rows_read, record.rows_written, record.rows_quarantined) == (33, {"0-parquet": 30}, 3)
    assert record.offsets_read == 33
    assert record.hours == {place.topic: {f"2013-01-01T0{hour}": 10 + 3 * (not hour) for hour in range(3)}}
    quarantine = place.spark.read.parquet(str(place.folder / "data/pipelines/p/quarantine"))
    rows = quarantine.orderBy("timestamp").select("topic", "partition", "offset", "reason").collect()
    assert [(row.topic, row.partition, row.reason) for row in rows] == [
        (place.topic, 0, "not JSON of the schema"),
        (place.topic, 1, "field id: 'x' is no int"),
        (place.topic, 0, "not UTF-8 text"),
    ]
    give_up(place.bootstrap, place.topic, order(99, 2))
    place.produce(order(number, 2) for number in range(30, 35))
    assert place.run().rows_read == 5
    assert place.run().rows_read == 0
    assert place.ids() == list(range(35))
    runs = PipelineFolder(place.folder / "data", "p").runs()  # type: ignore[arg-type]
    assert [(run.state, run.rows_read) for run in runs] == [
        (RunState.SUCCEEDED, 33),
        (RunState.SUCCEEDED, 5),
        (RunState.SUCCEEDED, 0),
    ]


def run_cut_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cut off when the rows of its batch are in the table, and before it says so."""
    append = Table.append

    def cut_off(table: Table, key: str, number: int, frame: DataFrame) -> int:
        append(table, key, number, frame)
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "append", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()


@pytest.mark.long
def test_a_batch_that_was_cut_off_comes_again_without_duplicate_or_gap(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    run_cut_off(place, monkeypatch)
    place.produce([order(20, 2)])
    assert place.run().rows_read == 21
    assert place.ids() == list(range(21))
    assert rows_of_runs(place) == [0, 21]


@pytest.mark.long
def test_sinks_may_stand_in_another_order_when_a_batch_that_was_cut_off_comes_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.keys = place.keys.replace("{parquet: out}", "{parquet: out}, {parquet: other}")
    place.produce(order(number, 0) for number in range(5))
    run_cut_off(place, monkeypatch)
    place.keys = place.keys.replace("{parquet: out}, {parquet: other}", "{parquet: other}, {parquet: out}")
    place.produce([order(5, 0)])
    assert place.run().rows_read == 6
    assert place.ids() == list(range(6))
    assert place.spark.read.parquet(str(place.folder / "other")).count() == 6


@pytest.mark.long
def test_an_older_copy_of_a_checkpoint_is_told_before_anything_is_written(place: Place) -> None:
    checkpoint, copy = (place.folder / "data/pipelines/p" / name for name in ("checkpoint", "copy"))
    for number in range(3):
        place.produce([order(number, 0)])
        if number < 2:
            place.run()
        if number == 0:
            shutil.copytree(checkpoint, copy)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    with pytest.raises(RunFailedError, match="checkpoint: it does not know of batch 1, which has been"):
        place.run()
    assert place.ids() == [0, 1]


def rows_of_runs(place: Place) -> list[int]:
    """What each has read, as its record has it."""
    folder = PipelineFolder(place.folder / "data", PipelineName("p"))
    return [run.rows_read for run in folder.runs()]


@pytest.mark.long
def test_a_batch_that_was_done_but_for_sparks_note_is_in_the_figures_of_one_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    add = Load._add

    def cut_off(load: Load, query: str, number: int, batch: LoadFigures) -> None:
        add(load, query, number, batch)
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(Load, "_add", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    place.produce([order(20, 2)])
    record = place.run()
    assert (record.batches, record.rows_read, record.rows_written) == (1, 1, {"0-parquet": 1})
    assert place.ids() == list(range(21))
    assert rows_of_runs(place) == [20, 1]


@pytest.mark.long
def test_a_reload_comes_after_a_load_that_was_cut_off_with_its_rows_in_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    place.run()
    place.produce(order(number, 1) for number in range(20, 25))
    run_cut_off(place, monkeypatch)
    with pytest.raises(RunFailedError, match="was cut off, and its rows may be in 0-parquet already"):
        place.reload(1, 2)
    place.run()
    assert place.reload(1, 2).rows_written == {"0-parquet": 15}
    assert place.ids() == list(range(25))


@pytest.mark.parametrize(
    "keys", [pytest.param("", marks=pytest.mark.long), "    time: to_timestamp('9999-12-31T23:30:00')\n"]
)
def test_the_last_windows_that_there_are_are_written_anew(place: Place, keys: str) -> None:
    last_ms = END_MS - HOUR_MS // 2
    place.keys = f"{place.keys}{keys}"
    place.produce((last_ms if not keys else START_MS, order(number, 0)[1]) for number in range(4))
    place.run()
    before = place.files()
    record = place.run(reload=Span(start_ms=last_ms, end_ms=last_ms + 1))
    assert record.rows_written == {"0-parquet": 4}
    (window,) = record.windows
    assert window.endswith("/date=9999-12-31/hour=23")
    assert place.ids() == list(range(4))
    assert not before & place.files()


def test_a_reload_writes_the_windows_anew_that_are_asked_for_and_no_others(place: Place) -> None:
    place.keys = (
        "format: json\n    schema: id int, price double\n"
        "    steps: [{name: s, sql: 'select value, topic, date, hour, 1 as version from records'}]\n"
        "    sinks: [{parquet: out}]\n"
    )
    place.produce(order(number, number // 10) for number in range(40))
    place.run()
    before = place.files()
    place.keys = place.keys.replace("1 as version", "2 as version")
    place.produce([order(99, 1)])  # not loaded yet
    record = place.reload(1, 3)
    assert len(record.windows) == 2
    assert place.ids() == list(range(40))
    after = place.files()
    assert {name for name in before & after if "hour=0" in name or "hour=3" in name}
    assert not {name for name in before & after if "hour=1" in name or "hour=2" in name}
    versions = place.spark.read.parquet(str(place.folder / "out")).select("hour", "version").distinct()
    assert {(row.hour, row.version) for row in versions.collect()} == {(0, 1), (1, 2), (2, 2), (3, 1)}
    assert place.run().rows_read == 1
    assert place.ids() == [*range(40), 99]


@pytest.mark.long
def test_a_reload_that_was_cut_off_amid_its_windows_is_ended_by_a_load_of_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.keys += (
        "    steps: [{name: s, sql: 'select value.id, 1 as version, topic, date, hour from records'}]\n"
    )
    place.produce(order(number, number // 10) for number in range(20))
    place.run()
    place.keys = place.keys.replace("1 as version", "2 as version")
    swap_window = Table._swap_window

    def cut_off(table: Table, staged: str, window: str, names: list[str]) -> None:
        if window.endswith("hour=1"):
            raise OSError("cut off")
        swap_window(table, staged, window, names)

    with monkeypatch.context() as patched:
        patched.setattr(Table, "_swap_window", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.reload(0, 2)
    assert place.run().rows_read == 0
    found = place.spark.read.parquet(str(place.folder / "out")).groupBy("hour", "version").count()
    assert {(row.hour, row.version): row["count"] for row in found.collect()} == {(0, 2): 10, (1, 2): 10}


@pytest.mark.long
def test_a_reload_puts_into_quarantine_what_the_schema_of_today_does_not_have(place: Place) -> None:
    place.keys = place.keys.replace("price double", "price string")
    values = [json.dumps({"id": number, "price": "free" if number % 2 else number}) for number in range(10)]
    place.produce((order(number, number // 5)[0], value.encode()) for number, value in enumerate(values))
    place.produce([(START_MS + HOUR_MS, b"x")])
    assert place.run().rows_quarantined == 1
    place.keys = place.keys.replace("price string", "price int")
    place.keys += "    steps: [{name: s, sql: 'select value.id, topic, date, hour from records'}]\n"
    record = place.reload(1, 2)
    assert (record.rows_written, record.rows_quarantined) == ({"0-parquet": 2}, 3)
    assert place.reload(1, 2).rows_quarantined == 0
    quarantine = place.spark.read.parquet(str(place.folder / "data/pipelines/p/quarantine"))
    reasons = [row.reason for row in quarantine.orderBy("timestamp").collect()]
    assert sorted(reasons) == [*["field price: 'free' is no int"] * 3, "not JSON of the schema"]


@pytest.mark.long
def test_a_reload_that_one_table_refuses_changes_no_other(place: Place) -> None:
    place.keys = place.keys.replace("{parquet: out}", "{parquet: out}, {parquet: other}")
    place.produce(order(number, number // 10) for number in range(20))
    place.run()
    before = place.files()
    owner = place.folder / "other/_mirrormaker/owner.json"
    (owner.parent / ".owner.json.crc").unlink(missing_ok=True)
    owner.write_text(json.dumps({"pipeline": "p", "checkpoint": "another"}))
    with pytest.raises(RunFailedError, match="other: was loaded by pipeline 'p' with another checkpoint"):
        place.reload(0, 1)
    assert place.files() == before


OWN_DAY = "select value.id, value.day as date, 1 as version from records"


@pytest.mark.parametrize(
    "step",
    [
        OWN_DAY,
        pytest.param(
            f"select value.id, date, 1 as version from records where false union all {OWN_DAY}",
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.long
def test_a_reload_finds_the_rows_of_days_that_a_step_makes_wherever_their_records_are(
    place: Place, step: str
) -> None:
    place.keys = (
        "format: json\n    schema: id int, day string\n"
        f"    steps: [{{name: s, sql: '{step}'}}]\n    sinks: [{{parquet: out}}]\n"
    )
    days = ["2013-01-01", "2013-01-02", "soon"]
    orders = [{"id": number, "day": days[number % 3]} for number in range(9)]
    place.produce((START_MS + 100 * 24 * HOUR_MS, json.dumps(each).encode()) for each in orders)
    place.run()
    place.keys = place.keys.replace("1 as version", "2 as version")
    assert place.reload(0, 24).rows_written == {"0-parquet": 3}
    found = place.spark.read.parquet(str(place.folder / "out")).collect()
    assert sorted(row.id for row in found) == list(range(9))
    assert {row.id for row in found if row.version == 2} == {0, 3, 6}


def test_all_that_is_wrong_is_told_before_anything_is_written(place: Place) -> None:
    place.produce([order(1, 0)])
    place.keys = (
        "format: json\n    schema: id int, price double\n"
        "    format_options: {allowCommments: true, allowSingleQuotes: true}\n"
        "    quarantine: /proc/q\n    checkpoint: /proc/y\n"
        "    tables: {t: {format: csv, path: nowhere.csv, options: {sep: ';', HEADER: true, quot: x}}}\n"
        "    steps:\n"
        "      - {name: s, sql: 'selec 1'}\n"
        "      - {name: u, from: records, sql: 'select nothing from records'}\n"
        "      - {name: v, from: records, sql: 'select count(*) from records'}\n"
        "      - {name: w, from: records, function: nowhere.at:all}\n"
        "    sinks: [{parquet: out, from: s, options: {compresion: zstd, parquet.block.size: 9, "
        "maxRecordsPerFile: 5}}, {json: out2, from: u}, {csv: /proc/x, from: v, options: {nullValue: '-'}}, "
        "{topic: missing, from: w}, {parquet: o3, from: records, partition_by: [x]}]\n"
    )
    problems = place.runner().check()
    assert "'json' has no such option; did you mean 'allowComments'?" in problems[0]
    assert [problem.split(": ")[0].removeprefix("pipelines[0].") for problem in problems] == [
        "format_options.allowCommments",
        "tables.t.options.quot",
        "sinks[0].options.compresion",
        "quarantine",
        "checkpoint",
        "tables.t",
        "steps[0].sql",
        "steps[1].sql",
        "steps[2].sql",
        "steps[3].function",
        "sinks[4]",
        "sinks[2]",
        "sinks[3]",
    ]
    with pytest.raises(RunFailedError, match="PARSE_SYNTAX_ERROR"):
        place.run()
    assert not place.files()


def test_steps_that_read_no_records_are_refused_and_do_nothing(place: Place) -> None:
    place.produce([order(1, 0)])
    place.keys = (
        "format: json\n    schema: id int, price double\n"
        f"    tables: {{t: {{format: json, path: '{place.folder}/t.json', schema: x int}}}}\n"
        "    steps:\n"
        "      - {name: s, sql: 'create temp view made as select 1'}\n"
        "      - {name: u, from: records, sql: 'select x from t'}\n"
        "      - {name: v, from: records, sql: 'select value.id from records union all select x from t'}\n"
        "    sinks: [{parquet: out, from: s}, {parquet: out2, from: u}, {parquet: out3, from: v}]\n"
    )
    (place.folder / "t.json").write_text('{"x": 5}')
    session = place.spark.newSession()
    assert place.runner(session).check() == [
        "pipelines[0].steps[0].sql: is a command, and no query on records",
        "pipelines[0].sinks[1]: has rows of no records: each load would write them again",
        "pipelines[0].sinks[2]: has rows of no records: each load would write them again",
    ]
    assert not session.catalog.tableExists("made")


def test_a_sink_without_room_is_told_as_such_before_anything_is_read(place: Place) -> None:
    place.produce([order(1, 0)])
    with mounted_tmpfs(place.folder / "out", size=1 << 20) as out:
        with (out / "_ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(out).free)
        with pytest.raises(RunFailedError, match=r": out of space: .*sinks\[0\]: cannot be written: "):
            place.run()


def test_a_checkpoint_that_is_full_by_the_time_that_spark_writes_it_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's words for that name no place."""
    place.keys += "    checkpoint: point\n"
    place.produce([order(1, 0)])
    with mounted_tmpfs(place.folder / "point", size=1 << 20) as point:
        place.run()
        place.produce([order(2, 0)])
        note_start = Checkpoint.note_start

        def fill(checkpoint: Checkpoint, pipeline: PipelineSpec, beginning: Offsets) -> None:
            note_start(checkpoint, pipeline, beginning)
            with (point / "_ballast").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(point).free)

        with monkeypatch.context() as patched:
            patched.setattr(Checkpoint, "note_start", fill)
            with pytest.raises(RunFailedError, match=r": out of space: \S*/point\S*: .*No space left"):
                place.run()
        (point / "_ballast").unlink()
        assert place.run().rows_read == 1
    assert place.ids() == [1, 2]


def test_lines_of_one_column_need_something_for_null(place: Place) -> None:
    place.produce([(START_MS, b'{"name": "x"}'), (START_MS + 1, b"{}")])
    step = "{name: s, sql: 'select value.name, date from records'}"
    keys = f"format: json\n    schema: name string\n    steps: [{step}]\n    sinks: [{{csv: out%s}}]\n"
    place.keys = keys % ""
    (problem,) = place.runner().check()
    assert "rows whose only column 'name' is null would be lost" in problem
    place.keys = keys % ", options: {nullValue: '-'}"
    assert place.run().rows_written == {"0-csv": 2}
    lines = [
        line for file in place.files("**/*.csv") for line in (place.folder / "out" / file).read_text().split()
    ]
    assert sorted(lines) == ['"-"', '"x"']


def test_a_run_that_has_no_end_makes_room_for_another_between_its_batches(place: Place) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    place.keys = f"{place.keys}    schedule: {{continuous: 100ms}}\n"
    endless, folder = place.runner(), PipelineFolder(place.folder / "data", PipelineName("p"))
    with ThreadPoolExecutor() as threads:
        running = threads.submit(endless.run, RunRequest(trigger="schedule"))
        try:
            until(lambda: any(run.rows_read == 20 for run in folder.runs()), seconds=120)
            reloaded = place.reload(0, 1)
        finally:
            endless.stop()
        ended = running.result()
    assert (reloaded.state, reloaded.rows_written) == (RunState.SUCCEEDED, {"0-parquet": 10})
    assert (ended.state, ended.rows_read) == (RunState.SUCCEEDED, 20), "the daemon's next goes on"
    assert place.ids() == list(range(20))


def test_a_run_that_has_no_end_makes_room_once_it_has_loaded_something(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    place.keys = f"{place.keys}    schedule: {{continuous: 100ms}}\n"
    monkeypatch.setattr("mirrormaker.pipelines.runner.WAIT_SECONDS", 0.01)
    endless, folder = place.runner(), PipelineFolder(place.folder / "data", PipelineName("p"))
    with ThreadPoolExecutor() as threads:
        running = threads.submit(endless.run, RunRequest(trigger="schedule"))
        try:
            until(folder.is_locked, seconds=120)
            with folder.locked(lambda: True):
                loaded = place.ids()
        finally:
            endless.stop()
        ended = running.result()
    assert (ended.state, ended.rows_read) == (RunState.SUCCEEDED, 20)
    assert loaded == list(range(20))


def test_a_run_of_the_daemon_waits_for_what_somebody_else_does_to_the_pipeline(place: Place) -> None:
    place.produce(order(number, 0) for number in range(10))
    runner, folder = place.runner(), PipelineFolder(place.folder / "data", PipelineName("p"))
    with ThreadPoolExecutor() as threads:
        with folder.locked():
            with pytest.raises(PipelineBusyError):
                place.run()
            running = threads.submit(runner.run, RunRequest(trigger="schedule"))
            until(lambda: folder.is_wanted() or running.done())
            assert not running.done()
        assert running.result().rows_read == 10


def test_a_column_of_another_type_is_told_before_anything_is_written(place: Place) -> None:
    place.produce([order(1, 0)])
    place.keys = (
        "format: json\n    schema: id int, price double\n"
        "    steps: [{name: s, sql: 'select value.id, topic, hour from records'}]\n"
        "    sinks: [{csv: out, partition_by: [topic]}]\n"
    )
    place.run()
    before = place.files("**/*.csv")
    place.keys = place.keys.replace("select value.id", "select value.price as id, 1 as more")
    place.produce([order(2, 0)])
    with pytest.raises(RunFailedError, match=r"sinks\[0\]: column 'id' is double, and int in the files of"):
        place.run()
    assert place.files("**/*.csv") == before


@pytest.mark.long
def test_files_of_one_table_are_of_one_format_and_in_the_same_subfolders(place: Place) -> None:
    place.produce([order(1, 0)])
    place.run()
    place.produce([order(2, 0)])
    keys = place.keys
    for now, told in (
        ("{json: out}", "json by topic, date, hour"),
        ("{parquet: out, partition_by: [date]}", "parquet by date"),
    ):
        place.keys = keys.replace("{parquet: out}", now)
        said = rf"sinks\[0\]: .*has files of parquet by topic, date, hour, and these would be of {told}:"
        with pytest.raises(RunFailedError, match=said):
            place.run()
    place.keys = keys
    place.run()
    assert place.ids() == [1, 2]


def test_missing_topics_are_told(place: Place) -> None:
    with pytest.raises(RunFailedError, match=f"has no topic that matches {place.topic}"):
        place.run()


@pytest.mark.long
def test_a_schema_is_inferred_once_and_kept(place: Place) -> None:
    place.keys = "format: json\n    sinks: [{parquet: out}]\n"
    place.produce([order(1, 0)])
    place.run()
    place.produce([(START_MS, b'{"id": "text", "new": 1}')])
    assert place.run().rows_quarantined == 1
    assert place.ids() == [1]


GATHERED = (
    "format: json\n    schema: id int, price double\n    watermark: {delay: 10m}\n"
    "    steps: [{name: s, sql: 'select topic, window.start as begins, date_format(window.start, "
    '"yyyy-MM-dd") as date, count(*) as orders from records group by topic, window(time, "1 hour")\'}]\n'
    "    sinks: [{parquet: out}]\n"
)


def gathered(place: Place) -> list[int]:
    """Rows of each hour that the watermark has passed."""
    found = place.spark.read.parquet(str(place.folder / "out")).orderBy("begins").collect()
    return [row.orders for row in found]


@pytest.mark.long
def test_rows_are_gathered_over_time_behind_a_watermark(place: Place) -> None:
    place.keys = GATHERED
    place.produce([*(order(number, number // 10) for number in range(25)), (START_MS, b"{")])
    record = place.run()
    assert gathered(place) == [10]  # the watermark has not passed the second hour
    assert record.rows_quarantined == 1


@pytest.mark.long
def test_a_batch_of_a_pipeline_that_gathers_comes_again_with_its_state(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.keys = GATHERED
    place.produce(order(number, number // 10) for number in range(25))
    run_cut_off(place, monkeypatch)
    place.run()
    assert gathered(place) == [10]
    place.produce(order(number, number // 10) for number in range(25, 35))
    place.run()
    assert gathered(place) == [10, 10]


def test_errors_of_ours_that_spark_wraps_are_told() -> None:
    lines = (
        "An exception was thrown from the Python worker:",
        "Traceback (most recent call last):",
        '  File "/mirrormaker/spark/sink.py", line 7, in write',
        "broker.errors.ProtocolError: NOT_LEADER: t-0",
        "",
        "The above exception was the direct cause of the following exception:",
        "broker.client.transaction_state.TransactionAbortableError: transaction of t: to be aborted",
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
    )
    error = PySparkException("\n".join(lines))
    assert describe_failure(error) == "transaction of t: to be aborted"


def test_what_a_function_raises_in_a_worker_is_told() -> None:
    lines = (
        "An exception was thrown from the Python worker:",
        "Traceback (most recent call last):",
        '  File "/steps.py", line 3, in parse',
        "    return table[key]",
        "           ~~~~~^^^^^",
        "KeyError: 5",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/steps.py", line 5, in parse',
        '    raise ValueError("no such row")',
        "ValueError: no such row",
        "",
        "Caused by: org.apache.spark.api.python.PythonException",
    )
    assert describe_failure(PySparkException("\n".join(lines))) == "ValueError: no such row"


def test_rows_that_cannot_be_computed_are_told_with_their_step_or_else_their_sink(place: Place) -> None:
    place.produce([order(7, 0)])
    place.keys = (
        "format: json\n    schema: id int, price double\n    steps:\n"
        "      - {name: all, sql: 'select value.*, date from records'}\n"
        "      - {name: parts, sql: 'select 1 / (id - 7) as part, date from all'}\n"
        "    sinks: [{parquet: out, from: all}, {parquet: parts}]\n"
    )
    with pytest.raises(RunFailedError, match=r": pipelines\[0\]\.steps\[1\]\.sql: \[DIVIDE_BY_ZERO\] "):
        place.run()
    place.keys = place.keys.replace(
        "sql: 'select 1 / (id - 7) as part, date from all'",
        'function: "tests.pipelines.failing_step:divided"',
    )
    with pytest.raises(RunFailedError, match=r": pipelines\[0\]\.sinks\[1\]: \[DIVIDE_BY_ZERO\] "):
        place.run()
