"""The data source `mirror` beside Spark's own Kafka source: options, rows, checkpoints and refusals."""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.child_process import ChildProcess
from tests.interop.apache import ApacheKafka
from tests.spark.topics import NOW_MS, append, fill, new_topic

SOURCES = ("kafka", "mirror")
pytestmark = pytest.mark.timeout(900)
REFUSALS = (PySparkException, Py4JError)


@pytest.fixture(params=["our node", "Apache Kafka"])
def address(request: pytest.FixtureRequest) -> str:
    """Of the node that is read."""
    if request.param == "our node":
        found: str = request.getfixturevalue("bootstrap")
        return found
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return str(kafka.address)


def load(spark: SparkSession, source: str, address: str, **options: str) -> DataFrame:
    return spark.read.format(source).option("kafka.bootstrap.servers", address).options(**options).load()


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def by_topic(topic: str, **places: int) -> str:
    """Numbers by partition, as both sources take them; names are `p0` and so on."""
    return json.dumps({topic: {name[1:]: place for name, place in places.items()}})


def test_loads_with_the_same_options_have_the_same_rows(spark: SparkSession, address: str) -> None:
    topic = fill(address, partitions=3, count=300)
    times = {"startingTimestamp": str(NOW_MS + 30), "endingTimestamp": str(NOW_MS + 200)}
    for options in (
        {"subscribe": topic, "includeHeaders": "true"},
        {"subscribePattern": f"{topic[:-1]}.", "minPartitions": "7"},
        {"subscribePattern": topic[3:-1]},
        {"assign": json.dumps({topic: [0, 2]}), "maxRecordsPerPartition": "30"},
        {
            "subscribe": topic,
            "startingOffsets": by_topic(topic, p0=10, p1=-2, p2=99),
            "endingOffsets": by_topic(topic, p0=11, p1=50, p2=-1),
        },
        {"subscribe": topic, **times},
        {
            "subscribe": topic,
            "startingOffsetsByTimestamp": by_topic(topic, p0=NOW_MS, p1=NOW_MS + 100, p2=NOW_MS + 299),
            "endingOffsetsByTimestamp": by_topic(topic, p0=NOW_MS + 9, p1=NOW_MS + 150, p2=NOW_MS + 999),
        },
        {"subscribe": topic, "startingOffsets": "EARLIEST", "endingOffsets": "Latest"},
        {"subscribe": f" {topic} ,{topic}", "kafka.isolation.level": "read_committed"},
        {
            "subscribe": topic,
            "startingTimestamp": str(NOW_MS + 200),
            "startingOffsets": by_topic(topic, p0=1, p1=1, p2=1),
            "endingTimestamp": str(NOW_MS + 250),
            "endingOffsetsByTimestamp": by_topic(topic, p0=NOW_MS, p1=NOW_MS, p2=NOW_MS),
        },
        {
            "subscribe": topic,
            "startingOffsetsByTimestamp": by_topic(topic, p0=NOW_MS, p1=NOW_MS + 100, p2=NOW_MS + 9_999),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {
            "subscribe": topic,
            "failOnDataLoss": "false",
            "groupIdPrefix": "readers",
            "fetchOffset.numRetries": "1",
            "fetchOffset.retryIntervalMs": "20",
            "kafkaConsumer.pollTimeoutMs": "30000",
            "kafka.client.id": "reader",
            "kafka.client.rack": "a",
            "kafka.check.crcs": "false",
            "kafka.fetch.max.bytes": "100000",
            "kafka.fetch.min.bytes": "10",
            "kafka.fetch.max.wait.ms": "50",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.request.timeout.ms": "20000",
            "kafka.max.poll.records": "7",
        },
        {"subscribe": topic, "minPartitions": "2", "maxRecordsPerPartition": "40"},
    ):
        own, mirror = (load(spark, source, address, **options) for source in SOURCES)
        assert own.schema == mirror.schema
        found = rows_of(mirror)
        assert found == rows_of(own), options
        assert found


CONDITIONS = (
    *("partition = 1", "partition <=> 1", "partition <> 0", "partition = 7", "partition is null"),
    *("partition in (0, 2)", "partition not in (0, 1)", "partition in (0, null)"),
    *("partition not in (0, null)", "not (partition = 1 and offset > 3)", "partition between 1 and 5"),
    *("partition + 1 = 2", "cast(partition as string) = '1'", "partition = 1.0", "partition < 1.5"),
    *("offset < 10", "offset <= 10", "offset > 90", "offset >= 100", "offset = 7", "offset between 5 and 12"),
    *("offset in (1, 50, 999)", "offset > 10 and partition = 2", "offset < 5 or partition = 1"),
    *("offset < 1000000000000", "offset > -1", "offset > 9223372036854775807", "offset <=> null"),
    *("offset % 2 = 0", "offset > partition", "1 < offset and 20 > offset", "true", "false"),
    *("topic = '{topic}'", "topic <> '{topic}'", "topic in ('{topic}', 'x')", "topic like '{topic}%'"),
    *("topic like '%{topic}'", "topic like 'topic-_%'", "topic not like 'topic-%'", "topic > 'topic'"),
    *("topic like 'to%' and topic like '%c-%'", "startswith(topic, 'to')", "upper(topic) = topic"),
    *("timestamp >= {at_100}", "timestamp > {at_100}", "timestamp < {at_100}", "timestamp <= {at_100}"),
    *("timestamp = {at_100}", "timestamp <> {at_100}", "timestamp in ({at_100}, {at_200})"),
    *("timestamp between {at_100} and {at_200}", "timestamp > {at_100} and offset < 50 and partition = 0"),
    *("timestamp > {at_100} + interval 500 microseconds", "timestamp < {at_100} or timestamp > {at_200}"),
    *("timestamp >= timestamp'1950-01-01'", "timestamp < timestamp'1960-01-01'", "timestamp is not null"),
    *("timestamp >= timestamp'9999-12-31'", "date(timestamp) = date({at_100})", "timestamp is null"),
    *("key is null", "key = cast('key 7' as binary)", "value <=> cast('value 7' as binary)"),
    *("timestampType = 0", "headers is null", "headers[0].value = cast('7' as binary)"),
)
"""Of queries; `at_N` is the time of record N."""


def test_queries_with_the_same_conditions_have_the_same_rows(spark: SparkSession, address: str) -> None:
    topic = fill(address, partitions=3, count=300)
    moments = {f"at_{number}": f"timestamp_millis({NOW_MS + number})" for number in (100, 200)}
    own, mirror = (load(spark, source, address, subscribe=topic, includeHeaders="true") for source in SOURCES)
    for condition in CONDITIONS:
        told = condition.format(topic=topic, **moments)
        expected = rows_of(own.where(told))
        assert rows_of(mirror.where(told)) == expected, condition
        options = {"subscribe": topic, "includeHeaders": "true", "pushFilters": "true"}
        assert rows_of(load(spark, "mirror", address, **options).where(told)) == expected, condition


def triggered_by(topic: str) -> list[dict[str, str]]:
    """Options of queries."""
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    times = by_topic(topic, p0=NOW_MS + 20, p1=NOW_MS + 90, p2=NOW_MS + 190)
    return [
        {},
        {"maxOffsetsPerTrigger": "70"},
        {"maxOffsetsPerTrigger": "70", "minOffsetsPerTrigger": "60", "maxTriggerDelay": "10s"},
        {"maxOffsetsPerTrigger": "70", "minPartitions": "6", "maxRecordsPerPartition": "9"},
        {"minOffsetsPerTrigger": "1000"},
        {"startingOffsets": by_topic(topic, p0=5, p1=-2, p2=-1)},
        {"startingOffsets": "latest"},
        {"startingTimestamp": str(NOW_MS + 150), "startingOffsetsByTimestamp": times},
        {"startingOffsetsByTimestamp": times},
        {"startingTimestamp": str(NOW_MS + 9_000), **late},
        {"kafka.isolation.level": "read_committed", "failOnDataLoss": "false"},
    ]


def test_queries_with_the_same_options_have_the_same_triggers(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    topic = fill(address, partitions=3, count=200)
    pairs = [
        {source: Query(spark, address, tmp_path / f"{number}-{source}", **options) for source in SOURCES}
        for number, options in enumerate({"subscribe": topic, **each} for each in triggered_by(topic))
    ]
    for _ in range(2):
        for number, pair in enumerate(pairs):
            own, mirror = ((pair[source].run(source), pair[source].numbers()) for source in SOURCES)
            assert own == mirror, triggered_by(topic)[number]
        append(address, topic, range(200, 260), partitions=3)


REFUSED: list[dict[str, str]] = [
    {},
    {"subscribe": ""},
    {"subscribe": "a", "subscribePattern": "a"},
    {"assign": "a"},
    {"assign": '{"a": "0"}'},
    {"subscribe": "a", "startingOffsets": "latest"},
    {"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'},
    {"subscribe": "a", "endingOffsets": "earliest"},
    {"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'},
    {"subscribe": "a", "startingOffsets": "{"},
    {"subscribe": "a", "minPartitions": "0"},
    {"subscribe": "a", "minPartitions": "many"},
    {"subscribe": "a", "maxRecordsPerPartition": "0"},
    {"subscribe": "a", "startingTimestamp": "yesterday"},
    {"subscribe": "a", "failOnDataLoss": "perhaps"},
    {"subscribe": "a", "includeHeaders": "perhaps"},
    {"subscribe": "a", "kafka.auto.offset.reset": "latest"},
    {"subscribe": "a", "kafka.enable.auto.commit": "true"},
    {"subscribe": "a", "kafka.key.deserializer": "X"},
    {"subscribe": "a", "kafka.value.deserializer": "X"},
    {"subscribe": "a", "kafka.interceptor.classes": "X"},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_what_one_refuses_the_other_does(
    spark: SparkSession, bootstrap: str, options: dict[str, str]
) -> None:
    for source in SOURCES:
        with pytest.raises(REFUSALS):
            load(spark, source, bootstrap, **options).count()


def test_offsets_outside_the_log_are_refused_by_both(spark: SparkSession, address: str) -> None:
    topic = fill(address, partitions=1, count=10)
    for source in SOURCES:
        beyond = {"subscribe": topic, "startingOffsets": by_topic(topic, p0=99)}
        with pytest.raises(REFUSALS):
            load(spark, source, address, **beyond).count()
        late = {"subscribe": topic, "startingTimestamp": str(NOW_MS + 10)}
        with pytest.raises(REFUSALS):
            load(spark, source, address, **late).count()
        late["startingOffsetsByTimestampStrategy"] = "latest"
        assert load(spark, source, address, **late).count() == 0


class Query:
    """One that loads what there is, under either source, always with the same checkpoint."""

    def __init__(self, spark: SparkSession, address: str, directory: Path, **options: str) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": address, "startingOffsets": "earliest", **options}
        self._directory = directory

    def run(self, source: str) -> list[int]:
        """Rows of each of its triggers."""
        frame = self._spark.readStream.format(source).options(**self._options).load()
        query = (
            frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._directory / "table"))
        )
        query.awaitTermination()
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    def numbers(self) -> list[int]:
        """Of the records in its table."""
        if not any(self._directory.glob("table/*.parquet")):
            return []
        rows = self._spark.read.parquet(str(self._directory / "table")).select("value").collect()
        return sorted(int(row.value.split()[1]) for row in rows)


@pytest.mark.parametrize("sources", [SOURCES, SOURCES[::-1]], ids=" first, then ".join)
def test_a_checkpoint_goes_on_under_the_other_source_and_back(
    spark: SparkSession, address: str, tmp_path: Path, sources: tuple[str, str]
) -> None:
    topic = new_topic(address, partitions=3)
    query = Query(spark, address, tmp_path, subscribe=topic, maxOffsetsPerTrigger="60")
    first, second = sources
    written = count(step=100)
    for source in (first, second, second, first, second):
        begin = next(written)
        append(address, topic, range(begin, begin + 100), partitions=3)
        assert query.run(source) == [58, 42], source
        assert query.numbers() == list(range(begin + 100))
    assert query.run(first) == []


def forget_trigger(directory: Path, number: int) -> None:
    """As if Spark had died before it was made: its offsets are all that is known of it."""
    for log in (directory / "checkpoint" / "commits", directory / "table" / "_spark_metadata"):
        for name in (f"{number}", f".{number}.crc"):
            (log / name).unlink()


def test_a_trigger_that_one_source_has_planned_is_made_by_the_other(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    topic = fill(address, partitions=2, count=50)
    query = Query(spark, address, tmp_path, subscribe=topic)
    query.run("kafka")
    append(address, topic, range(50, 80), partitions=2)
    query.run("kafka")
    forget_trigger(tmp_path, 1)
    append(address, topic, range(80, 90), partitions=2)
    assert query.run("mirror") == [30, 10]
    assert query.numbers() == list(range(90))


def test_rows_are_written_under_either_name(spark: SparkSession, address: str) -> None:
    source = fill(address, partitions=2, count=100)
    for name in SOURCES:
        topic = new_topic(address, partitions=2)
        frame = load(spark, "mirror", address, subscribe=source, includeHeaders="true")
        columns = frame.select("key", "value", "partition", "headers")
        to = {"kafka.bootstrap.servers": address, "topic": topic, "includeHeaders": "true"}
        columns.write.format(name).options(**to).mode("append").save()
        copied = load(spark, "kafka", address, subscribe=topic, includeHeaders="true")
        assert rows_of(copied.select(*columns.columns)) == rows_of(columns), name


@pytest.mark.parametrize("sources", [SOURCES, SOURCES[::-1]], ids=" first, then ".join)
def test_a_query_killed_in_a_trigger_is_finished_by_the_other_source(
    spark: SparkSession, address: str, tmp_path: Path, sources: tuple[str, str]
) -> None:
    topic = fill(address, partitions=2, count=50)
    first, second = sources
    checkpoint = tmp_path / "checkpoint"
    told = (first, spark.conf.get("spark.jars") or "", address, topic, str(checkpoint))
    command = [sys.executable, "-m", "tests.interop.spark_planned", *told]
    planned = ChildProcess.start("planned", command, tmp_path / "planned.log")
    planned.wait_until((tmp_path / "checkpoint.planned").exists, timeout_ms=300_000)
    os.killpg(planned.pid, signal.SIGKILL)
    planned.kill()
    append(address, topic, range(50, 60), partitions=2)
    query = Query(spark, address, tmp_path, subscribe=topic)
    assert query.run(second) == [50, 10], "what was planned, and what came since"
    assert query.numbers() == list(range(60))
