"""One Spark session that runs queries on topics, for both sources by turns; started by `spark_source`.

Takes the work as JSON on the command line and prints a line of JSON for each run, until its time is over:
seconds by the clock and of the processor, of the driver, the JVM and the Python workers together.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrormaker.spark import MirrorDataSource
from mirrormaker.spark.session import UNIX_SOCKETS

SOURCES = ("mirror", "kafka")
LOOPBACK = "127.0.0.1"
BATCH_BYTES = 64 * 1024
WORDS = "gate late crew snow wind fuel slot taxi door bags hold push "
SCHEMA = "row int, origin string, carrier string, delay double, note string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One topic under one of the two sources."""

    session: SparkSession
    source: str
    bootstrap: str
    topic: str
    copy: str
    """Where `write` writes."""
    size: int
    codec: str
    partitions: int
    rows: int
    folder: Path

    def frame(self) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic}
        return self.session.read.format(self.source).options(**options).load()


def count(case: Case) -> int:
    return case.frame().count()


def aggregate(case: Case) -> int:
    """Parse JSON and aggregate by two fields of it."""
    flight = f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight")
    by_carrier = case.frame().select(flight).groupBy("flight.origin", "flight.carrier")
    rows = by_carrier.agg(f.count("*").alias("flights"), f.avg("flight.delay").alias("delay")).collect()
    return sum(row.flights for row in rows)


def load(case: Case) -> int:
    """Write everything to Parquet."""
    case.frame().write.mode("overwrite").parquet(str(case.folder / "parquet"))
    return -1


def write(case: Case) -> int:
    """Rows that Spark makes up, to a topic; batches of one size under both sinks."""
    numbers = case.session.range(0, case.rows, 1, case.partitions)
    key, number = f.format_string("%08d", f.col("id")), f.col("id").cast("string")
    words = f.sha2(number, 512)
    value = f.rpad(f.concat(number, words), case.size, WORDS).alias("value")
    frame = numbers.select(
        key.alias("key"), value, (f.col("id") % case.partitions).cast("int").alias("partition")
    )
    options = {
        "kafka.bootstrap.servers": case.bootstrap,
        "topic": case.copy,
        "kafka.compression.type": case.codec,
        "kafka.batch.size": str(BATCH_BYTES),
        "kafka.linger.ms": "50",
    }
    frame.write.format(case.source).options(**options).mode("append").save()
    return -1


QUERIES: dict[str, Callable[[Case], int]] = {
    "count": count,
    "aggregate": aggregate,
    "load": load,
    "write": write,
}


def main(work: dict[str, Any]) -> None:
    ends_at = time.monotonic() + work["seconds"]
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
        .config(UNIX_SOCKETS, "true")
        .getOrCreate()
    )
    session.dataSource.register(MirrorDataSource)
    about = {"session": session, "bootstrap": work["bootstrap"], "folder": folder}
    for query in work["queries"]:
        for source in SOURCES:
            _run(Case(source=source, **about, **work["topics"][0]), query)
    for round_number in range(work["rounds"]):
        for topic, query in product(work["topics"], work["queries"]):
            if time.monotonic() > ends_at:
                break
            for source in SOURCES if round_number % 2 else SOURCES[::-1]:
                print(json.dumps(_run(Case(source=source, **about, **topic), query)), flush=True)
    shutil.rmtree(folder / "parquet", ignore_errors=True)
    session.stop()


def _run(case: Case, query: str) -> dict[str, Any]:
    cpu, started = _cpu_seconds(), time.perf_counter()
    rows = QUERIES[query](case)
    return {
        "source": case.source,
        "query": query,
        "topic": case.topic,
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
