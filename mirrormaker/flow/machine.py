"""The copy machine of a route: fetched bytes in, produce requests out; answers in, positions out. Pure.

Step it with what happened (`fetched`, `answered`, `disconnected`, ...), then perform what `ready` hands out.
Rules of order and repetition are in `partition`; whose turn it is to send is in `lines`, what becomes of a
failure in `setbacks`. Other rules for what partitions share:
- Fetching stops while half of the buffer is taken; answers under way may fill the other half (see
  `plan_fetch`).
- A bucket's producer id is asked for when one of its partitions needs it, and stamped just before the first
  sending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.client.fetch import PartitionPosition
from broker.errors import ErrorCode
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.exchange import (
    Assignment,
    FetchedPartition,
    FetchPlan,
    FlowConfig,
    ProduceCommand,
    Ready,
)
from mirrormaker.flow.facts import (
    Fact,
    FlowCounts,
    PartitionRecovered,
    SourceFailed,
    SourceGap,
    SourceTruncated,
    TopicRecreated,
)
from mirrormaker.flow.intake import IntakeConfig, take_in
from mirrormaker.flow.lines import Lines
from mirrormaker.flow.partition import (
    LEADER_CODES,
    SUCCESS_CODES,
    UNKNOWN_OUTCOME_CODES,
    Partition,
    PartitionState,
    ProducerIdentity,
)
from mirrormaker.flow.setbacks import Setbacks


class FlowMachine:
    """See the module. Partitions are named by their source."""

    def __init__(self, config: FlowConfig) -> None:
        self.counts = FlowCounts()
        self._config = config
        self._partitions: dict[TopicPartition, Partition] = {}
        self._buffer = Buffer()
        self._lines = Lines(config, self.counts)
        self._facts: list[Fact] = []
        self._setbacks = Setbacks(config, self._buffer, self._facts)
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._buckets_wanted: set[int] = set()
        self._buckets_asked: set[int] = set()
        self._refresh_leaders = False

    # ---- partitions come and go

    def assign(self, assignments: Iterable[Assignment]) -> None:
        """Take partitions over. Each waits for a producer id of its bucket that was asked for after this."""
        for assignment in assignments:
            assert assignment.source not in self._partitions, f"{assignment.source} is assigned already"
            partition = Partition(
                assignment.source,
                assignment.destination,
                assignment.bucket,
                assignment.position,
                self._config.fetch_partition_bytes,
            )
            self._partitions[partition.source] = partition
            partition.leader = self._leaders.get(partition.destination)
            self._refresh_leaders |= partition.leader is None
            self._want_producer(partition)

    def stop(self, sources: Iterable[TopicPartition]) -> None:
        """Send nothing more of these; what is in flight is still awaited (see `in_flight`)."""
        for partition in self._known(sources):
            if partition.state is not PartitionState.STOPPING:
                partition.enter(PartitionState.STOPPING)
                self._setbacks.forget(partition)

    def in_flight(self, sources: Iterable[TopicPartition]) -> int:
        """Chunks of these partitions that have been sent and not answered."""
        return sum(partition.in_flight for partition in self._known(sources))

    def release(self, sources: Iterable[TopicPartition]) -> None:
        """Forget these partitions. What of theirs is in flight has an unknown end."""
        for partition in list(self._known(sources)):
            del self._partitions[partition.source]
            if partition.state is not PartitionState.STOPPING:
                partition.enter(PartitionState.STOPPING)
            self._setbacks.forget(partition)
            self._buffer.drop_queue(partition)

    # ---- the source side

    def plan_fetch(self, sources: Iterable[TopicPartition], brokers: int, now_ms: int) -> FetchPlan:
        """What to fetch now of `sources`, all led by one of so many source `brokers`.

        The buffer's first half admits fetches and their answers share the second: so the buffer is never
        exceeded, but for single batches that are larger than what was asked for.
        """
        config = self._config
        answer_bytes = min(config.fetch_bytes, config.buffer_bytes // (2 * max(brokers, 1)))
        if self._buffer.size > config.buffer_bytes // 2:
            return FetchPlan(positions=[], answer_bytes=answer_bytes, pressed=True)
        positions: list[PartitionPosition] = []
        pressed = False
        for partition in self._known(sources):
            if not partition.may_fetch(now_ms):
                continue
            if (
                partition.buffered_bytes
                and partition.buffered_bytes + partition.fetch_bytes > config.partition_buffer_bytes
            ):
                pressed = True
                continue
            positions.append(
                PartitionPosition(
                    topic_partition=partition.source,
                    offset=partition.position,
                    max_bytes=min(partition.fetch_bytes, answer_bytes),
                )
            )
        return FetchPlan(positions=positions, answer_bytes=answer_bytes, pressed=pressed)

    def fetched(self, answers: Iterable[FetchedPartition], frame_bytes: int, now_ms: int) -> None:
        """Take a fetch answer of `frame_bytes` in.

        Parts of partitions that are gone, or have been sent elsewhere meanwhile, are ignored.
        """
        frame = Frame(frame_bytes)
        for answer in answers:
            partition = self._partitions.get(answer.source)
            if partition is not None and partition.position == answer.offset:
                self._take(partition, answer, frame, now_ms)

    def hold_fetch(self, source: TopicPartition, until_ms: int) -> None:
        """Do not fetch this partition before `until_ms`, or before `resume_at`."""
        partition = self._partitions.get(source)
        if partition is not None:
            partition.fetch_not_before_ms = until_ms

    def source_failed(self, source: TopicPartition, code: ErrorCode, now_ms: int) -> None:
        """The source refused the fetch of one partition; it is fetched again after a wait."""
        partition = self._partitions.get(source)
        if partition is not None:
            self._rest(partition, code.name, now_ms)

    def restart(self, source: TopicPartition, log_start: int) -> None:
        """The source topic was deleted and created again: what is there now is new, from its start on."""
        partition = self._partitions.get(source)
        if partition is not None:
            partition.fetch_not_before_ms = 0
            fact = TopicRecreated(source=source, position=partition.position, resumed_at=log_start)
            partition.begin_anew(log_start)
            self._facts.append(fact)

    def resume_at(self, source: TopicPartition, log_start: int, log_end: int) -> None:
        """The position is out of the source's range: go on at its start if that is later, else its end."""
        partition = self._partitions.get(source)
        if partition is None:
            return
        partition.fetch_not_before_ms = 0
        if log_start <= partition.position <= log_end:
            return
        if partition.position < log_start:
            self.counts.offsets_lost_at_source += log_start - partition.position
            fact: Fact = SourceGap(source=source, lost_from=partition.position, resumed_at=log_start)
            partition.extend_to(log_start)
        else:
            fact = SourceTruncated(source=source, position=partition.position, resumed_at=log_end)
            partition.return_to(log_end)
        self._facts.append(fact)

    # ---- the destination side

    def set_leaders(self, leaders: Mapping[TopicPartition, BrokerId]) -> None:
        """Leaders of destination partitions, all that are known; a partition that is not named has none."""
        self._leaders = dict(leaders)
        for partition in self._partitions.values():
            partition.leader = self._leaders.get(partition.destination)
            self._lines.line_up(partition)

    def set_producer(self, bucket: int, identity: ProducerIdentity) -> None:
        """The producer id that `ready` asked for; it must never have been used before."""
        self._buckets_asked.discard(bucket)
        for partition in self._partitions.values():
            if partition.bucket == bucket and partition.state is PartitionState.AWAITING_PRODUCER:
                self._adopt(partition, identity)

    def answered(
        self, command: ProduceCommand, codes: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> None:
        """The destination answered, by destination partition; one that is left out counts as not answered."""
        self._lines.ended(command)
        for partition, chunk in command.entries:
            code = codes.get(partition.destination, ErrorCode.NETWORK_EXCEPTION)
            self._settle_chunk(partition, chunk, code, now_ms)

    def failed(self, command: ProduceCommand, now_ms: int) -> None:
        """No answer will come: whether it took effect is unknown. No byte of it may leave any more."""
        self.answered(command, {}, now_ms)

    # ---- what comes out

    def ready(self, now_ms: int) -> Ready:
        """What is to be done now. Requests handed out count as sent."""
        self._fire_timers(now_ms)
        requests = list(self._lines.requests(now_ms))
        buckets = sorted(self._buckets_wanted - self._buckets_asked)
        self._buckets_asked.update(buckets)
        self._buckets_wanted.clear()
        facts = self._facts.copy()
        self._facts.clear()
        refresh, self._refresh_leaders = self._refresh_leaders, False
        return Ready(
            refresh_leaders=refresh,
            buckets=buckets,
            requests=requests,
            facts=facts,
            wake_at_ms=self._setbacks.next_retry_at_ms,
        )

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Source positions that moved since they were last committed."""
        return {
            partition.source: partition.acknowledged
            for partition in self._partitions.values()
            if partition.acknowledged != partition.committed
        }

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """The source's group has stored these positions."""
        for source, offset in positions.items():
            partition = self._partitions.get(source)
            if partition is not None:
                partition.committed = offset

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """For display; not to be changed."""
        return self._partitions

    @property
    def buffered_bytes(self) -> int:
        """Memory that received and not yet acknowledged bytes hold."""
        return self._buffer.size

    # ---- taking in

    def _known(self, sources: Iterable[TopicPartition]) -> Iterable[Partition]:
        return (self._partitions[source] for source in sources if source in self._partitions)

    def _take(self, partition: Partition, answer: FetchedPartition, frame: Frame, now_ms: int) -> None:
        partition.source_end = answer.source_end
        if not len(answer.records):
            self._end_rest(partition)
            return
        if not partition.may_fetch(now_ms):
            return
        config = self._config
        intake_config = IntakeConfig(
            chunk_bytes=config.produce_bytes,
            chunk_batches_max=1 if partition.one_by_one else config.chunk_batches_max,
            deep=config.deep,
        )
        intake = take_in(answer.records, partition.position, intake_config, frame, answer.aborted)
        if intake.position == partition.position:
            if intake.damage is not None:
                self._rest(partition, f"{ErrorCode.CORRUPT_MESSAGE.name}: {intake.damage}", now_ms)
            else:
                partition.fetch_bytes = min(partition.fetch_bytes * 2, config.fetch_partition_bytes_max)
            return
        partition.fetch_bytes = config.fetch_partition_bytes
        self._end_rest(partition)
        self.counts.deep_batches.update(intake.deep)
        self.counts.control_batches_dropped += intake.control_batches
        self.counts.aborted_batches_dropped += intake.aborted_batches
        for chunk in intake.chunks:
            self._buffer.hold(partition, chunk)
        partition.queue.extend(intake.chunks)
        partition.extend_to(intake.position)
        self._lines.line_up(partition)

    def _rest(self, partition: Partition, problem: str, now_ms: int) -> None:
        """The source does not give readable records: fetch again later. What has been queued goes on."""
        config = self._config
        if partition.source_problem is None:
            self._facts.append(
                SourceFailed(source=partition.source, offset=partition.position, problem=problem)
            )
        partition.source_problem = problem
        partition.source_failures += 1
        wait_ms = min(config.retry_backoff_ms << min(partition.source_failures, 16), config.pause_ms)
        partition.fetch_not_before_ms = now_ms + wait_ms

    def _end_rest(self, partition: Partition) -> None:
        if partition.source_problem is not None:
            self._facts.append(
                PartitionRecovered(source=partition.source, failures=partition.source_failures)
            )
        partition.source_problem, partition.source_failures, partition.fetch_not_before_ms = None, 0, 0

    # ---- answers

    def _settle_chunk(self, partition: Partition, chunk: Chunk, code: ErrorCode, now_ms: int) -> None:
        partition.in_flight -= 1
        chunk.in_flight = False
        if self._partitions.get(partition.source) is not partition:
            self._buffer.let_go(partition, chunk)
            return
        if code in SUCCESS_CODES:
            chunk.acknowledged = chunk.maybe_written = True
            partition.answered_at_ms = now_ms
            self._take_acknowledged(partition)
        else:
            chunk.error = code
            chunk.maybe_written |= code in UNKNOWN_OUTCOME_CODES
            self.counts.errors[code] += 1
            self._refresh_leaders |= code in LEADER_CODES
            if partition.state is PartitionState.COPYING:
                partition.enter(PartitionState.SETTLING)
        if partition.state is PartitionState.SETTLING and not partition.in_flight:
            self._setbacks.decide(partition, now_ms)
        self._lines.line_up(partition)

    def _take_acknowledged(self, partition: Partition) -> None:
        partition.proven = True
        taken = partition.take_acknowledged()
        for chunk in taken:
            self.counts.batches += len(chunk.batches)
            self.counts.bytes += chunk.size
            self.counts.records += chunk.count
            self._buffer.let_go(partition, chunk)
        if taken and partition.error is not None:
            self._facts.append(PartitionRecovered(source=partition.source, failures=partition.attempts))
            partition.error, partition.attempts = None, 0

    def _fire_timers(self, now_ms: int) -> None:
        for partition in self._setbacks.take_due(now_ms):
            if partition.needs_producer:
                partition.enter(PartitionState.AWAITING_PRODUCER)
                self._want_producer(partition)
            else:
                partition.enter(PartitionState.COPYING)
                self._lines.line_up(partition)

    def _want_producer(self, partition: Partition) -> None:
        self._buckets_wanted.add(partition.bucket)

    def _adopt(self, partition: Partition, identity: ProducerIdentity) -> None:
        partition.producer = identity
        partition.needs_producer = False
        partition.next_sequence = 0
        partition.proven = False
        partition.enter(PartitionState.COPYING)
        self._lines.line_up(partition)
