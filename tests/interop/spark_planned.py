"""Plans the next trigger of a query, and waits to be killed: of it nothing but its offsets is there then.

python -m tests.interop.spark_planned SOURCE JARS ADDRESS TOPIC CHECKPOINT

Creates the file CHECKPOINT.planned once it is.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from mirrormaker.spark.session import local_session


def main(source: str, jars: str, address: str, topic: str, checkpoint: str) -> None:
    def wait(rows: DataFrame, number: int) -> None:
        Path(f"{checkpoint}.planned").touch()
        signal.pause()

    spark = local_session("planned", master="local[1]", settings={"spark.jars": jars})
    frame = spark.readStream.format(source).option("kafka.bootstrap.servers", address)
    frame = frame.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(wait).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
