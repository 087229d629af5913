"""One load: Structured Streaming with `availableNow` and a checkpoint, or without an end.

Spark notes in the checkpoint which offsets a batch has before it begins, and that it is done after; a batch
that a crash cut off comes again with the same records. What it writes is known again by its number
(`sinks`), so every record is in every sink once.

A pipeline without `watermark` is one query: each batch goes through all steps and into all sinks. With one,
each sink is a query, since its steps keep state between batches; quarantine is one more.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.pipelines.checkpoint import LOAD, Checkpoint
from mirrormaker.pipelines.checks import Prepared, brief
from mirrormaker.pipelines.decoding import decode, split
from mirrormaker.pipelines.failure_places import place_of_failure
from mirrormaker.pipelines.quarantine import QUARANTINE, Quarantine
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import add_counts, counted_batches, merge_offsets
from mirrormaker.pipelines.sinks.opening import open_sink
from mirrormaker.pipelines.sinks.sink import Sink, SinkPlace, sink_identity, sink_name
from mirrormaker.pipelines.slow_starts import STARTS_MAX, is_slow_start
from mirrormaker.pipelines.source import hour_of_record, stream
from mirrormaker.pipelines.transforming import apply_steps
from mirrormaker.spark.sink_rows import RowError
from mirrormaker.topology.model import PipelineSpec, Topology
from mirrormaker.topology.step_order import source_of


class LoadError(BrokerError):
    """A load failed; what it had not finished comes again."""


@dataclass(slots=True)
class LoadFigures:
    """What a load has done so far, or one of its batches: of those that are done, whole ones."""

    batches: int = 0
    offsets: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    rows_read: int = 0
    rows_quarantined: int = 0
    rows_late: int = 0
    rows_written: dict[str, int] = field(default_factory=dict)
    hours: dict[str, dict[str, int]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    """See `RunRecord`."""

    def add(self, batch: LoadFigures) -> None:
        """Take in what a batch has done."""
        self.batches += batch.batches
        self.offsets = merge_offsets(self.offsets, batch.offsets)
        self.rows_read += batch.rows_read
        self.rows_quarantined += batch.rows_quarantined
        self.hours = add_counts(self.hours, batch.hours)
        for name, rows in batch.rows_written.items():
            self.rows_written[name] = self.rows_written.get(name, 0) + rows


_CALLBACKS = "py4j.clientserver"
"""What logs that a function has failed which Spark has called."""
Write = Callable[[DataFrame, int], LoadFigures]


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
        on_batch: Callable[[], None],
        interval_ms: int | None = None,
    ) -> None:
        """`on_batch` is called when the figures have a batch more, before Spark notes that it is done, by
        threads of Spark's. `interval_ms`: how often what is new is loaded, without an end; once where None.
        """
        self.figures = LoadFigures()
        self._spark = spark
        self._topology = topology
        self._pipeline = pipeline
        self._prepared = prepared
        self._folder = folder
        self._on_batch = on_batch
        self._interval_ms = interval_ms
        self._checkpoint = Checkpoint(spark, pipeline, folder)
        self._generation = self._checkpoint.make_generation()
        self._quarantine = Quarantine(spark, pipeline, folder, self._generation)
        self._sinks: list[Sink] = []
        self._writers: list[DataStreamWriter] = []
        self._queries: list[StreamingQuery] = []
        """One of each writer, the last that it started."""
        self._slow_starts = 0
        """One after the other."""
        self._looked_at: dict[str, int] = {}
        """Query -> the last of its batches whose progress was taken."""
        self._adding = threading.Lock()
        self._failure: Exception | None = None
        """What a batch failed on: Spark tells only its own words for it."""

    def start(self) -> None:
        """Begin, with tables as a run before was to leave them. Raises ConfigurationError when one belongs to
        another checkpoint.
        """
        pipeline = self._pipeline
        assert pipeline.cluster is not None
        known = counted_batches(self._folder.runs())
        mine = f"{self._generation}/"
        self.figures.counted = {query: known[query] for query in known if query.startswith(mine)}
        self._quarantine.open()
        prepared = self._prepared
        self._checkpoint.note_start(pipeline, prepared.beginning)
        cluster = self._topology.clusters[pipeline.cluster]
        records = stream(self._spark, cluster, pipeline, prepared.beginning)
        decoded = decode(records, pipeline, self._prepared.schema)
        rows = split(decoded).rows
        if pipeline.watermark is not None:
            rows = rows.withWatermark("time", f"{pipeline.watermark.delay_ms} milliseconds")
        frames = self._frames_of_sinks(rows)
        for number, frame in enumerate(frames):
            sink = open_sink(self._place(number), pipeline.sinks[number], frame)
            with self._telling_sink(number):
                sink.claim()
            self._sinks.append(sink)
        self._mend_queries()
        if pipeline.watermark is None:
            self._start_query(LOAD, decoded, self._write_all)
            return
        self._start_query(QUARANTINE, decoded, self._write_malformed)
        for number, frame in enumerate(frames):
            self._start_query(sink_name(number, pipeline.sinks[number]), frame, self._writer_of(number))

    def wait(self, timeout_s: int) -> bool:
        """Whether all of it is done within that time. Raises LoadError when it failed."""
        done = True
        for index, query in enumerate(self._queries):
            try:
                done = bool(query.awaitTermination(timeout_s)) and done
            except StreamingQueryException as error:
                self._start_again(index, error)
                done = False
        self._take_progress()
        return done

    def has_begun(self) -> bool:
        """Whether every query has had a batch, or has looked and found nothing new."""
        return all(query.lastProgress is not None or _is_at_rest(query.status) for query in self._queries)

    def is_between_batches(self) -> bool:
        """Whether none is under way just now."""
        return all(_is_at_rest(query.status) for query in self._queries)

    def stop(self) -> None:
        """End what is under way; there is nothing where Spark is gone."""
        with contextlib.suppress(Py4JError, OSError), _without_words_of_callbacks():
            for query in self._queries:
                if query.isActive:
                    query.stop()

    # ---- batches

    def _mend_queries(self) -> None:
        """End what a host left half written that has lost its power. Raises FileError."""
        sinks, pipeline = self._sinks, self._pipeline
        if pipeline.watermark is None:
            queries = {LOAD: sinks}
        else:
            names = [sink_name(number, sink) for number, sink in enumerate(pipeline.sinks)]
            queries = {QUARANTINE: [], **{name: [sink] for name, sink in zip(names, sinks, strict=True)}}
        for name, its in queries.items():

            def holds(number: int, name: str = name, its: list[Sink] = its) -> bool:
                is_quarantined = name in (LOAD, QUARANTINE) and self._quarantine.holds(number)
                return is_quarantined or any(sink.holds(number) for sink in its)

            self._checkpoint.mend(f"{self._generation}/{name}", holds)

    def _start_query(self, name: str, frame: DataFrame, write: Write) -> None:
        trigger: dict[str, Any] = {"availableNow": True}
        if self._interval_ms is not None:
            trigger = {"processingTime": f"{self._interval_ms} milliseconds"}
        writer = (
            frame.writeStream.queryName(f"{self._pipeline.name}/{name}")
            .option("checkpointLocation", self._checkpoint.files.url(f"{self._generation}/{name}"))
            .trigger(**trigger)
            .foreachBatch(self._telling(f"{self._generation}/{name}", write))
        )
        self._writers.append(writer)
        self._queries.append(writer.start())

    def _start_again(self, index: int, error: StreamingQueryException) -> None:
        """Have a query go on where it was, if all that failed was that a process was too slow to begin.
        Raises LoadError.
        """
        failure, self._failure = self._failure or error, None
        self._slow_starts += 1
        if isinstance(failure, LoadError):
            raise failure
        if not is_slow_start(failure) or self._slow_starts >= STARTS_MAX:
            is_of_checkpoint = failure is error and is_without_room(error)  # no batch has told of it
            place = f"{self._checkpoint.files.root}: " if is_of_checkpoint else ""
            raise LoadError(describe_failure(failure, place)) from error
        logger("pipelines").warning("spark_python_began_too_slowly", pipeline=self._pipeline.name)
        self._take_progress()
        self._queries[index] = self._writers[index].start()

    def _telling(self, query: str, write: Write) -> Callable[[DataFrame, int], None]:
        def told(frame: DataFrame, number: int) -> None:
            try:
                self._checkpoint.sync_batch(query, number)
                self._add(query, number, write(frame, number))
                self._slow_starts = 0
            except (PySparkException, Py4JError, BrokerError, RowError, OSError) as error:
                self._failure = error
                raise

        return told

    def _add(self, query: str, number: int, batch: LoadFigures) -> None:
        """A batch that comes again, though all of it was done, is in the figures already."""
        with self._adding:
            if number <= self.figures.counted.get(query, -1):
                return
            self.figures.add(batch)
            self.figures.counted[query] = number
        self._on_batch()

    def _write_all(self, decoded: DataFrame, number: int) -> LoadFigures:
        decoded.persist()
        try:
            frames = self._frames_of_sinks(split(decoded).rows)
            figures = self._write_malformed(decoded, number)
            for index, frame in enumerate(frames):
                figures.add(self._writer_of(index)(frame, number))
            return figures
        finally:
            decoded.unpersist()

    def _frames_of_sinks(self, rows: DataFrame) -> list[DataFrame]:
        """What the steps make of rows, or of a stream, for each sink."""
        frames = apply_steps(self._pipeline, rows)
        return [frames[source_of(sink, self._pipeline.steps)] for sink in self._pipeline.sinks]

    def _write_malformed(self, decoded: DataFrame, number: int) -> LoadFigures:
        figures = _count(decoded)
        figures.rows_quarantined = self._quarantine.append(number, split(decoded).malformed)
        return figures

    def _writer_of(self, index: int) -> Write:
        name = sink_name(index, self._pipeline.sinks[index])

        def write(frame: DataFrame, number: int) -> LoadFigures:
            sink = self._sinks[index]
            with self._telling_sink(index):
                if self._pipeline.watermark is not None and sink.passes_over(number):
                    frame.write.format("noop").mode("append").save()  # Spark keeps state of what it computes
                return LoadFigures(rows_written={name: sink.append(number, frame)})

        return write

    @contextlib.contextmanager
    def _telling_sink(self, index: int) -> Iterator[None]:
        """Raises LoadError, with the place in the file, for what Spark says of a sink."""
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if is_slow_start(error) or is_told(error):
                raise
            place = place_of_failure(self._pipeline, index, error)
            path = f"pipelines[{self._topology.pipelines.index(self._pipeline)}].{place}"
            raise LoadError(describe_failure(error, f"{path}: ")) from error

    def _place(self, index: int) -> SinkPlace:
        return SinkPlace(
            spark=self._spark,
            topology=self._topology,
            pipeline=self._pipeline,
            identity=sink_identity(self._pipeline, index),
            generation=self._generation,
            checkpoint=self._checkpoint.files,
        )

    def _take_progress(self) -> None:
        for query in self._queries:
            for progress in query.recentProgress:
                told = json.loads(progress.json)
                if int(told["batchId"]) <= self._looked_at.get(str(query.id), -1) or "sources" not in told:
                    continue
                self._looked_at[str(query.id)] = int(told["batchId"])
                late = (each.get("numRowsDroppedByWatermark", 0) for each in told.get("stateOperators", ()))
                self.figures.rows_late += sum(late)


def _is_at_rest(status: Mapping[str, Any]) -> bool:
    """Whether a query waits for its next trigger; one that was started just now has not had its first."""
    return not status["isTriggerActive"] and not status["message"].startswith("Initializing")


@contextlib.contextmanager
def _without_words_of_callbacks() -> Iterator[None]:
    """Batches that are ended fail, each with a traceback, which is of no use to anybody."""
    callbacks = logging.getLogger(_CALLBACKS)
    before = callbacks.level
    callbacks.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        callbacks.setLevel(before)


def _count(decoded: DataFrame) -> LoadFigures:
    """What a batch has read: rows by hour, and between which offsets."""
    counted = decoded.groupBy("topic", "partition", hour_of_record().alias("hour")).agg(
        f.count("*").alias("rows"), f.min("offset").alias("first"), f.max("offset").alias("last")
    )
    figures = LoadFigures(batches=1)
    for row in counted.collect():
        read = {row.topic: {str(row.partition): (row.first, row.last + 1)}}
        counts = {row.topic: {row.hour: row.rows}}
        figures.add(LoadFigures(offsets=read, hours=counts, rows_read=row.rows))
    return figures


def is_without_room(error: Exception) -> bool:
    """Whether a disk was full."""
    return _NO_ROOM in str(error)


def is_told(error: Exception) -> bool:
    """Whether words of ours in it say where it was."""
    return any(_told([line.strip() for line in str(error).splitlines()]))


def describe_failure(error: Exception, place: str = "") -> str:
    """Why a load failed, in a line; `place` is where, with a colon, if that is known."""
    text = _OF_A_QUERY.sub("", _CALLED.sub("", str(error).strip()))
    lines = [line.strip() for line in text.splitlines()]
    if _NO_ROOM in text:
        told = [text] if isinstance(error, BrokerError | OSError) else [*_told(lines), *reversed(lines)]
        full = next(line for line in told if _NO_ROOM in line)
        return f"out of space: {place}{full.removeprefix('Caused by: ')}"
    return place + next(_causes(lines, _raised_in_python(text)), brief(text))


_OF_A_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_CALLED = re.compile(r"^An error occurred while calling \S+\.\n: ")
_NO_ROOM = os.strerror(errno.ENOSPC)
_TELLING = ("DataLossError", "ConfigurationError", "FileError", "RowError", "BrokerError")
"""Errors of our own that Spark wraps in its own, those that tell most first."""
_OF_OURS = re.compile(r"\b(?:broker|mirrormaker)\.[\w.]+: (.+)")
"""Any of them, as a traceback of Python ends."""


_OF_A_WORKER = "thrown from the Python worker:"
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
"""What a traceback of Python ends with."""


def _raised_in_python(text: str) -> list[str]:
    """What a function of the user's has raised in a Python worker, last."""
    _, _, trace = text.partition(_OF_A_WORKER)
    return _RAISED.findall(trace)[-1:]


def _causes(lines: list[str], raised: list[str]) -> Iterator[str]:
    yield from _told(lines)
    yield from raised
    caused = [line for line in lines if line.startswith("Caused by:")]
    if caused:
        yield caused[-1].removeprefix("Caused by: ")


def _told(lines: list[str]) -> Iterator[str]:
    for word in _TELLING:
        for line in reversed(lines):
            _, colon, message = line.partition(f"{word}: ")
            if colon and message:
                yield message
    for line in reversed(lines):
        if found := _OF_OURS.search(line):
            yield found[1]
