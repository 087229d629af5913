"""One load of a topic into Parquet files, in tasks of some records each.

python -m tests.chaos.spark_batch_load ADDRESSES TOPIC DIRECTORY MASTER RECORDS_PER_TASK
"""

from __future__ import annotations

import sys

from mirrormaker.spark.session import local_session
from tests.chaos.standalone_spark import SETTINGS


def main(addresses: str, topic: str, directory: str, master: str, records_per_task: str) -> None:
    spark = local_session("load", master=master, settings=SETTINGS)
    frame = (
        spark.read.format("mirror")
        .option("kafka.bootstrap.servers", addresses)
        .option("subscribe", topic)
        .option("maxRecordsPerPartition", records_per_task)
        .load()
    )
    frame.selectExpr("partition", "offset", "cast(value as string) as value").write.parquet(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
