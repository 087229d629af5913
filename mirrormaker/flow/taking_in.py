"""What the source gave of a partition becomes chunks in the queues of its lanes. Pure."""

from __future__ import annotations

from dataclasses import replace

from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.chunk import Frame
from mirrormaker.flow.exchange import FetchedPartition, FlowConfig
from mirrormaker.flow.facts import Fact, LeftOut
from mirrormaker.flow.fetch_planning import next_fetch_bytes
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.intake import Intake
from mirrormaker.flow.intakes import Intakes
from mirrormaker.flow.lines import Lines
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.source_setbacks import SourceSetbacks
from mirrormaker.flow.tally import Tally


class TakingIn:
    """Of one machine."""

    def __init__(
        self,
        config: FlowConfig,
        hooks: Hooks,
        buffer: Buffer,
        lines: Lines,
        setbacks: SourceSetbacks,
        facts: list[Fact],
        tally: Tally,
    ) -> None:
        """What happens is told in `facts`."""
        self._config = config
        self._intakes = Intakes.following(config)
        self._hooks = hooks
        self._buffer = buffer
        self._lines = lines
        self._setbacks = setbacks
        self._facts = facts
        self._tally = tally
        self.effort = 0
        """What has been taken in since this was set to 0 took, in decoded bytes."""

    def configure(self, config: FlowConfig) -> None:
        """Other bounds from now on."""
        self._config = config
        self._intakes = Intakes.following(config)

    def take(
        self, partition: Partition, answer: FetchedPartition, frame: Frame, now_ms: int
    ) -> FetchedPartition | None:
        """Take in what came of a partition; what is left of it for another turn."""
        partition.source_end = answer.source_end
        if not len(answer.records):
            self._setbacks.got_nothing(partition, answer)
            if answer.filtered_to > partition.position and partition.may_fetch(now_ms):
                self._pass_over(partition, answer)
            return None
        if not partition.may_fetch(now_ms):
            return None
        config = self._intakes.of(partition)
        if (origins := self._hooks.origins) is not None:
            config = replace(config, origins=origins.of(partition))
        intake = self._hooks.transit.take(partition, answer, config, frame)
        self.effort += intake.effort
        partition.awaits_origins = intake.awaits_origins
        is_held = intake.damage or intake.obstacle or intake.awaits_origins
        if not is_held and intake.left_at is None and answer.filtered_to > intake.position:
            intake.position, intake.leader_epoch = answer.filtered_to, answer.filtered_epoch
        if intake.position == partition.position:
            self._setbacks.met_nothing(partition, intake, now_ms)
            return None
        self._note_answer(partition, answer)
        self._setbacks.end_rest(partition)
        self._tally.of(partition.source).take_in(intake)
        partition.count_taken(intake)
        if intake.left_out and (new := self._tally.leave_out(partition, intake.left_out)):
            kinds = {kind.value: count for kind, count in new.items()}
            self._facts.append(LeftOut(source=partition.source, offset=answer.offset, kinds=kinds))
        partition.read_to(intake.position, intake.leader_epoch, memoryview(answer.records))
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
        self._tally.counts.bytes_left_at_source += answer.left_out_bytes

    def _pass_over(self, partition: Partition, answer: FetchedPartition) -> None:
        """The source has nothing that is wanted before `answer.filtered_to`."""
        self._note_answer(partition, answer)
        partition.read_to(answer.filtered_to, answer.filtered_epoch, memoryview(answer.records))
        partition.extend_to(answer.filtered_to)


def _rest_of(answer: FetchedPartition, intake: Intake) -> FetchedPartition:
    records = memoryview(answer.records)[intake.left_at :]
    return replace(
        answer,
        offset=intake.position,
        records=records,
        aborted=intake.aborted_left,
        left_out_bytes=0,
    )
