"""The data source in a real Spark, on a real node."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.loopback import free_ports
from broker.records.batch import Codec
from tests.spark.topics import NOW_MS, fill


def load(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    return spark.read.format("mirror").option("kafka.bootstrap.servers", bootstrap).options(**options).load()


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=5)
    frame = load(spark, bootstrap, subscribe=topic, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    row = frame.where("offset = 4").first()
    assert row is not None
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition) == (b"key 4", b"value 4", topic, 0)
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp((NOW_MS + 4) / 1000, UTC)
    assert [(header.key, header.value and bytes(header.value)) for header in row.headers] == [
        ("n", b"4"),
        ("none", None),
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_is_read_exactly_once(spark: SparkSession, bootstrap: str, codec: Codec) -> None:
    topic = fill(bootstrap, partitions=3, count=1000, codec=codec)
    rows = load(spark, bootstrap, subscribe=topic).selectExpr("cast(value as string)").collect()
    assert sorted(int(row.value.split()[1]) for row in rows) == list(range(1000))


def test_big_partitions_are_split_without_loss(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=1000)
    frame = load(spark, bootstrap, subscribe=topic, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(1000))


def test_a_load_reads_everything_whatever_a_trigger_may_take(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=20)
    assert load(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger="5").count() == 20


def test_offsets_bound_what_is_read(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=100)
    frame = load(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsets=f'{{"{topic}": {{"0": 10}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 20, "1": 5}}}}',
    )
    rows = [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]
    assert sorted(rows) == [(0, offset) for offset in range(10, 20)] + [(1, offset) for offset in range(5)]


def test_topics_are_chosen_by_pattern_and_by_partition(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=10)
    assert load(spark, bootstrap, subscribePattern=f"{topic[:-1]}.").count() == 10
    assert load(spark, bootstrap, assign=f'{{"{topic}": [1]}}').count() == 5


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=0)
    assert load(spark, bootstrap, subscribe=topic).count() == 0


def test_a_missing_topic_is_an_error_that_names_it(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(PySparkException, match="nowhere does not exist in the cluster"):
        load(spark, bootstrap, subscribe="nowhere").count()


def test_servers_that_cannot_be_reached_are_named_within_seconds(spark: SparkSession) -> None:
    (port,) = free_ports(1)
    started = time.monotonic()
    with pytest.raises(PySparkException, match=rf"no node can be reached: 127\.0\.0\.1:{port}"):
        load(spark, f"127.0.0.1:{port}", subscribe="a").count()
    assert time.monotonic() - started < 20


def test_another_schema_is_an_error_before_any_task(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=1)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = spark.read.format("mirror").options(**options)
    with pytest.raises(PySparkException, match=r"fixed: struct<key:binary,.*leave \.schema\(\.\.\.\) out"):
        reader.schema("key string, value string").load().count()
    assert reader.schema(load(spark, bootstrap, subscribe=topic).schema).load().count() == 1


def test_an_unknown_option_is_an_error_that_names_it(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(PySparkException, match="did you mean subscribe"):
        load(spark, bootstrap, subscribee="a").count()


def test_offsets_that_are_gone_are_an_error(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    with pytest.raises(PySparkException, match="outside the log's 0 to 10"):
        load(spark, bootstrap, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 99}}}}').count()


def test_times_become_offsets(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=100)
    frame = load(
        spark,
        bootstrap,
        subscribe=topic,
        startingTimestamp=str(NOW_MS + 40),
        endingOffsetsByTimestamp=f'{{"{topic}": {{"0": {NOW_MS + 60}}}}}',
    )
    rows = [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]
    assert sorted(rows) == [(0, offset) for offset in range(20, 30)] + [
        (1, offset) for offset in range(20, 50)
    ]


def test_a_time_that_no_record_has_come_up_to_is_an_error_or_the_end(
    spark: SparkSession, bootstrap: str
) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    for option, moment in (
        ("startingTimestamp", str(NOW_MS + 11)),
        ("startingOffsetsByTimestamp", f'{{"{topic}": {{"0": {NOW_MS + 11}}}}}'),
    ):
        late = {"subscribe": topic, option: moment}
        with pytest.raises(PySparkException, match=f"option {option}: {topic}-0 has no record at or after"):
            load(spark, bootstrap, **late).count()
        assert load(spark, bootstrap, startingOffsetsByTimestampStrategy="latest", **late).count() == 0


def test_filters_become_fewer_partitions_and_shorter_ranges(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=4, count=400)
    asked = {"subscribe": topic, "pushFilters": "true"}
    one = load(spark, bootstrap, **asked).where("partition = 2 and offset >= 10 and offset < 20")
    assert one.rdd.getNumPartitions() == 1
    assert sorted(row.offset for row in one.collect()) == list(range(10, 20))
    since = datetime.fromtimestamp((NOW_MS + 390) / 1000, UTC)
    frame = load(spark, bootstrap, **asked)
    late = frame.where(frame.timestamp >= since).where("topic like 'topic%' and partition in (0, 1)")
    assert late.rdd.getNumPartitions() == 2
    assert sorted(row.offset for row in late.collect()) == [98, 98, 99, 99]
    until = datetime.fromtimestamp((NOW_MS + 8) / 1000, UTC)
    frame = load(spark, bootstrap, **asked)
    assert sorted(row.offset for row in frame.where(frame.timestamp < until).collect()) == [0] * 4 + [1] * 4


def test_one_frame_serves_any_number_of_conditions(spark: SparkSession, bootstrap: str) -> None:
    frame = load(spark, bootstrap, subscribe=fill(bootstrap, partitions=4, count=400))
    assert frame.where("partition = 2").count() == 100
    assert frame.where("partition = 2 or offset = 0").count() == 103, "Spark hands no 'or' over"
    assert frame.where("partition = 1 and offset < 7").count() == 7
    assert frame.count() == 400


def test_sessions_that_keep_their_filters_read_all_and_filter_it(spark: SparkSession, bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=40)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = load(spark, bootstrap, subscribe=topic).where("partition = 1 and offset < 3")
        assert frame.rdd.getNumPartitions() == 2
        assert frame.count() == 3
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
