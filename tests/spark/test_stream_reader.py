"""A query's source as Spark calls it, on a real node, without Spark around it."""

from __future__ import annotations

import asyncio
import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import HostPort, TopicPartition
from mirrormaker.spark.offsets import DataLossError
from mirrormaker.spark.options import parse_options
from mirrormaker.spark.stream_reader import JsonOffsets, MirrorStreamReader
from tests.spark.topics import append, fill


def reader_of(bootstrap: str, topic: str, **options: str) -> MirrorStreamReader:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return MirrorStreamReader(parse_options({**given, **options}, streaming=True))


def rows_between(reader: MirrorStreamReader, start: JsonOffsets, end: JsonOffsets) -> list[tuple[int, int]]:
    """Partition and offset of what the tasks of a trigger read."""
    return sorted(
        (partition, offset)
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for partition, offset in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    )


def delete_before(bootstrap: str, partition: TopicPartition, offset: int) -> None:
    async def delete() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).delete_records({partition: offset})

    asyncio.run(delete())


def test_offsets_have_the_form_of_sparks_own_source(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=5)
    reader = reader_of(bootstrap, topic)
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic: {"0": 3, "1": 2}}
    assert reader.reportLatestOffset() == end
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    reader.stop()


def test_a_trigger_that_is_repeated_reads_the_same_whatever_came_since(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=10)
    reader = reader_of(bootstrap, topic, minPartitions="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    expected = [(partition, offset) for partition in (0, 1) for offset in range(5)]
    assert rows_between(reader, start, end) == expected
    append(bootstrap, topic, range(10, 20), partitions=2)
    again = reader_of(bootstrap, topic)
    assert rows_between(again, start, end) == expected
    reader.stop()
    again.stop()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"maxOffsetsPerTrigger": "4"}, ReadMaxRows(4)),
        ({"minOffsetsPerTrigger": "11"}, ReadMinRows(11)),
        ({}, ReadAllAvailable()),
    ],
)
def test_limits_are_those_of_the_options(bootstrap: str, options: dict[str, str], limit: ReadLimit) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    reader = reader_of(bootstrap, topic, **options)
    assert reader.getDefaultReadLimit() == limit
    start = reader.initialOffset()
    taken = reader.latestOffset(start, limit)[topic]["0"]
    assert taken == (4 if isinstance(limit, ReadMaxRows) else 10)
    assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 10}}
    if isinstance(limit, ReadMinRows):
        assert reader.latestOffset(start, limit) == start
        append(bootstrap, topic, range(10, 11), partitions=1)
        assert reader.latestOffset(start, limit) == {topic: {"0": 11}}
    reader.stop()


def test_a_run_on_what_is_available_now_never_waits_and_ends_there(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    reader = reader_of(bootstrap, topic, minOffsetsPerTrigger="100")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    append(bootstrap, topic, range(10, 20), partitions=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic: {"0": 10}}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()


def test_records_that_are_gone_are_an_error_or_passed_over(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=100)
    start: JsonOffsets = {topic: {"0": 0}}
    end: JsonOffsets = {topic: {"0": 100}}
    delete_before(bootstrap, TopicPartition(topic, 0), 60)
    strict = reader_of(bootstrap, topic)
    with pytest.raises(DataLossError, match="begins at 60"):
        rows_between(strict, start, end)
    lenient = reader_of(bootstrap, topic, failOnDataLoss="false")
    assert rows_between(lenient, start, end) == [(0, offset) for offset in range(60, 100)]
    beyond: JsonOffsets = {topic: {"0": 130}}
    with pytest.raises(DataLossError, match=f"{topic}-0 ends at 100; it was read up to offset 130"):
        strict.latestOffset(beyond, ReadAllAvailable())
    assert lenient.latestOffset(beyond, ReadAllAvailable()) == end
    gone: JsonOffsets = {topic: {"0": 100, "7": 5}}
    with pytest.raises(DataLossError, match=f"{topic}-7 is gone"):
        strict.latestOffset(gone, ReadAllAvailable())
    assert lenient.latestOffset(gone, ReadAllAvailable()) == end
    strict.stop()
    lenient.stop()


def test_new_partitions_begin_at_their_first_record(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=10)
    known: JsonOffsets = {topic: {"0": 5}}
    reader = reader_of(bootstrap, topic)
    end = reader.latestOffset(known, ReadAllAvailable())
    assert rows_between(reader, known, end) == [(1, offset) for offset in range(5)]
    delete_before(bootstrap, TopicPartition(topic, 1), 2)
    with pytest.raises(DataLossError, match="is new and begins at offset 2, not 0"):
        reader.latestOffset(known, ReadAllAvailable())
    reader.stop()


def test_each_trigger_finds_the_topics_that_have_come(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=5)
    patterns = {"include": [f"{topic}", "topic-.*"], "exclude": ["topic-.*"]}
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "startingOffsets": json.dumps({topic: {"0": 3}}),
        "startingOffsetsElsewhere": "earliest",
    }

    def reader_for(exclude: str) -> MirrorStreamReader:
        told = json.dumps({**patterns, "exclude": [exclude]})
        return MirrorStreamReader(parse_options({**options, "subscribePatterns": told}, streaming=True))

    none_else = reader_for(f"(?!{topic}$).*")
    assert none_else.initialOffset() == {topic: {"0": 3}}
    other = fill(bootstrap, partitions=1, count=4)
    assert none_else.latestOffset({topic: {"0": 3}}, ReadAllAvailable()) == {topic: {"0": 5}}
    both = reader_for(f"(?!{topic}$|{other}$).*")
    assert both.initialOffset() == {topic: {"0": 3}, other: {"0": 0}}
    later = both.latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    assert later == {topic: {"0": 5}, other: {"0": 4}}
    assert rows_between(both, {topic: {"0": 5}}, later) == [(0, offset) for offset in range(4)]
    none_else.stop()
    both.stop()
