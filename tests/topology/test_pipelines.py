"""`pipelines` of a topology file, as far as no Spark is needed to read them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.topology.model import (
    AlertOccasion,
    AlertSpec,
    CallFunction,
    Completeness,
    FileFormat,
    FileSink,
    JdbcSink,
    LakeFormat,
    LakeSink,
    PipelineSpec,
    RecordFormat,
    RetrySpec,
    ScheduleSpec,
    SinkSpec,
    StartAtTime,
    StepSpec,
    TableFormat,
    TableSpec,
    TopicSink,
    WatermarkSpec,
)
from mirrormaker.topology.step_order import StepCircleError, inputs_of, order_steps
from tests.topology.files import load, problems_of
from tests.topology.test_keys import EVERYTHING

CLUSTERS = 'clusters: {a: {bootstrap: ["a:1"]}, b: {bootstrap: ["b:1"]}}\n'
LOAD = "name: p, cluster: a, topics: {include: [x]}, sinks: [{parquet: out}]"


def load_pipeline(folder: Path, keys: str) -> PipelineSpec:
    return load(folder, f"{CLUSTERS}routes: []\npipelines:\n  - {{{keys}}}\n").pipelines[0]


def problem_of(folder: Path, keys: str) -> list[str]:
    text = f"{CLUSTERS}routes: []\npipelines:\n  - {{{keys}}}\n"
    return [problem.removeprefix("4: pipelines[0]").lstrip(".: ") for problem in problems_of(folder, text)]


def test_every_key_is_read(tmp_path: Path) -> None:
    hourly, upkeep = load(tmp_path, EVERYTHING).pipelines
    assert (hourly.name, hourly.owner, hourly.enabled, hourly.cluster) == (
        "hourly",
        "data@example.com",
        False,
        "aggregate",
    )
    assert hourly.topics is not None
    assert (hourly.topics.include, hourly.topics.exclude) == (("jfk.orders",), ("x.*",))
    assert hourly.start == StartAtTime(timestamp_ms=1_767_225_600_000)
    assert hourly.source_options == {"failOnDataLoss": "false", "minPartitions": "4"}
    assert (hourly.format, hourly.schema) == (RecordFormat.JSON, "id long, price double")
    assert (hourly.format_options, hourly.time) == ({"allowComments": "true"}, "to_timestamp(value.at)")
    assert hourly.watermark == WatermarkSpec(delay_ms=600_000)
    assert hourly.tables == {
        "shops": TableSpec(
            format=TableFormat.CSV,
            path=str(tmp_path / "shops.csv"),
            schema="shop string",
            options={"header": "true"},
        )
    }
    assert hourly.steps == (
        StepSpec(name="clean", inputs=("records",), sql="select value.*, topic, date from records"),
        StepSpec(
            name="gathered", inputs=("clean",), function=CallFunction(module="package.module", name="gather")
        ),
    )
    assert hourly.sinks == (
        SinkSpec(
            target=FileSink(format=FileFormat.PARQUET, path=str(tmp_path / "out/orders")),
            source="clean",
            partition_by=("topic", "date"),
            options={"compression": "zstd"},
        ),
        SinkSpec(target=LakeSink(format=LakeFormat.ICEBERG, table="lake.orders"), source="clean"),
        SinkSpec(target=LakeSink(format=LakeFormat.DELTA, table="s3a://lake/orders"), source="clean"),
        SinkSpec(
            target=JdbcSink(
                url="jdbc:postgresql://db/x",
                table="orders",
                user="me",
                password="env:PASSWORD",
                driver="a.B",
            )
        ),
        SinkSpec(target=TopicSink(topic="orders-clean", cluster="jfk")),
        SinkSpec(target=TopicSink(topic="gathered-orders")),
    )
    assert hourly.quarantine == str(tmp_path / "out/bad")
    assert hourly.schedule == ScheduleSpec(cron="5 * * * *", zone="Europe/Berlin")
    assert (hourly.batch_records, hourly.require, hourly.patience_ms) == (
        1000,
        Completeness.COMPLETE,
        7_200_000,
    )
    assert (hourly.master, hourly.spark) == ("spark://127.0.0.1:7077", {"spark.executor.memory": "2g"})
    assert hourly.checkpoint == "hdfs://lake/checkpoints/hourly"
    assert hourly.retry == RetrySpec(attempts=5, backoff_ms=10_000, backoff_max_ms=300_000)
    assert hourly.alert == AlertSpec(
        command=("notify", "me"), webhook="https://alerts.example.com/x", on=(AlertOccasion.FAILED,)
    )
    assert upkeep.job == CallFunction(module="mirrormaker.spark.jobs.compaction", name="run")
    assert upkeep.arguments == {"path": "out/orders"}
    assert upkeep.schedule == ScheduleSpec(every_ms=86_400_000)


def test_a_schema_can_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.ddl").write_text("a int\n")
    assert load_pipeline(tmp_path, f"{LOAD}, format: json, schema: 'file:x.ddl'").schema == "a int"
    (problem,) = problem_of(tmp_path, f"{LOAD}, format: json, schema: 'file:y.ddl'")
    assert problem.startswith(f"schema: {tmp_path / 'y.ddl'}: cannot be read")


WRONG = """
{LOAD}, nmae: x ==> nmae: unknown key; did you mean 'name'?
name: p ==> lacks 'cluster', 'topics', 'sinks', and there is no 'job' instead
{LOAD}, job: a.b ==> job: 'a.b' is not a function: write package.module:function
name: p, cluster: c, topics: {include: [x]}, sinks: [{parquet: out}] ==> cluster: there is no cluster 'c'
name: -p, job: a:b ==> name: '-p' is not a name: up to 80 letters, digits, '.', '_' and '-', no sign first
{LOAD}, schedule: {cron: '61 * * * *'} ==> schedule.cron: '61 * * * *' is no cron expression: Bad minute
{LOAD}, schedule: {cron: '* * *'} ==> schedule.cron: '* * *' has 3 fields, a cron expression has 5
{LOAD}, schedule: {cron: '0 0 30 2 *'} ==> schedule.cron: '0 0 30 2 *' is no cron expression: Bad day-of-month
{LOAD}, schedule: {every: 1h, zone: UTC} ==> schedule.zone: only 'cron' has a time zone
{LOAD}, schedule: {every: 1h, cron: '* * * * *'} ==> \\
schedule: needs one of cron, every, continuous: not cron and every
{LOAD}, schedule: {} ==> schedule: needs one of cron, every, continuous: says none of them
{LOAD}, format: csv ==> format: 'csv' needs a 'schema'
{LOAD}, source_options: {subscribe: y} ==> source_options.subscribe: see 'topics'
{LOAD}, source_options: {MaxOffsetsPerTrigger: 5} ==> \\
source_options.MaxOffsetsPerTrigger: see 'batch_records'
{LOAD}, source_options: {kafka.sasl.jaas.config: y} ==> \\
source_options.kafka.sasl.jaas.config: see 'security' of the cluster
{LOAD}, start: {offsets: {y: {0: 1}}} ==> start.offsets.y: the pipeline does not read this topic
{LOAD}, format: json, format_options: {mode: FAILFAST} ==> \\
format_options.mode: records that are not of the format go to quarantine
{LOAD}, format: json, format_options: {framing: confluent} ==> format_options.framing: only 'avro' has one
{LOAD}, format: avro, schema: '"int"', format_options: {framing: magic} ==> \\
format_options.framing: 'magic' is none: there is 'confluent'
{LOAD}, schema: a int ==> schema: raw values have none: see 'format'
{LOAD}, steps: [{name: s}] ==> steps[0]: says neither 'sql' nor 'function'
{LOAD}, steps: [{name: s, sql: x, function: a:b}] ==> steps[0]: says both 'sql' and 'function': one is enough
{LOAD}, steps: [{name: records, sql: x}] ==> steps[0].name: there is a 'records' already
{LOAD}, tables: {Records: {format: csv, path: t}} ==> tables.Records: there is a 'Records' already
{LOAD}, tables: {a b: {format: csv, path: t}} ==> \\
tables.a b: 'a b' is not a name: letters, digits and '_', no digit first
{LOAD}, steps: [{name: s, sql: x}, {name: S, sql: y}] ==> steps[1].name: there is a 'S' already
{LOAD}, tables: {late: {format: csv, path: t}}, steps: [{name: Late, sql: x}] ==> \\
steps[0].name: there is a 'Late' already
{LOAD}, steps: [{name: 9s, sql: x}] ==> \\
steps[0].name: '9s' is not a name: letters, digits and '_', no digit first
{LOAD}, steps: [{name: s, from: recrods, sql: x}] ==> \\
steps[0].from: there is no step 'recrods'; did you mean 'records'?
{LOAD}, steps: [{name: s, from: t, sql: x}, {name: t, sql: x}] ==> \\
steps: steps read one another in a circle: s <- t <- s
{LOAD}, steps: [{name: s, sql: x}, {name: t, from: records, sql: x}] ==> steps[0]: leads to no sink
{LOAD}, quarantine: ./out ==> quarantine: pipelines[0].sinks[0] writes TMP/out already
{LOAD}, checkpoint: ./out ==> checkpoint: pipelines[0].sinks[0] writes TMP/out already
{LOAD}, checkpoint: ./out/topic=x ==> checkpoint: pipelines[0].sinks[0] writes TMP/out already
{TO}{parquet: a/b}, {json: a}, {csv: ab}] ==> sinks[1]: pipelines[0].sinks[0] writes TMP/a/b already
{LOAD}, master: mesos ==> master: 'mesos' is no master: local[*], spark://HOST:PORT, yarn or k8s://URL
{LOAD}, alert: {on: [failed]} ==> alert: says neither 'command' nor 'webhook'
{LOAD}, alert: {webhook: 'ftp://x'} ==> alert.webhook: 'ftp://x' is no URL of HTTP
{LOAD}, spark: {spark.master: yarn} ==> spark.spark.master: the pipeline says this itself
{LOAD}, arguments: {a: b} ==> arguments: are for a 'job', and there is none
{LOAD}, retry: {backoff: 1h} ==> retry.backoff: exceeds 'backoff_max', which is 600000 ms
{LOAD}, require: complete, schedule: {continuous: 5s} ==> \\
require: a continuous pipeline does not wait for windows: \
see 'cron' and 'every', or say 'mark'
name: p, job: a:b, steps: [{name: s, sql: x}] ==> steps: a job reads and writes by itself: see 'arguments'
{TO}{topic: x}] ==> sinks[0].topic: the pipeline reads this topic: it would go round
{TO}{topic: {topic: y, cluster: c}}] ==> sinks[0].topic.cluster: there is no cluster 'c'
{TO}{parquet: out, from: s}] ==> sinks[0].from: there is no step 's'
{TO}{topic: y, partition_by: [x]}] ==> \\
sinks[0].partition_by: this sink has no subfolders; its windows are \
known by its columns 'date' and 'hour'
{TO}{parquet: out, partition_by: [x, y, x]}] ==> sinks[0].partition_by[2]: 'x' stands there already
{TO}{jdbc: {url: x, table: t}}] ==> sinks[0].jdbc.url: no URL of a database: it starts with 'jdbc:'
{TO}{jdbc: {url: 'jdbc:x', table: t, password: a}}] ==> sinks[0].jdbc.password: no reference to a secret: \
write env:NAME or file:/PATH
{TO}{jdbc: {url: 'jdbc:x', table: t}, options: {Password: a}}] ==> sinks[0].options.Password: \
is never in the file: write 'password: env:NAME' or 'password: file:/PATH' under 'jdbc'
{TO}{jdbc: {url: 'jdbc:x', table: 'a b'}}] ==> sinks[0].jdbc.table: 'a b' is not TABLE or SCHEMA.TABLE, \
of letters, digits and '_'
"""
TO = "name: p, cluster: a, topics: {include: [x]}, sinks: ["


@pytest.mark.parametrize("line", WRONG.replace("\\\n", "").strip().splitlines())
def test_what_is_wrong_is_told_by_its_path(tmp_path: Path, line: str) -> None:
    keys, told = line.replace("{LOAD}", LOAD).replace("{TO}", TO).split(" ==> ")
    assert problem_of(tmp_path, keys) == [told.replace("TMP", str(tmp_path.resolve()))]


def test_two_pipelines_share_neither_name_nor_folder(tmp_path: Path) -> None:
    text = f"{CLUSTERS}routes: []\npipelines:\n  - {{{LOAD}}}\n  - {{{LOAD}}}\n"
    assert problems_of(tmp_path, text) == [
        "5: pipelines[1].name: pipelines[0] is called 'p' too: give this one another name",
        f"5: pipelines[1].sinks[0]: pipelines[0].sinks[0] writes {tmp_path.resolve() / 'out'} already",
    ]


def test_two_pipelines_share_no_checkpoint(tmp_path: Path) -> None:
    """The second would go on where the first has ended, and pass over what that has loaded."""
    load = LOAD.removeprefix("name: p, ")
    for first, second in ((load, load.replace("out", "other")), ("job: a:b", "job: a:b")):
        text = (
            f"{CLUSTERS}routes: []\npipelines:\n"
            f"  - {{name: p, checkpoint: s3a://b/state, {first}}}\n"
            f"  - {{name: q, checkpoint: s3a://b/state/, {second}}}\n"
        )
        assert problems_of(tmp_path, text) == [
            "5: pipelines[1].checkpoint: pipelines[0].checkpoint writes s3a://b/state already"
        ]


def test_a_folder_that_readers_of_a_table_pass_over_may_be_in_it(tmp_path: Path) -> None:
    keys = f"{LOAD}, quarantine: out/_quarantine, checkpoint: out/.checkpoint"
    assert load_pipeline(tmp_path, keys).quarantine == str(tmp_path.resolve() / "out" / "_quarantine")


def test_continuous_pipelines_leave_a_turn_for_others(tmp_path: Path) -> None:
    continuous = f"{LOAD}, schedule: {{continuous: 1s}}"
    by_hour = f"{LOAD}, schedule: {{every: 1h}}".replace("name: p", "name: q").replace("out}", "other}")
    text = f"{CLUSTERS}routes: []\npipelines:\n  - {{{continuous}}}\n  - {{{by_hour}}}\npipelines_at_once: "
    assert load(tmp_path, f"{text}2\n").pipelines_at_once == 2
    assert problems_of(tmp_path, f"{text}1\n") == [
        "6: pipelines_at_once: 1 are too few: 1 continuous pipelines keep a turn each, the others need one, "
        "2 in all"
    ]


def test_a_step_reads_the_one_before_it_unless_it_says_otherwise() -> None:
    steps = [StepSpec(name="a"), StepSpec(name="b"), StepSpec(name="c", inputs=("records", "a"))]
    assert inputs_of(steps) == {"a": ("records",), "b": ("a",), "c": ("records", "a")}


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_steps_come_after_what_they_read_or_a_circle_is_named(edges: list[tuple[int, int]]) -> None:
    reads: dict[str, list[str]] = {f"s{number}": ["records"] for number in range(8)}
    for reader, read in edges:
        reads[f"s{reader}"].append(f"s{read}")
    steps = [StepSpec(name=name, inputs=tuple(names)) for name, names in reads.items()]
    try:
        order, circle = [step.name for step in order_steps(steps)], []
    except StepCircleError as error:
        order, circle = sorted(reads), error.names
    if circle:
        assert circle[0] == circle[-1]
        assert all(read in reads[reader] for reader, read in pairwise(circle))
        return
    assert sorted(order) == sorted(reads)
    for name, names in reads.items():
        assert all(order.index(read) < order.index(name) for read in names if read != "records")
