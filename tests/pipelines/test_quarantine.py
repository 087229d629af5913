"""What is in quarantine of records that come again, and of others in their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.quarantine import Quarantine
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.topology.model import PipelineName, PipelineSpec


class Kept:
    """A table that stands for its rows, by the notes of batches."""

    def __init__(self, *where: object) -> None:
        self.batches: dict[int, set[str]] = {}

    def holds(self, key: str, number: int) -> bool:
        return number in self.batches

    def append(self, key: str, number: int, frame: Rows) -> int:
        return len(self.batches.setdefault(number, set(frame)))


class Rows(set[str]):
    """A frame."""

    def isEmpty(self) -> bool:
        return not self


def test_a_batch_that_comes_again_adds_what_another_schema_cannot_decode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirrormaker.pipelines.quarantine.Table", Kept)
    pipeline = PipelineSpec(name=PipelineName("p"))
    quarantine: Any = Quarantine(None, pipeline, PipelineFolder(Path(), pipeline.name), "g")  # type: ignore[arg-type]
    added: list[Rows] = []

    def add_lacking(malformed: Rows) -> int:
        added.append(malformed)
        return len(malformed - {"a"})

    monkeypatch.setattr(quarantine, "add_lacking", add_lacking)
    assert quarantine.append(0, Rows()) == 0
    assert quarantine.append(1, Rows("a")) == 1
    assert not added
    assert quarantine.append(1, Rows("ab")) == 2
    assert added == [Rows("ab")]


def malformed(spark: SparkSession, *values: bytes | None, moment: str = "2013-01-01 07:00:00") -> DataFrame:
    """Records of one partition, one after the other."""
    rows = [("t", 0, place, moment, value, "no JSON", "2013-01-01", 7) for place, value in enumerate(values)]
    columns = "topic string, partition int, offset bigint, time string, value binary"
    frame = spark.createDataFrame(rows, f"{columns}, reason string, date string, hour int")
    return frame.selectExpr("*", "cast(time as timestamp) as timestamp", "cast(null as binary) as key").drop(
        "time"
    )


@pytest.mark.long
def test_a_record_of_another_topic_in_the_place_of_a_known_one_goes_to_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = PipelineSpec(name=PipelineName("p"), quarantine=str(tmp_path / "quarantine"))
    quarantine = Quarantine(spark, pipeline, PipelineFolder(tmp_path, pipeline.name), "g")
    quarantine.open()
    known = malformed(spark, b"a", b"b", b"")
    assert quarantine.add_lacking(known) == 3
    assert quarantine.add_lacking(known) == 0
    assert quarantine.add_lacking(malformed(spark, b"a", b"other", b"")) == 1
    assert quarantine.add_lacking(malformed(spark, b"a", moment="2013-01-01 08:00:00")) == 1
    values = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "quarantine")).collect()]
    assert sorted(values) == [b"", b"a", b"a", b"b", b"other"]
