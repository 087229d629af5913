"""What is done about a partition whose sending failed, by the remedies of `partition`, and when it is tried
again. Pure.
"""

from __future__ import annotations

from zlib import crc32

from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.flow.facts import Fact, PartitionPaused, ProducerLost, SendingFailed
from mirrormaker.flow.partition import (
    FAILURES_BEFORE_SHEDDING,
    Partition,
    PartitionState,
    Remedy,
    remedy_for,
)


class Setbacks:
    """Decides on failures, and keeps the partitions that wait or are paused because of one."""

    def __init__(self, config: FlowConfig, buffer: Buffer, facts: list[Fact]) -> None:
        """What happens is told in `facts`."""
        self._config = config
        self._buffer = buffer
        self._facts = facts
        self._timers: set[Partition] = set()

    @property
    def next_retry_at_ms(self) -> int | None:
        """When the first of them is tried again."""
        return min((partition.retry_at_ms for partition in self._timers), default=None)

    def take_due(self, now_ms: int) -> list[Partition]:
        """Those that are to be tried again now."""
        due = [partition for partition in self._timers if partition.retry_at_ms <= now_ms]
        self._timers.difference_update(due)
        return due

    def forget(self, partition: Partition) -> None:
        """It is not to be tried again."""
        self._timers.discard(partition)

    def decide(self, partition: Partition, now_ms: int) -> None:
        """All is answered after an error: act on that of the first chunk not acknowledged."""
        if not partition.queue:
            partition.enter(PartitionState.COPYING)
            return
        head = partition.queue[0]
        code = head.error
        assert code is not None, "the first chunk not acknowledged was sent, so it failed"
        partition.error = code
        partition.attempts += 1
        partition.proven = False
        partition.sent = 0
        remedy = remedy_for(code, several_batches=len(head.batches) > 1)
        if remedy is Remedy.FETCH_AGAIN and partition.attempts > self._config.damage_retries:
            remedy = Remedy.PAUSE
        match remedy:
            case Remedy.REPEAT:
                if partition.attempts >= FAILURES_BEFORE_SHEDDING:
                    self._shed(partition)
                self._wait(partition, now_ms)
            case Remedy.NEW_PRODUCER:
                self._forget_producer(partition)
                self._facts.append(ProducerLost(source=partition.source, bucket=partition.bucket, error=code))
                self._wait(partition, now_ms)
            case Remedy.FETCH_AGAIN | Remedy.ONE_BY_ONE:
                partition.one_by_one |= remedy is Remedy.ONE_BY_ONE
                self._rewind(partition)
                self._wait(partition, now_ms)
            case Remedy.PAUSE:
                self._pause(partition, now_ms)

    def _wait(self, partition: Partition, now_ms: int) -> None:
        config = self._config
        partition.enter(PartitionState.WAITING)
        backoff_ms = min(
            config.retry_backoff_ms << min(partition.attempts - 1, 16), config.retry_backoff_max_ms
        )
        spread_ms = crc32(f"{partition.destination}/{partition.attempts}".encode()) % (backoff_ms // 2 + 1)
        partition.retry_at_ms = now_ms + backoff_ms - spread_ms
        self._timers.add(partition)
        assert partition.error is not None
        if partition.attempts & (partition.attempts - 1):
            return  # failures are told of at the 1st, 2nd, 4th, 8th, ...
        self._facts.append(
            SendingFailed(
                source=partition.source,
                destination=partition.destination,
                error=partition.error,
                failures=partition.attempts,
            )
        )

    def _pause(self, partition: Partition, now_ms: int) -> None:
        assert partition.error is not None
        self._rewind(partition)
        partition.enter(PartitionState.PAUSED)
        partition.retry_at_ms = now_ms + self._config.pause_ms
        self._timers.add(partition)
        self._facts.append(
            PartitionPaused(
                source=partition.source,
                destination=partition.destination,
                error=partition.error,
                offset=partition.acknowledged,
            )
        )

    def _shed(self, partition: Partition) -> None:
        """Give memory back to partitions that can use it; what is thrown away is fetched again."""
        keep = partition.sheddable_from()
        if keep == 0:
            partition.next_sequence = partition.queue[0].base_sequence
        while len(partition.queue) > keep:
            self._buffer.let_go(partition, partition.queue.pop())
        partition.position = partition.queue[-1].next_offset if keep else partition.acknowledged

    def _rewind(self, partition: Partition) -> None:
        """Throw away what is queued, to fetch it again. Used sequences may not be given to other bytes."""
        self._buffer.drop_queue(partition)
        partition.position = partition.acknowledged
        self._forget_producer(partition)

    def _forget_producer(self, partition: Partition) -> None:
        assert not partition.in_flight
        partition.needs_producer = True
        for chunk in partition.queue:
            chunk.base_sequence = -1
