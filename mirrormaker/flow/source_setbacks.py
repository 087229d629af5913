"""What is done when the source does not give what was asked for. Pure.

It refuses, or gives bytes that are no batches: the partition is fetched again after waits that grow. It has
other offsets than before, since records went away, were lost, or the topic is another one (see `trouble`): a
policy of the route says whether copying goes on with what there is now; then a fact tells what happened. Or
it gives something that can go no way at all: that is tried again too, as a limit may be raised meanwhile,
until somebody has it left out. What is queued goes on in any case.
"""

from __future__ import annotations

from broker.errors import ErrorCode
from mirrormaker.flow.exchange import FetchedPartition, FlowConfig
from mirrormaker.flow.facts import (
    Fact,
    LeftOut,
    ObstacleMet,
    PartitionRecovered,
    SourceFailed,
    SourceGap,
    SourceTruncated,
    TopicRecreated,
)
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.intake import Intake
from mirrormaker.flow.obstacles import Obstacle
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.tally import Tally
from mirrormaker.flow.trouble import OBSTACLES, Trouble, TroubleKind

_MET_IN_READING = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR}
)
"""What a node says of records that it comes to read; all else it says before."""


class SourceSetbacks:
    """Decides on failures of the source."""

    def __init__(self, config: FlowConfig, tally: Tally, facts: list[Fact]) -> None:
        """What happens is told in `facts`."""
        self._config = config
        self._tally = tally
        self._facts = facts

    def configure(self, config: FlowConfig) -> None:
        """Other waits from now on."""
        self._config = config

    def rest(self, partition: Partition, problem: str, now_ms: int, error: ErrorCode | None = None) -> None:
        """The source does not give readable records: fetch again later. `error`: what it refuses with."""
        if partition.source_problem is None:
            self._facts.append(
                SourceFailed(source=partition.source, offset=partition.position, problem=problem)
            )
        partition.source_problem, partition.source_error = problem, error
        partition.obstacle = None
        self._wait(partition, now_ms)

    def _wait(self, partition: Partition, now_ms: int) -> None:
        config = self._config
        partition.source_failures += 1
        wait_ms = min(config.retry_backoff_ms << min(partition.source_failures, 16), config.pause_ms)
        partition.fetch_not_before_ms = now_ms + wait_ms

    def rest_damaged(self, partition: Partition, damage: str, now_ms: int) -> None:
        """It gave bytes that are no batches."""
        self.rest(partition, f"{ErrorCode.CORRUPT_MESSAGE.name}: {damage}", now_ms)

    def rest_before(self, partition: Partition, obstacle: Obstacle, now_ms: int) -> None:
        """What comes next can go no way at all: see again later, it may have changed or gone."""
        trouble = Trouble(
            kind=obstacle.kind,
            source=partition.source,
            position=obstacle.offset,
            resume_at=obstacle.next_offset,
            problem=f"{obstacle.kind.value} at offset {obstacle.offset}: {obstacle.problem}",
            lost=(obstacle.offset, obstacle.next_offset),
        )
        known = partition.obstacle
        if known is None or known.position != trouble.position or not partition.source_failures:
            self._facts.append(ObstacleMet(trouble=trouble))
        self.stand(partition, trouble)
        self._wait(partition, now_ms)

    def stand(self, partition: Partition, trouble: Trouble, *, is_final: bool = False) -> None:
        """It stands for this: until it goes on, or in front of something that is tried again."""
        if trouble.kind not in OBSTACLES or is_final:
            partition.trouble = trouble
            return
        partition.obstacle = trouble
        partition.source_problem, partition.source_error = trouble.problem, None

    @staticmethod
    def try_now(partition: Partition) -> None:
        """What it rests in front of may pass by now."""
        if partition.obstacle is not None:
            partition.fetch_not_before_ms = 0

    def met_nothing(self, partition: Partition, intake: Intake, now_ms: int) -> None:
        """Of what it gave nothing could be taken."""
        if intake.damage is not None:
            self.rest_damaged(partition, intake.damage, now_ms)
        elif intake.obstacle is not None:
            self.rest_before(partition, intake.obstacle, now_ms)
        elif not intake.awaits_origins:  # not one whole batch
            most = self._config.fetch_partition_bytes_max
            partition.fetch_bytes = min(partition.fetch_bytes * 2, most)

    def got_nothing(self, partition: Partition, answer: FetchedPartition) -> None:
        """The source answered without records. What could not be read, or taken in, may only have had no room
        in the answer, unless nothing is there, or nothing that is wanted; other refusals are over.
        """
        error, is_there = partition.source_error, answer.source_end > partition.position >= answer.filtered_to
        if not is_there or (error is not None and error not in _MET_IN_READING):
            self.end_rest(partition)

    def end_rest(self, partition: Partition) -> None:
        """It gave what was asked for."""
        if partition.source_problem is not None:
            self._facts.append(
                PartitionRecovered(
                    source=partition.source, failures=partition.source_failures, at_source=True
                )
            )
        self._forget(partition)

    @staticmethod
    def _forget(partition: Partition) -> None:
        partition.source_problem, partition.source_error, partition.obstacle = None, None, None
        partition.source_failures, partition.fetch_not_before_ms = 0, 0

    def go_on(self, partition: Partition, trouble: Trouble) -> None:
        """Go on behind the trouble, and tell what that leaves out."""
        partition.trouble = None
        partition.fetch_not_before_ms = 0
        if trouble.kind in OBSTACLES:
            self._leave_out(partition, trouble)
            return
        source, position, resume_at = partition.source, partition.position, trouble.resume_at
        match trouble.kind:
            case TroubleKind.TOPIC_RECREATED:
                self._tell_lost(TopicRecreated(source=source, position=position, resumed_at=resume_at))
                self._tally.forget_offsets(source, 0)
                partition.begin_anew(resume_at)
            case TroubleKind.SOURCE_GAP if position < resume_at:
                self._tally.of(source).offsets_lost_at_source += resume_at - position
                self._tell_lost(SourceGap(source=source, lost_from=position, resumed_at=resume_at))
                partition.distrust_epoch()
                partition.extend_to(resume_at)
            case TroubleKind.SOURCE_TRUNCATED:
                resume_at = min(resume_at, position)  # the position may have gone back as well
                self._tell_lost(SourceTruncated(source=source, position=position, resumed_at=resume_at))
                self._tally.forget_offsets(source, resume_at)
                if trouble.lost is None:
                    partition.distrust_epoch()  # which the source does not know
                if resume_at < position or trouble.lost is None:
                    partition.return_to(resume_at)
                elif position <= trouble.lost[0]:  # its leader epoch is to be asked about
                    partition.return_lanes_to(trouble.lost[0])

    def _tell_lost(self, fact: SourceGap | SourceTruncated | TopicRecreated) -> None:
        """Of heartbeats it is nobody's loss."""
        if fact.source.topic != HEARTBEATS_TOPIC:
            self._facts.append(fact)

    def _leave_out(self, partition: Partition, trouble: Trouble) -> None:
        """Somebody has said to go on behind what cannot cross; unless it has crossed meanwhile."""
        if partition.position != trouble.position:
            return
        self._forget(partition)
        if self._tally.leave_out(partition, {trouble.position: trouble.kind}):
            kinds = {trouble.kind.value: 1}
            self._facts.append(LeftOut(source=partition.source, offset=trouble.position, kinds=kinds))
        partition.extend_to(trouble.resume_at)
