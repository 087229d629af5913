"""Rows on their way to a topic, whatever is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.table_files import TableFiles


class CutOffError(Exception):
    """What a crash is stood in for by."""


def test_rows_are_sent_once_where_the_note_that_they_are_was_cut_off(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(spark, TableFiles(spark, str(tmp_path)), "outbox", "job")
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
