"""The copy machine of a route: fetched bytes in, produce requests out; answers in, positions out. Pure.

Step it with what happened (`fetched`, `answered`, `disconnected`, ...), then perform what `ready` hands out.
Rules of order and repetition are in `lane`; whose turn it is to send is in `lines`, what becomes of a failure
in `setbacks` and `source_setbacks`; what others have a say in is in `hooks`. Other rules for what partitions
share:
- Fetching stops while half of the buffer is taken; answers under way may fill the other half (see
  `fetch_planning`).
- A producer id is asked for when a lane needs it, and stamped just before the first sending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from broker.errors import ErrorCode
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.copied import describe_copied
from mirrormaker.flow.exchange import (
    NOT_ANSWERED,
    Assignment,
    FetchedPartition,
    FetchPlan,
    FlowConfig,
    ProduceAnswer,
    ProduceCommand,
    Ready,
    Remainder,
)
from mirrormaker.flow.facts import Fact, FlowCounts, LeftOut, PartitionRecovered
from mirrormaker.flow.fetch_planning import FetchPlanner, next_fetch_bytes
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.intake import Intake
from mirrormaker.flow.intakes import Intakes
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.lines import Lines
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey, ProducerWishes
from mirrormaker.flow.remedies import LEADER_CODES, SUCCESS_CODES, UNKNOWN_OUTCOME_CODES
from mirrormaker.flow.setbacks import Setbacks
from mirrormaker.flow.source_setbacks import SourceSetbacks
from mirrormaker.flow.trouble import Trouble


class FlowMachine:
    """See the module. Partitions are named by their source."""

    def __init__(self, config: FlowConfig, hooks: Hooks | None = None) -> None:
        self.counts = FlowCounts()
        self._heartbeat_counts = FlowCounts()
        self._config = config
        self._hooks = hooks = hooks if hooks is not None else Hooks()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._buffer = Buffer()
        self._wishes = ProducerWishes()
        self._lines = Lines(config, hooks.admissions, hooks.pace, self._wishes, self.counts)
        self._fetches = FetchPlanner(config, hooks, self._partitions, self._buffer)
        self._facts: list[Fact] = []
        self._setbacks = Setbacks(config, hooks.remedies, self._buffer, self.counts, self._facts)
        self._source_setbacks = SourceSetbacks(config, self.counts, self._facts)
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._refresh_leaders = False
        self._intakes = Intakes.following(config)

    def configure(self, config: FlowConfig) -> None:
        """Go on within other bounds. What has been cut into chunks already stays as it is."""
        self._config = config
        self._lines.configure(config)
        self._fetches.configure(config)
        self._setbacks.configure(config)
        self._source_setbacks.configure(config)
        self._intakes = Intakes.following(config)

    def gather(self, sources: Iterable[TopicPartition]) -> None:
        """Put batches of these together from now on (`FlowConfig.bound`), what waits to be sent included."""
        for partition in self._known(sources):
            partition.is_bound = True
            for lane in partition.lanes:
                self._buffer.drop_unsent(lane)

    # ---- partitions come and go

    def assign(self, assignments: Iterable[Assignment]) -> None:
        """Take partitions over. Each waits for a producer id that was asked for after this."""
        for assignment in assignments:
            assert assignment.source not in self._partitions, f"{assignment.source} is assigned already"
            assert assignment.destinations, f"{assignment.source} leads nowhere"
            partition = Partition(
                assignment.source,
                assignment.destinations,
                assignment.bucket,
                assignment.position,
                self._config.fetch_partition_bytes,
                is_merged=assignment.is_merged,
                leader_epoch=assignment.leader_epoch,
            )
            partition.advance_lanes(assignment.lane_positions)
            partition.former = assignment.former
            self._partitions[partition.source] = partition
            for lane in partition.lanes:
                lane.leader = self._leaders.get(lane.destination)
                self._refresh_leaders |= lane.leader is None
                lane.awaits = lane.key_of(0)
                self._wishes.add(lane.awaits)

    def stop(self, sources: Iterable[TopicPartition]) -> None:
        """Send nothing more of these; what is in flight is still awaited (see `in_flight`)."""
        for partition in self._known(sources):
            self._stop(partition)

    def in_flight(self, sources: Iterable[TopicPartition]) -> int:
        """Chunks of these partitions that have been sent and not answered."""
        return sum(partition.in_flight for partition in self._known(sources))

    def release(self, sources: Iterable[TopicPartition]) -> None:
        """Forget these partitions. What of theirs is in flight has an unknown end."""
        for partition in list(self._known(sources)):
            del self._partitions[partition.source]
            partition.is_released = True
            self._stop(partition)
            for lane in partition.lanes:
                self._buffer.drop_queue(lane)

    def rewind(self, sources: Iterable[TopicPartition]) -> None:
        """Copy these once more from their committed positions on, under new producer ids: what was sent
        since then does not count. Nothing of them may be in flight.
        """
        for partition in self._known(sources):
            for lane in partition.lanes:
                if lane.state is LaneState.STOPPING:
                    continue
                self._setbacks.forget(lane)
                self._buffer.drop_queue(lane)
                lane.go_back_to(partition.committed)
                lane.acknowledged = partition.committed
                lane.forget_producers()
                self._await_producer(lane)

    # ---- the source side

    def plan_fetch(
        self, sources: Iterable[TopicPartition], fetchers: int, now_ms: int, wanted_bytes: int | None = None
    ) -> FetchPlan:
        """What to fetch now of `sources`, by one of so many that fetch at a time; at most `wanted_bytes`
        together (None: as configured).
        """
        return self._fetches.plan(self._known(sources), fetchers, now_ms, wanted_bytes)

    def fetched(self, answers: Iterable[FetchedPartition], frame_bytes: int, now_ms: int) -> Remainder | None:
        """Take a fetch answer of `frame_bytes` in, or as much of it as one turn of the event loop allows; the
        rest is for `take_on`.

        Parts of partitions that are gone, or have been sent elsewhere meanwhile, are ignored.
        """
        for admission in self._hooks.admissions:
            admission.fetched(frame_bytes, now_ms)
        return self.take_on(Remainder(answers=tuple(answers), frame=Frame(frame_bytes)), now_ms)

    def take_on(self, remainder: Remainder, now_ms: int) -> Remainder | None:
        """Take more of an answer in. While the buffer is full nothing is taken: come back later."""
        for index, answer in enumerate(remainder.answers):
            partition = self._partitions.get(answer.source)
            if partition is None or partition.position != answer.offset:
                continue
            left = self._take(partition, answer, remainder.frame, now_ms)
            if left is not None:
                answers = (left, *remainder.answers[index + 1 :])
                return Remainder(answers=answers, frame=remainder.frame)
        return None

    @property
    def is_full(self) -> bool:
        """Whether what has been fetched already has to wait with being decoded."""
        return self._buffer.size > self._config.buffer_bytes

    def take_origins(self) -> None:
        """Go on with what waits for its origin: it has been found out."""
        for partition in self._partitions.values():
            partition.awaits_origins = False

    def heard_of_end(self, source: TopicPartition, end: int) -> None:
        """The source told where readers' records of a partition end, though nothing is fetched of it."""
        partition = self._partitions.get(source)
        if partition is not None:
            partition.source_end = end

    def hold_fetch(self, source: TopicPartition, until_ms: int) -> None:
        """Do not fetch this partition before `until_ms`, or before `go_on`."""
        partition = self._partitions.get(source)
        if partition is not None:
            partition.fetch_not_before_ms = until_ms

    def source_failed(self, source: TopicPartition, code: ErrorCode, now_ms: int) -> None:
        """The source refused the fetch of one partition; it is fetched again after a wait."""
        partition = self._partitions.get(source)
        if partition is not None:
            self._source_setbacks.rest(partition, code.name, now_ms, code)

    def halt(self, trouble: Trouble) -> None:
        """Fetch nothing more of a partition until `go_on`, or, of an obstacle, until it can pass; what is
        queued goes on.
        """
        partition = self._partitions.get(trouble.source)
        if partition is not None:
            self._source_setbacks.stand(partition, trouble)

    def go_on(self, trouble: Trouble) -> None:
        """Go on behind the trouble."""
        partition = self._partitions.get(trouble.source)
        if partition is not None:
            self._source_setbacks.go_on(partition, trouble)

    def leader_epoch(self, source: TopicPartition) -> int:
        """Of the last record read, -1 when it is not known."""
        partition = self._partitions.get(source)
        return partition.leader_epoch if partition is not None else -1

    def trust_position(self, source: TopicPartition) -> None:
        """The source has what was read of it so far: fetch on, and ask no more about the past."""
        partition = self._partitions.get(source)
        if partition is not None:
            partition.enter_epoch(-1)
            partition.fetch_not_before_ms = 0

    # ---- the destination side

    def set_leaders(self, leaders: Mapping[TopicPartition, BrokerId]) -> None:
        """Leaders of destination partitions, all that are known; a partition that is not named has none."""
        self._leaders = dict(leaders)
        for partition in self._partitions.values():
            for lane in partition.lanes:
                lane.leader = self._leaders.get(lane.destination)
                self._lines.line_up(lane)

    def set_producer(self, key: ProducerKey, identity: ProducerIdentity) -> None:
        """The identity that `ready` asked for; it must never have been used before by lanes that await it."""
        self._wishes.end(key)
        for partition in self._partitions.values():
            if partition.bucket != key.bucket:
                continue
            for lane in partition.lanes:
                if lane.awaits == key and lane.state is LaneState.AWAITING_PRODUCER:
                    lane.adopt(key, identity)
                    lane.enter(LaneState.COPYING)
                    self._lines.line_up(lane)

    def answered(
        self, command: ProduceCommand, answers: Mapping[TopicPartition, ProduceAnswer], now_ms: int
    ) -> None:
        """The destination answered, by destination partition; one that is left out counts as not answered."""
        self._lines.ended(command)
        for lane, chunk in command.entries:
            answer = answers.get(lane.destination, NOT_ANSWERED)
            self._settle_chunk(lane, chunk, answer, now_ms)

    def failed(self, command: ProduceCommand, now_ms: int) -> None:
        """No answer will come: whether it took effect is unknown. No byte of it may leave any more."""
        self.answered(command, {}, now_ms)

    def takes_larger(self, topic: str) -> None:
        """The destination takes larger batches in this topic: what stood for its size is tried at once."""
        for partition in self._partitions.values():
            if partition.stands_for_size and any(lane.destination.topic == topic for lane in partition.lanes):
                self._source_setbacks.try_now(partition)
                for lane in partition.lanes:
                    self._setbacks.try_now(lane)

    def refused(self, destinations: Collection[TopicPartition], code: ErrorCode) -> None:
        """The destination says before anything is sent that it will not take records there just now."""
        for partition in self._partitions.values():
            for lane in partition.lanes:
                if lane.queue and lane.destination in destinations:
                    self._setbacks.refuse(lane, code)

    # ---- what comes out

    def ready(self, now_ms: int) -> Ready:
        """What is to be done now. Requests handed out count as sent."""
        self._fire_timers(now_ms)
        requests = list(self._lines.requests(now_ms))
        facts = self._facts.copy()
        self._facts.clear()
        refresh, self._refresh_leaders = self._refresh_leaders, False
        return Ready(
            refresh_leaders=refresh,
            producers=self._wishes.take(),
            requests=requests,
            facts=facts,
            wake_at_ms=self._wake_at_ms(now_ms),
        )

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Source positions that moved since they were last committed, as far as they count (`Delivery`)."""
        delivery = self._hooks.delivery
        return {
            partition.source: position
            for partition in self._partitions.values()
            if (position := delivery.position(partition)) != partition.committed
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

    def _counts_of(self, partition: Partition) -> FlowCounts:
        """Heartbeats are nobody's records."""
        return self.counts if partition.source.topic != HEARTBEATS_TOPIC else self._heartbeat_counts

    def _known(self, sources: Iterable[TopicPartition]) -> Iterable[Partition]:
        return (self._partitions[source] for source in sources if source in self._partitions)

    def _stop(self, partition: Partition) -> None:
        for lane in partition.lanes:
            if lane.state is not LaneState.STOPPING:
                lane.enter(LaneState.STOPPING)
                self._setbacks.forget(lane)

    def _take(
        self, partition: Partition, answer: FetchedPartition, frame: Frame, now_ms: int
    ) -> FetchedPartition | None:
        """Take in what came of a partition; what is left of it for another turn."""
        partition.source_end = answer.source_end
        if not len(answer.records):
            self._source_setbacks.end_rest(partition)
            if answer.filtered_to > partition.position and partition.may_fetch(now_ms):
                self._pass_over(partition, answer)
            return None
        if not partition.may_fetch(now_ms):
            return None
        config = self._intakes.of(partition)
        if (origins := self._hooks.origins) is not None:
            config = replace(config, origins=origins.of(partition))
        intake = self._hooks.transit.take(partition, answer, config, frame)
        partition.awaits_origins = intake.awaits_origins
        is_held = intake.damage or intake.obstacle or intake.awaits_origins
        if not is_held and intake.left_at is None and answer.filtered_to > intake.position:
            intake.position, intake.leader_epoch = answer.filtered_to, answer.filtered_epoch
        if intake.position == partition.position:
            self._source_setbacks.met_nothing(partition, intake, now_ms)
            return None
        self._note_answer(partition, answer)
        self._source_setbacks.end_rest(partition)
        self._counts_of(partition).take_in(intake)
        partition.count_taken(intake)
        if intake.left_out:
            kinds = {kind.value: count for kind, count in intake.left_out.items()}
            self._facts.append(LeftOut(source=partition.source, offset=answer.offset, kinds=kinds))
        if intake.leader_epoch != partition.leader_epoch:
            partition.enter_epoch(intake.leader_epoch)
        for chunk in intake.chunks:
            lane = partition.lanes[chunk.lane]
            self._buffer.hold(lane, chunk)
            lane.append(chunk)
        partition.extend_to(intake.position)
        for lane in partition.lanes:
            self._lines.line_up(lane)
        return None if intake.left_at is None else _rest_of(answer, intake)

    def _note_answer(self, partition: Partition, answer: FetchedPartition) -> None:
        partition.fetch_bytes = next_fetch_bytes(partition.fetch_bytes, answer.bytes_passed, self._config)
        self.counts.bytes_left_at_source += answer.left_out_bytes

    def _pass_over(self, partition: Partition, answer: FetchedPartition) -> None:
        """The source has nothing that is wanted before `answer.filtered_to`."""
        self._note_answer(partition, answer)
        if answer.filtered_epoch != partition.leader_epoch:
            partition.enter_epoch(answer.filtered_epoch)
        partition.extend_to(answer.filtered_to)

    # ---- answers

    def _settle_chunk(self, lane: Lane, chunk: Chunk, answer: ProduceAnswer, now_ms: int) -> None:
        lane.in_flight -= 1
        chunk.in_flight = False
        if lane.partition.is_released:
            self._buffer.let_go(lane, chunk)
            return
        if answer.code in SUCCESS_CODES:
            chunk.acknowledged = chunk.maybe_written = True
            chunk.base_offset, chunk.append_time_ms = answer.base_offset, answer.append_time_ms
            self._take_acknowledged(lane, now_ms)
        else:
            self._note_failure(lane, chunk, answer.code)
        if lane.state is LaneState.SETTLING and not lane.in_flight:
            self._setbacks.decide(lane, now_ms)
        self._lines.line_up(lane)

    def _note_failure(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> None:
        chunk.error = code
        chunk.maybe_written |= code in UNKNOWN_OUTCOME_CODES
        self.counts.errors[code] += 1
        self._refresh_leaders |= code in LEADER_CODES
        if lane.state is LaneState.COPYING:
            lane.enter(LaneState.SETTLING)

    def _take_acknowledged(self, lane: Lane, now_ms: int) -> None:
        assert lane.producer is not None
        lane.producer.proven, lane.producer.answered_at_ms = True, now_ms
        taken = lane.take_acknowledged()
        counts, on_copied = self._counts_of(lane.partition), self._hooks.on_copied
        for chunk in taken:
            counts.batches += chunk.batches
            counts.bytes += chunk.size
            counts.records += chunk.count
            lane.partition.count_copied(chunk)
            if on_copied is not None and not chunk.is_former:
                on_copied(describe_copied(lane, chunk))
            self._buffer.let_go(lane, chunk)
        if taken and lane.error is not None:
            self._facts.append(PartitionRecovered(source=lane.partition.source, failures=lane.attempts))
            lane.error, lane.attempts = None, 0

    # ---- timers

    def _fire_timers(self, now_ms: int) -> None:
        for lane in self._setbacks.take_due(now_ms):
            if lane.awaits is not None:
                self._await_producer(lane)
            else:
                lane.enter(LaneState.COPYING)
                self._lines.line_up(lane)

    def _await_producer(self, lane: Lane) -> None:
        assert lane.awaits is not None
        if lane.state is not LaneState.AWAITING_PRODUCER:
            lane.enter(LaneState.AWAITING_PRODUCER)
        self._wishes.add(lane.awaits)

    def _wake_at_ms(self, now_ms: int) -> int | None:
        wakes = [self._setbacks.next_retry_at_ms]
        wakes += [admission.wake_at_ms(now_ms) for admission in self._hooks.admissions]
        if self._hooks.pace is not None:
            wakes.append(self._hooks.pace.wake_at_ms(now_ms))
        return min((wake for wake in wakes if wake is not None), default=None)


def _rest_of(answer: FetchedPartition, intake: Intake) -> FetchedPartition:
    records = memoryview(answer.records)[intake.left_at :]
    return replace(answer, offset=intake.position, records=records, left_out_bytes=0)
