"""What is done about a lane whose sending failed, by the remedies that `remedies` or a route's own name, and
when it is tried again. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from broker.errors import ErrorCode
from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.flow.facts import (
    Fact,
    FlowCounts,
    PartitionPaused,
    PartitionRecovered,
    ProducerLost,
    RecordsMaybeLost,
    SendingFailed,
)
from mirrormaker.flow.hooks import Remedies
from mirrormaker.flow.lane import FAILURES_BEFORE_SHEDDING, Lane, LaneState
from mirrormaker.flow.producers import ProducerProblem
from mirrormaker.flow.remedies import Remedy
from mirrormaker.flow.trouble import kind_of_refusal
from mirrormaker.missing_rights import UNAUTHORIZED_CODES


class Setbacks:
    """Decides on failures, and keeps the lanes that wait or are paused because of one."""

    def __init__(
        self,
        config: FlowConfig,
        remedies: Remedies,
        buffer: Buffer,
        counts: FlowCounts,
        facts: list[Fact],
    ) -> None:
        """What happens is told in `facts`."""
        self._counts = counts
        self._config = config
        self._remedies = remedies
        self._buffer = buffer
        self._facts = facts
        self._timers: set[Lane] = set()

    def configure(self, config: FlowConfig) -> None:
        """Other waits from now on."""
        self._config = config

    @property
    def next_retry_at_ms(self) -> int | None:
        """When the first of them is tried again."""
        return min((lane.retry_at_ms for lane in self._timers), default=None)

    def take_due(self, now_ms: int) -> list[Lane]:
        """Those that are to be tried again now."""
        due = [lane for lane in self._timers if lane.retry_at_ms <= now_ms]
        self._timers.difference_update(due)
        return due

    def forget(self, lane: Lane) -> None:
        """It is not to be tried again."""
        self._timers.discard(lane)

    def try_now(self, lane: Lane) -> None:
        """A lane that is paused need not wait any longer."""
        if lane.state is LaneState.PAUSED:
            lane.retry_at_ms = 0

    def decide(self, lane: Lane, now_ms: int) -> None:
        """All is answered after an error: act on that of the first chunk not acknowledged."""
        if not lane.queue:
            lane.enter(LaneState.COPYING)
            return
        head = lane.queue[0]
        code = head.error
        assert code is not None, "the first chunk not acknowledged was sent, so it failed"
        lane.error, lane.said = code, head.said
        lane.attempts += 1
        assert lane.producer is not None
        lane.producer.proven = False
        lane.sent = 0
        remedy = self._remedies.remedy(lane, head, code)
        if remedy is Remedy.FETCH_AGAIN and lane.attempts > self._config.damage_retries:
            remedy = Remedy.PAUSE
        match remedy:
            case Remedy.REPEAT:
                if lane.attempts >= FAILURES_BEFORE_SHEDDING:
                    self._shed(lane)
                self._wait(lane, now_ms)
            case Remedy.NEW_PRODUCER:
                lane.forget_producer(head.origin)
                self._facts.append(
                    ProducerLost(
                        source=lane.partition.source,
                        destination=lane.destination,
                        bucket=lane.partition.bucket,
                        error=code,
                    )
                )
                self._wait(lane, now_ms)
            case Remedy.FETCH_AGAIN | Remedy.ONE_BY_ONE:
                if remedy is Remedy.ONE_BY_ONE:
                    lane.partition.take_apart(head)
                self._rewind(lane)
                self._wait(lane, now_ms)
            case Remedy.SKIP:
                self._skip(lane)
                self._wait(lane, now_ms)
            case Remedy.PAUSE:
                self._pause(lane, now_ms)

    def refuse(self, lane: Lane, code: ErrorCode) -> None:
        """What comes next was refused before it was sent, and is tried again by whoever asked."""
        if lane.error is not code and code.retriable:
            self._tell_failed(lane, code)
        elif lane.error is not code:
            self._tell_paused(lane, code)
        lane.error, lane.said = code, None

    def lack_producer(self, lanes: Sequence[Lane], problem: ProducerProblem) -> None:
        """Lanes of one partition do not get the identity that they await: told where a right is missing, as
        all else passes by itself.
        """
        is_known = any(_lacks_right(lane.producer_problem) for lane in lanes)
        for lane in lanes:
            lane.producer_problem = problem
        if problem.code is not None and _lacks_right(problem) and not is_known:
            self._tell_paused(lanes[0], problem.code, problem.said)

    def got_producer(self, lanes: Sequence[Lane]) -> None:
        """Lanes of one partition are about to get it."""
        lacked = [lane.producer_problem for lane in lanes if lane.producer_problem is not None]
        if any(_lacks_right(problem) for problem in lacked):
            failures = max(problem.failures for problem in lacked)
            self._facts.append(PartitionRecovered(source=lanes[0].partition.source, failures=failures))

    def _wait(self, lane: Lane, now_ms: int) -> None:
        config = self._config
        lane.enter(LaneState.WAITING)
        backoff_ms = min(config.retry_backoff_ms << min(lane.attempts - 1, 16), config.retry_backoff_max_ms)
        spread_ms = crc32(f"{lane.destination}/{lane.attempts}".encode()) % (backoff_ms // 2 + 1)
        lane.retry_at_ms = now_ms + backoff_ms - spread_ms
        self._timers.add(lane)
        assert lane.error is not None
        if lane.attempts & (lane.attempts - 1):
            return  # failures are told of at the 1st, 2nd, 4th, 8th, ...
        self._tell_failed(lane, lane.error)

    def _pause(self, lane: Lane, now_ms: int) -> None:
        assert lane.error is not None
        self._rewind(lane)
        lane.enter(LaneState.PAUSED)
        lane.retry_at_ms = now_ms + self._config.pause_ms
        self._timers.add(lane)
        said = lane.said if kind_of_refusal(lane.error) is None else None
        self._tell_paused(lane, lane.error, said)

    def _tell_failed(self, lane: Lane, code: ErrorCode) -> None:
        self._facts.append(
            SendingFailed(
                source=lane.partition.source,
                destination=lane.destination,
                error=code,
                failures=max(lane.attempts, 1),
            )
        )

    def _tell_paused(self, lane: Lane, code: ErrorCode, said: str | None = None) -> None:
        self._facts.append(
            PartitionPaused(
                source=lane.partition.source,
                destination=lane.destination,
                error=code,
                offset=lane.acknowledged,
                said=said,
            )
        )

    def _skip(self, lane: Lane) -> None:
        """Go on behind the last chunk that may have been written; what is behind that has not been sent."""
        head = lane.queue[0]
        given_up = lane.give_up_written(self._buffer.let_go)
        first, count = min(chunk.first_offset for chunk in given_up), sum(chunk.count for chunk in given_up)
        self._counts.records_maybe_lost += count
        if first < lane.acknowledged:  # else all of it is of a log that is gone
            self._facts.append(
                RecordsMaybeLost(
                    source=lane.partition.source,
                    first=first,
                    next=lane.acknowledged,
                    count=count,
                    error=lane.error,
                    destination=lane.destination,
                )
            )
        lane.forget_producer(head.origin)

    def _shed(self, lane: Lane) -> None:
        """Give memory back to lanes that can use it; what is thrown away is fetched again."""
        keep = lane.sheddable_from()
        if keep == 0:
            assert lane.producer is not None
            lane.producer.next_sequence = lane.queue[0].base_sequence
        while len(lane.queue) > keep:
            self._buffer.let_go(lane, lane.queue.pop())
        lane.go_back_to(lane.queue[-1].next_offset if keep else lane.acknowledged)

    def _rewind(self, lane: Lane) -> None:
        """Throw away what is queued, to fetch it again. Sequences of what may have been written may not be
        given to other bytes.
        """
        head = lane.queue[0]
        is_written = any(chunk.maybe_written for chunk in lane.queue)
        self._buffer.drop_queue(lane)
        lane.go_back_to(lane.acknowledged)
        if is_written:
            lane.forget_producer(head.origin)
        else:
            assert lane.producer is not None
            lane.producer.next_sequence = head.base_sequence


def _lacks_right(problem: ProducerProblem | None) -> bool:
    return problem is not None and problem.code in UNAUTHORIZED_CODES
