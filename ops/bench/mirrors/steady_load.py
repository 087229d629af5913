"""Produce requests at a steady rate, encoded before, with next to no work in the process that sends them.

Every few milliseconds the source gets what is due: a request with a batch for each of as many partitions as
that takes, partitions in turn. Answers are looked at for errors. A process that works for each batch as a
client library does would take more of the nodes' core than the nodes do.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Self

from broker.errors import ErrorCode
from broker.types import HostPort
from broker.wire.header import encode_request
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ops.bench.mirrors.filling import Batch

TICK_SECONDS = 0.002
REQUEST_BATCHES_MAX = 64
PRODUCE_VERSION = 7
ANSWER_TIMEOUT_SECONDS = 30.0
_ANSWER_BYTES = 256 << 10
_SIZE = Struct(">i")
_COUNT = Struct(">i")
_PARTITION = Struct(">ii")
"""Index, and size of the records."""
_ANSWERED = Struct(">ih24x")
"""Index, error code; base offset, append time and log start offset behind them."""


@dataclass(frozen=True, slots=True)
class SentBatch:
    """One that was sent."""

    partition: int
    end: int
    """Offset behind its last record."""
    sent_at: float
    """By the wall clock, in seconds."""


class SteadyLoad:
    """A connection to the node that leads all partitions of a topic, closed by `with`."""

    def __init__(self, leader: HostPort, topic: str, partitions: int, batches: Sequence[Batch]) -> None:
        self.sent: list[SentBatch] = []
        self.ends = [0] * partitions
        """Of each partition, once all is answered."""
        self._number = 0
        self._batches = batches
        self._prefix = _prefix(topic)
        self._answer_start = 4 + 4 + 2 + len(topic.encode()) + 4
        """Correlation id, count of topics, name, count of partitions."""
        self._received = bytearray()
        self._unanswered = 0
        self._socket = socket.create_connection(leader)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def run(self, bytes_per_second: float, seconds: float) -> None:
        """Send for so long; what was sent last is not answered yet (see `finish`)."""
        begun, sent_bytes = time.monotonic(), 0
        while (elapsed := time.monotonic() - begun) < seconds:
            while sent_bytes < elapsed * bytes_per_second:
                sent_bytes += self._send(elapsed * bytes_per_second - sent_bytes)
            self._take_answers(socket.MSG_DONTWAIT)
            time.sleep(TICK_SECONDS)

    def finish(self) -> None:
        """Wait until all is answered."""
        self._socket.settimeout(ANSWER_TIMEOUT_SECONDS)
        while self._unanswered:
            self._take_answers(0)

    def _send(self, due: float) -> int:
        """One request of at least a batch, and no more than one for each partition."""
        parts: list[bytes] = []
        size = count = 0
        now, partitions = time.time(), len(self.ends)
        while size < due and count < min(partitions, REQUEST_BATCHES_MAX):
            partition, batch = self._number % partitions, self._batches[self._number % len(self._batches)]
            self._number += 1
            self.ends[partition] += batch.count
            self.sent.append(SentBatch(partition, self.ends[partition], now))
            parts += (_PARTITION.pack(partition, len(batch.records)), batch.records)
            size += len(batch.records)
            count += 1
        framed = len(self._prefix) + _COUNT.size + sum(map(len, parts))
        self._socket.sendall(b"".join((_SIZE.pack(framed), self._prefix, _COUNT.pack(count), *parts)))
        self._unanswered += 1
        return size

    def _take_answers(self, flags: int) -> None:
        try:
            data = self._socket.recv(_ANSWER_BYTES, flags)
        except BlockingIOError:
            return
        if not data:
            raise SystemExit("the source closed the connection")
        self._received += data
        received, at = self._received, 0
        while len(received) - at >= _SIZE.size:
            end = at + _SIZE.size + _SIZE.unpack_from(received, at)[0]
            if end > len(received):
                break
            self._check(received[at + _SIZE.size + self._answer_start : end - 4])  # throttle time ends it
            self._unanswered -= 1
            at = end
        del received[:at]

    @staticmethod
    def _check(partitions: bytearray) -> None:
        for index, code in _ANSWERED.iter_unpack(partitions):
            assert not code, f"partition {index}: {ErrorCode.of(code).name}"


def _prefix(topic: str) -> bytes:
    """A produce request without its size, up to the count of its partitions."""
    data = [PartitionProduceData(index=0, records=b"")]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    encoded = b"".join(map(bytes, encode_request(request, PRODUCE_VERSION, 1, "bench")))
    return encoded[_SIZE.size : -(_COUNT.size + _PARTITION.size)]
