"""A topic. Rows of a batch are kept aside in the checkpoint, below `outbox/`, before they are sent.

With the option `delivery: at_least_once` rows go out as they come, and a batch that comes again goes again.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from mirrormaker.pipelines.session import source_options
from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.sinks.sink import SinkPlace
from mirrormaker.pipelines.windows import Span
from mirrormaker.spark.sink_options import SinkDelivery, parse_sink_options
from mirrormaker.topology.model import ClusterName, PipelineSpec, SinkSpec, TopicSink, Topology

RECORD_COLUMNS = frozenset({"key", "value", "topic", "partition", "timestamp", "headers"})


class OutboxSink:
    """A sink `topic`."""

    def __init__(self, place: SinkPlace, sink: SinkSpec) -> None:
        folder, job = f"outbox/{place.generation}/{place.identity}", f"{place.owner}/{place.generation}"
        self._outbox = Outbox(place.spark, place.checkpoint, folder, job)
        self._options = write_options(place.topology, place.pipeline, sink)
        self._is_exact = parse_sink_options(self._options).delivery is SinkDelivery.EXACTLY_ONCE

    @property
    def window_columns(self) -> tuple[str, ...]:
        return ()

    def claim(self) -> None:
        """Remove what a crash or a refusal left aside. The topic itself is whoever's may write to it."""
        self._outbox.tidy()
        if self._is_exact:
            self._outbox.settle(self._options)

    def append(self, number: int, frame: DataFrame) -> int:
        frame = frame.select(*(name for name in frame.columns if name in RECORD_COLUMNS))
        if not self._is_exact:
            return self._send_at_once(frame)
        return self._outbox.send(number, lambda: frame, self._options)

    def holds(self, number: int) -> bool:
        return self._outbox.holds(number)

    def passes_over(self, number: int) -> bool:
        return self.holds(number)

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        raise AssertionError("a topic has no windows")

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
