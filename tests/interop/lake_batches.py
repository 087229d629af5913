"""Batches into a table of a lake, in a Spark of its own: `python -m tests.interop.lake_batches KIND TABLE
[NAME=VALUE ...]`, the rest being Spark's settings. Prints what was seen as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from broker.errors import ConfigurationError
from mirrormaker.pipelines.sinks.lake import open_lake, reach_problem
from mirrormaker.pipelines.sinks.sink import SinkPlace
from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.pipelines.windows import Span, parse_moment
from mirrormaker.topology.model import (
    LakeFormat,
    LakeSink,
    PipelineName,
    PipelineSpec,
    SinkSpec,
    Topology,
)


def main(kind: str, table: str, *settings: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    days = [(number, f"2013-01-0{1 + number // 10}", number % 10) for number in range(30)]
    frame = spark.createDataFrame(days, "id int, date string, hour int")
    spec = SinkSpec(target=LakeSink(format=LakeFormat(kind), table=table))
    assert isinstance(spec.target, LakeSink)

    def place(generation: str) -> SinkPlace:
        return SinkPlace(
            spark=spark,
            topology=Topology(clusters={}, routes=(), data_dir=Path()),
            pipeline=PipelineSpec(name=PipelineName("Late")),
            identity=kind,
            generation=generation,
            checkpoint=TableFiles(spark, "/tmp"),
        )

    def ids() -> list[int]:
        rows = spark.read.format("delta").load(table) if kind == "delta" else spark.table(table)
        return sorted(row.id for row in rows.collect())

    seen: dict[str, object] = {"before": reach_problem(spark, spec.target, frame)}
    sink = open_lake(place("one"), spec, frame)
    sink.claim()
    for number, condition in ((0, "id < 20"), (0, "id < 20"), (1, "id >= 20"), (1, "id >= 20")):
        sink.append(number, frame.where(condition))
    seen["appended"] = ids()
    start, end = (parse_moment(f"2013-01-02T0{hour}:00:00Z") for hour in (3, 5))
    inside = frame.where("date = '2013-01-02' and hour in (3, 4)")
    inside = inside.selectExpr("id + 100 as id", "date", "hour")
    sink.replace(Span(start_ms=start, end_ms=end), inside)
    sink.append(1, frame.where("id >= 20"))
    seen["replaced"] = ids()
    seen["changed"] = reach_problem(spark, spec.target, frame.withColumn("more", frame.id))
    seen["retyped"] = reach_problem(spark, spec.target, frame.withColumn("hour", frame.hour.cast("string")))
    try:
        open_lake(place("two"), spec, frame).claim()
    except ConfigurationError as error:
        seen["refused"] = str(error)
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
