"""Writing to a real node from a real Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.producer import Producer
from broker.client.producer_batch import settled_delivery
from broker.client.transactional_producer import (
    TransactionAbortableError,
    TransactionalProducer,
    TransactionStatus,
)
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import HostPort
from mirrormaker.spark.sink import _raise_refusal, send_rows
from mirrormaker.spark.sink_options import parse_sink_options
from mirrormaker.spark.sink_rows import RowError
from tests.conftest import cluster_spec, forked, until
from tests.spark.topics import fill, new_topic


def rows_of(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> list[tuple[object, ...]]:
    """Key, value, partition, time and headers of each record of a topic."""
    frame = (
        spark.read.format("mirror")
        .option("kafka.bootstrap.servers", bootstrap)
        .options(subscribe=topic, includeHeaders="true", **options)
        .load()
    )
    return sorted(
        (
            bytes(row.key or b""),
            bytes(row.value),
            row.partition,
            row.timestamp,
            [(header.key, header.value and bytes(header.value)) for header in row.headers or ()],
        )
        for row in frame.collect()
    )


def test_what_is_read_can_be_written_as_it_is(spark: SparkSession, bootstrap: str) -> None:
    source, sink = fill(bootstrap, partitions=3, count=1000), new_topic(bootstrap, partitions=3)
    servers = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.read.format("mirror").options(subscribe=source, includeHeaders="true", **servers).load()
    options = {"topic": sink, "kafka.compression.type": "lz4", "kafka.batch.size": "4096"}
    frame.write.format("mirror").options(**servers, **options).mode("append").save()
    assert rows_of(spark, bootstrap, sink) == rows_of(spark, bootstrap, source)


@pytest.mark.parametrize("setting", ["max.message.bytes", "segment.bytes"])
def test_batches_are_no_larger_than_the_topic_takes(
    spark: SparkSession, bootstrap: str, setting: str
) -> None:
    topic = new_topic(bootstrap, partitions=1)

    async def lower() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).alter_topic_configs(topic, {setting: "20000"})

    asyncio.run(lower())
    rows = spark.range(0, 100, 1, 1).selectExpr("repeat('x', 1000) as value")
    writer = rows.write.format("mirror").option("kafka.bootstrap.servers", bootstrap).mode("append")
    writer.option("topic", topic).save()
    assert len(rows_of(spark, bootstrap, topic)) == 100


def test_text_is_written_and_errors_say_what_is_wrong(spark: SparkSession, bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=1)
    frame = spark.createDataFrame([("a", "1"), ("b", None)], "key string, value string")
    writer = frame.write.format("mirror").option("kafka.bootstrap.servers", bootstrap).mode("append")
    with pytest.raises(PySparkException, match="neither an option nor a column says which topic"):
        writer.save()
    with pytest.raises(PySparkException, match="topic no where"):
        writer.option("topic", "no where").option("kafka.max.block.ms", "100").save()
    with pytest.raises(PySparkException, match="mode is append"):
        writer.option("topic", topic).mode("overwrite").save()
    writer.option("topic", topic).mode("append").save()
    frame = spark.read.format("mirror").option("kafka.bootstrap.servers", bootstrap)
    rows = frame.option("subscribe", topic).load().selectExpr("cast(key as string)", "value").collect()
    assert {(row.key, row.value and bytes(row.value)) for row in rows} == {("a", b"1"), ("b", None)}
    assert len(rows) == 2


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_topic_that_is_not_there_is_made_as_for_every_producer(
    spark: SparkSession, bootstrap: str, delivery: str
) -> None:
    topic = f"made-by-{delivery}"
    frame = spark.createDataFrame([("1",), ("2",)], "value string").coalesce(1)
    to = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": delivery}
    frame.write.format("mirror").options(**to).mode("append").save()
    assert [row[1] for row in rows_of(spark, bootstrap, topic)] == [b"1", b"2"]


def test_a_topic_that_nodes_do_not_make_is_an_error_that_names_it(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    spec = cluster_spec(zookeeper, tmp_path, "strict", settings={"auto.create.topics.enable": False})

    async def write(bootstrap: HostPort) -> None:
        options = parse_sink_options({"kafka.bootstrap.servers": str(bootstrap), "topic": "nowhere"})
        waiting = replace(options, producer=replace(options.producer, max_block_ms=100))
        async with Cluster([bootstrap]) as cluster, Producer(cluster, settings=waiting.producer) as producer:
            await send_rows(cluster, producer, waiting, iter([pa.RecordBatch.from_pydict({"value": [b"1"]})]))

    with (
        EmbeddedCluster(spec, forked) as node,
        pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nowhere"),
    ):
        asyncio.run(write(node.bootstrap[0]))


def test_a_write_that_is_not_newer_than_the_last_of_its_id_writes_nothing(
    spark: SparkSession, bootstrap: str
) -> None:
    topic = new_topic(bootstrap, partitions=1)
    writing = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly_once"}
    for version in (1, 1, 2, 1):
        frame = spark.createDataFrame([(f"row {version}",)], "value string").coalesce(1)
        once = {"txnAppId": topic, "txnVersion": str(version)}
        frame.write.format("mirror").options(**writing, **once).mode("append").save()
    rows = rows_of(spark, bootstrap, topic, **{"kafka.isolation.level": "read_committed"})
    assert [row[1] for row in rows] == [b"row 1", b"row 2"]


def test_a_row_that_is_refused_is_told_where_a_later_one_meets_the_failed_transaction(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=1)
    far = pa.array([2**52], pa.timestamp("us", tz="UTC"))
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly_once"}
    options = parse_sink_options(given)

    async def write() -> None:
        settings = replace(options.producer, transactional_id=topic)
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).alter_topic_configs(topic, {"message.timestamp.after.max.ms": "3600000"})
            async with TransactionalProducer(cluster, settings=settings) as producer:
                await producer.init_transactions()

                def batches() -> Iterator[pa.RecordBatch]:
                    yield pa.RecordBatch.from_pydict({"value": pa.array([b"1"]), "timestamp": far})
                    until(lambda: producer.status is TransactionStatus.ABORTABLE, "the row is refused")
                    yield pa.RecordBatch.from_pydict({"value": pa.array([b"2"])})

                async with producer.transaction():
                    await send_rows(cluster, producer, options, batches())

    with pytest.raises(RowError, match="a row is refused: INVALID_TIMESTAMP"):
        asyncio.run(write())


def test_a_row_that_is_refused_is_told_where_others_were_given_up_before_it() -> None:
    async def fail() -> None:
        error = TransactionAbortableError("the transaction failed")
        refusal = ProtocolError(ErrorCode.INVALID_TIMESTAMP, "too far")
        deliveries = [settled_delivery("t", 0, 0, given) for given in (None, error, refusal)]
        await _raise_refusal(deliveries, error)

    with pytest.raises(RowError, match="a row is refused: INVALID_TIMESTAMP: too far"):
        asyncio.run(fail())


@pytest.mark.parametrize(
    ("delivery", "times"), [pytest.param("at_least_once", 2, marks=pytest.mark.long), ("exactly_once", 1)]
)
def test_a_trigger_that_is_repeated_writes_again_or_not(
    spark: SparkSession, bootstrap: str, tmp_path: Path, delivery: str, times: int
) -> None:
    source, sink = fill(bootstrap, partitions=2, count=100), new_topic(bootstrap, partitions=2)
    servers = {"kafka.bootstrap.servers": bootstrap}

    def run() -> None:
        query = (
            spark.readStream.format("mirror")
            .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="60", **servers)
            .load()
            .writeStream.format("mirror")
            .options(topic=sink, delivery=delivery, checkpointLocation=str(tmp_path), **servers)
            .trigger(availableNow=True)
            .queryName("delays")
            .start()
        )
        query.awaitTermination()

    run()
    (tmp_path / "commits" / "1").unlink()
    (tmp_path / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    values = [
        row[1] for row in rows_of(spark, bootstrap, sink, **{"kafka.isolation.level": "read_committed"})
    ]
    assert len(set(values)) == 100
    assert len(values) == 60 + 40 * times


@pytest.mark.long
def test_a_query_with_an_older_checkpoint_is_told_that_it_has_written_what_comes_later(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    source, sink = fill(bootstrap, partitions=1, count=30), new_topic(bootstrap, partitions=1)
    servers = {"kafka.bootstrap.servers": bootstrap}

    def run(per_trigger: int) -> None:
        stream = spark.readStream.format("mirror").options(subscribe=source, **servers)
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_trigger)}
        writer = stream.options(**limits).load().writeStream.format("mirror")
        exactly = {"topic": sink, "delivery": "exactly_once", "checkpointLocation": str(tmp_path)}
        writer.options(**servers, **exactly).trigger(availableNow=True).start().awaitTermination()

    run(10)
    for file in [*tmp_path.glob("*/[12]"), *tmp_path.glob("*/.[12].crc")]:
        file.unlink()
    with pytest.raises(PySparkException, match="comes after trigger 2 was written"):
        run(20)
    rows = rows_of(spark, bootstrap, sink, **{"kafka.isolation.level": "read_committed"})
    assert len(rows) == 30
