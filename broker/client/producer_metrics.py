"""What a producer counts, and the snapshot that it gives of that.

Nothing is counted per record on its way in: batches bring their number of records along.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.latencies import Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Times in milliseconds; all 0 while nothing was timed."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, latencies: Latencies) -> LatencySummary:
        return cls(
            count=latencies.count,
            mean_ms=latencies.mean_ms,
            p50_ms=latencies.percentile_ms(50),
            p99_ms=latencies.percentile_ms(99),
            max_ms=latencies.max_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics:
    """A producer's figures since its start, sizes in bytes."""

    records_acknowledged: int
    records_given_up: int
    """Their deliveries ended in an error; those dropped are apart."""
    records_dropped: int
    """For lack of room."""
    records_filtered: int
    """By an event handler."""
    bytes_acknowledged: int
    """Of whole batches, compressed."""
    batches_acknowledged: int
    batches_given_up: int
    batches_repeated: int
    """Times that a batch was sent again."""
    batches_split: int
    requests: int
    requests_failed: int
    """Without an answer."""
    buffered_bytes: int
    buffered_bytes_max: int
    buffered_batches: int
    requests_in_flight: int
    senders_waiting: int
    """Calls of `send` that wait for room."""
    batch_bytes_mean: float
    batch_bytes_max: int
    batch_records_mean: float
    request_latency: LatencySummary
    """From a request to its answer."""
    delivery_latency: LatencySummary
    """From a batch's first record to its acknowledgement."""


class ProducerCounters:
    """The producer's own side of its metrics."""

    __slots__ = (
        "batch_bytes_max",
        "batches_acknowledged",
        "batches_given_up",
        "batches_repeated",
        "batches_split",
        "buffered_bytes_max",
        "bytes_acknowledged",
        "delivery_latencies",
        "records_acknowledged",
        "records_dropped",
        "records_filtered",
        "records_given_up",
        "request_latencies",
        "requests",
        "requests_failed",
    )

    def __init__(self) -> None:
        self.records_acknowledged = self.records_given_up = 0
        self.records_dropped = self.records_filtered = 0
        self.bytes_acknowledged = self.batch_bytes_max = self.buffered_bytes_max = 0
        self.batches_acknowledged = self.batches_given_up = 0
        self.batches_repeated = self.batches_split = 0
        self.requests = self.requests_failed = 0
        self.request_latencies = Latencies()
        self.delivery_latencies = Latencies()

    def acknowledged(self, *, count: int, size: int, took_ms: float) -> None:
        """A batch of `count` records and `size` bytes is written."""
        self.batches_acknowledged += 1
        self.records_acknowledged += count
        self.bytes_acknowledged += size
        self.batch_bytes_max = max(self.batch_bytes_max, size)
        self.delivery_latencies.record(took_ms)

    def given_up(self, *, count: int) -> None:
        """A batch of `count` records is given up."""
        self.batches_given_up += 1
        self.records_given_up += count

    def snapshot(
        self, *, buffered_bytes: int, buffered_batches: int, requests_in_flight: int, senders_waiting: int
    ) -> ProducerMetrics:
        """The figures as they stand, with those of the moment."""
        batches = max(self.batches_acknowledged, 1)
        return ProducerMetrics(
            records_acknowledged=self.records_acknowledged,
            records_given_up=self.records_given_up,
            records_dropped=self.records_dropped,
            records_filtered=self.records_filtered,
            bytes_acknowledged=self.bytes_acknowledged,
            batches_acknowledged=self.batches_acknowledged,
            batches_given_up=self.batches_given_up,
            batches_repeated=self.batches_repeated,
            batches_split=self.batches_split,
            requests=self.requests,
            requests_failed=self.requests_failed,
            buffered_bytes=buffered_bytes,
            buffered_bytes_max=self.buffered_bytes_max,
            buffered_batches=buffered_batches,
            requests_in_flight=requests_in_flight,
            senders_waiting=senders_waiting,
            batch_bytes_mean=self.bytes_acknowledged / batches,
            batch_bytes_max=self.batch_bytes_max,
            batch_records_mean=self.records_acknowledged / batches,
            request_latency=LatencySummary.of(self.request_latencies),
            delivery_latency=LatencySummary.of(self.delivery_latencies),
        )
