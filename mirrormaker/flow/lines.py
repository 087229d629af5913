"""Who sends next to each destination broker, and the stamping of what is sent for the first time. Pure.

A request carries at most one chunk of a lane, at most one for a destination partition, and as many lanes
as fit, in turns: a busy one starves nobody. Batches of transactions share a request with those of the same
one. At most `requests_in_flight` requests, and no more than one beyond `in_flight_bytes`, are under way to
a broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.exchange import FlowConfig, ProduceCommand
from mirrormaker.flow.facts import FlowCounts
from mirrormaker.flow.hooks import Admission, Pace
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.producers import LaneProducer, ProducerWishes
from mirrormaker.flow.stamp import stamp


@dataclass(slots=True, eq=False)
class _Broker:
    """A destination broker: who wants to send to it, and how many requests it owes an answer for."""

    broker_id: BrokerId
    in_flight: int = 0
    bytes_in_flight: int = 0
    line: deque[Lane] = field(default_factory=deque)


class Lines:
    """Lanes that have something to send stand in the line of their leader."""

    def __init__(
        self,
        config: FlowConfig,
        admissions: tuple[Admission, ...],
        pace: Pace | None,
        wishes: ProducerWishes,
        counts: FlowCounts,
    ) -> None:
        self._config = config
        self._admissions = admissions
        self._pace = pace
        self._wishes = wishes
        self._counts = counts
        self._brokers: dict[BrokerId, _Broker] = {}
        self._refused: list[Lane] = []
        """Lanes that had something to send and were not admitted."""

    def configure(self, config: FlowConfig) -> None:
        """Other bounds from now on."""
        self._config = config

    def requests(self, now_ms: int) -> Iterator[ProduceCommand]:
        """All requests that may be sent now; those handed out count as sent."""
        if self._refused:
            refused, self._refused = self._refused, []
            for lane in refused:
                self.line_up(lane)
        if self._pace is not None:
            for lane in self._pace.take_admitted(now_ms):
                self.line_up(lane)
        while (broker := self._next_broker()) is not None:
            command = self._build(broker, now_ms)
            if command is not None:
                yield command

    def _next_broker(self) -> _Broker | None:
        """One that may be sent to; looked for anew each time, as a lane whose leader moved is put into
        another line while requests are built.
        """
        requests, size = self._config.requests_in_flight, self._config.in_flight_bytes
        return next(
            (
                each
                for each in self._brokers.values()
                if each.line and each.in_flight < requests and each.bytes_in_flight < size
            ),
            None,
        )

    def ended(self, command: ProduceCommand) -> None:
        """A request was answered, or will never be."""
        broker = self._brokers[command.broker]
        broker.in_flight -= 1
        broker.bytes_in_flight -= command.bytes

    def line_up(self, lane: Lane) -> None:
        """Put the lane into the line of its leader when it has something to send."""
        if lane.queued or lane.next_to_send() is None:
            return
        assert lane.leader is not None
        broker = self._brokers.get(lane.leader)
        if broker is None:
            broker = self._brokers[lane.leader] = _Broker(lane.leader)
        lane.queued = True
        broker.line.append(lane)

    def _change_producer(self, lane: Lane, chunk: Chunk) -> bool:
        """Let the lane go on with the identity for the chunk; False when it must be got first."""
        if lane.take_producer(chunk.origin):
            return True
        assert lane.awaits is not None
        lane.enter(LaneState.AWAITING_PRODUCER)
        self._wishes.add(lane.awaits)
        return False

    def _build(self, broker: _Broker, now_ms: int) -> ProduceCommand | None:
        """Fill one request from the head of the line, one chunk a lane; None when nobody can send."""
        entries: list[tuple[Lane, Chunk]] = []
        destinations: set[TopicPartition] = set()
        size = 0
        transactional_id: str | None = None
        while broker.line:
            lane = broker.line[0]
            chunk = lane.next_to_send() if lane.leader == broker.broker_id else None
            if chunk is not None and entries:
                if size + chunk.size > self._config.produce_bytes:
                    break
                if lane.destination in destinations:
                    break
                if transactional_id is not None and _transactional_id(lane, chunk) != transactional_id:
                    break
            broker.line.popleft()
            lane.queued = False
            if chunk is None:
                self.line_up(lane)
                continue
            producer = lane.producer
            if (producer is None or producer.origin != chunk.origin) and not self._change_producer(
                lane, chunk
            ):
                continue
            if self._admissions and not self._is_admitted(lane, chunk, now_ms):
                self._refused.append(lane)
                continue
            if self._pace is not None and not self._pace.may_send(lane, chunk, now_ms):
                continue
            self._send(lane, chunk, broker.broker_id, now_ms)
            if not entries:
                transactional_id = _transactional_id(lane, chunk)
            entries.append((lane, chunk))
            destinations.add(lane.destination)
            size += chunk.size
        for lane, _ in entries:
            self.line_up(lane)
        if not entries:
            return None
        broker.in_flight += 1
        broker.bytes_in_flight += size
        self._counts.requests += 1
        return ProduceCommand(
            broker=broker.broker_id, entries=entries, bytes=size, transactional_id=transactional_id
        )

    def _is_admitted(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        return all(admission.may_send(lane, chunk, now_ms) for admission in self._admissions)

    def _send(self, lane: Lane, chunk: Chunk, broker: BrokerId, now_ms: int) -> None:
        producer = lane.producer
        assert producer is not None
        if not lane.in_flight and now_ms - producer.answered_at_ms > self._config.producer_quiet_ms:
            producer.proven = False
        chunk.is_repeat = chunk.base_sequence >= 0
        if chunk.is_repeat:
            self._counts.repeated_chunks += 1
        else:
            _stamp(producer, chunk)
        chunk.in_flight, chunk.error = True, None
        lane.in_flight += 1
        lane.sent += 1
        lane.broker = broker


def _transactional_id(lane: Lane, chunk: Chunk) -> str | None:
    """Under which the chunk goes; None also where there is no identity for it yet."""
    producer = lane.producers.get(chunk.origin)
    return None if producer is None else producer.identity.transactional_id


def _stamp(producer: LaneProducer, chunk: Chunk) -> None:
    producer_id, epoch, transactional_id = producer.identity
    is_transactional = transactional_id is not None
    chunk.base_sequence = producer.next_sequence
    crc_before, chunk.crc, producer.next_sequence = stamp(
        chunk.records, producer_id, epoch, chunk.base_sequence, is_transactional
    )
    if chunk.source_crc is None and not chunk.is_rebuilt:
        chunk.source_crc = crc_before
