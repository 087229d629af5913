"""What all kinds of sinks have in common.

Spark repeats the batch that a crash has cut off, with the number and the records that it had. A sink knows a
number again and so holds every batch once, whatever died between. Whoever writes holds the pipeline's lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.table_files import TableFiles
from mirrormaker.pipelines.windows import DATE, HOUR, Span, day_and_hour
from mirrormaker.topology.model import (
    FileSink,
    JdbcSink,
    LakeSink,
    PipelineSpec,
    SinkSpec,
    TopicSink,
    Topology,
)

WINDOW_COLUMNS = ("topic", DATE, HOUR)
_IDENTITY_SIZE_MAX = 100
"""Folders and notes in databases are called by it, of which some may be no longer than 200."""


class Sink(Protocol):
    """One sink of a pipeline at work."""

    @property
    def window_columns(self) -> tuple[str, ...]:
        """The columns that its windows are known by; () when it has none that could be written anew."""

    def claim(self) -> None:
        """Be the one that loads it, and end what a crash left half done; before anything is written.

        Raises ConfigurationError when another checkpoint has loaded it, BrokerError.
        """

    def append(self, number: int, frame: DataFrame) -> int:
        """Add the rows of a batch unless it has; returns how many these are. Raises BrokerError."""

    def holds(self, number: int) -> bool:
        """Whether the rows of a batch may be in it, so that they are not added again. Raises BrokerError."""

    def passes_over(self, number: int) -> bool:
        """Whether `append` would not so much as look at the rows of a batch. Raises BrokerError."""

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        """Have the windows inside `asked` hold the rows of `frame`, all of which are inside, and nothing
        else. Returns the windows that were or are there, and the rows. Raises BrokerError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlace:
    """One sink, where it stands, and what writes it."""

    spark: SparkSession
    topology: Topology
    pipeline: PipelineSpec
    identity: str
    """See `sink_identity`."""
    generation: str
    """What the checkpoint is called: batches are counted anew with another."""
    checkpoint: TableFiles

    @property
    def owner(self) -> str:
        """Which sink of which pipeline it is, whatever checkpoint it has."""
        return f"{self.pipeline.name}/{self.identity}"


def sink_identity(pipeline: PipelineSpec, number: int) -> str:
    """What batches are known again by at the sink's place: what it writes there, wherever it stands in its
    list. Of several that write the same rows, each but the first has a number.
    """
    name, place = _written(pipeline, number)
    earlier = sum(_written(pipeline, other) == (name, place) for other in range(number))
    if len(name) > _IDENTITY_SIZE_MAX:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _IDENTITY_SIZE_MAX - len(digest) - 1]}@{digest}"
    return f"{name}@{earlier}" if earlier else name


def _written(pipeline: PipelineSpec, number: int) -> tuple[str, str]:
    """What a sink writes, and where; folders have one sink alone, other places may have the rows of several
    steps. No part of a name has an '@'.
    """
    sink = pipeline.sinks[number]
    step = f"@{sink.source}" if sink.source is not None else ""
    match sink.target:
        case FileSink(format=kind, path=path):
            return kind.value, path
        case LakeSink(format=kind, table=path):
            return kind.value, path
        case TopicSink(topic=topic, cluster=cluster):
            return f"topic-{topic}@{cluster or pipeline.cluster}{step}", ""
        case JdbcSink(table=table, url=url):
            return f"jdbc-{table}{step}", url


def sink_name(number: int, sink: SinkSpec) -> str:
    """What a sink is called in records of runs, and its query in the checkpoint."""
    match sink.target:
        case FileSink(format=kind) | LakeSink(format=kind):
            return f"{number}-{kind.value}"
        case TopicSink():
            return f"{number}-topic"
        case JdbcSink():
            return f"{number}-jdbc"


def partition_columns(sink: SinkSpec, frame: DataFrame) -> tuple[str, ...]:
    """The columns that subfolders are named by, or windows are known by where there are none."""
    if sink.partition_by is not None:
        return sink.partition_by
    return tuple(name for name in WINDOW_COLUMNS if name in frame.columns)


def span_condition(span: Span, columns: tuple[str, ...], quote: Callable[[str], str]) -> str:
    """In SQL: that a row's window is inside a span. Without hours the span is of whole days."""
    day, hour = quote(DATE), quote(HOUR)
    (first_day, first_hour), (end_day, end_hour) = day_and_hour(span.start_ms), day_and_hour(span.end_ms)
    if HOUR not in columns:
        last_day, _ = day_and_hour(span.end_ms - 1)
        return f"{day} >= '{first_day}' AND {day} <= '{last_day}'"
    begun = f"({day} > '{first_day}' OR ({day} = '{first_day}' AND {hour} >= {first_hour}))"
    return f"{begun} AND ({day} < '{end_day}' OR ({day} = '{end_day}' AND {hour} < {end_hour}))"
