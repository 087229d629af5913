"""The copy machine of a route: fetched bytes in, produce requests out; answers in, positions out. Pure.

Step it with what happened (`fetched`, `answered`, `failed`, ...), then perform what `ready` hands out. Rules
of order and repetition are in `lane`; what an answer makes of its partition is in `taking_in` (the source's)
and `settlement` (the destination's), whose turn it is to send in `lines`, what becomes of a failure in
`setbacks` and `source_setbacks`; what others have a say in is in `hooks`. Other rules for what partitions
share:
- Fetching stops while half of the buffer is taken; answers under way may fill the other half (see
  `fetch_planning`).
- A producer id is asked for when a lane needs it, and stamped just before the first sending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from broker.errors import ErrorCode, ProtocolError
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.chunk import Frame
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
from mirrormaker.flow.facts import Fact
from mirrormaker.flow.fetch_planning import FetchPlanner
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.intake import TURN_BYTES
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.lines import Lines
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey, ProducerProblem, ProducerWishes
from mirrormaker.flow.setbacks import Setbacks
from mirrormaker.flow.settlement import Settlement
from mirrormaker.flow.source_setbacks import SourceSetbacks
from mirrormaker.flow.taking_in import TakingIn
from mirrormaker.flow.tally import Tally
from mirrormaker.flow.trouble import Trouble
from mirrormaker.missing_rights import UNAUTHORIZED_CODES


class FlowMachine:
    """See the module. Partitions are named by their source."""

    def __init__(self, config: FlowConfig, hooks: Hooks | None = None) -> None:
        tally = Tally()
        self.counts = tally.counts
        self._config = config
        self._hooks = hooks = hooks if hooks is not None else Hooks()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._writers: set[tuple[TopicPartition, ProducerKey]] = set()
        """By destination, whose identities lanes have there."""
        self._buffer = Buffer()
        self._wishes = ProducerWishes()
        self._lines = Lines(config, hooks.admissions, hooks.pace, self._wishes, self.counts)
        self._fetches = FetchPlanner(config, hooks, self._partitions, self._buffer)
        self._facts: list[Fact] = []
        self._setbacks = Setbacks(config, hooks.remedies, self._buffer, self.counts, self._facts)
        self._source_setbacks = SourceSetbacks(config, tally, self._facts)
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._taking_in = TakingIn(
            config, hooks, self._buffer, self._lines, self._source_setbacks, self._facts, tally
        )
        self._settlement = Settlement(hooks, self._buffer, self._lines, self._setbacks, self._facts, tally)

    def configure(self, config: FlowConfig) -> None:
        """Go on within other bounds. What has been cut into chunks already stays as it is."""
        self._config = config
        self._lines.configure(config)
        self._fetches.configure(config)
        self._setbacks.configure(config)
        self._source_setbacks.configure(config)
        self._taking_in.configure(config)

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
            partition.former, partition.spread = assignment.former, assignment.spread
            self._partitions[partition.source] = partition
            writers = _writers_of(partition)
            is_alone = len(writers) == len(partition.lanes) and writers.isdisjoint(self._writers)
            assert is_alone, f"{assignment.source}: the destination would take its batches for repeated ones"
            self._writers |= writers
            for lane in partition.lanes:
                lane.leader = self._leaders.get(lane.destination)
                self._settlement.refresh_leaders |= lane.leader is None
                lane.awaits = lane.key_of(0)
                self._wishes.add(lane.awaits)

    def leave(self, sources: Iterable[TopicPartition]) -> None:
        """Read nothing more of these; of what has been read send only what has their lanes equally far."""
        for partition in self._known(sources):
            if len(partition.lanes) > 1:
                partition.leave()

    def evens_out(self, sources: Iterable[TopicPartition]) -> bool:
        """Whether lanes of these still become equally far."""
        return any(partition.evens_out for partition in self._known(sources))

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
            self._writers -= _writers_of(partition)
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
        self,
        sources: Iterable[TopicPartition],
        fetchers: int,
        now_ms: int,
        wanted_bytes: int | None = None,
        *,
        busy: Collection[TopicPartition] = (),
    ) -> FetchPlan:
        """What to fetch now of `sources`, by one of so many that fetch at a time; at most `wanted_bytes`
        together (None: as configured). More is expected of those that are `busy`.
        """
        return self._fetches.plan(self._known(sources), fetchers, now_ms, wanted_bytes, busy)

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
        taking_in = self._taking_in
        taking_in.effort = 0
        for index, answer in enumerate(remainder.answers):
            if taking_in.effort >= TURN_BYTES:
                return Remainder(answers=remainder.answers[index:], frame=remainder.frame)
            partition = self._partitions.get(answer.source)
            if partition is None or partition.position != answer.offset:
                continue
            left = taking_in.take(partition, answer, remainder.frame, now_ms)
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

    def source_failed(self, source: TopicPartition, error: ProtocolError, now_ms: int) -> None:
        """The source refused the fetch of one partition; it is fetched again after a wait."""
        partition = self._partitions.get(source)
        if partition is not None:
            is_lacking = error.code in UNAUTHORIZED_CODES
            problem = str(error) if is_lacking else error.code.name
            self._source_setbacks.rest(partition, problem, now_ms, error.code)

    def halt(self, trouble: Trouble, *, is_final: bool = False) -> None:
        """Fetch nothing more of a partition until `go_on`; what is queued goes on. An obstacle is tried
        meanwhile, unless it is final that it will be left out.
        """
        partition = self._partitions.get(trouble.source)
        if partition is not None:
            self._source_setbacks.stand(partition, trouble, is_final=is_final)

    def go_on(self, trouble: Trouble) -> None:
        """Go on behind the trouble."""
        partition = self._partitions.get(trouble.source)
        if partition is not None:
            self._source_setbacks.go_on(partition, trouble)

    def trust_position(self, source: TopicPartition) -> None:
        """The source has what was read of it so far: fetch on, and ask no more about the past."""
        partition = self._partitions.get(source)
        if partition is not None:
            partition.distrust_epoch()
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
        for lanes in self._awaiting(key):
            self._setbacks.got_producer(lanes)
            for lane in lanes:
                lane.adopt(key, identity)
                lane.enter(LaneState.COPYING)
                self._lines.line_up(lane)

    def producer_failed(self, key: ProducerKey, problem: ProducerProblem) -> None:
        """The identity that `ready` asked for is not there yet, and is asked for again."""
        for lanes in self._awaiting(key):
            self._setbacks.lack_producer(lanes, problem)

    def _awaiting(self, key: ProducerKey) -> Iterator[list[Lane]]:
        """By partition, the lanes that cannot go on without this identity."""
        for partition in self._partitions.values():
            if partition.bucket == key.bucket:
                lanes = [
                    lane
                    for lane in partition.lanes
                    if lane.awaits == key and lane.state is LaneState.AWAITING_PRODUCER
                ]
                if lanes:
                    yield lanes

    def answered(
        self, command: ProduceCommand, answers: Mapping[TopicPartition, ProduceAnswer], now_ms: int
    ) -> None:
        """The destination answered, by destination partition; one that is left out counts as not answered."""
        self._lines.ended(command)
        for lane, chunk in command.entries:
            answer = answers.get(lane.destination, NOT_ANSWERED)
            self._settlement.settle(lane, chunk, answer, now_ms)
        self._forget_leaders()

    def _forget_leaders(self) -> None:
        """What comes to be there by the names of missed topics is another one: nothing is sent before more is
        known.
        """
        missed = self._settlement.missed_topics
        if not missed:
            return
        self._leaders = {to: leader for to, leader in self._leaders.items() if to.topic not in missed}
        missed.clear()
        self.set_leaders(self._leaders)

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
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            for topic in {destination.topic for destination in destinations}:
                self._settlement.miss(topic)
            self._forget_leaders()

    # ---- what comes out

    def ready(self, now_ms: int) -> Ready:
        """What is to be done now. Requests handed out count as sent."""
        self._fire_timers(now_ms)
        requests = list(self._lines.requests(now_ms))
        facts = self._facts.copy()
        self._facts.clear()
        refresh, self._settlement.refresh_leaders = self._settlement.refresh_leaders, False
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

    # ---- partitions

    def _known(self, sources: Iterable[TopicPartition]) -> Iterable[Partition]:
        return (self._partitions[source] for source in sources if source in self._partitions)

    def _stop(self, partition: Partition) -> None:
        partition.even_out()
        for lane in partition.lanes:
            if lane.state is not LaneState.STOPPING:
                lane.enter(LaneState.STOPPING)
                self._setbacks.forget(lane)

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


def _writers_of(partition: Partition) -> set[tuple[TopicPartition, ProducerKey]]:
    """Which identities it counts sequences of, and where: nobody else may, nor two of its lanes."""
    return {(lane.destination, lane.key_of(0)) for lane in partition.lanes}
