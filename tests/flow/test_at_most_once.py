"""At most once over several lanes: processes that end well or not, a destination that refuses or does not
answer and grows, and a group that keeps what is stored. Nothing comes twice, and what is lost is told. So it
is at least once, as long as processes end well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.at_least_once import AtLeastOnce
from mirrormaker.flow.at_most_once import AtMostOnce, tell_arrears
from mirrormaker.flow.batch_limits import BatchLimits
from mirrormaker.flow.delivery import Kept
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig, ProduceAnswer, ProduceCommand
from mirrormaker.flow.facts import Fact, RecordsMaybeLost
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.lane import BATCHES_REMEMBERED, FAILURES_BEFORE_SHEDDING
from mirrormaker.flow.lane_note import (
    NOTE_BYTES_MAX,
    arrears,
    arrears_in,
    note_of,
    noted_place,
    read_note,
    uneven_note,
)
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.positions import Place
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.progress import acknowledged
from mirrormaker.flow.transit import RouteTransit
from mirrormaker.flow.trouble import Divergence, diverged, went_back
from mirrormaker.flow.ways import in_turn
from mirrormaker.topology.model import (
    ClusterName,
    Delivery,
    PartitionPolicy,
    RouteName,
    RouteSpec,
    TopicSelection,
)
from tests.flow.test_lanes import DestinationPartition, build_batch

SOURCE = TopicPartition("flights", 0)
ROUTE = RouteSpec(
    name=RouteName("r"),
    source=ClusterName("jfk"),
    destination=ClusterName("aggregate"),
    topics=TopicSelection(include=("flights",), partitions=PartitionPolicy.ROUND_ROBIN),
    delivery=Delivery.AT_MOST_ONCE,
)
REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS
UNKNOWN = ErrorCode.REQUEST_TIMED_OUT


def lanes_to(count: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("jfk.flights", number) for number in range(count))


def of_second(end: int) -> list[int]:
    """Those of the offsets before `end` that go to the second of two lanes."""
    return [offset for offset in range(end) if in_turn(offset, 2) == 1]


class World:
    """One source partition, spread over the partitions of its copy, and one process after another."""

    machine: FlowMachine
    mode: AtMostOnce | AtLeastOnce

    def __init__(
        self,
        seed: int = 0,
        *,
        lanes: int = 2,
        keeps_notes: bool = True,
        delivery: Delivery = Delivery.AT_MOST_ONCE,
    ) -> None:
        self.random = Random(seed)
        self.delivery = delivery
        """Of the next process."""
        self.lanes = lanes
        self.keeps_notes = keeps_notes
        self.batches: list[tuple[int, bytearray]] = []
        self.end = 0
        self.stored = Kept(0)
        self.pending: dict[TopicPartition, Kept] = {}
        """On its way to the group."""
        self.copies: dict[TopicPartition, DestinationPartition] = defaultdict(DestinationPartition)
        self.away: set[int] = set()
        """Partitions of the copy that refuse everything."""
        self.wire: list[ProduceCommand] = []
        self.facts: list[Fact] = []
        self.identities = 0
        self.now_ms = 0
        self.start()

    # ---- processes

    def start(self) -> None:
        self.mode = mode = self.make_mode()
        transit = RouteTransit(ROUTE, BatchLimits())
        config = FlowConfig(produce_bytes=400, fetch_partition_bytes=600, partition_buffer_bytes=1_500)
        self.machine = FlowMachine(
            config,
            Hooks(
                admissions=mode.say.admissions,
                delivery=mode.say.delivery,
                remedies=mode.say.remedies,
                transit=transit,
            ),
        )
        ignored: Any = None
        mode.begin(self.machine, ignored, ignored)
        lanes = transit.ways("flights").lanes(0, lambda topic: self.lanes)
        note = self.stored.note if self.keeps_notes else ""
        place = noted_place(self.stored.position, note, lanes.destinations, ROUTE.topics.partitions)
        place = place or Place((self.stored.position,) * len(lanes.destinations))
        self.machine.assign(
            [
                Assignment(
                    source=SOURCE,
                    destinations=lanes.destinations,
                    bucket=0,
                    position=min(place.lanes),
                    is_merged=lanes.is_merged,
                    lane_positions=place.lanes,
                    former=place.former,
                    spread=ROUTE.topics.partitions,
                )
            ]
        )
        tell_arrears(self.machine, self.facts.append, SOURCE, arrears_in(min(place.lanes), note))
        mode.joined([SOURCE])
        self.perform()

    def make_mode(self) -> AtMostOnce | AtLeastOnce:
        if self.delivery is Delivery.AT_LEAST_ONCE:
            return AtLeastOnce()
        return AtMostOnce(
            keeps_notes=self.keeps_notes,
            on_waiting=lambda: None,
            on_fact=self.facts.append,
            on_not_taken=lambda *_: None,
        )

    def crash(self) -> None:
        """What is under way may arrive, or not."""
        for command in self.wire:
            for lane, chunk in command.entries:
                if self.random.random() < 0.5:
                    self.copies[lane.destination].append(chunk.records)
        self.wire.clear()
        if self.pending and self.random.random() < 0.5:
            self.stored = self.pending[SOURCE]
        self.pending = {}
        self.start()

    def stop(self) -> None:
        self.machine.stop([SOURCE])
        self.settle_commit()
        while self.wire:
            self.serve()
        self.commit()
        self.settle_commit()
        self.mode.leaving([SOURCE])
        self.machine.release([SOURCE])

    # ---- what happens

    def write(self, count: int) -> None:
        self.batches.append((self.end, build_batch(0, self.end, count)))
        self.end += count

    def fetch(self) -> None:
        plan = self.machine.plan_fetch([SOURCE], 1, self.now_ms)
        for wanted in plan.positions:
            later = [
                batch for at, (base, batch) in enumerate(self.batches) if self.end_of(at) > wanted.offset
            ]
            records = bytearray(b"".join(later[: self.random.randint(1, 4)]))
            answer = FetchedPartition(
                source=SOURCE, offset=wanted.offset, records=records, source_end=self.end
            )
            self.machine.fetched([answer], len(records), self.now_ms)

    def end_of(self, index: int) -> int:
        return self.batches[index + 1][0] if index + 1 < len(self.batches) else self.end

    def perform(self) -> None:
        ready = self.machine.ready(self.now_ms)
        self.facts += ready.facts
        leaders = {
            lane.destination: BrokerId(lane.destination.partition)
            for each in self.machine.partitions.values()
            for lane in each.lanes
        }
        self.machine.set_leaders(leaders)
        for key in ready.producers:
            self.identities += 1
            self.machine.set_producer(key, ProducerIdentity(self.identities, 0))
        self.wire += ready.requests

    def serve(self, fault: ErrorCode | None = None) -> None:
        if not self.wire:
            return
        first = self.random.choice(self.wire)
        command = next(each for each in self.wire if each.broker == first.broker)
        self.wire.remove(command)
        answers = {
            lane.destination: self.answer(lane.destination, chunk.records, fault)
            for lane, chunk in command.entries
        }
        self.machine.answered(command, answers, self.now_ms)

    def answer(
        self, to: TopicPartition, records: bytearray | memoryview, fault: ErrorCode | None
    ) -> ProduceAnswer:
        if to.partition in self.away:
            return ProduceAnswer(REFUSED)
        if fault is UNKNOWN and self.random.random() < 0.5:
            self.copies[to].append(records)
        return self.copies[to].append(records) if fault is None else ProduceAnswer(fault)

    def commit(self) -> None:
        """Ask the group to store what moved."""
        assert not self.pending
        moved = {**self.mode.unnoted(), **self.machine.uncommitted()}
        for source, position in moved.items():
            reached = acknowledged(self.machine.partitions[source])
            kept = self.mode.keep(source, position, reached)
            assert kept is not None
            self.pending[source] = kept

    def settle_commit(self, *, is_heard: bool = True) -> None:
        """It has; the process hears of that, or does not."""
        if not self.pending:
            return
        self.stored = self.pending[SOURCE]
        if is_heard:
            self.mode.kept(self.pending)
            self.machine.committed({source: each.position for source, each in self.pending.items()})
        self.pending = {}

    def step(self, *, is_harsh: bool) -> None:
        random = self.random
        match random.randrange(10):
            case 0:
                self.write(random.randint(1, 5))
            case 1 | 2:
                self.fetch()
            case 3 | 4:
                self.serve()
            case 5:
                self.serve(random.choice([REFUSED, UNKNOWN]) if is_harsh else REFUSED)
            case 6:
                self.settle_commit(is_heard=not is_harsh or random.random() < 0.9)
                self.commit()
            case 7:
                self.settle_commit()
            case 8:
                self.now_ms += random.choice([1, 100, 6_000])
                if random.random() < 0.3:
                    self.away ^= {random.randrange(self.lanes)}
            case 9 if random.random() < 0.2:
                if is_harsh and random.random() < 0.5:
                    self.crash()
                else:
                    self.stop()
                    self.lanes += random.random() < 0.2
                    self.start()
        self.perform()

    def finish(self) -> None:
        self.away.clear()
        for _ in range(500):
            self.now_ms += 6_000
            self.fetch()
            self.perform()
            while self.wire:
                self.serve()
                self.perform()
            self.settle_commit()
            self.commit()
            self.settle_commit()
            if self.machine.partitions[SOURCE].acknowledged == self.end:
                return
        raise AssertionError(f"stuck: {[lane.state for lane in self.machine.partitions[SOURCE].lanes]}")

    def arrived(self) -> Counter[int]:
        return Counter(offset for copy in self.copies.values() for _, offset in copy.log)

    @property
    def told(self) -> int:
        return sum(fact.count for fact in self.facts if isinstance(fact, RecordsMaybeLost))


@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 32), lanes=st.integers(1, 3), keeps_notes=st.booleans())
def test_nothing_comes_twice_and_what_does_not_come_is_told(seed: int, lanes: int, keeps_notes: bool) -> None:
    world = World(seed, lanes=lanes, keeps_notes=keeps_notes)
    for _ in range(300):
        world.step(is_harsh=keeps_notes)  # what a crash loses can only be told by what was stored
    world.finish()
    arrived = world.arrived()
    assert set(arrived.values()) <= {1}
    assert arrived.keys() <= set(range(world.end))
    assert world.end - len(arrived) <= world.told


@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 32), lanes=st.integers(1, 3))
def test_processes_that_end_well_lose_nothing(seed: int, lanes: int) -> None:
    world = World(seed, lanes=lanes)
    for _ in range(300):
        world.step(is_harsh=False)
    world.finish()
    assert world.arrived() == Counter(range(world.end))
    assert world.told == 0


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 32),
    lanes=st.integers(1, 3),
    deliveries=st.lists(
        st.sampled_from([Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]), min_size=1, max_size=3
    ),
)
def test_processes_that_end_well_double_nothing_under_whichever_deliveries(
    seed: int, lanes: int, deliveries: list[Delivery]
) -> None:
    world = World(seed, lanes=lanes, delivery=deliveries[0])
    for delivery in deliveries:
        world.delivery = delivery
        world.stop()
        world.start()
        for _ in range(100):
            world.step(is_harsh=False)
    world.finish()
    assert world.arrived() == Counter(range(world.end))
    assert world.told == 0


def test_what_at_most_once_may_have_lost_is_told_under_another_delivery_too() -> None:
    world = World(lanes=1)
    world.write(20)
    world.fetch()
    world.perform()
    world.commit()
    world.settle_commit()
    world.delivery = Delivery.AT_LEAST_ONCE
    world.wire.clear()
    world.crash()
    world.finish()
    assert (world.arrived(), world.told) == (Counter(), 20)


def behind_world(*, keeps_notes: bool = True) -> World:
    """Of two lanes one has all of 20 records, the other nothing, as its partition refuses everything."""
    world = World(keeps_notes=keeps_notes)
    world.write(20)
    world.away = {0}
    while world.machine.partitions[SOURCE].attempts < FAILURES_BEFORE_SHEDDING:
        world.fetch()
        world.perform()
        while world.wire:
            world.serve()
        world.commit()
        world.settle_commit()
        world.now_ms += 6_000
    assert world.arrived() == Counter(of_second(20))
    return world


def test_a_lane_that_gave_its_records_back_has_no_other_send_again_after_a_crash() -> None:
    world = behind_world()
    assert world.machine.partitions[SOURCE].position == 0
    assert (world.stored.position, world.stored.lanes) == (0, (0, 20))
    world.crash()
    world.finish()
    assert (world.arrived(), world.told) == (Counter(range(20)), 0)


def test_lanes_go_on_where_each_was_when_a_process_ended_well() -> None:
    world = behind_world()
    world.stop()
    assert (world.stored.position, world.stored.lanes) == (0, (0, 20))
    world.lanes = 3
    world.start()
    world.finish()
    assert (world.arrived(), world.told) == (Counter(range(20)), 0)
    assert world.stored == Kept(20, "20", (20, 20, 20))


@pytest.mark.parametrize("fault", [REFUSED, UNKNOWN])
def test_no_more_than_a_window_is_stored_ahead_where_the_destination_takes_nothing(fault: ErrorCode) -> None:
    world = World(lanes=1)
    for _ in range(12):
        world.write(5)
        world.fetch()
    (lane,) = world.machine.partitions[SOURCE].lanes
    world.perform()
    world.commit()
    world.settle_commit()
    world.perform()
    while world.wire:
        world.serve(fault)
    assert len(lane.queue) > BATCHES_REMEMBERED
    world.commit()
    world.settle_commit()
    window = lane.queue[BATCHES_REMEMBERED - 1].next_offset
    assert world.stored.position == window < lane.position
    world.crash()
    world.finish()
    assert world.told <= window
    assert world.end - len(world.arrived()) <= world.told


def test_nothing_is_sent_while_the_group_may_store_that_it_was_not() -> None:
    world = World(lanes=1)
    world.write(20)
    world.fetch()
    world.commit()
    world.settle_commit()
    world.away = {0}
    while world.machine.partitions[SOURCE].position:
        world.now_ms += 6_000
        world.perform()
        world.serve()
    world.commit()
    assert world.pending[SOURCE].position == 0
    world.away.clear()
    while not world.machine.partitions[SOURCE].position:
        world.now_ms += 6_000
        world.perform()
        world.fetch()
    world.perform()
    assert world.wire == []
    world.crash()
    world.finish()
    assert (world.arrived(), world.told) == (Counter(range(20)), 0)


def test_what_takes_the_place_of_what_the_source_lost_is_not_sent_before_the_group_knows() -> None:
    world = World(lanes=1)
    for _ in range(2):
        world.write(10)
        world.fetch()
        world.commit()
        world.settle_commit()
        world.perform()
        world.serve()
    assert (world.arrived(), world.stored.position) == (Counter(range(20)), 20)
    lost = diverged(SOURCE, 20, None, Divergence(epoch=1, end_offset=10))
    assert lost is not None
    world.batches.pop()
    world.end = 10
    world.machine.go_on(lost)
    world.write(5)
    world.fetch()
    world.perform()
    assert world.wire == []
    world.commit()
    assert world.pending[SOURCE].position == 15
    world.settle_commit()
    world.perform()
    assert len(world.wire) == 1


def test_what_was_on_its_way_of_a_log_that_is_gone_is_not_told_as_lost_of_the_one_in_its_place() -> None:
    world = World(lanes=1)
    for is_answered in (True, True, False):
        world.write(10)
        world.fetch()
        world.commit()
        world.settle_commit()
        world.perform()
        if is_answered:
            world.serve()
    lost = diverged(SOURCE, 30, None, Divergence(epoch=1, end_offset=10))
    assert lost is not None
    del world.batches[1:]
    world.end = 10
    world.machine.go_on(lost)
    while world.wire:
        world.serve(UNKNOWN)
        world.now_ms += 6_000
        world.perform()
    world.write(5)
    world.finish()
    assert [fact for fact in world.facts if isinstance(fact, RecordsMaybeLost)] == []
    assert world.arrived() >= Counter(range(15))


def test_a_lane_that_went_back_does_not_keep_another_from_sending_what_it_has() -> None:
    world = World()
    world.write(20)
    world.fetch()
    world.commit()
    world.settle_commit()
    world.away = {0}
    partition = world.machine.partitions[SOURCE]
    while partition.attempts < FAILURES_BEFORE_SHEDDING:
        world.now_ms += 6_000
        world.perform()
        if world.end == 20 and partition.attempts:
            world.write(20)
            world.fetch()
            assert partition.position == 40
        while world.wire:
            world.serve()
    assert [lane.position for lane in partition.lanes] == [0, 40]
    world.commit()
    world.settle_commit()
    world.perform()
    while world.wire:
        world.serve()
    assert world.arrived() == Counter(of_second(40))
    world.crash()
    world.finish()
    assert world.arrived() == Counter(range(40))


def test_what_a_lane_lacks_is_told_where_only_positions_are_kept() -> None:
    world = behind_world(keeps_notes=False)
    assert world.stored.position == 20
    world.stop()
    world.start()
    world.finish()
    assert (world.arrived(), world.told) == (Counter(of_second(20)), 20)


def test_a_note_holds_for_the_position_that_it_was_stored_with() -> None:
    to = (*lanes_to(2), TopicPartition("notes", 0))
    place = Place((20, 40, 30), destinations=to, spread=PartitionPolicy.KEY)
    note = note_of(place, (20, 35, 25))
    assert note is not None
    assert note == (
        '{"lanes":[20,40,30],"spread":"key","there":[20,35,25],"to":[["jfk.flights",0,2],["notes",0,1]]}'
    )
    lanes = read_note(20, note)
    assert lanes is not None
    assert (lanes.place, lanes.there) == (place, (20, 35, 25))
    assert read_note(19, note) is None
    grown = lanes.on((*lanes_to(3), TopicPartition("notes", 0)), PartitionPolicy.KEY)
    assert grown.lanes == (20, 20, 20, 30)
    assert grown.former == (FormerLanes("jfk.flights", (20, 40), PartitionPolicy.KEY),)
    again = note_of(grown, grown.lanes)
    assert again is not None
    read = read_note(20, again)
    assert read is not None
    assert read.place == grown


def test_a_note_that_would_be_too_long_is_none() -> None:
    count = NOTE_BYTES_MAX // 5
    even = Place((10_000,) * count, destinations=lanes_to(count))
    assert note_of(even, (9_000,) * count) == "9000"
    uneven = Place((*even.lanes[1:], 10_001), destinations=even.destinations)
    assert note_of(uneven, uneven.lanes) is None
    assert uneven_note(uneven) == uneven_note(even) == ""


@pytest.mark.parametrize(
    "note", ["", "12", "[1]", "{}", '{"lanes":[5,6]}', '{"lanes":[5],"to":[["a",0,2]]}', "{"]
)
def test_what_is_no_note_of_lanes_is_none(note: str) -> None:
    assert read_note(5, note) is None


def test_arrears_count_every_offset_that_some_lane_may_lack_once() -> None:
    found = arrears((20, 40, 50, 60), (20, 30, 35, 58))
    assert found is not None
    assert (found.first, found.next, found.count) == (30, 60, 22)
    assert arrears((20, 40), (20, 40)) is None
    assert arrears_in(12, "12") is None
    assert arrears_in(12, "") is None
    assert arrears_in(15, "12") == arrears((15,), (12,))


def test_a_quiet_owner_stores_that_nothing_is_on_its_way_any_more_and_it_is_not_told_again() -> None:
    world = World(lanes=1)
    world.write(20)
    world.fetch()
    world.perform()
    world.commit()
    world.settle_commit()
    assert world.stored == Kept(20, "0", (20,))
    world.wire.clear()
    world.crash()
    world.commit()
    assert world.pending == {}, "the source has not answered yet"
    world.fetch()
    world.commit()
    world.settle_commit()
    assert world.stored == Kept(20, "20", (20,))
    world.commit()
    assert world.pending == {}
    world.crash()
    assert world.told == 20


def test_lanes_that_are_further_than_the_source_reaches_take_what_it_has_there_by_now() -> None:
    """The position itself lies before what was lost."""
    world = World(delivery=Delivery.AT_LEAST_ONCE)
    world.away = {1}
    world.write(10)
    world.write(10)
    for _ in range(8):
        world.fetch()
        world.perform()
        world.serve()
        world.commit()
        world.settle_commit()
    lanes = [lane.position for lane in world.machine.partitions[SOURCE].lanes]
    position = world.stored.position
    assert position < 10 < max(lanes)
    world.wire.clear()
    world.batches.pop()
    world.end = 10
    for copy in world.copies.values():
        copy.log.clear()
    world.start()
    assert max(lane.position for lane in world.machine.partitions[SOURCE].lanes) > 10
    world.write(20)
    world.machine.go_on(went_back(SOURCE, position, (10, 20)))
    world.finish()
    assert world.arrived().keys() >= set(range(10, 30))
