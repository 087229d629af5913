"""Lanes, producer ids and hooks of the copy machine, against destination partitions that keep Kafka's rules
of idempotence, in random interleavings of everything that may happen.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.records.batch import BatchHeader, Codec, iterate_batches, next_sequence, read_header, rebase
from broker.records.builder import BatchBuilder
from broker.records.reader import read_records
from broker.types import NO_TOPIC_ID, BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.exchange import (
    Assignment,
    FetchedPartition,
    FlowConfig,
    ProduceAnswer,
    ProduceCommand,
)
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.intake import Intake, IntakeConfig, OriginUnknownError
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.packing import Measure, Packer
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.trouble import SourceRange, recreated

WINDOW = 5
SIZE_MAX = 1 << 20
MEASURE = Measure(
    batch_bytes=SIZE_MAX, batch_bytes_max=SIZE_MAX, gather_bytes=SIZE_MAX, decoded_bytes_max=SIZE_MAX
)
HOME = 100
"""Producer id of what was born at the source; the next ones are of other origins."""
RETURNED = 66
"""Producer id of what has been at the destination."""
FAULTS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NETWORK_EXCEPTION,
)
"""Told instead of appending; a time-out also after it."""


class Origins:
    """Of three producers, and of one whose batches have been here before."""

    def __init__(self) -> None:
        self.known = {HOME, HOME + 1, HOME + 2, RETURNED}
        self.asked: set[int] = set()

    def find(self) -> None:
        """What was asked for is known now, and nothing else."""
        if self.asked:
            self.known, self.asked = self.asked, set()

    def of(self, partition: Partition) -> Origins:
        return self

    def origin_of(self, header: BatchHeader) -> int | None:
        if header.producer_id not in self.known:
            self.asked.add(header.producer_id)
            raise OriginUnknownError
        return None if header.producer_id == RETURNED else header.producer_id - HOME

    def came_back(self, header: BatchHeader) -> bool:
        return header.producer_id == RETURNED


class Spread:
    """One lane: as it is. Several: record by record, by offset."""

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        lanes = partition.lanes
        if len(lanes) == 1:
            return take_in(answer.records, partition.position, config, frame)
        intake = Intake(position=partition.position)
        assert config.origins is not None
        for position, header in iterate_batches(answer.records):
            try:
                origin = config.origins.origin_of(header)
            except OriginUnknownError:
                intake.awaits_origins = True
                return intake
            batch = memoryview(answer.records)[position : position + header.size]
            records = read_records(batch, header, size_max=SIZE_MAX) if origin is not None else []
            for lane in lanes:
                wanted = [
                    record
                    for record in records
                    if record.offset % len(lanes) == lane.index and record.offset >= lane.position
                ]
                packer = Packer(MEASURE, intake.chunks, Aside().oversize, noted_lane=None)
                for record in wanted:
                    packer.add(lane.index, origin or 0, Codec.NONE, record, 1.0)
                packer.settle()
            intake.position = header.next_offset
        return intake


class Moods:
    """An admission that refuses now and then."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.mood = 0.7

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        return wanted if self.random.random() < self.mood else 0

    def fetched(self, size: int, now_ms: int) -> None:
        assert size >= 0

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        return self.random.random() < self.mood

    def wake_at_ms(self, now_ms: int) -> int | None:
        return now_ms + 1


def build_batch(index: int, base_offset: int, count: int, producer_id: int = HOME) -> bytearray:
    builder = BatchBuilder(
        Codec.NONE, size_max=SIZE_MAX, producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    for offset in range(base_offset, base_offset + count):
        builder.append(1_000 + offset, b"%d" % index, b"%d" % offset)
    batch = builder.build()
    rebase(batch, 0, base_offset, 7)
    return batch


class DestinationPartition:
    """A log that deduplicates each producer's last batches and refuses gaps in its sequences."""

    def __init__(self) -> None:
        self.log: list[tuple[int, int]] = []
        """Source partition and source offset of each record."""
        self.producers: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, records: bytearray | memoryview) -> ProduceAnswer:
        ((position, header),) = iterate_batches(records)
        last = self.producers.setdefault(header.producer_id, deque(maxlen=WINDOW))
        for first_sequence, last_sequence, base_offset in last:
            if (first_sequence, last_sequence) == (header.base_sequence, header.last_sequence):
                known = base_offset if base_offset % 2 else None
                code = ErrorCode.NONE if known is not None else ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                return ProduceAnswer(code, known)
        if last and header.base_sequence != next_sequence(last[-1][1], 1):
            return ProduceAnswer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        base_offset = len(self.log)
        last.append((header.base_sequence, header.last_sequence, base_offset))
        batch = memoryview(records)[position : position + header.size]
        self.log += [
            (int(record.key or b""), int(record.value or b""))
            for record in read_records(batch, header, size_max=SIZE_MAX)
        ]
        return ProduceAnswer(ErrorCode.NONE, base_offset)


class World:
    """Two source partitions that share destination partitions, and what may happen next."""

    def __init__(self, seed: int, lanes: int, *, is_merged: bool = True, **config: int) -> None:
        self.random = Random(seed)
        self.moods = Moods(self.random)
        self.copied: list[Copied] = []
        self.origins = Origins()
        hooks = Hooks(
            admissions=(self.moods,), origins=self.origins, transit=Spread(), on_copied=self.copied.append
        )
        self.machine = FlowMachine(FlowConfig(**config), hooks)  # type: ignore[arg-type]
        self.lanes = lanes
        self.sources = [TopicPartition("flights", index) for index in range(2)]
        self.batches: dict[TopicPartition, list[tuple[int, bytearray]]] = {each: [] for each in self.sources}
        self.ends = dict.fromkeys(self.sources, 0)
        self.expected: dict[TopicPartition, list[int]] = {each: [] for each in self.sources}
        self.copies: dict[TopicPartition, DestinationPartition] = defaultdict(DestinationPartition)
        self.leader = 0
        self.wire: dict[int, deque[ProduceCommand]] = {0: deque(), 1: deque()}
        self.wanted: list[ProducerKey] = []
        self.ids: dict[int, ProducerKey] = {}
        self.now_ms = 0
        self.is_doubled = False
        self.machine.assign(
            Assignment(
                source=source,
                destinations=tuple(self.destination(source, lane, is_merged) for lane in range(lanes)),
                bucket=0,
                position=0,
                is_merged=is_merged,
            )
            for source in self.sources
        )

    @staticmethod
    def destination(source: TopicPartition, lane: int, is_merged: bool) -> TopicPartition:
        return TopicPartition("all" if is_merged else f"all-{source.partition}", lane)

    def write(self, source: TopicPartition, count: int, producer_id: int = HOME) -> None:
        end = self.ends[source]
        self.batches[source].append((end, build_batch(source.partition, end, count, producer_id)))
        if producer_id != RETURNED:
            self.expected[source] += range(end, end + count)
        self.ends[source] = end + count

    def fetch(self) -> None:
        plan = self.machine.plan_fetch(self.sources, 1, self.now_ms)
        answers = []
        for wanted in plan.positions:
            source = wanted.topic_partition
            later = [
                batch
                for base, batch in self.batches[source]
                if base + read_header(batch).record_count > wanted.offset
            ]
            records = bytearray(b"".join(later[: self.random.randint(0, 5)]))
            answers.append(
                FetchedPartition(
                    source=source, offset=wanted.offset, records=records, source_end=self.ends[source]
                )
            )
        self.machine.fetched(answers, sum(len(answer.records) for answer in answers), self.now_ms)

    def perform(self) -> None:
        ready = self.machine.ready(self.now_ms)
        assert not set(ready.producers) & set(self.wanted), "asked for twice"
        self.wanted += ready.producers
        if ready.refresh_leaders:
            self.tell_leader()
        for command in ready.requests:
            destinations = [lane.destination for lane, _ in command.entries]
            assert len(set(destinations)) == len(destinations)
            self.wire[command.broker].append(command)
        under_way: dict[int, list[Chunk]] = defaultdict(list)
        for command in (*self.wire[0], *self.wire[1]):
            for lane, chunk in command.entries:
                under_way[id(lane)].append(chunk)
        for chunks in under_way.values():
            assert len(chunks) <= WINDOW
            assert len({read_header(chunk.records).producer_id for chunk in chunks}) == 1

    def tell_leader(self) -> None:
        partitions = self.machine.partitions.values()
        self.machine.set_leaders(
            {lane.destination: BrokerId(self.leader) for each in partitions for lane in each.lanes}
        )

    def give_producers(self) -> None:
        while self.wanted:
            key = self.wanted.pop(self.random.randrange(len(self.wanted)))
            producer_id = 1_000 + len(self.ids)
            self.ids[producer_id] = key
            self.machine.set_producer(key, ProducerIdentity(producer_id, 3))

    def find_origins(self) -> None:
        self.origins.find()
        self.machine.take_origins()

    def serve(self, broker: int, fault: ErrorCode | None = None) -> None:
        if not self.wire[broker]:
            return
        command = self.wire[broker].popleft()
        answers = {}
        for lane, chunk in command.entries:
            key = self.ids[read_header(chunk.records).producer_id]
            assert (key.origin, key.source) == (
                chunk.origin,
                lane.partition.source if lane.partition.is_merged else None,
            )
            answers[lane.destination] = self.answer(broker, lane.destination, chunk, fault)
        self.machine.answered(command, answers, self.now_ms)

    def answer(
        self, broker: int, destination: TopicPartition, chunk: Chunk, fault: ErrorCode | None
    ) -> ProduceAnswer:
        if broker != self.leader:
            if self.random.random() < 0.3:  # it led when it was asked, and its followers have them
                self.copies[destination].append(chunk.records)
            return ProduceAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fault is ErrorCode.MESSAGE_TOO_LARGE and chunk.maybe_written:
            fault = None  # whether it is too large does not change
        if fault is not None and self.random.random() < 0.7:
            if fault is ErrorCode.REQUEST_TIMED_OUT and self.random.random() < 0.5:
                self.copies[destination].append(chunk.records)
            return ProduceAnswer(fault)
        return self.copies[destination].append(chunk.records)

    def commit(self) -> None:
        positions = self.machine.uncommitted()
        for source, position in positions.items():
            for offset in self.expected[source]:
                if offset < position:
                    lane = self.machine.partitions[source].lanes[offset % self.lanes]
                    assert (source.partition, offset) in self.copies[lane.destination].log
        self.machine.committed(positions)

    def rewind(self) -> None:
        source = self.random.choice(self.sources)
        if not self.machine.in_flight([source]):
            self.machine.rewind([source])
            self.is_doubled = True

    def step(self, *, may_rewind: bool) -> None:
        random = self.random
        match random.randrange(9):
            case 0 | 1:
                producer_id = random.choice([HOME, HOME, HOME + 1, HOME + 2, RETURNED])
                self.write(random.choice(self.sources), random.randint(1, 4), producer_id)
            case 2 | 3:
                self.fetch()
            case 4 | 5:
                self.serve(random.randrange(2))
            case 6:
                self.give_producers()
                self.find_origins()
                self.now_ms += random.choice([1, 100, 31_000])
            case 7:
                self.commit()
                if may_rewind and random.random() < 0.2:
                    self.rewind()
            case 8:
                if random.random() < 0.3:
                    self.leader = 1 - self.leader
                self.serve(random.randrange(2), random.choice(FAULTS))
        self.perform()

    def finish(self) -> None:
        self.moods.mood = 1.0
        for _ in range(1_000):
            self.commit()
            if all(self.machine.partitions[each].committed == end for each, end in self.ends.items()):
                return
            self.now_ms += 40_000
            self.tell_leader()
            self.give_producers()
            self.fetch()
            self.find_origins()
            self.perform()
            for broker in self.wire:
                while self.wire[broker]:
                    self.serve(broker)
                    self.perform()
        states = [lane.state for each in self.machine.partitions.values() for lane in each.lanes]
        raise AssertionError(f"stuck: {states}")

    def check(self) -> None:
        """Everything is there, in the order of each lane, once unless something was rewound."""
        for source, partition in self.machine.partitions.items():
            for lane in partition.lanes:
                log = self.copies[lane.destination].log
                arrived = [offset for index, offset in log if index == source.partition]
                wanted = [offset for offset in self.expected[source] if offset % self.lanes == lane.index]
                assert (list(dict.fromkeys(arrived)) if self.is_doubled else arrived) == wanted
        assert self.machine.buffered_bytes == 0
        self.check_copied()

    def check_copied(self) -> None:
        """What was told of is true, and tells of every record."""
        told: Counter[tuple[TopicPartition, int]] = Counter()
        for copied in self.copied:
            assert copied.count == sum(run.length for run, _ in copied.offset_runs())
            for run, base in copied.offset_runs():
                told.update((copied.source, offset) for offset in range(run.first, run.first + run.length))
                if base is not None:
                    log = self.copies[copied.destination].log
                    assert log[base : base + run.length] == [
                        (copied.source.partition, run.first + step) for step in range(run.length)
                    ]
        expected = Counter((source, offset) for source, all_ in self.expected.items() for offset in all_)
        assert told.keys() == expected.keys()
        assert self.is_doubled or told == expected


@settings(max_examples=120)
@given(seed=st.integers(0, 1 << 32), lanes=st.integers(1, 3), is_merged=st.booleans(), rewinds=st.booleans())
def test_lanes_keep_order_and_lose_nothing_under_several_identities_and_any_trouble(
    seed: int, lanes: int, is_merged: bool, rewinds: bool
) -> None:
    world = World(seed, lanes, is_merged=is_merged, fetch_partition_bytes=600, produce_bytes=400)
    world.origins.known.clear()
    for _ in range(250):
        world.step(may_rewind=rewinds)
    world.finish()
    world.check()


def ready_world(lanes: int = 1) -> World:
    """One where nothing is refused and the first identities are there."""
    world = World(1, lanes, is_merged=False)
    world.moods.mood = 1.0
    world.perform()
    world.give_producers()
    return world


def fetch_all(world: World) -> None:
    while any(world.machine.partitions[each].position < end for each, end in world.ends.items()):
        world.fetch()
    world.perform()


def test_chunks_of_another_identity_wait_until_nothing_is_in_flight() -> None:
    world = ready_world()
    source = world.sources[0]
    for producer_id in (HOME, HOME, HOME + 1, HOME):
        world.write(source, 1, producer_id)
    fetch_all(world)
    world.serve(0)
    world.perform()
    assert world.machine.in_flight([source]) == 1
    assert world.wanted == []
    world.serve(0)
    world.perform()
    assert world.wanted == [ProducerKey(0, 1, None)]
    assert world.machine.partitions[source].state is LaneState.AWAITING_PRODUCER
    world.give_producers()
    world.perform()
    world.serve(0)
    world.perform()
    ((lane, _),) = world.wire[0][0].entries
    assert {producer.next_sequence for producer in lane.producers.values()} == {1, 3}
    world.finish()
    world.check()


def test_a_paused_lane_holds_back_its_source_partition_alone() -> None:
    world = ready_world(lanes=2)
    first, second = world.sources
    world.write(first, 2)
    world.write(second, 2)
    fetch_all(world)
    (command,) = world.wire[0]
    world.wire[0].clear()
    answers = {
        lane.destination: world.answer(0, lane.destination, chunk, None) for lane, chunk in command.entries
    }
    refused = world.machine.partitions[first].lanes[1].destination
    answers[refused] = ProduceAnswer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    world.machine.answered(command, answers, 0)
    partition = world.machine.partitions[first]
    assert [lane.state for lane in partition.lanes] == [LaneState.COPYING, LaneState.PAUSED]
    assert (partition.state, partition.acknowledged) == (LaneState.PAUSED, 0)
    assert [each.topic_partition for each in world.machine.plan_fetch(world.sources, 1, 0).positions] == [
        second
    ]
    world.copies[refused].log.clear()
    world.copies[refused].producers.clear()
    world.finish()
    world.check()


def test_what_an_admission_refuses_is_asked_for_again_when_it_says() -> None:
    world = ready_world()
    world.write(world.sources[0], 1)
    fetch_all(world)
    world.serve(0)
    world.write(world.sources[0], 1)
    fetch_all(world)
    world.wire[0].clear()
    world.write(world.sources[1], 1)
    world.fetch()
    world.moods.mood = 0.0
    ready = world.machine.ready(5)
    assert (ready.requests, ready.wake_at_ms) == ([], 6)
    assert world.machine.plan_fetch(world.sources, 1, 5).positions == []
    world.moods.mood = 1.0
    assert len(world.machine.ready(6).requests) == 1


class AtTheEnd:
    """Positions count when a transaction ends."""

    def __init__(self) -> None:
        self.counted = 0

    def position(self, partition: Partition) -> int:
        return self.counted


def test_a_position_counts_when_the_delivery_says_so_and_a_rewind_takes_back_the_rest() -> None:
    delivery, source = AtTheEnd(), TopicPartition("flights", 0)
    machine = FlowMachine(FlowConfig(), Hooks(delivery=delivery))
    destination = TopicPartition("copy", 0)
    machine.set_leaders({destination: BrokerId(1)})
    machine.assign([Assignment(source=source, destinations=(destination,), bucket=3, position=0)])
    (key,) = machine.ready(0).producers
    machine.set_producer(key, ProducerIdentity(50, 0, "mirror/route/3"))
    for offset in (0, 2):
        batch = build_batch(0, offset, 2)
        answer = FetchedPartition(source=source, offset=offset, records=batch, source_end=9)
        machine.fetched([answer], len(batch), 0)
        (command,) = machine.ready(0).requests
        header = read_header(command.parts()[0][1])
        assert (header.is_transactional, header.producer_id, header.base_sequence) == (True, 50, offset)
        machine.answered(command, {destination: ProduceAnswer(ErrorCode.NONE, offset)}, 0)
        assert machine.uncommitted() == {}
        if offset == 0:
            delivery.counted = 2
            assert machine.uncommitted() == {source: 2}
            machine.committed({source: 2})
    machine.rewind([source])
    partition = machine.partitions[source]
    assert (partition.position, partition.acknowledged, partition.state) == (
        2,
        2,
        LaneState.AWAITING_PRODUCER,
    )
    assert machine.ready(0).producers == [key]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
def test_offsets_that_the_destination_does_not_tell_are_told_as_unknown(code: ErrorCode) -> None:
    world = ready_world()
    world.write(world.sources[0], 3)
    fetch_all(world)
    (lane,) = world.machine.partitions[world.sources[0]].lanes
    world.machine.answered(world.wire[0].popleft(), {}, 0)
    world.now_ms += 1_000
    world.perform()
    (command,) = world.wire[0]
    world.machine.answered(command, {lane.destination: ProduceAnswer(code)}, world.now_ms)
    (copied,) = world.copied
    assert (copied.first, copied.next, copied.count, copied.base_offset) == (0, 3, 3, None)
    assert [base for _, base in copied.offset_runs()] == [None]


def test_what_is_said_to_be_there_and_was_never_sent_before_is_sent_under_another_producer_id() -> None:
    world = ready_world()
    source = world.sources[0]
    world.write(source, 3)
    fetch_all(world)
    (lane,) = world.machine.partitions[source].lanes
    answer = ProduceAnswer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    world.machine.answered(world.wire[0].popleft(), {lane.destination: answer}, 0)
    assert (lane.acknowledged, world.copied) == (0, [])
    world.now_ms += 1_000
    world.perform()
    assert world.wanted == [ProducerKey(0, 0, None)]
    world.give_producers()
    world.perform()
    world.serve(0)
    assert lane.acknowledged == 3
    assert len(world.copies[lane.destination].log) == 3


def shared(source: TopicPartition, *, is_merged: bool, lanes: int = 1) -> Assignment:
    destinations = (TopicPartition("shared", 0),) * lanes
    return Assignment(source=source, destinations=destinations, bucket=0, position=0, is_merged=is_merged)


def test_a_partition_that_shares_no_identity_goes_where_others_go_in_a_request_of_its_own() -> None:
    world = World(1, 1)
    world.moods.mood = 1.0
    world.machine.release(world.sources)
    world.wanted.clear()
    world.machine.assign(
        shared(source, is_merged=is_merged)
        for source, is_merged in zip(world.sources, (True, False), strict=True)
    )
    world.perform()
    world.give_producers()
    for source in world.sources:
        world.write(source, 3)
    fetch_all(world)
    assert len(world.wire[0]) == 2
    for _ in world.sources:
        world.serve(0)
    assert sorted(world.copies[TopicPartition("shared", 0)].log) == [
        (source.partition, offset) for source in world.sources for offset in range(3)
    ]


def test_no_two_lanes_count_sequences_of_one_identity_in_one_partition() -> None:
    machine, (one, other) = FlowMachine(FlowConfig()), World(1, 1).sources
    with pytest.raises(AssertionError, match="for repeated ones"):
        machine.assign([shared(one, is_merged=True, lanes=2)])
    machine = FlowMachine(FlowConfig())
    machine.assign([shared(one, is_merged=False)])
    machine.release([one])
    machine.assign([shared(one, is_merged=False)])
    with pytest.raises(AssertionError, match="for repeated ones"):
        machine.assign([shared(other, is_merged=False)])


def test_what_was_sent_of_a_topic_that_is_gone_is_not_told_of() -> None:
    world = ready_world()
    world.write(world.sources[0], 3)
    fetch_all(world)
    world.machine.go_on(recreated(world.sources[0], 3, SourceRange(start=0, end=0), NO_TOPIC_ID))
    world.serve(0)
    assert world.copied == []


@pytest.mark.parametrize("seed", range(5))
def test_lanes_of_partitions_that_are_given_up_become_equally_far(seed: int) -> None:
    world = World(seed, 3)
    world.tell_leader()
    for source in world.sources:
        for count in range(1, 9):
            world.write(source, count)
    world.moods.mood = 1.0
    while not any(len({lane.acknowledged for lane in each.lanes}) > 1 for each in partitions_of(world)):
        world.fetch()
        world.perform()
        world.give_producers()
        world.find_origins()
        world.serve(0)
    world.machine.leave(world.sources)
    assert world.machine.plan_fetch(world.sources, 1, world.now_ms).positions == []
    assert world.machine.evens_out(world.sources)
    while world.machine.evens_out(world.sources):
        world.perform()
        world.give_producers()
        world.serve(0)
    world.machine.stop(world.sources)
    for partition in partitions_of(world):
        (reached,) = {lane.acknowledged for lane in partition.lanes}
        for offset in world.expected[partition.source]:
            copy = world.copies[partition.lanes[offset % 3].destination]
            assert ((partition.source.partition, offset) in copy.log) is (offset < reached)


def test_a_lane_that_has_still_to_be_read_for_stays_behind_when_its_partition_is_given_up() -> None:
    machine, source = FlowMachine(FlowConfig()), TopicPartition("flights", 0)
    destinations = tuple(TopicPartition("all", number) for number in range(2))
    machine.assign(
        [Assignment(source=source, destinations=destinations, bucket=0, position=10, lane_positions=(50, 10))]
    )
    machine.leave([source])
    assert not machine.evens_out([source])
    machine.stop([source])
    assert [lane.acknowledged for lane in machine.partitions[source].lanes] == [50, 10]


def partitions_of(world: World) -> list[Partition]:
    return list(world.machine.partitions.values())
