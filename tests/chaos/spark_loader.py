"""Loads a topic into files, what there is, again and again until killed; with `--copy` also to another topic.

python -m tests.chaos.spark_loader ADDRESSES DIRECTORY [--topic NAME] [--copy NAME] [--master URL]

Prints a line each time that all queries have caught up.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mirrormaker.spark.session import local_session
from tests.chaos.standalone_spark import SETTINGS

SOURCE, COPY = "source", "copy"
OFFSETS_PER_TRIGGER = 700


def read(spark: SparkSession, addresses: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("mirror")
        .option("kafka.bootstrap.servers", addresses)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )


def load_files(source: DataFrame, directory: Path) -> None:
    rows = source.selectExpr("partition", "offset", "cast(value as string) as value")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "files-state"))
    writer.trigger(availableNow=True).start(str(directory / "files")).awaitTermination()


def copy(source: DataFrame, addresses: str, topic: str, directory: Path) -> None:
    writer = source.writeStream.format("mirror").option("topic", topic)
    writer = writer.option("kafka.bootstrap.servers", addresses).option("delivery", "exactly_once")
    writer = writer.option("checkpointLocation", str(directory / "copy-state"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--topic", default=SOURCE)
    parser.add_argument("--copy")
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    spark = local_session("loader", master=given.master, settings=SETTINGS)
    while True:
        load_files(read(spark, given.addresses, given.topic), given.directory)
        if given.copy:
            source = read(spark, given.addresses, given.topic)
            copy(source, given.addresses, given.copy, given.directory)
        sys.stdout.write("caught up\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
