"""A record that is left out is counted once, however often a machine takes it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.records.record import Record
from broker.types import NO_TOPIC_ID, BrokerId, TopicPartition
from mirrormaker.flow.chunk import Frame
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig
from mirrormaker.flow.facts import LeftOut
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.intake import Intake, IntakeConfig
from mirrormaker.flow.left_out import REMEMBERED_MAX, LeftOutOffsets
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.trouble import SourceRange, TroubleKind, recreated
from mirrormaker.steps.record import RecordError
from mirrormaker.topology.model import FailurePolicies, RecordErrorPolicy
from tests.flow.test_intake import build

SOURCE = TopicPartition("flights", 0)
SKIPPED_LANE = 1
DESTINATIONS = (TopicPartition("jfk.flights", 0), TopicPartition("skipped", 0))


class Odd:
    """Steps that even offsets pass."""

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        if record.offset % 2:
            raise RecordError("odd")
        return [(0, record)]


class Noting:
    """The `Transit`: what no step can process is noted."""

    aside = Aside(
        source=SOURCE,
        policies=FailurePolicies(record_error=RecordErrorPolicy.SKIP_AND_RECORD),
        skipped_lane=SKIPPED_LANE,
    )

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        cut = replace(config, steps=Odd(), deep=True, aside=self.aside)
        return take_in(answer.records, partition.position, cut, frame, answer.aborted, partition.floors)


class Scene:
    """A machine that has taken in ten records, of which five are left out."""

    def __init__(self) -> None:
        self.machine = FlowMachine(FlowConfig(), Hooks(transit=Noting()))
        self.assign()
        self.fetch()

    def assign(self, position: int = 0) -> None:
        assignment = Assignment(source=SOURCE, destinations=DESTINATIONS, bucket=0, position=position)
        self.machine.assign([assignment])
        self.machine.set_leaders(dict.fromkeys(DESTINATIONS, BrokerId(0)))

    def fetch(self) -> None:
        """All of the source from where the machine stands."""
        for key in self.machine.ready(0).producers:
            self.machine.set_producer(key, ProducerIdentity(producer_id=1, epoch=0))
        position = self.machine.partitions[SOURCE].position
        answer = FetchedPartition(source=SOURCE, offset=position, records=build(0, 10), source_end=10)
        self.machine.fetched([answer], 0, 0)

    @property
    def counted(self) -> int:
        return self.machine.counts.left_out[TroubleKind.RECORD_ERROR]

    def told(self) -> int:
        """How many the facts since the last call tell of."""
        ready = self.machine.ready(0)
        for command in ready.requests:
            self.machine.failed(command, 0)
        return sum(sum(fact.kinds.values()) for fact in ready.facts if isinstance(fact, LeftOut))


def test_what_a_machine_takes_in_again_is_counted_and_told_once() -> None:
    scene = Scene()
    assert (scene.counted, scene.told()) == (5, 5)
    scene.machine.rewind([SOURCE])
    scene.fetch()
    assert scene.machine.partitions[SOURCE].position == 10
    assert (scene.counted, scene.told()) == (5, 0)


def test_what_comes_back_after_it_was_given_up_is_counted_from_where_nothing_was_counted() -> None:
    scene = Scene()
    scene.machine.release([SOURCE])
    scene.assign(4)
    scene.fetch()
    answer = FetchedPartition(source=SOURCE, offset=10, records=build(10, 4), source_end=14)
    scene.machine.fetched([answer], 0, 0)
    assert (scene.counted, scene.told()) == (7, 2)


def test_records_of_another_topic_of_the_name_are_counted_though_they_have_the_same_offsets() -> None:
    scene = Scene()
    scene.machine.go_on(recreated(SOURCE, 10, SourceRange(start=0, end=10), NO_TOPIC_ID))
    scene.fetch()
    assert scene.counted == 10


def test_what_is_remembered_has_a_bound_and_what_is_not_committed_is_remembered_longest() -> None:
    offsets, partition = LeftOutOffsets(), Scene().machine.partitions[SOURCE]
    found = dict.fromkeys(range(REMEMBERED_MAX), TroubleKind.OVERSIZE)
    assert offsets.count(partition, found) == {TroubleKind.OVERSIZE: REMEMBERED_MAX}
    partition.committed = 100
    assert offsets.count(partition, {REMEMBERED_MAX: TroubleKind.OVERSIZE}) == {TroubleKind.OVERSIZE: 1}
    assert offsets.count(partition, {REMEMBERED_MAX: TroubleKind.OVERSIZE, 100: TroubleKind.OVERSIZE}) == {}
    assert offsets.count(partition, {99: TroubleKind.OVERSIZE}) == {TroubleKind.OVERSIZE: 1}
