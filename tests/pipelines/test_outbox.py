"""Rows on their way to a topic, whatever is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.spark.sink_rows import RowError
from tests.spark.topics import new_topic

PARTITION = "cast({} as int) as partition"
HEADERS = "array(struct({} as key, cast('v' as binary) as value)) as headers"


class CutOffError(Exception):
    """What a crash is stood in for by."""


def test_rows_are_sent_once_where_the_note_that_they_are_was_cut_off(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
            outbox.send(7, lambda: spark.range(3), {})
    outbox.tidy()
    assert outbox.holds(7)
    assert outbox.send(7, other_rows, {}) == 3
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
