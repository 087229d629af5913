"""Loads of pipelines in a real Spark, from a real node, into real files."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.producer import Producer
from broker.clock import SystemClock
from broker.types import HostPort
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunKind, RunRecord, RunState
from mirrormaker.pipelines.runner import RunFailedError, Runner, RunRequest
from mirrormaker.pipelines.table import Table
from mirrormaker.pipelines.windows import Span, parse_moment
from mirrormaker.topology.loader import load_topology

START_MS = parse_moment("2013-01-01T00:00:00Z")
HOUR_MS = 3_600_000


def produce(bootstrap: str, topic: str, values: Iterable[tuple[int, bytes | None]]) -> None:
    """Records by their time; the topic is made when it is not there."""

    async def send() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            if topic not in (await cluster.refresh()).topics:
                await Admin(cluster).create_topic(NewTopic(name=topic, partitions=2, replication_factor=1))
            async with Producer(cluster) as producer:
                for number, (moment_ms, value) in enumerate(values):
                    await producer.send(topic, value, partition=number % 2, timestamp_ms=moment_ms)
                await producer.flush()

    asyncio.run(send())


def order(number: int, hour: int) -> tuple[int, bytes]:
    return START_MS + hour * HOUR_MS + number, json.dumps({"id": number, "price": number / 2}).encode()


class Place:
    """A topology with one pipeline, in a folder, on a topic of its own."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.topic = f"orders-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.spark = spark
        self.bootstrap = bootstrap
        self.keys = "format: json\n    schema: id int, price double\n    sinks: [{parquet: out}]\n"

    def produce(self, values: Iterable[tuple[int, bytes | None]]) -> None:
        produce(self.bootstrap, self.topic, values)

    def runner(self) -> Runner:
        file = self.folder / "topology.yaml"
        file.write_text(
            f'clusters: {{a: {{bootstrap: ["{self.bootstrap}"]}}}}\nroutes: []\npipelines:\n  - name: p\n'
            f'    cluster: a\n    topics: {{include: ["{self.topic}"]}}\n    {self.keys}'
        )
        topology = load_topology(file)
        session = nullcontext(self.spark.newSession())
        return Runner(topology, topology.pipelines[0], SystemClock(), session=session)

    def run(self, **request: object) -> RunRecord:
        return self.runner().run(RunRequest(**request))  # type: ignore[arg-type]

    def reload(self, start: int, end: int) -> RunRecord:
        """Hours from the first, up to one."""
        return self.run(reload=Span(start_ms=START_MS + start * HOUR_MS, end_ms=START_MS + end * HOUR_MS))

    def ids(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.folder / "out")).selectExpr("value.id as id").collect()
        return sorted(row.id for row in rows)

    def files(self, pattern: str = "**/*.parquet") -> set[str]:
        found = (self.folder / "out").glob(pattern)
        return {str(file.relative_to(self.folder / "out")) for file in found}


@pytest.fixture
def place(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Place:
    return Place(spark, bootstrap, tmp_path)


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


def test_a_batch_that_was_cut_off_comes_again_without_duplicate_or_gap(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.produce(order(number, number // 10) for number in range(20))
    append = Table.append

    def cut_off(table: Table, key: str, number: int, frame: DataFrame) -> int:
        append(table, key, number, frame)
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(Table, "append", cut_off)
        with pytest.raises(RunFailedError, match="cut off"):
            place.run()
    place.produce([order(20, 2)])
    place.run()
    assert place.ids() == list(range(21))


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


def test_all_that_is_wrong_is_told_before_anything_is_written(place: Place) -> None:
    place.produce([order(1, 0)])
    place.keys = (
        "format: json\n    schema: id int, price double\n"
        "    tables: {t: {format: csv, path: nowhere.csv}}\n"
        "    steps:\n"
        "      - {name: s, sql: 'selec 1'}\n"
        "      - {name: u, from: records, sql: 'select nothing from records'}\n"
        "      - {name: v, from: records, sql: 'select count(*) from records'}\n"
        "      - {name: w, from: records, function: nowhere.at:all}\n"
        "    sinks: [{parquet: out, from: s}, {json: out2, from: u}, {csv: /proc/x, from: v}, "
        "{topic: missing, from: w}, {parquet: o3, from: records, partition_by: [x]}]\n"
    )
    problems = place.runner().check()
    assert [problem.split(": ")[0].removeprefix("pipelines[0].") for problem in problems] == [
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


def test_missing_topics_are_told(place: Place) -> None:
    with pytest.raises(RunFailedError, match=f"has no topic that matches {place.topic}"):
        place.run()


def test_a_schema_is_inferred_once_and_kept(place: Place) -> None:
    place.keys = "format: json\n    sinks: [{parquet: out}]\n"
    place.produce([order(1, 0)])
    place.run()
    place.produce([(START_MS, b'{"id": "text", "new": 1}')])
    assert place.run().rows_quarantined == 1
    assert place.ids() == [1]


def test_rows_are_gathered_over_time_behind_a_watermark(place: Place) -> None:
    place.keys = (
        "format: json\n    schema: id int, price double\n    watermark: {delay: 10m}\n"
        "    steps: [{name: s, sql: 'select topic, window.start as begins, date_format(window.start, "
        '"yyyy-MM-dd") as date, count(*) as orders from records group by topic, window(time, "1 hour")\'}]\n'
        "    sinks: [{parquet: out}]\n"
    )
    place.produce([*(order(number, number // 10) for number in range(25)), (START_MS, b"{")])
    record = place.run()
    rows = place.spark.read.parquet(str(place.folder / "out")).collect()
    assert [row.orders for row in rows] == [10]  # the watermark has not passed the second hour
    assert record.rows_quarantined == 1
