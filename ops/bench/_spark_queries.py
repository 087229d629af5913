"""One Spark session that runs queries on topics, for both sources by turns; started by `spark_source`.

Takes the work as JSON on the command line and prints a line of JSON for each run: seconds by the clock and of
the processor, of the driver, the JVM and the Python workers together.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrormaker.spark import MirrorDataSource

LOOPBACK = "127.0.0.1"
SCHEMA = "row int, origin string, carrier string, delay double, note string"


def count(frame: DataFrame, folder: Path) -> int:
    return frame.count()


def aggregate(frame: DataFrame, folder: Path) -> int:
    """Parse JSON and aggregate by two fields of it."""
    flight = f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight")
    by_carrier = frame.select(flight).groupBy("flight.origin", "flight.carrier")
    rows = by_carrier.agg(f.count("*").alias("flights"), f.avg("flight.delay").alias("delay")).collect()
    return sum(row.flights for row in rows)


def load(frame: DataFrame, folder: Path) -> int:
    """Write everything to Parquet."""
    frame.write.mode("overwrite").parquet(str(folder / "parquet"))
    return -1


QUERIES: dict[str, Callable[[DataFrame, Path], int]] = {"count": count, "aggregate": aggregate, "load": load}


def main(work: dict[str, Any]) -> None:
    folder = Path(work["folder"])
    session = (
        SparkSession.builder.master(work["master"])
        .config("spark.jars", ",".join(work["jars"]))
        .config("spark.driver.host", LOOPBACK)
        .config("spark.driver.bindAddress", LOOPBACK)
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.dataSource.register(MirrorDataSource)
    for round_number in range(-1, work["rounds"]):
        for topic in work["topics"] if round_number >= 0 else work["topics"][:1]:
            for query in work["queries"]:
                order = ("mirror", "kafka") if round_number % 2 else ("kafka", "mirror")
                for source in order:
                    figures = _run(session, source, query, topic, work["bootstrap"], folder)
                    if round_number >= 0:
                        print(json.dumps(figures), flush=True)
    shutil.rmtree(folder / "parquet", ignore_errors=True)
    session.stop()


def _run(
    session: SparkSession, source: str, query: str, topic: str, bootstrap: str, folder: Path
) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    frame = session.read.format(source).options(**options).load()
    cpu, started = _cpu_seconds(), time.perf_counter()
    rows = QUERIES[query](frame, folder)
    return {
        "source": source,
        "query": query,
        "topic": topic,
        "rows": rows,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": _cpu_seconds() - cpu,
    }


def _cpu_seconds() -> float:
    return sum(_times(psutil.Process()))


def _times(process: psutil.Process) -> Iterator[float]:
    """Of the process and all below it, those that have ended included."""
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        yield times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
