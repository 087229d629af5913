"""Loads a topic into files and copies it to another topic, what there is, again and again until killed.

python -m tests.chaos.spark_loader ADDRESSES DIRECTORY

Prints a line each time that both queries have caught up.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mirrormaker.spark.session import local_session

SOURCE, COPY = "source", "copy"
OFFSETS_PER_TRIGGER = 700


def read(spark: SparkSession, addresses: str) -> DataFrame:
    return (
        spark.readStream.format("mirror")
        .option("kafka.bootstrap.servers", addresses)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )


def load_files(spark: SparkSession, addresses: str, directory: Path) -> None:
    rows = read(spark, addresses).selectExpr("partition", "offset", "cast(value as string) as value")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "files-state"))
    writer.trigger(availableNow=True).start(str(directory / "files")).awaitTermination()


def copy(spark: SparkSession, addresses: str, directory: Path) -> None:
    writer = read(spark, addresses).writeStream.format("mirror").option("topic", COPY)
    writer = writer.option("kafka.bootstrap.servers", addresses).option("delivery", "exactly_once")
    writer = writer.option("checkpointLocation", str(directory / "copy-state"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(addresses: str, directory: Path) -> None:
    spark = local_session("loader", master="local[2]")
    while True:
        load_files(spark, addresses, directory)
        copy(spark, addresses, directory)
        sys.stdout.write("caught up\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
