"""A topic. Rows of a batch are kept aside in the checkpoint before they are sent, so that a batch that comes
again is the same to the last row, whatever its steps compute anew; each file of them is one transaction of
one task, which is known again by the batch's number (`spark/sink_transactions`).

    outbox/SINK/NUMBER/       the rows, as Parquet; removed once they are sent
    outbox/SINK/NUMBER.json   made when all rows are there: which they are; then, that they are sent

With the option `delivery: at_least_once` rows go out as they come, and a batch that comes again goes again.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame

from mirrormaker.pipelines.session import source_options
from mirrormaker.pipelines.sinks.sink import SinkPlace
from mirrormaker.pipelines.windows import Span
from mirrormaker.spark import MirrorDataSource
from mirrormaker.spark.sink_options import SinkDelivery, parse_sink_options
from mirrormaker.topology.model import ClusterName, PipelineSpec, SinkSpec, TopicSink, Topology

RECORD_COLUMNS = frozenset({"key", "value", "topic", "partition", "timestamp", "headers"})
NOTES_KEPT = 10
_WHOLE_FILES = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}
"""Each file is one task's, however many cores there are: its rows keep their order and their transaction."""


class OutboxSink:
    """A sink `topic`."""

    def __init__(self, place: SinkPlace, sink: SinkSpec) -> None:
        self._place = place
        self._files = place.checkpoint
        self._folder = f"outbox/{place.generation}/{place.name}"
        self._options = write_options(place.topology, place.pipeline, sink)
        self._is_exact = parse_sink_options(self._options).delivery is SinkDelivery.EXACTLY_ONCE

    @property
    def window_columns(self) -> tuple[str, ...]:
        return ()

    def claim(self) -> None:
        """A topic belongs to whoever may write to it."""

    def append(self, number: int, frame: DataFrame) -> int:
        frame = frame.select(*(name for name in frame.columns if name in RECORD_COLUMNS))
        if not self._is_exact:
            return self._send_at_once(frame)
        note, staged = f"{self._folder}/{number}.json", f"{self._folder}/{number}"
        told = self._files.read_text(note)
        if told is None:
            self._files.make_folder(self._folder)
            frame.write.mode("overwrite").parquet(self._files.url(staged))
            rows = self._place.spark.read.schema(frame.schema).parquet(self._files.url(staged)).count()
            self._files.write_text(note, json.dumps({"rows": rows, "sent": False}))
        else:
            rows = int(json.loads(told)["rows"])
        if told is None or not json.loads(told)["sent"]:
            self._send(number, frame, staged)
            self._files.write_text(note, json.dumps({"rows": rows, "sent": True}))
        self._files.delete(staged)
        self._files.delete(f"{self._folder}/{number - NOTES_KEPT}.json")
        return rows

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        raise AssertionError("a topic has no windows")

    def _send(self, number: int, frame: DataFrame, staged: str) -> None:
        session = self._place.spark.newSession()
        session.dataSource.register(MirrorDataSource)
        for name, value in _WHOLE_FILES.items():
            session.conf.set(name, value)
        rows = session.read.schema(frame.schema).parquet(self._files.url(staged))
        job = f"{self._place.owner}/{self._place.generation}"
        writer = rows.write.format("mirror").options(**self._options)
        writer.option("txnAppId", job).option("txnVersion", str(number)).mode("append").save()

    def _send_at_once(self, frame: DataFrame) -> int:
        rows = frame.persist()
        try:
            rows.write.format("mirror").options(**self._options).mode("append").save()
            return rows.count()
        finally:
            rows.unpersist()


def write_options(topology: Topology, pipeline: PipelineSpec, sink: SinkSpec) -> dict[str, str]:
    """Options of the data source for a sink `topic`."""
    assert isinstance(sink.target, TopicSink)
    cluster = topology.clusters[ClusterName(sink.target.cluster or pipeline.cluster or "")]
    usual = {"delivery": SinkDelivery.EXACTLY_ONCE.value}
    return usual | source_options(cluster) | dict(sink.options) | {"topic": sink.target.topic}
