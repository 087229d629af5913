"""Rows on their way to a topic, whatever is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import HostPort
from mirrormaker.pipelines.runner import RunFailedError
from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.spark import MirrorDataSource
from mirrormaker.spark.sink_rows import RowError
from tests.pipelines.place import Place, order
from tests.spark.topics import new_topic

PARTITION = "cast({} as int) as partition"
HEADERS = "array(struct({} as key, cast('v' as binary) as value)) as headers"


class CutOffError(Exception):
    """What a crash is stood in for by."""


def test_rows_are_sent_once_where_the_note_that_they_are_was_cut_off(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": new_topic(bootstrap, partitions=1)}
    by_hadoop = TableFiles(spark, str(tmp_path))
    by_hadoop._local = None  # a file cannot take another one's place
    outbox = Outbox(spark, by_hadoop, "outbox", "job")
    rename = TableFiles.rename
    sent: list[int] = []

    def cut_off(files: TableFiles, path: str, to: str) -> None:
        if path == f"{to}.next":  # what stood there is gone already
            raise CutOffError
        rename(files, path, to)

    def send(outbox: Outbox, number: int, *what: object) -> None:
        sent.append(number)

    def other_rows() -> DataFrame:
        return spark.range(5)

    monkeypatch.setattr(Outbox, "_send", send)
    with monkeypatch.context() as patched:
        patched.setattr(TableFiles, "rename", cut_off)
        with pytest.raises(CutOffError):
            outbox.send(7, lambda: spark.range(3), options)
    outbox.tidy()
    assert outbox.holds(7)
    assert outbox.send(7, other_rows, options) == 3
    assert sent == [7]
    assert not [each for each in (tmp_path / "outbox").iterdir() if each.is_dir()]


@pytest.mark.parametrize(
    ("column", "wrong", "right", "told"),
    [
        (PARTITION, "id", "id % 4", "asks for partition 7 of topic-.*, which has 4"),
        (PARTITION, "id - 1", "nullif(id % 4, 2)", "asks for partition -1 of topic-.*, which has 4"),
        (HEADERS, "nullif('k', 'k')", "'k'", "has a header without a key"),
    ],
)
def test_rows_that_the_topic_cannot_take_are_told_before_they_are_the_batch(
    spark: SparkSession,
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    wrong: str,
    right: str,
    told: str,
) -> None:
    topic = new_topic(bootstrap, partitions=4)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    outbox = Outbox(spark, TableFiles(spark, str(tmp_path)), "outbox", "job")
    sent: list[int] = []
    monkeypatch.setattr(Outbox, "_send", lambda outbox, number, *what: sent.append(number))

    def rows(value: str) -> DataFrame:
        return spark.range(8).selectExpr("'v' as value", column.format(value))

    with pytest.raises(RowError, match=told):
        outbox.send(3, lambda: rows(wrong), options)
    outbox.tidy()
    assert not list((tmp_path / "outbox").iterdir())
    assert outbox.send(3, lambda: rows(right), options) == 8
    assert sent == [3]


def sized_topic(bootstrap: str, **settings: str) -> str:
    topic = new_topic(bootstrap, partitions=1)
    set_up(bootstrap, topic, settings)
    return topic


def set_up(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    async def alter() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).alter_topic_configs(topic, settings)

    asyncio.run(alter())


def values_in(spark: SparkSession, bootstrap: str, topic: str) -> list[str]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    committed = {"kafka.isolation.level": "read_committed"}
    records = spark.read.format("mirror").options(**options, **committed).load()
    return sorted(row.value for row in records.selectExpr("left(string(value), 5) as value").collect())


@pytest.mark.parametrize("setting", ["max.message.bytes", "segment.bytes"])
def test_rows_that_are_larger_than_the_topic_takes_are_told_before_they_are_the_batch(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    topic = sized_topic(bootstrap, **{setting: "2000"})
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    outbox = Outbox(spark, TableFiles(spark, str(tmp_path)), "outbox", "job")
    monkeypatch.setattr(Outbox, "_send", lambda *what: None)

    def rows(size: int) -> DataFrame:
        return spark.range(3).selectExpr(f"repeat('x', int(if(id = 1, {size}, 1))) as value")

    told = rf"a row takes 20\d\d bytes, and {topic} takes no more than 2000, by its {setting}"
    with pytest.raises(RowError, match=told):
        outbox.send(0, lambda: rows(1950), options)
    assert not outbox.holds(0)
    assert outbox.send(0, lambda: rows(1900), options) == 3
    assert outbox.send(1, lambda: rows(1950), options | {"kafka.compression.type": "gzip"}) == 3
    with pytest.raises(RowError, match=r"takes no more than 1000, by the option kafka.max.request.size"):
        outbox.send(2, lambda: rows(1900), options | {"kafka.max.request.size": "1000"})
    set_up(bootstrap, topic, {"cleanup.policy": "compact"})
    with pytest.raises(RowError, match=r"a row has no key, and .* needs one, by its cleanup.policy"):
        outbox.send(2, lambda: rows(1), options)


def test_rows_that_a_topic_does_not_take_any_more_are_kept_only_where_some_are_sent(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    spark.dataSource.register(MirrorDataSource)
    topic = sized_topic(bootstrap, **{"max.message.bytes": "20000"})
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly_once"}
    outbox = Outbox(spark, TableFiles(spark, str(tmp_path)), "outbox", topic)

    def rows(sizes: tuple[int, ...], letter: str) -> DataFrame:
        frame = spark.createDataFrame([(f"{letter * 5}{'x' * size}",) for size in sizes], "value string")
        return frame.coalesce(1)

    staged = Outbox._stage

    def stage(outbox: Outbox, frame: DataFrame, given: Mapping[str, str]) -> Any:
        """The topic's limit is lowered when they are kept."""
        batch = staged(outbox, frame, given)
        set_up(bootstrap, topic, {"max.message.bytes": "2000"})
        return batch

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Outbox, "_stage", stage)
        with pytest.raises(PySparkException, match=r"takes no more than 2000, by its max.message.bytes"):
            outbox.send(0, lambda: rows((1, 9000, 1), "a"), options)
    assert outbox.holds(0), "a task of the run may still send"
    outbox.settle(options)
    assert not outbox.holds(0)
    assert outbox.send(0, lambda: rows((1, 1), "b"), options) == 2
    assert values_in(spark, bootstrap, topic) == ["bbbbb"] * 2

    def parts() -> DataFrame:
        """Two tasks, of which the first writes."""
        return rows((1,), "c").union(rows((9000,), "d"))

    set_up(bootstrap, topic, {"max.message.bytes": "20000"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Outbox, "_stage", stage)
        with pytest.raises(PySparkException, match=r"takes no more than 2000, by its max.message.bytes"):
            outbox.send(1, parts, options)
    outbox.settle(options)
    assert outbox.holds(1) == ("ccccc" in values_in(spark, bootstrap, topic))
    set_up(bootstrap, topic, {"max.message.bytes": "20000"})
    assert outbox.send(1, parts, options) == 2
    assert values_in(spark, bootstrap, topic) == [*["bbbbb"] * 2, "ccccc", "ddddd"]


def test_rows_that_are_refused_as_they_are_sent_are_told_and_given_up_whatever_others_meet(
    place: Place,
) -> None:
    to = new_topic(place.bootstrap, partitions=2)
    set_up(place.bootstrap, to, {"message.timestamp.after.max.ms": "3600000"})
    place.produce(order(number, 0) for number in range(2000))

    def keys(year: int) -> str:
        columns = (
            "repeat('x', 200) as value, cast(value.id % 2 as int) as partition, "
            f"make_timestamp(if(value.id = 3, {year}, 2013), 1, 1, 0, 0, 0) as timestamp"
        )
        return (
            "format: json\n    schema: id int, price double\n"
            f'    steps: [{{name: s, sql: "select /*+ coalesce(1) */ {columns} from records"}}]\n'
            f"    sinks: [{{topic: {to}, options: {{kafka.batch.size: '4096'}}}}]\n"
        )

    place.keys = keys(2090)
    with pytest.raises(RunFailedError, match="a row is refused: INVALID_TIMESTAMP"):
        place.run()
    place.keys = keys(2013)
    assert place.run().rows_written == {"0-topic": 2000}
    assert len(values_in(place.spark, place.bootstrap, to)) == 2000
