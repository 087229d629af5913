"""What the destination's answer makes of a chunk: it is there, or its lane settles until all that it has in
flight is answered. Pure.
"""

from __future__ import annotations

from broker.errors import ErrorCode
from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.copied import describe_copied
from mirrormaker.flow.exchange import ProduceAnswer
from mirrormaker.flow.facts import Fact, PartitionRecovered
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.lines import Lines
from mirrormaker.flow.remedies import LEADER_CODES, UNKNOWN_OUTCOME_CODES, is_success
from mirrormaker.flow.setbacks import Setbacks
from mirrormaker.flow.tally import Tally


class Settlement:
    """Of one machine."""

    def __init__(
        self,
        hooks: Hooks,
        buffer: Buffer,
        lines: Lines,
        setbacks: Setbacks,
        facts: list[Fact],
        tally: Tally,
    ) -> None:
        """What happens is told in `facts`."""
        self.refresh_leaders = False
        """An answer said that leaders may be others."""
        self.missed_topics: set[str] = set()
        """Of the destination: answers said that they are not there, or told offsets of another log."""
        self._hooks = hooks
        self._buffer = buffer
        self._lines = lines
        self._setbacks = setbacks
        self._facts = facts
        self._tally = tally

    def settle(self, lane: Lane, chunk: Chunk, answer: ProduceAnswer, now_ms: int) -> None:
        lane.in_flight -= 1
        chunk.in_flight = False
        if lane.partition.is_released:
            self._buffer.let_go(lane, chunk)
            return
        if is_success(answer.code, is_repeat=chunk.is_repeat):
            chunk.acknowledged = chunk.maybe_written = True
            chunk.base_offset, chunk.append_time_ms = answer.base_offset, _append_time_ms(chunk, answer)
            self._take_acknowledged(lane, now_ms)
        else:
            self._note_failure(lane, chunk, answer)
        if lane.state is LaneState.SETTLING and not lane.in_flight:
            self._setbacks.decide(lane, now_ms)
        self._lines.line_up(lane)

    def miss(self, topic: str) -> None:
        """It is not there, or is another one by now: who leads it is found out before more is sent."""
        self.refresh_leaders = True
        self.missed_topics.add(topic)

    def _note_failure(self, lane: Lane, chunk: Chunk, answer: ProduceAnswer) -> None:
        code = answer.code
        chunk.error, chunk.said = code, answer.said
        chunk.maybe_written |= code in UNKNOWN_OUTCOME_CODES
        self._tally.counts.errors[code] += 1
        self.refresh_leaders |= code in LEADER_CODES
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.miss(lane.destination.topic)
        if lane.state is LaneState.COPYING:
            lane.enter(LaneState.SETTLING)

    def _take_acknowledged(self, lane: Lane, now_ms: int) -> None:
        assert lane.producer is not None
        lane.producer.proven, lane.producer.answered_at_ms = True, now_ms
        logs_begun = lane.logs_begun
        taken = lane.take_acknowledged()
        if lane.logs_begun != logs_begun:
            self.miss(lane.destination.topic)
        counts, on_copied = self._tally.of(lane.partition.source), self._hooks.on_copied
        for chunk in taken:
            counts.batches += chunk.batches
            counts.bytes += chunk.size
            counts.records += chunk.count
            lane.partition.count_copied(chunk)
            if on_copied is not None and (copied := describe_copied(lane, chunk)) is not None:
                on_copied(copied)
            self._buffer.let_go(lane, chunk)
        if taken and lane.error is not None:
            self._facts.append(PartitionRecovered(source=lane.partition.source, failures=lane.attempts))
            lane.error, lane.said, lane.attempts = None, None, 0


def _append_time_ms(chunk: Chunk, answer: ProduceAnswer) -> int | None:
    """The time that the destination gave the records. Kafka's brokers answer what they had already by the
    latest time in it, also where records keep theirs.
    """
    return None if answer.append_time_ms == chunk.max_timestamp else answer.append_time_ms
