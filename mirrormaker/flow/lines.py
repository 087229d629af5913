"""Who sends next to each destination broker, and the stamping of what is sent for the first time. Pure.

A request carries at most one chunk of a partition, and as many partitions as fit, in turns: a busy one
starves nobody. At most `requests_in_flight` requests are under way to a broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.records.batch import next_sequence
from broker.types import BrokerId
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.exchange import FlowConfig, ProduceCommand
from mirrormaker.flow.facts import FlowCounts
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.stamp import stamp


@dataclass(slots=True, eq=False)
class _Broker:
    """A destination broker: who wants to send to it, and how many requests it owes an answer for."""

    broker_id: BrokerId
    in_flight: int = 0
    line: deque[Partition] = field(default_factory=deque)


class Lines:
    """Partitions that have something to send stand in the line of their leader."""

    def __init__(self, config: FlowConfig, counts: FlowCounts) -> None:
        self._config = config
        self._counts = counts
        self._brokers: dict[BrokerId, _Broker] = {}

    def requests(self, now_ms: int) -> Iterator[ProduceCommand]:
        """All requests that may be sent now; those handed out count as sent."""
        while (broker := self._next_broker()) is not None:
            command = self._build(broker, now_ms)
            if command is not None:
                yield command

    def _next_broker(self) -> _Broker | None:
        """One that may be sent to; looked for anew each time, as a partition whose leader moved is put into
        another line while requests are built.
        """
        bound = self._config.requests_in_flight
        return next((each for each in self._brokers.values() if each.line and each.in_flight < bound), None)

    def ended(self, command: ProduceCommand) -> None:
        """A request was answered, or will never be."""
        self._brokers[command.broker].in_flight -= 1

    def line_up(self, partition: Partition) -> None:
        """Put the partition into the line of its leader when it has something to send."""
        if partition.queued or partition.next_to_send() is None:
            return
        assert partition.leader is not None
        broker = self._brokers.get(partition.leader)
        if broker is None:
            broker = self._brokers[partition.leader] = _Broker(partition.leader)
        partition.queued = True
        broker.line.append(partition)

    def _build(self, broker: _Broker, now_ms: int) -> ProduceCommand | None:
        """Fill one request from the head of the line, one chunk a partition; None when nobody can send."""
        entries: list[tuple[Partition, Chunk]] = []
        size = 0
        while broker.line:
            partition = broker.line[0]
            chunk = partition.next_to_send() if partition.leader == broker.broker_id else None
            if chunk is not None and entries and size + chunk.size > self._config.produce_bytes:
                break
            broker.line.popleft()
            partition.queued = False
            if chunk is None:
                self.line_up(partition)
                continue
            self._send(partition, chunk, broker.broker_id, now_ms)
            entries.append((partition, chunk))
            size += chunk.size
        for partition, _ in entries:
            self.line_up(partition)
        if not entries:
            return None
        broker.in_flight += 1
        self._counts.requests += 1
        return ProduceCommand(broker=broker.broker_id, entries=entries, bytes=size)

    def _send(self, partition: Partition, chunk: Chunk, broker: BrokerId, now_ms: int) -> None:
        if not partition.in_flight and now_ms - partition.answered_at_ms > self._config.producer_quiet_ms:
            partition.proven = False
        if chunk.base_sequence < 0:
            self._stamp(partition, chunk)
        else:
            self._counts.repeated_chunks += 1
        chunk.in_flight, chunk.error = True, None
        partition.in_flight += 1
        partition.sent += 1
        partition.broker = broker

    def _stamp(self, partition: Partition, chunk: Chunk) -> None:
        assert partition.producer is not None
        producer_id, epoch = partition.producer
        chunk.base_sequence = sequence = partition.next_sequence
        for span in chunk.batches:
            stamp(chunk.records, span.position, span.size, producer_id, epoch, sequence)
            sequence = next_sequence(sequence, span.count)
        partition.next_sequence = sequence
