"""The data source `mirror` beside Spark's own Kafka source: options, rows, checkpoints and refusals."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

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
    ):
        own, mirror = (load(spark, source, address, **options) for source in SOURCES)
        assert own.schema == mirror.schema
        found = rows_of(mirror)
        assert found == rows_of(own), options
        assert found


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
