"""A topic. Rows of a batch are kept aside in the checkpoint before they are sent, so that a batch that comes
again is the same to the last row, whatever its steps compute anew; each file of them is one transaction of
one task, which is known again by the batch's number (`spark/sink_transactions`).

    outbox/SINK/STAGED/       the rows, as Parquet, by a name that no attempt before had: one that was killed
                              may still write for a moment; removed once they are sent
    outbox/SINK/NUMBER.json   made when all rows are there: where, and how many; then, that they are sent

With the option `delivery: at_least_once` rows go out as they come, and a batch that comes again goes again.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame

from mirrormaker.pipelines.session import source_options
from mirrormaker.pipelines.sinks.sink import SinkPlace
from mirrormaker.pipelines.windows import Span
from mirrormaker.spark import MirrorDataSource
from mirrormaker.spark.sink_options import SinkDelivery, parse_sink_options
from mirrormaker.topology.model import ClusterName, PipelineSpec, SinkSpec, TopicSink, Topology

RECORD_COLUMNS = frozenset({"key", "value", "topic", "partition", "timestamp", "headers"})
NOTES_KEPT = 10
_NOTE = ".json"
_WHOLE_FILES = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}
"""Each file is one task's, however many cores there are: its rows keep their order and their transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What is noted of a batch."""

    rows: int
    staged: str
    sent: bool


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
        """Remove what a crash left aside. The topic itself belongs to whoever may write to it."""
        names = [name for name in self._files.list_names(self._folder) if not name.startswith(".")]
        notes = [name for name in names if name.endswith(_NOTE)]
        noted = {self._read(note).staged for note in notes}
        for name in set(names) - set(notes) - noted:
            self._files.delete(f"{self._folder}/{name}")

    def append(self, number: int, frame: DataFrame) -> int:
        frame = frame.select(*(name for name in frame.columns if name in RECORD_COLUMNS))
        if not self._is_exact:
            return self._send_at_once(frame)
        note = f"{number}{_NOTE}"
        if self._files.exists(f"{self._folder}/{note}"):
            batch = self._read(note)
        else:
            batch = self._stage(frame)
            self._write(note, batch)
        if not batch.sent:
            self._send(number, frame, f"{self._folder}/{batch.staged}")
            self._write(note, replace(batch, sent=True))
        self._files.delete(f"{self._folder}/{batch.staged}")
        self._files.delete(f"{self._folder}/{number - NOTES_KEPT}{_NOTE}")
        return batch.rows

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        raise AssertionError("a topic has no windows")

    def _stage(self, frame: DataFrame) -> _Batch:
        staged = uuid.uuid4().hex
        place = self._files.url(f"{self._folder}/{staged}")
        self._files.make_folder(self._folder)
        frame.write.parquet(place)
        rows = self._place.spark.read.schema(frame.schema).parquet(place).count()
        return _Batch(rows=rows, staged=staged, sent=False)

    def _read(self, note: str) -> _Batch:
        return _Batch(**json.loads(self._files.read_text(f"{self._folder}/{note}") or "{}"))

    def _write(self, note: str, batch: _Batch) -> None:
        self._files.write_text(f"{self._folder}/{note}", json.dumps(asdict(batch)))

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
