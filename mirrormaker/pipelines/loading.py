"""One load: Structured Streaming with `availableNow` and a checkpoint, or without an end.

Spark notes in the checkpoint which offsets a batch has before it begins, and that it is done after; a batch
that a crash cut off comes again with the same records. What it writes is known again by its number
(`sinks`), so every record is in every sink once.

A pipeline without `watermark` is one query: each batch goes through all steps and into all sinks. With one,
each sink is a query, since its steps keep state between batches; quarantine is one more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from broker.errors import BrokerError
from mirrormaker.pipelines.checkpoint import LOAD, Checkpoint
from mirrormaker.pipelines.checks import Prepared, brief
from mirrormaker.pipelines.decoding import decode, split
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import add_counts, merge_offsets
from mirrormaker.pipelines.sinks.opening import open_sink
from mirrormaker.pipelines.sinks.sink import Sink, SinkPlace, sink_name
from mirrormaker.pipelines.source import stream
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.transforming import apply_steps
from mirrormaker.topology.model import PipelineSpec, SinkSpec, Topology
from mirrormaker.topology.step_order import source_of

QUARANTINE = "quarantine"
_QUARANTINE_LAYOUT = TableLayout(format="parquet", partition_by=("topic", "date"))


class LoadError(BrokerError):
    """A load failed; what it had not finished comes again."""


@dataclass(slots=True)
class LoadFigures:
    """What a load has done so far."""

    batches: int = 0
    offsets: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    rows_read: int = 0
    rows_quarantined: int = 0
    rows_late: int = 0
    rows_written: dict[str, int] = field(default_factory=dict)
    hours: dict[str, dict[str, int]] = field(default_factory=dict)


Write = Callable[[DataFrame, int], None]


class Load:
    """A pipeline at work; its lock is held. Owned by one thread, but for batches, which Spark's own do."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        pipeline: PipelineSpec,
        folder: PipelineFolder,
        prepared: Prepared,
        *,
        interval_ms: int | None = None,
    ) -> None:
        """`interval_ms`: how often what is new is loaded, without an end; once where it is None."""
        self.figures = LoadFigures()
        self._spark = spark
        self._topology = topology
        self._pipeline = pipeline
        self._prepared = prepared
        self._interval_ms = interval_ms
        self._checkpoint = Checkpoint(spark, pipeline, folder)
        self._quarantine = Table(spark, pipeline.quarantine or str(folder.quarantine), _QUARANTINE_LAYOUT)
        self._generation = self._checkpoint.make_generation()
        self._sinks: dict[int, Sink] = {}
        self._queries: list[StreamingQuery] = []
        self._counted: dict[str, int] = {}
        self._failure: Exception | None = None
        """What a batch failed on: Spark tells only its own words for it."""

    def start(self) -> None:
        """Begin. Raises ConfigurationError when a table belongs to another checkpoint."""
        pipeline = self._pipeline
        assert pipeline.cluster is not None
        self._quarantine.claim(pipeline.name, self._generation)
        self._quarantine.recover()
        prepared = self._prepared
        self._checkpoint.note_start(pipeline, prepared.beginning)
        cluster = self._topology.clusters[pipeline.cluster]
        records = stream(self._spark, cluster, pipeline, prepared.topics, prepared.beginning)
        decoded = decode(records, pipeline, self._prepared.schema)
        if pipeline.watermark is None:
            self._start_query(LOAD, decoded, self._write_all)
            return
        parts = split(decoded)
        rows = parts.rows.withWatermark("time", f"{pipeline.watermark.delay_ms} milliseconds")
        frames = apply_steps(pipeline, rows)
        self._start_query(QUARANTINE, decoded, self._write_malformed)
        for number, sink in enumerate(pipeline.sinks):
            frame = frames[source_of(sink, pipeline.steps)]
            self._start_query(sink_name(number, sink), frame, self._writer_of(number, sink))

    def wait(self, timeout_s: int) -> bool:
        """Whether all of it is done within that time. Raises LoadError when it failed."""
        done = True
        for query in self._queries:
            try:
                done = bool(query.awaitTermination(timeout_s)) and done
            except StreamingQueryException as error:
                self.stop()
                raise LoadError(describe_failure(self._failure or error)) from error
        self._take_progress()
        return done

    def stop(self) -> None:
        """End what is under way."""
        for query in self._queries:
            if query.isActive:
                query.stop()

    # ---- batches

    def _start_query(self, name: str, frame: DataFrame, write: Write) -> None:
        trigger: dict[str, Any] = {"availableNow": True}
        if self._interval_ms is not None:
            trigger = {"processingTime": f"{self._interval_ms} milliseconds"}
        writer = (
            frame.writeStream.queryName(f"{self._pipeline.name}/{name}")
            .option("checkpointLocation", self._checkpoint.files.url(f"{self._generation}/{name}"))
            .trigger(**trigger)
            .foreachBatch(self._telling(write))
        )
        self._queries.append(writer.start())

    def _telling(self, write: Write) -> Write:
        def told(frame: DataFrame, number: int) -> None:
            try:
                write(frame, number)
            except (PySparkException, BrokerError, OSError) as error:
                self._failure = error
                raise

        return told

    def _write_all(self, decoded: DataFrame, number: int) -> None:
        decoded.persist()
        try:
            frames = apply_steps(self._pipeline, split(decoded).rows)
            sinks = [
                (index, sink, frames[source_of(sink, self._pipeline.steps)])
                for index, sink in enumerate(self._pipeline.sinks)
            ]
            for index, sink, frame in sinks:
                self._opened(index, sink, frame)
            self._count(decoded)
            self._write_malformed(decoded, number)
            for index, sink, frame in sinks:
                self._writer_of(index, sink)(frame, number)
        finally:
            decoded.unpersist()

    def _write_malformed(self, decoded: DataFrame, number: int) -> None:
        if self._pipeline.watermark is not None:
            self._count(decoded)
        malformed = split(decoded).malformed
        if not malformed.isEmpty():
            key = f"{self._generation}-{QUARANTINE}"
            self.figures.rows_quarantined += self._quarantine.append(key, number, malformed)

    def _writer_of(self, index: int, sink: SinkSpec) -> Write:
        name = sink_name(index, sink)

        def write(frame: DataFrame, number: int) -> None:
            rows = self._opened(index, sink, frame).append(number, frame)
            written = self.figures.rows_written
            written[name] = written.get(name, 0) + rows

        return write

    def _opened(self, index: int, sink: SinkSpec, frame: DataFrame) -> Sink:
        if index not in self._sinks:
            opened = open_sink(self._place(sink_name(index, sink)), sink, frame)
            opened.claim()
            self._sinks[index] = opened
        return self._sinks[index]

    def _place(self, name: str) -> SinkPlace:
        return SinkPlace(
            spark=self._spark,
            topology=self._topology,
            pipeline=self._pipeline,
            name=name,
            generation=self._generation,
            checkpoint=self._checkpoint.files,
        )

    def _count(self, decoded: DataFrame) -> None:
        """What a batch has read: rows by hour, and between which offsets."""
        hour = f.date_format("timestamp", "yyyy-MM-dd'T'HH").alias("hour")
        counted = decoded.groupBy("topic", "partition", hour).agg(
            f.count("*").alias("rows"), f.min("offset").alias("first"), f.max("offset").alias("last")
        )
        figures = self.figures
        for row in counted.collect():
            read = {row.topic: {str(row.partition): (row.first, row.last + 1)}}
            figures.offsets = merge_offsets(figures.offsets, read)
            figures.hours = add_counts(figures.hours, {row.topic: {row.hour: row.rows}})
            figures.rows_read += row.rows

    def _take_progress(self) -> None:
        for query in self._queries:
            for progress in query.recentProgress:
                told = json.loads(progress.json)
                if int(told["batchId"]) <= self._counted.get(str(query.id), -1) or "sources" not in told:
                    continue
                self._counted[str(query.id)] = int(told["batchId"])
                if query is self._queries[0]:
                    self.figures.batches += 1
                late = (each.get("numRowsDroppedByWatermark", 0) for each in told.get("stateOperators", ()))
                self.figures.rows_late += sum(late)


def describe_failure(error: Exception) -> str:
    """Why a load failed, in a line."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in _causes(lines):
        return line
    return brief(error)


_TELLING = ("DataLossError", "ConfigurationError", "FileError", "RowError", "BrokerError")
"""Errors of our own that Spark wraps in its own."""


def _causes(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines)
    if "No space left on device" in text:
        yield "out of space: No space left on device"
    for word in _TELLING:
        for line in reversed(lines):
            _, colon, message = line.partition(f"{word}: ")
            if colon and message:
                yield message
    caused = [line for line in lines if line.startswith("Caused by:")]
    if caused:
        yield caused[-1].removeprefix("Caused by: ")
