"""Windows written anew: what has been loaded of them is read again from the topics, goes through the steps of
today, and takes the place of what the tables hold, window by window. Where the windows are those of the
records, records of other times are not read; where a step makes its own `date` or `hour`, any record may be
of any window.

Topics lose records: retention deletes, compaction replaces. What is lost need not be older than what is
there, so where a topic may have lost something the records of the windows are counted, and have to be as many
as the runs have loaded.

Nothing is read beyond what has been loaded, so that the next load goes on without a gap and without a
duplicate; windows that are not asked for are not touched.

What cannot be decoded any more, as the schema is another one, goes to quarantine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.client.admin import Admin
from broker.client.config_admin import ConfigEntry
from broker.client.offsets import EARLIEST, NO_OFFSET, list_offsets
from broker.errors import ConfigurationError, ProtocolError
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.pipelines.checkpoint import LOAD, Checkpoint
from mirrormaker.pipelines.checks import Prepared
from mirrormaker.pipelines.decoding import Decoded, decode, split
from mirrormaker.pipelines.loaded_hours import ALL_HOURS, HourCounts, HourRange, loaded_hours
from mirrormaker.pipelines.quarantine import Quarantine
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.sinks.opening import open_sink
from mirrormaker.pipelines.sinks.sink import Sink, SinkPlace, sink_identity, sink_name
from mirrormaker.pipelines.source import Offsets, between, hour_of_record
from mirrormaker.pipelines.transforming import apply_steps, keeps_columns
from mirrormaker.pipelines.windows import DATE, HOUR, Span, hour_name, widen
from mirrormaker.spark.lookups import topic_id_of
from mirrormaker.spark.offsets import (
    TopicIds,
    made_anew,
    offsets_from_json,
    offsets_to_json,
    topic_ids_from_json,
)
from mirrormaker.topology.model import ClusterSpec, JdbcSink, PipelineSpec, TopicSink, Topology
from mirrormaker.topology.step_order import source_of

_NO_WINDOWS = (
    "watermark: rows of a window come out of state that runs keep, and they alone know what they left out "
    "as late and what they wait for: load into another folder, under another name"
)
_CLEANUP = "cleanup.policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What was written anew."""

    windows: tuple[str, ...]
    rows: Mapping[str, int]
    """By sink."""
    rows_quarantined: int
    """That had not been put there before."""
    offsets: Mapping[str, Mapping[str, tuple[int, int]]]


def reload_windows(
    spark: SparkSession,
    topology: Topology,
    pipeline: PipelineSpec,
    folder: PipelineFolder,
    prepared: Prepared,
    asked: Span,
) -> Reloaded:
    """Write the windows anew that `asked` lies in; by the one that holds the pipeline's lock.

    Raises ConfigurationError when the pipeline's tables have no windows, the topics do not have all of them
    any more, or it is not known any more where loading began.
    """
    if pipeline.watermark is not None:
        raise ConfigurationError([_NO_WINDOWS])
    _check_alone(topology, pipeline)
    checkpoint = Checkpoint(spark, pipeline, folder)
    ends, generation = checkpoint.loaded_ends(), checkpoint.generation
    if not ends or generation is None:
        raise ConfigurationError([f"pipeline {pipeline.name!r} has not loaded anything yet"])
    if (lost := checkpoint.lost_beginning()) is not None:
        raise ConfigurationError([lost])
    assert pipeline.cluster is not None
    cluster = topology.clusters[pipeline.cluster]

    def decoded_from(starts: Offsets) -> Decoded:
        records = between(spark, cluster, pipeline, starts, ends)
        return split(decode(records, pipeline, prepared.schema))

    rows = decoded_from(ends).rows
    frames = apply_steps(pipeline, rows)
    sinks = _open_windowed(spark, topology, pipeline, checkpoint, generation, frames)
    _check_ended(checkpoint, pipeline, sinks)
    span = widen(asked, has_hours=all(HOUR in sink.window_columns for _, sink in sinks))
    by_time = all(
        keeps_columns(frames[source_of(pipeline.sinks[number], pipeline.steps)], rows, _times_of(sink))
        for number, sink in sinks
    )
    is_timed = by_time and pipeline.time is None
    starts = _find_starts(spark, cluster, pipeline, folder, checkpoint, span, is_timed=is_timed)
    for _, sink in sinks:
        sink.claim()
    decoded = decoded_from(starts)
    quarantine = Quarantine(spark, pipeline, folder, generation)
    quarantine.open()
    malformed = decoded.malformed
    quarantined = quarantine.add_lacking(
        malformed.where(_inside(f.col("timestamp"), span)) if is_timed else malformed
    )
    rows = decoded.rows.where(_inside(f.col("time"), span)) if by_time else decoded.rows
    windows, written = _write_anew(pipeline, sinks, apply_steps(pipeline, rows), span)
    offsets = {
        topic: {number: (starts[topic][number], end) for number, end in parts.items()}
        for topic, parts in ends.items()
        if topic in starts
    }
    return Reloaded(
        windows=tuple(sorted(windows)), rows=written, rows_quarantined=quarantined, offsets=offsets
    )


def _write_anew(
    pipeline: PipelineSpec,
    sinks: Iterable[tuple[int, Sink]],
    frames: Mapping[str, DataFrame],
    span: Span,
) -> tuple[list[str], dict[str, int]]:
    """The windows of the span, in each of the sinks; how many rows they have now, by sink."""
    windows: list[str] = []
    written: dict[str, int] = {}
    for number, sink in sinks:
        frame = frames[source_of(pipeline.sinks[number], pipeline.steps)]
        replaced, count = sink.replace(span, _within(frame, span, sink.window_columns))
        windows += replaced
        written[sink_name(number, pipeline.sinks[number])] = count
    return windows, written


def _find_starts(
    spark: SparkSession,
    cluster: ClusterSpec,
    pipeline: PipelineSpec,
    folder: PipelineFolder,
    checkpoint: Checkpoint,
    span: Span,
    *,
    is_timed: bool,
) -> Offsets:
    """Where the records of the span begin; where any record may be of it, as its windows are not those of the
    records (`is_timed` is false), where all that was loaded does.

    Raises ConfigurationError when some of them are gone, or may be.
    """
    ends, beginning = checkpoint.loaded_ends(), checkpoint.beginning() or {}
    start_ms, hours = (span.start_ms, _hours_of(span)) if is_timed else (None, ALL_HOURS)
    logs = asyncio.run(_look(cluster, ends, beginning, checkpoint.first_topic_ids(), start_ms))
    doubts = {**logs.doubts, **_unread(ends, beginning, folder)}
    starts = offsets_to_json(logs.starts)
    loaded = _loaded_of(doubts, folder, checkpoint, hours)
    there: HourCounts = {}
    if loaded:
        low, high = ({topic: side[topic] for topic in loaded if topic in starts} for side in (starts, ends))
        there = _count_hours(between(spark, cluster, pipeline, low, high), hours)
    if lost := list(_losses(doubts, loaded, there, span)):
        raise ConfigurationError(lost)
    return starts


def _open_windowed(
    spark: SparkSession,
    topology: Topology,
    pipeline: PipelineSpec,
    checkpoint: Checkpoint,
    generation: str,
    frames: Mapping[str, DataFrame],
) -> list[tuple[int, Sink]]:
    """All sinks but topics, by their numbers. Raises ConfigurationError when one has no windows."""
    found = []
    for number, sink in enumerate(pipeline.sinks):
        if isinstance(sink.target, TopicSink):
            continue
        place = SinkPlace(
            spark=spark,
            topology=topology,
            pipeline=pipeline,
            identity=sink_identity(pipeline, number),
            generation=generation,
            checkpoint=checkpoint.files,
        )
        opened = open_sink(place, sink, frames[source_of(sink, pipeline.steps)])
        if not opened.window_columns:
            raise ConfigurationError([f"sinks[{number}]: has no windows: its columns do not say a 'date'"])
        found.append((number, opened))
    if not found:
        raise ConfigurationError([f"pipeline {pipeline.name!r} has no table that could be written anew"])
    return found


def _check_alone(topology: Topology, pipeline: PipelineSpec) -> None:
    """Raises ConfigurationError where a table of a database has rows of several sinks: what its windows hold
    is not one sink's to replace. Other tables belong to one.
    """
    tables = [
        (f"pipelines[{index}].sinks[{number}]", (sink.target.url, sink.target.table))
        for index, each in enumerate(topology.pipelines)
        for number, sink in enumerate(each.sinks)
        if isinstance(sink.target, JdbcSink)
    ]
    path = f"pipelines[{topology.pipelines.index(pipeline)}]."
    problems = [
        f"{own}: its windows of {table[1]} cannot be written anew, as {other} writes that table, too"
        for own, table in tables
        if own.startswith(path)
        for other, its in tables
        if other != own and its == table
    ]
    if problems:
        raise ConfigurationError(problems)


def _check_ended(checkpoint: Checkpoint, pipeline: PipelineSpec, sinks: Iterable[tuple[int, Sink]]) -> None:
    """Raises ConfigurationError where a sink has a batch that is not done: what is written anew would be
    without its rows, and the run that repeats it would pass them over.
    """
    batch = checkpoint.loaded_batches()
    if checkpoint.begun_batches() == batch:
        return
    holding = [sink_name(number, pipeline.sinks[number]) for number, sink in sinks if sink.holds(batch)]
    if holding:
        raise ConfigurationError(
            [
                f"the last load of pipeline {pipeline.name!r} was cut off, and its rows may be in"
                f" {', '.join(holding)} already: have it run to its end first, as 'mirrormaker pipeline run'"
                " does"
            ]
        )


def _times_of(sink: Sink) -> list[str]:
    """The columns that say the time of the sink's windows."""
    return [name for name in (DATE, HOUR) if name in sink.window_columns]


def _within(frame: DataFrame, span: Span, columns: tuple[str, ...]) -> DataFrame:
    """Rows whose own window is inside: a step may have made rows of windows that were not asked for. Rows
    that say no time are in none.
    """
    start = f.try_to_timestamp(f.col(DATE).cast("string"))
    if HOUR in columns:
        hours = f.col(HOUR).try_cast("int")
        start = f.timestamp_seconds(f.unix_timestamp(start) + hours * 3600)
    return frame.where(_inside(start, span))


def _inside(moment: Column, span: Span) -> Column:
    """Up to the last microsecond, which Python knows also of the last span that there is."""
    start, last = (f.timestamp_micros(f.lit(each)) for each in (span.start_ms * 1000, span.end_ms * 1000 - 1))
    return (moment >= start) & (moment <= last)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """The topics that have been loaded, as they are now."""

    starts: Mapping[TopicPartition, int]
    """Where reading starts: where loading did, or at the first record that is there and of the time."""
    doubts: Mapping[str, Sequence[str]]
    """Topic -> why some of what was loaded may be gone."""


def _unread(ends: Offsets, beginning: Offsets, folder: PipelineFolder) -> dict[str, list[str]]:
    """Topics that were loaded and are read no more: deleted, or left out of `topics`."""
    known = {each.topic for each in offsets_from_json(beginning)} | folder.past_runs().last_hours.keys()
    known |= {topic for run in folder.runs() for topic in run.hours}
    read = {each.topic for each in offsets_from_json(ends)}
    return {topic: [_gone(topic)] for topic in known - read}


def _gone(topic: str) -> str:
    return f"topic {topic}: it was deleted, or the pipeline does not read it any more"


async def _look(
    cluster: ClusterSpec,
    loaded: Offsets,
    beginning: Offsets,
    first_ids: TopicIds,
    start_ms: int | None,
) -> _Logs:
    """Raises ConfigurationError for topics that were made anew since they were loaded. `first_ids`: of those
    that were loaded first under their names.
    """
    ids, ends = topic_ids_from_json(loaded), offsets_from_json(loaded)
    anew = made_anew(first_ids, ids)
    begun = {each: at for each, at in offsets_from_json(beginning).items() if each.topic not in anew}
    async with open_cluster(cluster) as opened:
        metadata = await opened.refresh()
        told = {topic: topic_id for topic in ids if (topic_id := topic_id_of(metadata, topic)) is not None}
        if others := made_anew(ids, told):
            raise ConfigurationError(
                [f"topic {topic} was deleted and made anew since it was loaded" for topic in others]
            )
        there = ends.keys() & metadata.topic_partitions({each.topic for each in ends})
        earliest = await list_offsets(opened, dict.fromkeys(there, EARLIEST))
        asked = dict.fromkeys(there, EARLIEST if start_ms is None or start_ms < 0 else start_ms)
        found = await list_offsets(opened, asked)
        settings = await Admin(opened).describe_topics_configs({each.topic for each in there}, [_CLEANUP])
    doubts: dict[str, list[str]] = {each.topic: [_gone(each.topic)] for each in ends.keys() - there}
    for topic in anew:
        reason = f"topic {topic} was deleted and made anew, what it had before is gone"
        doubts.setdefault(topic, []).append(reason)
    for partition, first in sorted(earliest.items()):
        if begun.get(partition, 0) < min(first.offset, ends[partition]):
            reason = f"{partition}: records before offset {first.offset} are gone"
            doubts.setdefault(partition.topic, []).append(reason)
    for topic, entries in settings.items():
        if (policy := _policy_of(entries)) is None or "compact" in policy:
            reason = f"topic {topic}: cleanup.policy is {policy or 'not told'}, compaction removes records"
            doubts.setdefault(topic, []).append(reason)
    starts = {each: ends[each] for each in ends.keys() - there}
    for partition, at in found.items():
        start = ends[partition] if at.offset == NO_OFFSET else max(at.offset, begun.get(partition, 0))
        starts[partition] = min(start, ends[partition])
    return _Logs(starts=starts, doubts=doubts)


def _policy_of(entries: Mapping[str, ConfigEntry] | ProtocolError) -> str | None:
    """None where the cluster does not tell."""
    entry = None if isinstance(entries, ProtocolError) else entries.get(_CLEANUP)
    return None if entry is None else entry.value


def _hours_of(span: Span) -> HourRange:
    return HourRange(first=hour_name(span.start_ms), end=hour_name(span.end_ms))


def _loaded_of(
    topics: Iterable[str], folder: PipelineFolder, checkpoint: Checkpoint, asked: HourRange
) -> HourCounts:
    """The records that were loaded, of the hours that are asked for; without topics of which that is not
    known.
    """
    query, done = f"{checkpoint.generation}/{LOAD}", checkpoint.loaded_batches()
    figures = loaded_hours(folder.past_runs(), folder.runs(), query, done)
    if figures is None:
        return {}
    counts = {topic: figures.of(topic, asked) for topic in topics}
    return {topic: hours for topic, hours in counts.items() if hours is not None}


def _count_hours(records: DataFrame, asked: HourRange) -> HourCounts:
    """The records that are there, of the hours that are asked for."""
    counted = records.groupBy("topic", hour_of_record().alias("hour")).agg(f.count("*").alias("rows"))
    found: dict[str, dict[str, int]] = {}
    for row in counted.collect():
        if asked.has(row.hour):
            found.setdefault(row.topic, {})[row.hour] = row.rows
    return found


def _losses(
    doubts: Mapping[str, Sequence[str]], loaded: HourCounts, there: HourCounts, span: Span
) -> Iterator[str]:
    """What is gone, or may be, of topics that there are doubts about."""
    for topic, reasons in sorted(doubts.items()):
        had, has = loaded.get(topic), there.get(topic, {})
        if had is None:
            yield from (f"{reason}, maybe some of {span}" for reason in reasons)
        elif had != has:
            counts = f"{sum(had.values())} that may be of {span} were loaded, {sum(has.values())} are there"
            yield from (f"{reason}: {counts}" for reason in reasons)
