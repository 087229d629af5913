"""From what a topology says of a sink to the sink at work."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mirrormaker.pipelines.sinks.database import DatabaseSink
from mirrormaker.pipelines.sinks.files import FilesSink
from mirrormaker.pipelines.sinks.lake import open_lake
from mirrormaker.pipelines.sinks.sink import Sink, SinkPlace
from mirrormaker.pipelines.sinks.topic import OutboxSink
from mirrormaker.topology.model import FileSink, JdbcSink, LakeSink, SinkSpec, TopicSink


def open_sink(place: SinkPlace, sink: SinkSpec, frame: DataFrame) -> Sink:
    """The sink for frames like this one; `claim` it before it is written. Raises BrokerError."""
    match sink.target:
        case FileSink():
            return FilesSink(place, sink, frame)
        case TopicSink():
            return OutboxSink(place, sink)
        case JdbcSink():
            return DatabaseSink(place, sink, frame)
        case LakeSink():
            return open_lake(place, sink, frame)
