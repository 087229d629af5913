"""A query's source as Spark calls it, on a real node, without Spark around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.types import HostPort, TopicPartition
from mirrormaker.spark.lookups import LogLookup
from mirrormaker.spark.offsets import DataLossError, Logs
from mirrormaker.spark.options import parse_options
from mirrormaker.spark.stream_reader import JsonOffsets, MirrorStreamReader
from tests.spark.topics import NOW_MS, append, fill, make_anew


def reader_of(bootstrap: str, topic: str, **options: str) -> MirrorStreamReader:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return MirrorStreamReader(parse_options({**given, **options}, streaming=True))


def offsets_of(told: JsonOffsets) -> JsonOffsets:
    """By partition; without which topics they are of."""
    return {topic: parts for topic, parts in told.items() if parts}


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
    assert offsets_of(start) == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert offsets_of(end) == {topic: {"0": 3, "1": 2}}
    assert reader.reportLatestOffset() == end
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    reader.stop()


def test_partitions_without_a_time_begin_where_they_would_without_any(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=3, count=9)
    times = json.dumps({topic: {"0": NOW_MS + 3}})
    for starting, others in (
        ("latest", {"1": 3, "2": 3}),
        ("earliest", {"1": 0, "2": 0}),
        (json.dumps({topic: {"1": 2}}), {"1": 2, "2": 3}),
    ):
        reader = reader_of(bootstrap, topic, startingOffsets=starting, startingOffsetsByTimestamp=times)
        assert offsets_of(reader.initialOffset()) == {topic: {"0": 1, **others}}
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


def test_a_first_trigger_that_is_repeated_begins_where_it_did(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=20)
    early, late = (reader_of(bootstrap, topic, startingOffsets=word) for word in ("earliest", "latest"))
    starts = [reader.initialOffset() for reader in (early, late)]
    append(bootstrap, topic, range(20, 30), partitions=1)
    ends = [
        reader.latestOffset(start, ReadAllAvailable())
        for reader, start in zip((early, late), starts, strict=True)
    ]
    delete_before(bootstrap, TopicPartition(topic, 0), 8)
    again = reader_of(bootstrap, topic, startingOffsets="latest")
    assert rows_between(again, again.initialOffset(), ends[1]) == [(0, offset) for offset in range(20, 30)]
    assert again.latestOffset(ends[1], ReadAllAvailable()) == ends[1], "there is nothing for one trigger more"
    append(bootstrap, topic, range(30, 32), partitions=1)
    later = again.latestOffset(ends[1], ReadAllAvailable())
    assert rows_between(again, ends[1], later) == [(0, 30), (0, 31)]
    strict = reader_of(bootstrap, topic)
    with pytest.raises(DataLossError, match="begins at 8"):
        rows_between(strict, strict.initialOffset(), ends[0])
    for reader in (early, late, again, strict):
        reader.stop()


def test_a_first_trigger_without_rows_has_none_either_when_it_is_repeated(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=20)
    first, again = (reader_of(bootstrap, topic, startingOffsets="latest") for _ in range(2))
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert first.latestOffset(end, ReadAllAvailable()) == end
    append(bootstrap, topic, range(20, 30), partitions=1)
    assert rows_between(again, again.initialOffset(), end) == []
    later = again.latestOffset(end, ReadAllAvailable())
    assert rows_between(again, end, later) == [(0, offset) for offset in range(20, 30)]
    first.stop()
    again.stop()


def test_a_first_trigger_of_sparks_own_source_whose_beginning_is_not_known_is_told(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=20)
    end: JsonOffsets = {topic: {"0": 10, "1": 10}}
    append(bootstrap, topic, range(20, 30), partitions=1)
    strict = reader_of(bootstrap, topic, startingOffsets="latest")
    with pytest.raises(DataLossError, match=f"{topic}-0 was to be read up to offset 10, .* begin at 20 now"):
        strict.partitions(strict.initialOffset(), end)
    lenient = reader_of(bootstrap, topic, startingOffsets="latest", failOnDataLoss="false")
    assert rows_between(lenient, lenient.initialOffset(), end) == []
    named = reader_of(bootstrap, topic, startingOffsets=json.dumps({topic: {"0": 9, "1": -2}}))
    assert len(rows_between(named, named.initialOffset(), end)) == 11
    for reader in (strict, lenient, named):
        reader.stop()


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
    assert offsets_of(reader.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 10}}
    if isinstance(limit, ReadMinRows):
        assert reader.latestOffset(start, limit) == start
        append(bootstrap, topic, range(10, 11), partitions=1)
        assert offsets_of(reader.latestOffset(start, limit)) == {topic: {"0": 11}}
    reader.stop()


def test_a_run_on_what_is_available_now_never_waits_and_ends_there(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    reader = reader_of(bootstrap, topic, minOffsetsPerTrigger="100")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    append(bootstrap, topic, range(10, 20), partitions=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert offsets_of(end) == {topic: {"0": 10}}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    reader.stop()


def prepare_from(reader: MirrorStreamReader, change: Callable[[Logs], Logs]) -> None:
    """As when a node that lags behind is asked what is available now."""
    look = reader._look
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "_look", lambda known, ids: change(look(known, ids)))
        reader.prepareForTriggerAvailableNow()


def test_a_run_on_what_is_available_now_never_steps_back(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=2, count=10)
    reader = reader_of(bootstrap, topic, failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    append(bootstrap, topic, range(10, 20), partitions=2)
    first, second = (TopicPartition(topic, number) for number in range(2))
    prepare_from(reader, lambda logs: replace(logs, latest={**logs.latest, first: 3}))
    assert offsets_of(reader.latestOffset(end, ReadAllAvailable())) == {topic: {"0": 5, "1": 10}}
    prepare_from(reader, lambda logs: replace(logs, latest={second: 10}))
    assert offsets_of(reader.latestOffset(end, ReadAllAvailable())) == {topic: {"0": 5, "1": 10}}
    prepare_from(reader, lambda logs: replace(logs, topic_ids={topic: "of one before"}))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    gone: JsonOffsets = {topic: {"0": 5, "1": 5, "7": 5}}
    reader.prepareForTriggerAvailableNow()
    later = offsets_of(reader.latestOffset(gone, ReadAllAvailable()))
    assert later == {topic: {"0": 10, "1": 10, "7": 5}}
    make_anew(bootstrap, topic, partitions=2, count=4)
    reader.prepareForTriggerAvailableNow()
    later = reader.latestOffset(end, ReadAllAvailable())
    assert rows_between(reader, end, later) == [(0, 0), (0, 1), (1, 0), (1, 1)]
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
    assert offsets_of(lenient.latestOffset(beyond, ReadAllAvailable())) == end
    gone: JsonOffsets = {topic: {"0": 100, "7": 5}}
    with pytest.raises(DataLossError, match=f"{topic}-7 is gone"):
        strict.latestOffset(gone, ReadAllAvailable())
    assert lenient.latestOffset(gone, ReadAllAvailable())[topic] == gone[topic]
    strict.stop()
    lenient.stop()


@pytest.mark.parametrize("strictly", ["true", "false"])
def test_a_topic_that_a_node_does_not_know_yet_is_looked_for_again(
    bootstrap: str, strictly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = (fill(bootstrap, partitions=1, count=10) for _ in range(2))
    reader = reader_of(bootstrap, f"{topic},{other}", failOnDataLoss=strictly)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    look, looks = LogLookup.logs, iter([{TopicPartition(other, 0): 10}])

    async def look_at_one_first(lookup: LogLookup, *, missing_allowed: bool = False) -> Logs:
        logs = await look(lookup, missing_allowed=missing_allowed)
        return replace(logs, latest=next(looks, logs.latest))

    monkeypatch.setattr(LogLookup, "logs", look_at_one_first)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    reader.stop()


def test_a_topic_that_is_out_of_sight_for_a_while_goes_on_where_it_was(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = (fill(bootstrap, partitions=1, count=10) for _ in range(2))
    reader = reader_of(bootstrap, f"{topic},{other}", failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    append(bootstrap, topic, range(10, 12), partitions=1)
    append(bootstrap, other, range(10, 13), partitions=1)
    look, looks = LogLookup.logs, []

    async def look_at_one(lookup: LogLookup, *, missing_allowed: bool = False) -> Logs:
        looks.append(missing_allowed)
        logs = await look(lookup, missing_allowed=missing_allowed)
        return Logs(
            earliest={each: at for each, at in logs.earliest.items() if each.topic == other},
            latest={each: at for each, at in logs.latest.items() if each.topic == other},
            topic_ids={other: logs.topic_ids[other]},
        )

    with monkeypatch.context() as patched:
        patched.setattr(LogLookup, "logs", look_at_one)
        without = reader.latestOffset(end, ReadAllAvailable())
        assert len(looks) == 4, "it is looked for again"
        assert reader.latestOffset(without, ReadAllAvailable()) == without
        assert len(looks) == 5, "nobody waits for it any more"
    assert offsets_of(without) == {topic: {"0": 10}, other: {"0": 13}}
    assert {name for name in without if name.startswith(f"{topic}@")} < end.keys()
    assert len(rows_between(reader, end, without)) == 3
    later = reader.latestOffset(without, ReadAllAvailable())
    assert rows_between(reader, without, later) == [(0, 10), (0, 11)]
    make_anew(bootstrap, topic, partitions=1, count=4)
    assert len(rows_between(reader, later, reader.latestOffset(later, ReadAllAvailable()))) == 4
    reader.stop()


@pytest.mark.parametrize(
    "options",
    [{"subscribe": "{topic}"}, {"subscribePattern": "{topic}|nowhere"}, {"assign": '{{"{topic}": [0]}}'}],
    ids=["topics", "pattern", "partitions"],
)
def test_what_a_query_names_no_more_is_told_apart_from_what_is_gone(
    bootstrap: str, options: dict[str, str]
) -> None:
    topic, other = (fill(bootstrap, partitions=1, count=3) for _ in range(2))
    named = {name: value.format(topic=topic) for name, value in options.items()}
    given = {"kafka.bootstrap.servers": bootstrap, "fetchOffset.numRetries": "1", **named}
    reader = MirrorStreamReader(parse_options(given, streaming=True))
    with pytest.raises(DataLossError, match=f"^{other}-0 is not among what is to be read any more"):
        reader.latestOffset({topic: {"0": 3}, other: {"0": 3}}, ReadAllAvailable())
    reader.stop()


@pytest.mark.parametrize("count", [20, 8])
def test_a_topic_made_anew_is_not_taken_for_the_one_that_was_read(bootstrap: str, count: int) -> None:
    topic = fill(bootstrap, partitions=2, count=10)
    strict = reader_of(bootstrap, topic)
    lenient = reader_of(bootstrap, topic, failOnDataLoss="false")
    end = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    assert lenient.latestOffset(end, ReadAllAvailable()) == end
    make_anew(bootstrap, topic, partitions=2, count=count)
    told = f"{topic} was deleted and made anew; it was read up to offset 5 of partition 0, offset 5 of"
    for reader in (strict, reader_of(bootstrap, topic)):
        with pytest.raises(DataLossError, match=told):
            reader.latestOffset(end, ReadAllAvailable())
        reader.stop()
    later = lenient.latestOffset(end, ReadAllAvailable())
    everything = [(partition, offset) for partition in (0, 1) for offset in range(count // 2)]
    assert rows_between(lenient, end, later) == everything, "it is read from its first record on"
    again = reader_of(bootstrap, topic)
    assert rows_between(again, end, later) == everything
    again.stop()
    assert lenient.latestOffset(later, ReadAllAvailable()) == later
    lenient.stop()


def test_a_topic_made_anew_between_a_plan_and_its_tasks_is_not_read_in_its_place(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    strict = reader_of(bootstrap, topic)
    lenient = reader_of(bootstrap, topic, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    make_anew(bootstrap, topic, partitions=1, count=30)
    with pytest.raises(DataLossError, match="the topic was deleted and made anew"):
        rows_between(strict, start, end)
    assert rows_between(lenient, start, end) == []
    strict.stop()
    lenient.stop()


def test_offsets_that_do_not_say_which_topics_they_are_of_hold_for_those_there_are(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=1, count=10)
    reader = reader_of(bootstrap, topic)
    end = reader.latestOffset({topic: {"0": 4}}, ReadAllAvailable())
    assert offsets_of(end) == {topic: {"0": 10}}
    assert rows_between(reader, {topic: {"0": 4}}, end) == [(0, offset) for offset in range(4, 10)]
    reader.stop()


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


def test_a_new_topic_that_is_gone_before_its_trigger_is_an_error_or_passed_over(bootstrap: str) -> None:
    topic, other = (fill(bootstrap, partitions=1, count=5) for _ in range(2))
    strict = reader_of(bootstrap, f"{topic},{other}")
    known: JsonOffsets = {topic: {"0": 3}}
    end = strict.latestOffset(known, ReadAllAvailable())

    async def delete_other() -> None:
        async with Cluster([HostPort.parse(bootstrap)]) as cluster:
            await Admin(cluster).delete_topics([other])

    asyncio.run(delete_other())
    with pytest.raises(DataLossError, match=f"{other}-0 is gone; it was to be read up to offset 5"):
        rows_between(strict, known, end)
    lenient = reader_of(bootstrap, f"{topic},{other}", failOnDataLoss="false")
    assert rows_between(lenient, known, end) == [(0, 3), (0, 4)]
    strict.stop()
    lenient.stop()


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
    assert offsets_of(none_else.initialOffset()) == {topic: {"0": 3}}
    other = fill(bootstrap, partitions=1, count=4)
    assert offsets_of(none_else.latestOffset({topic: {"0": 3}}, ReadAllAvailable())) == {topic: {"0": 5}}
    both = reader_for(f"(?!{topic}$|{other}$).*")
    assert offsets_of(both.initialOffset()) == {topic: {"0": 3}, other: {"0": 0}}
    later = both.latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    assert offsets_of(later) == {topic: {"0": 5}, other: {"0": 4}}
    assert rows_between(both, {topic: {"0": 5}}, later) == [(0, offset) for offset in range(4)]
    none_else.stop()
    both.stop()
