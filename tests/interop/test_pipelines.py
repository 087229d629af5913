"""Pipelines with what is not shipped: secured clusters, databases, tables with a log of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer import Consumer
from broker.client.producer import Producer
from broker.types import HostPort, TopicPartition
from tests.client.running import run
from tests.interop.apache import JAVA
from tests.interop.test_security import PASSWORD, READ_ALL, USERNAME, SecuredKafka, secured

__all__ = ["secured"]

TIMEOUT_SECONDS = 600
pytestmark = pytest.mark.timeout(3 * TIMEOUT_SECONDS)
H2 = "com.h2database:h2:2.5.252"
DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
ROOT = Path(__file__).parents[2]


def jars(folder: Path, *artifacts: str) -> list[str]:
    """Files of Maven Central, in `folder`."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed (Debian: apt-get install maven)")
    for artifact in artifacts:
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        subprocess.run(copy, check=True, timeout=TIMEOUT_SECONDS)
    return sorted(map(str, folder.glob("*.jar")))


def other_spark(folder: Path, version: str) -> dict[str, str]:
    """An environment in which Python finds another PySpark: lakes have no jars for the newest one yet."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, f"pyspark=={version}"], check=True, timeout=TIMEOUT_SECONDS)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYSPARK_PYTHON": sys.executable}


def write(bootstrap: list[HostPort], settings: ConnectionSettings, topic: str, numbers: range) -> None:
    async def fill() -> None:
        async with Cluster(bootstrap, settings=settings) as client:
            if topic not in (await client.refresh()).topics:
                await Admin(client).create_topic(NewTopic(name=topic, partitions=2, replication_factor=1))
            async with Producer(client) as producer:
                for number in numbers:
                    await producer.send(topic, json.dumps({"id": number}).encode(), partition=number % 2)

    run(fill)


def read(bootstrap: list[HostPort], settings: ConnectionSettings, topic: str, count: int) -> list[int]:
    async def take() -> list[int]:
        async with Cluster(bootstrap, settings=settings) as client:
            await client.ensure([topic])
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign([TopicPartition(topic, number) for number in range(2)])
                found: list[int] = []
                while len(found) < count:
                    found += [json.loads(record.value or b"")["id"] for record in await consumer.take()]
                return sorted(found)

    return run(take)


def topology(folder: Path, cluster: Mapping[str, Any], pipeline: Mapping[str, Any]) -> Path:
    file = folder / "topology.yaml"
    known = {"name": "p", "cluster": "a", "format": "json", "schema": "id int"}
    told = {"clusters": {"a": dict(cluster)}, "routes": [], "pipelines": [{**known, **pipeline}]}
    file.write_text(yaml.safe_dump(told))
    return file


def pipeline_run(file: Path, environment: Mapping[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """The record of a run in a process of its own, and all that it said."""
    done = subprocess.run(
        [sys.executable, "-m", "mirrormaker.cli", "pipeline", "run", str(file), "p", "--output", "json"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


def forget_last_batch(folder: Path) -> None:
    """As if the driver had died before Spark noted that the batch is done."""
    (commits,) = folder.glob("data/pipelines/p/checkpoint/*/load/commits")
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_secured_cluster_is_read_and_written_and_no_secret_is_left_anywhere(
    secured: SecuredKafka,
    tmp_path: Path,
    topic: str,
) -> None:
    bootstrap, settings = secured.bootstrap("SSL"), secured.settings("SSL")
    write(bootstrap, settings, topic, range(100))
    copy = f"{topic}-copy"
    write(bootstrap, settings, copy, range(0))
    (tmp_path / "secret").write_text(PASSWORD)
    security = secured.options("SASL_SSL", "SCRAM-SHA-512") | {"sasl.password": "file:secret"}
    events = tmp_path / "events"
    events.mkdir()
    file = topology(
        tmp_path,
        {"bootstrap": [str(secured.bootstrap("SASL_SSL")[0])], "security": security},
        {
            "topics": {"include": [topic]},
            "steps": [{"name": "s", "sql": "select to_json(value) as value, partition from records"}],
            "sinks": [{"parquet": "out"}, {"topic": copy}],
            "spark": {
                "spark.log.level": "INFO",
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": events.as_uri(),
            },
        },
    )
    record, said = pipeline_run(file)
    assert record["rows_written"] == {"0-parquet": 100, "1-topic": 100}
    assert read(bootstrap, settings, copy, 100) == list(range(100))
    forget_last_batch(tmp_path)
    write(bootstrap, settings, topic, range(100, 110))
    assert pipeline_run(file)[0]["state"] == "succeeded"
    assert read(bootstrap, settings, copy, 110) == list(range(110))
    assert USERNAME in said, "Spark's log was looked at"
    piece = PASSWORD[:7]
    assert piece not in said
    left = [each for each in tmp_path.rglob("*") if each.is_file() and each.name != "secret"]
    assert [each for each in left if piece.encode() in each.read_bytes()] == []
    assert any(events.rglob("*"))


def test_a_wrong_password_is_told_before_anything_is_written(
    secured: SecuredKafka,
    tmp_path: Path,
    topic: str,
) -> None:
    security = secured.options("SASL_SSL", "SCRAM-SHA-512") | {"sasl.password": "env:NOT_IT"}
    file = topology(
        tmp_path,
        {"bootstrap": [str(secured.bootstrap("SASL_SSL")[0])], "security": security},
        {"topics": {"include": [topic]}, "sinks": [{"parquet": "out"}]},
    )
    command = [sys.executable, "-m", "mirrormaker.cli", "pipeline", "run", str(file), "p"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "NOT_IT": "guessed"},
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "pipelines[0].cluster: cluster 'a': " in done.stderr
    assert "SCRAM-SHA-512 is refused" in done.stderr
    assert "guessed" not in done.stderr
    assert not list(tmp_path.glob("out/**/*.parquet"))


def test_a_database_of_another_driver_has_every_record_once(
    bootstrap: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, settings = [HostPort.parse(bootstrap)], ConnectionSettings()
    write(where, settings, topic, range(50))
    (jar,) = jars(tmp_path / "jars", H2)
    url = f"jdbc:h2:{tmp_path}/database"
    monkeypatch.setenv("DATABASE_PASSWORD", "crayon")
    database = {"url": url, "driver": "org.h2.Driver", "user": "loader", "password": "env:DATABASE_PASSWORD"}
    file = topology(
        tmp_path,
        {"bootstrap": [bootstrap]},
        {
            "topics": {"include": [topic]},
            "steps": [{"name": "s", "sql": "select value.id, topic, date, hour from records"}],
            "sinks": [{"jdbc": {**database, "table": "orders"}}],
            "spark": {"spark.jars": jar, "spark.log.level": "INFO"},
        },
    )
    record, said = pipeline_run(file)
    assert record["rows_written"] == {"0-jdbc": 50}
    assert "crayon" not in said
    forget_last_batch(tmp_path)
    write(where, settings, topic, range(50, 60))
    pipeline_run(file)
    ask = [*JAVA, "-cp", jar, "org.h2.tools.Shell", "-url", url, "-user", "loader", "-password", "crayon"]
    query = 'select count(*), count(distinct "id"), max("id") from orders'
    told = subprocess.run([*ask, "-sql", query], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.splitlines()[1].replace(" ", "") == "60|60|59"


def test_a_pipeline_loads_delta(bootstrap: str, tmp_path: Path, topic: str) -> None:
    environment = other_spark(tmp_path / "pyspark", "4.2.1")
    delta = ",".join(jars(tmp_path / "jars", *DELTA))
    where, settings = [HostPort.parse(bootstrap)], ConnectionSettings()
    write(where, settings, topic, range(50))
    file = topology(
        tmp_path,
        {"bootstrap": [bootstrap]},
        {
            "topics": {"include": [topic]},
            "steps": [{"name": "s", "sql": "select value.id, topic, date, hour from records"}],
            "sinks": [{"delta": "out"}],
            "spark": {"spark.jars": delta, "spark.sql.shuffle.partitions": "2"},
        },
    )
    assert pipeline_run(file, environment)[0]["rows_written"] == {"0-delta": 50}
    forget_last_batch(tmp_path)
    write(where, settings, topic, range(50, 60))
    pipeline_run(file, environment)
    logs = sorted((tmp_path / "out/_delta_log").glob("*.json"))
    noted = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    rows = [json.loads(each["add"]["stats"])["numRecords"] for each in noted if "add" in each]
    assert sum(rows) == 60
    assert sorted(each["txn"]["version"] for each in noted if "txn" in each) == [0, 1]


def test_jars_of_a_lake_for_another_spark_are_told(bootstrap: str, tmp_path: Path, topic: str) -> None:
    write([HostPort.parse(bootstrap)], ConnectionSettings(), topic, range(1))
    file = topology(
        tmp_path,
        {"bootstrap": [bootstrap]},
        {
            "topics": {"include": [topic]},
            "sinks": [{"iceberg": "lake.flights.late"}],
            "spark": {
                "spark.jars": ",".join(jars(tmp_path / "jars", *ICEBERG)),
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type": "hadoop",
                "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse"),
            },
        },
    )
    command = [sys.executable, "-m", "mirrormaker.cli", "pipeline", "check", str(file), "p"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 1
    assert f"the jars of iceberg are for another Spark than {pyspark.__version__}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lakes_know_batches_again_and_replace_windows(tmp_path: Path, kind: str) -> None:
    if kind == "delta":
        environment, found = other_spark(tmp_path / "pyspark", "4.2.1"), jars(tmp_path / "jars", *DELTA)
        table = str(tmp_path / "table")
        settings = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    else:
        environment, found = other_spark(tmp_path / "pyspark", "4.1.4"), jars(tmp_path / "jars", *ICEBERG)
        table = "lake.flights.late"
        settings = {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse"),
        }
    settings |= {"spark.jars": ",".join(found), "spark.sql.shuffle.partitions": "2"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.interop.lake_batches", kind, table),
            *(f"{name}={value}" for name, value in settings.items()),
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["before"] is None
    assert seen["appended"] == list(range(30))
    assert seen["replaced"] == sorted({*range(30), 113, 114} - {13, 14})
    assert seen["changed"] == f"{table}: has no column more: there are id, date, hour"
    if kind == "delta":
        told = "column 'hour' is string, and int in the table: choose another table, or cast it"
        assert seen["retyped"] == f"{table}: {told}"
    assert "another checkpoint" in seen["refused"]
