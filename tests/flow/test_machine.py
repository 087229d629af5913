"""The copy machine against a destination that enforces Kafka's rules of idempotence, under every kind of
trouble.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.records.batch import Codec, iterate_batches, next_sequence, rebase, verify_crc
from broker.records.builder import BatchBuilder
from broker.records.reader import read_records
from broker.types import NO_TOPIC_ID, BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.exchange import (
    Assignment,
    FetchedPartition,
    FlowConfig,
    Gathering,
    ProduceAnswer,
    ProduceCommand,
)
from mirrormaker.flow.facts import (
    PartitionPaused,
    PartitionRecovered,
    ProducerLost,
    SourceGap,
    SourceTruncated,
)
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.lane import TRANSITIONS, LaneState
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.trouble import SourceRange, Trouble, TroubleKind, out_of_range, recreated

WINDOW = 5
SIZE_MAX = 1 << 20
LASTING_FAULTS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


def source_of(index: int) -> TopicPartition:
    return TopicPartition("flights", index)


def destination_of(source: TopicPartition) -> TopicPartition:
    return TopicPartition(f"jfk.{source.topic}", source.partition)


def answers_of(codes: Mapping[TopicPartition, ErrorCode]) -> dict[TopicPartition, ProduceAnswer]:
    return {destination: ProduceAnswer(code) for destination, code in codes.items()}


def build_batch(base_offset: int, count: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec, size_max=SIZE_MAX)
    for offset in range(base_offset, base_offset + count):
        builder.append(1_000 + offset, b"key", b"%d" % offset)
    batch = builder.build()
    rebase(batch, 0, base_offset, 7)
    return batch


@dataclass
class SourceLog:
    """Batches of one source partition, served whole from the one that holds the offset asked for."""

    batches: list[tuple[int, bytearray]] = field(default_factory=list)
    end: int = 0

    def append(self, count: int) -> None:
        self.batches.append((self.end, build_batch(self.end, count)))
        self.end += count

    def read(self, offset: int, batches_max: int) -> bytearray:
        later = [batch for base, batch in self.batches if base >= offset]
        return bytearray(b"".join(later[:batches_max]))


@dataclass
class ProducerState:
    """What a broker remembers of one producer in one partition."""

    last: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


class Destination:
    """Logs and producer states behind brokers that answer in order, one connection each."""

    def __init__(self, brokers: int) -> None:
        self.brokers = brokers
        self.leaders: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, list[int]] = defaultdict(list)
        self.states: dict[TopicPartition, dict[int, ProducerState]] = defaultdict(dict)
        self.wire: dict[int, deque[ProduceCommand]] = {broker: deque() for broker in range(brokers)}
        self.batches_seen_max = 0
        self.broken: dict[TopicPartition, ErrorCode] = {}

    def produce(self, broker: int, destination: TopicPartition, records: bytearray | memoryview) -> ErrorCode:
        broken = self.broken.get(destination)
        if broken in (None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            code = self.append(broker, destination, records)
            return broken if broken and code is ErrorCode.NONE else code
        return broken or ErrorCode.NONE

    def append(self, broker: int, destination: TopicPartition, records: bytearray | memoryview) -> ErrorCode:
        if self.leaders[destination] != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        spans = list(iterate_batches(records))
        self.batches_seen_max = max(self.batches_seen_max, len(spans))
        first, last = spans[0][1], spans[-1][1]
        state = self.states[destination].get(first.producer_id)
        sequences = (first.base_sequence, last.last_sequence)
        if state is not None:
            if sequences in state.last:
                return ErrorCode.NONE
            if first.base_sequence != next_sequence(state.last[-1][1], 1):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for position, header in spans:
            verify_crc(records, position, header)
            assert (header.base_offset, header.leader_epoch, header.producer_epoch) == (0, -1, 3)
            batch = memoryview(records)[position : position + header.size]
            self.logs[destination] += [
                int(record.value or b"") for record in read_records(batch, header, size_max=SIZE_MAX)
            ]
        self.states[destination].setdefault(first.producer_id, ProducerState()).last.append(sequences)
        return ErrorCode.NONE


class World:
    """Source logs, a machine and a destination; every step picks something that may happen next."""

    def __init__(self, random: Random, config: FlowConfig, partitions: int, brokers: int) -> None:
        self.random = random
        self.machine = FlowMachine(config)
        self.config = config
        self.sources = {source_of(index): SourceLog() for index in range(partitions)}
        self.destination = Destination(brokers)
        self.now_ms = 0
        self.producer_ids = 1000
        self.resets = False
        self.committed: dict[TopicPartition, int] = dict.fromkeys(self.sources, 0)
        self.facts: list[object] = []
        self.producers_asked: list[ProducerKey] = []
        for source in self.sources:
            self.destination.leaders[destination_of(source)] = random.randrange(brokers)
        self.machine.assign(
            Assignment(
                source=source, destinations=(destination_of(source),), bucket=source.partition % 2, position=0
            )
            for source in self.sources
        )

    def perform(self) -> None:
        """Do what the machine says; producer ids and leaders may come at once or later."""
        ready = self.machine.ready(self.now_ms)
        self.facts += ready.facts
        self.producers_asked += ready.producers
        if ready.refresh_leaders:
            self.tell_leaders()
        for command in ready.requests:
            assert len({lane.destination for lane, _ in command.entries}) == len(command.entries)
            self.destination.wire[command.broker].append(command)
        for requests in self.destination.wire.values():
            assert len(requests) <= self.config.requests_in_flight
            for source in self.sources:
                sent = sum(
                    lane.partition.source == source for command in requests for lane, _ in command.entries
                )
                assert sent <= WINDOW

    def tell_leaders(self) -> None:
        leaders = {partition: BrokerId(leader) for partition, leader in self.destination.leaders.items()}
        self.machine.set_leaders(leaders)

    def give_producer_ids(self) -> None:
        while self.producers_asked:
            self.producer_ids += 1
            self.machine.set_producer(self.producers_asked.pop(), ProducerIdentity(self.producer_ids, 3))

    def fetch(self) -> None:
        plan = self.machine.plan_fetch(self.sources, 1, self.now_ms)
        answers = [
            FetchedPartition(
                source=wanted.topic_partition,
                offset=wanted.offset,
                records=self.sources[wanted.topic_partition].read(wanted.offset, self.random.randint(0, 4)),
                source_end=self.sources[wanted.topic_partition].end,
            )
            for wanted in plan.positions
        ]
        size = sum(len(answer.records) for answer in answers)
        self.machine.fetched(answers, size, self.now_ms)

    def serve(self, broker: int, fault: ErrorCode | None = None, after: bool = False) -> None:
        """Answer the oldest request of a broker; a fault replaces the answer, before or after the append."""
        if not self.destination.wire[broker]:
            return
        command = self.destination.wire[broker].popleft()
        codes = {}
        for destination, records in command.parts():
            code = ErrorCode.NONE if fault and not after else self.append(broker, destination, records)
            codes[destination] = fault or code
        self.machine.answered(command, answers_of(codes), self.now_ms)

    def append(self, broker: int, destination: TopicPartition, records: bytearray | memoryview) -> ErrorCode:
        return self.destination.produce(broker, destination, records)

    def disconnect(self, broker: int) -> None:
        """Some of what is on the wire arrives; none of it is answered."""
        requests = self.destination.wire[broker]
        for index in range(self.random.randint(0, len(requests))):
            for destination, records in requests[index].parts():
                self.append(broker, destination, records)
        commands = list(requests)
        requests.clear()
        for command in commands:
            self.machine.failed(command, self.now_ms)

    def commit(self) -> None:
        positions = self.machine.uncommitted()
        for source, offset in positions.items():
            arrived = set(self.destination.logs[destination_of(source)])
            assert set(range(offset)) <= arrived, f"{source}: committed {offset} before it was there"
            assert offset >= self.committed[source]
        self.committed.update(positions)
        self.machine.committed(positions)

    def trouble(self) -> None:
        """One thing goes wrong."""
        random, destination = self.random, self.destination
        broker = random.randrange(destination.brokers)
        match random.randrange(7):
            case 0:
                self.disconnect(broker)
            case 1:
                self.serve(broker, ErrorCode.NOT_ENOUGH_REPLICAS)
            case 2:
                self.serve(broker, ErrorCode.REQUEST_TIMED_OUT, after=True)
            case 3:
                partition = random.choice(list(destination.leaders))
                destination.leaders[partition] = random.randrange(destination.brokers)
            case 4:
                self.serve(broker, ErrorCode.UNKNOWN_SERVER_ERROR, after=random.random() < 0.5)
            case 5:
                self.now_ms += random.randrange(3000)
            case 6:
                partition = random.choice(list(destination.leaders))
                if destination.broken.pop(partition, None) is None:
                    destination.broken[partition] = random.choice(LASTING_FAULTS)

    def lose_producers(self) -> None:
        """The destination forgets producers but for a stub that makes it refuse what follows."""
        self.resets = True
        partition = self.random.choice(list(self.destination.leaders))
        for state in self.destination.states[partition].values():
            state.last.clear()
            state.last.append((1 << 29, 1 << 29))

    def step(self) -> None:
        match self.random.randrange(8):
            case 0:
                self.random.choice(list(self.sources.values())).append(self.random.randint(1, 3))
            case 1 | 2:
                self.fetch()
            case 3 | 4:
                self.serve(self.random.randrange(self.destination.brokers))
            case 5:
                self.give_producer_ids()
                self.now_ms += self.random.randrange(200)
            case 6:
                self.commit()
            case 7:
                self.trouble()
        self.perform()

    def reconfigure(self) -> None:
        """Somebody changes the bounds."""
        self.config = replace(
            self.config,
            buffer_bytes=self.random.choice([2_000, 48 << 20]),
            produce_bytes=self.random.choice([300, 600, 2_000]),
            fetch_partition_bytes=self.random.choice([300, 500]),
            bound=Gathering(batch_bytes=self.random.choice([0, 400]), answer_bytes=400, linger_ms=5),
            requests_in_flight=self.config.requests_in_flight + 1,
        )
        self.machine.configure(self.config)
        self.machine.gather([self.random.choice(list(self.sources))])

    def finish(self) -> None:
        """No more trouble: everything must arrive in bounded time."""
        self.destination.broken.clear()
        for _ in range(1000):
            if self.machine.uncommitted() == {} and all(
                self.machine.partitions[source].acknowledged == log.end
                for source, log in self.sources.items()
            ):
                return
            self.now_ms += 40_000
            self.tell_leaders()
            self.give_producer_ids()
            self.perform()
            self.fetch()
            self.perform()
            for broker in range(self.destination.brokers):
                while self.destination.wire[broker]:
                    self.serve(broker)
                    self.perform()
            self.commit()
        raise AssertionError(f"stuck: {[partition.state for partition in self.machine.partitions.values()]}")

    def check_arrived(self) -> None:
        for source, log in self.sources.items():
            arrived = self.destination.logs[destination_of(source)]
            if not self.resets:
                assert arrived == list(range(log.end)), source
            else:
                assert list(dict.fromkeys(arrived)) == list(range(log.end)), source
        assert self.machine.buffered_bytes == 0
        assert all(partition.buffered_bytes == 0 for partition in self.machine.partitions.values())


def make_world(seed: int = 0, *, partitions: int = 1, brokers: int = 1, **config: int) -> World:
    return World(Random(seed), FlowConfig(**config), partitions, brokers)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 32), several=st.booleans(), small_buffer=st.booleans())
def test_every_record_arrives_once_and_in_order_through_any_trouble(
    seed: int, several: bool, small_buffer: bool
) -> None:
    world = make_world(
        seed,
        partitions=3,
        brokers=2,
        chunk_batches_max=3 if several else 1,
        buffer_bytes=2_000 if small_buffer else 48 << 20,
        partition_buffer_bytes=1_000 if small_buffer else 8 << 20,
        fetch_partition_bytes=500,
        produce_bytes=600,
    )
    for number in range(300):
        world.step()
        if number % 60 == 59:
            world.reconfigure()
    world.finish()
    world.check_arrived()
    assert several or world.destination.batches_seen_max <= 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_forgotten_producers_cost_repeats_but_neither_records_nor_order(seed: int) -> None:
    world = make_world(seed, partitions=2, brokers=2)
    for index in range(300):
        world.step()
        if index % 60 == 59:
            world.lose_producers()
    world.finish()
    world.check_arrived()


def filled_world(batches: int, **config: int) -> World:
    """A world with that many batches of one record taken in and a producer id at hand."""
    world = make_world(**config)
    for _ in range(batches):
        world.sources[source_of(0)].append(1)
    world.perform()
    world.give_producer_ids()
    while world.machine.partitions[source_of(0)].position < batches:
        world.fetch()
    world.perform()
    return world


def test_a_stretch_without_anything_wanted_is_passed_with_the_epoch_that_it_ends_in() -> None:
    world = filled_world(2)
    passed = FetchedPartition(
        source=source_of(0),
        offset=2,
        records=bytearray(),
        source_end=90,
        filtered_to=50,
        filtered_epoch=9,
        left_out_bytes=4_000,
    )
    world.machine.fetched([passed], 0, 0)
    plan = world.machine.plan_fetch(world.sources, 1, 0)
    assert [(wanted.offset, wanted.leader_epoch) for wanted in plan.positions] == [(50, 9)]
    rest = FetchedPartition(
        source=source_of(0), offset=50, records=build_batch(50, 1), source_end=90, filtered_to=80
    )
    world.machine.fetched([rest], 100, 0)
    plan = world.machine.plan_fetch(world.sources, 1, 0)
    assert [(wanted.offset, wanted.leader_epoch) for wanted in plan.positions] == [(80, -1)]
    assert world.machine.counts.bytes_left_at_source == 4_000


def test_a_fresh_producer_sends_one_batch_alone_and_then_five_at_a_time() -> None:
    world = filled_world(12)
    assert len(world.destination.wire[0]) == 1
    world.serve(0)
    world.perform()
    assert len(world.destination.wire[0]) == WINDOW


def test_after_a_long_silence_one_batch_goes_ahead_alone_again() -> None:
    world = filled_world(3)
    while world.destination.wire[0]:
        world.serve(0)
        world.perform()
    world.now_ms += world.config.producer_quiet_ms + 1
    for _ in range(4):
        world.sources[source_of(0)].append(1)
    while world.machine.partitions[source_of(0)].position < 7:
        world.fetch()
    world.perform()
    assert len(world.destination.wire[0]) == 1
    world.finish()
    world.check_arrived()


def test_a_request_that_failed_is_repeated_with_all_that_followed_it_in_order() -> None:
    world = filled_world(6)
    world.serve(0)
    world.perform()
    world.serve(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    while world.destination.wire[0]:
        world.serve(0)
        world.perform()
    assert world.destination.logs[destination_of(source_of(0))] == [0]
    assert world.machine.partitions[source_of(0)].state is LaneState.WAITING
    world.finish()
    world.check_arrived()
    assert world.machine.counts.repeated_chunks == 5


def test_the_time_by_which_a_broker_answers_a_repeat_is_none_that_it_gave_the_records() -> None:
    copied: list[Copied] = []
    machine = FlowMachine(FlowConfig(), Hooks(on_copied=copied.append))
    source, log = source_of(0), SourceLog()
    machine.assign([Assignment(source=source, destinations=(destination_of(source),), bucket=0, position=0)])
    machine.set_leaders({destination_of(source): BrokerId(0)})
    (key,) = machine.ready(0).producers
    machine.set_producer(key, ProducerIdentity(1000, 3))
    for latest_ms, append_time_ms in ((1_001, None), (1_003, 1_003), (1_005, 9_000)):
        offset = log.end
        log.append(2)
        answer = FetchedPartition(
            source=source, offset=offset, records=log.read(offset, 1), source_end=log.end
        )
        machine.fetched([answer], len(answer.records), 0)
        (command,) = machine.ready(0).requests
        told = ProduceAnswer(ErrorCode.NONE, offset, append_time_ms)
        machine.answered(command, {destination_of(source): told}, 0)
        assert copied[-1].max_timestamp == latest_ms
    assert [each.append_time_ms for each in copied] == [None, None, 9_000]
    assert [each.crc is not None for each in copied] == [True, True, False]


@pytest.mark.parametrize(
    ("ends", "told"),
    [((7, 20), (7, 2, False)), ((9, 7), (7, 2, False)), ((10, 20), (10, 5, True)), ((5, 20), None)],
)
def test_what_arrives_late_of_before_the_end_that_a_source_has_lost_is_told(
    ends: tuple[int, int], told: tuple[int, int, bool] | None
) -> None:
    """Its records are there, and not sent again."""
    copied: list[Copied] = []
    machine = FlowMachine(FlowConfig(), Hooks(on_copied=copied.append))
    source, log = source_of(0), SourceLog()
    log.append(5)
    log.append(5)
    machine.assign([Assignment(source=source, destinations=(destination_of(source),), bucket=0, position=5)])
    machine.set_leaders({destination_of(source): BrokerId(0)})
    (key,) = machine.ready(0).producers
    machine.set_producer(key, ProducerIdentity(1000, 3))
    answer = FetchedPartition(source=source, offset=5, records=log.read(5, 1), source_end=log.end)
    machine.fetched([answer], len(answer.records), 0)
    (command,) = machine.ready(0).requests
    machine.partitions[source].extend_to(12)  # which holds no records behind them
    for end in ends:
        trouble = out_of_range(source, 21, -1, SourceRange(start=0, end=end))
        assert trouble is not None
        machine.go_on(trouble)
    machine.answered(command, {destination_of(source): ProduceAnswer(ErrorCode.NONE, 40)}, 0)
    assert machine.partitions[source].acknowledged == min(ends)
    found = [(each.next, each.count, each.crc is not None) for each in copied]
    assert found == ([] if told is None else [told])
    assert all((each.first, each.base_offset) == (5, 40) for each in copied)


def test_a_partition_in_line_follows_its_leader_to_a_broker_that_nothing_went_to_before() -> None:
    world = filled_world(1, brokers=2)
    leaders, destination = world.destination.leaders, destination_of(source_of(0))
    world.serve(leaders[destination])
    world.perform()
    world.sources[source_of(0)].append(1)
    while world.machine.partitions[source_of(0)].position < 2:
        world.fetch()
    leaders[destination] = 1 - leaders[destination]
    world.tell_leaders()
    world.perform()
    assert len(world.destination.wire[leaders[destination]]) == 1
    world.serve(leaders[destination])
    world.check_arrived()


def test_nothing_is_sent_to_a_topic_that_was_missed_before_metadata_tells_of_it_again() -> None:
    world = make_world(partitions=2)
    sources = [source_of(0), source_of(1)]
    for source in sources:
        world.sources[source].append(1)
    world.perform()
    world.give_producer_ids()
    while any(world.machine.partitions[source].position < 1 for source in sources):
        world.fetch()
    world.perform()
    (broker,) = world.destination.wire
    world.destination.broken[destination_of(sources[0])] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while world.destination.wire[broker]:
        world.serve(broker)
    world.destination.broken.clear()
    for source in sources:
        world.sources[source].append(1)
    world.now_ms += 60_000
    lanes = [world.machine.partitions[source].lanes[0] for source in sources]
    assert [lane.leader for lane in lanes] == [None, None]
    ready = world.machine.ready(world.now_ms)
    assert (ready.requests, ready.refresh_leaders) == ([], True)
    world.tell_leaders()
    world.finish()
    world.check_arrived()


def test_nothing_goes_to_a_new_leader_while_the_old_one_owes_an_answer() -> None:
    world = make_world(1, brokers=2)
    source = source_of(0)
    for _ in range(4):
        world.sources[source].append(1)
    old = world.destination.leaders[destination_of(source)]
    world.perform()
    world.give_producer_ids()
    while world.machine.partitions[source].position < 4:
        world.fetch()
    world.perform()
    world.serve(old)
    world.perform()
    world.destination.leaders[destination_of(source)] = 1 - old
    world.tell_leaders()
    world.perform()
    assert not world.destination.wire[1 - old]
    world.finish()
    world.check_arrived()


def test_a_refused_partition_pauses_and_the_others_go_on() -> None:
    world = make_world(partitions=2)
    for log in world.sources.values():
        log.append(1)
    world.perform()
    world.give_producer_ids()
    while any(partition.position == 0 for partition in world.machine.partitions.values()):
        world.fetch()
    world.perform()
    refused = destination_of(source_of(0))
    while world.destination.wire[0]:
        command = world.destination.wire[0].popleft()
        codes = {
            destination: ErrorCode.MESSAGE_TOO_LARGE
            if destination == refused
            else world.append(0, destination, records)
            for destination, records in command.parts()
        }
        world.machine.answered(command, answers_of(codes), world.now_ms)
    world.perform()
    paused = world.machine.partitions[source_of(0)]
    assert paused.state is LaneState.PAUSED
    assert paused.error is ErrorCode.MESSAGE_TOO_LARGE
    assert any(isinstance(fact, PartitionPaused) and fact.offset == 0 for fact in world.facts)
    wanted = world.machine.plan_fetch(world.sources, 1, 0).positions
    assert [position.topic_partition for position in wanted] == [source_of(1)]
    assert world.destination.logs[destination_of(source_of(1))] == [0]
    assert world.machine.uncommitted() == {source_of(1): 1}
    world.finish()
    world.check_arrived()
    assert any(isinstance(fact, PartitionRecovered) for fact in world.facts)


def test_what_was_too_large_is_tried_as_soon_as_its_topic_takes_larger_batches() -> None:
    world = filled_world(1)
    source, machine = source_of(0), world.machine
    world.serve(0, ErrorCode.MESSAGE_TOO_LARGE)
    world.perform()
    partition = machine.partitions[source]
    assert (partition.state, partition.stands_for_size) == (LaneState.PAUSED, True)
    machine.takes_larger("other")
    world.perform()
    assert partition.state is LaneState.PAUSED
    machine.takes_larger("jfk.flights")
    world.perform()
    assert partition.state is not LaneState.PAUSED
    for kind in (TroubleKind.RECORD_ERROR, TroubleKind.OVERSIZE):
        machine.halt(Trouble(kind=kind, source=source, position=0, resume_at=1, problem="it is large"))
        machine.hold_fetch(source, 30_000)
        machine.takes_larger("other")
        assert machine.plan_fetch([source], 1, 0).positions == []
        machine.takes_larger("jfk.flights")
        planned = [position.topic_partition for position in machine.plan_fetch([source], 1, 0).positions]
        assert planned == ([source] if kind is TroubleKind.OVERSIZE else [])
    world.finish()
    world.check_arrived()


def copy_to(world: World, end: int, refuses: Callable[[Chunk], bool]) -> list[Chunk]:
    """Copy batches of one record until `end` is there, or something is refused; that is returned."""
    log, partition = world.sources[source_of(0)], world.machine.partitions[source_of(0)]
    while log.end < end:
        log.append(1)
    world.now_ms += 40_000
    refused: list[Chunk] = []
    while partition.acknowledged < end and not refused:
        world.perform()
        world.fetch()
        world.perform()
        while world.destination.wire[0]:
            command = world.destination.wire[0].popleft()
            ((lane, chunk),) = command.entries
            if refuses(chunk):
                refused.append(chunk)
                code = ErrorCode.INVALID_RECORD
            else:
                code = world.append(0, lane.destination, chunk.records)
            world.machine.answered(command, answers_of({lane.destination: code}), world.now_ms)
            world.perform()
    return refused


def several_at_once(chunk: Chunk) -> bool:
    return chunk.batches > 1


def test_of_a_chunk_that_is_refused_batches_go_one_by_one_and_behind_it_together_again() -> None:
    world = filled_world(1, chunk_batches_max=10)

    def is_bad(chunk: Chunk) -> bool:
        return chunk.first_offset <= 21 < chunk.next_offset

    world.sources[source_of(0)].append(1)
    (together,) = copy_to(world, 40, is_bad)
    assert together.batches > 1
    for _ in range(3):
        (alone,) = copy_to(world, 40, is_bad)
        assert (alone.batches, alone.first_offset) == (1, 21), "those before it are there"
    assert copy_to(world, together.next_offset, several_at_once) == []
    world.destination.batches_seen_max = 0
    assert copy_to(world, 60, is_bad) == []
    assert world.destination.batches_seen_max > 1
    world.finish()
    world.check_arrived()


def test_a_destination_that_takes_no_batches_together_is_sent_some_ever_more_rarely() -> None:
    world = filled_world(1, chunk_batches_max=10)
    refused = []
    while world.machine.partitions[source_of(0)].acknowledged < 1000:
        refused += copy_to(world, 1000, several_at_once)
    assert world.destination.batches_seen_max == 1
    assert 5 < len(refused) < 15
    world.finish()
    world.check_arrived()


def test_damage_on_the_way_is_refused_by_the_destination_and_fetched_again() -> None:
    world = make_world()
    source = source_of(0)
    world.sources[source].append(1)
    world.perform()
    world.give_producer_ids()
    damaged = world.sources[source].read(0, 1)
    damaged[-3] ^= 0x10
    answer = FetchedPartition(source=source, offset=0, records=damaged, source_end=1)
    world.machine.fetched([answer], len(damaged), 0)
    (command,) = world.machine.ready(0).requests
    ((_, records),) = command.parts()
    ((position, header),) = iterate_batches(records)
    with pytest.raises(Exception, match="CRC of the batch"):
        verify_crc(records, position, header)
    world.machine.answered(command, answers_of({destination_of(source): ErrorCode.CORRUPT_MESSAGE}), 0)
    assert world.machine.partitions[source].position == 0
    world.finish()
    world.check_arrived()


def test_a_lost_producer_is_replaced_only_when_nothing_is_in_flight() -> None:
    world = filled_world(8)
    world.serve(0)
    world.perform()
    world.serve(0, ErrorCode.UNKNOWN_PRODUCER_ID)
    for _ in range(4):
        assert world.machine.ready(10_000).producers == []
        world.serve(0)
    world.now_ms = 10_000
    world.perform()
    assert world.producers_asked == [ProducerKey(0, 0, None)]
    assert any(isinstance(fact, ProducerLost) for fact in world.facts)
    world.finish()
    world.check_arrived()


def test_a_partition_that_keeps_failing_gives_its_buffer_back_without_repeats() -> None:
    world = filled_world(20)
    world.destination.broken[destination_of(source_of(0))] = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(6):
        while world.destination.wire[0]:
            world.serve(0)
        world.now_ms += 10_000
        world.perform()
    partition = world.machine.partitions[source_of(0)]
    assert partition.attempts >= 3
    assert world.machine.buffered_bytes == partition.buffered_bytes == 0
    world.finish()
    world.check_arrived()


def meet(world: World, found: SourceRange) -> None:
    """The source refuses the position as out of range, and the policy is to go on."""
    source = source_of(0)
    trouble = out_of_range(source, world.machine.partitions[source].position, -1, found)
    assert trouble is not None
    world.machine.halt(trouble)
    assert not world.machine.plan_fetch([source], 1, world.now_ms).positions
    world.machine.go_on(trouble)


def test_a_gap_at_the_source_is_told_and_jumped_after_what_is_queued() -> None:
    world = filled_world(2)
    meet(world, SourceRange(start=10, end=20))
    assert world.machine.uncommitted() == {}
    while world.destination.wire[0]:
        world.serve(0)
        world.perform()
    assert world.machine.uncommitted() == {source_of(0): 10}
    assert world.facts == [SourceGap(source=source_of(0), lost_from=2, resumed_at=10)]
    assert world.machine.counts.offsets_lost_at_source == 8


def test_a_source_that_ends_before_the_position_is_told_and_followed_at_its_end() -> None:
    world = filled_world(3)
    while world.destination.wire[0]:
        world.serve(0)
        world.perform()
    meet(world, SourceRange(start=0, end=2))
    assert world.machine.uncommitted() == {source_of(0): 2}
    world.perform()
    assert world.facts == [SourceTruncated(source=source_of(0), position=3, resumed_at=2)]


def test_positions_of_a_source_that_lost_records_never_pass_its_end() -> None:
    world = filled_world(8)
    world.serve(0)
    world.perform()
    world.serve(0)
    world.perform()
    meet(world, SourceRange(start=0, end=1))
    assert world.machine.uncommitted() == {source_of(0): 1}
    while world.destination.wire[0]:
        world.serve(0)
        world.perform()
        assert world.machine.uncommitted() == {source_of(0): 1}


def test_positions_in_a_topic_that_is_gone_are_not_taken_for_the_new_ones() -> None:
    world = filled_world(8)
    world.serve(0)
    world.perform()
    assert world.machine.uncommitted() == {source_of(0): 1}
    world.machine.go_on(recreated(source_of(0), 8, SourceRange(start=0, end=9), NO_TOPIC_ID))
    while world.destination.wire[0]:
        assert world.machine.uncommitted() == {}
        world.serve(0)
        world.perform()
    partition = world.machine.partitions[source_of(0)]
    assert (partition.position, partition.acknowledged, partition.copied_offsets) == (0, 0, 8)
    assert world.machine.uncommitted() == {}


def test_released_partitions_let_their_memory_go_when_their_requests_end() -> None:
    world = filled_world(6)
    world.machine.stop([source_of(0)])
    world.perform()
    assert world.machine.in_flight([source_of(0)]) == 1
    world.machine.release([source_of(0)])
    assert world.machine.buffered_bytes > 0
    world.serve(0)
    assert world.machine.buffered_bytes == 0
    assert world.machine.uncommitted() == {}


def test_fetching_stops_when_half_of_the_buffer_is_taken() -> None:
    world = make_world(buffer_bytes=1_000, fetch_partition_bytes=100, partition_buffer_bytes=1_000)
    for _ in range(20):
        world.sources[source_of(0)].append(1)
    world.perform()
    world.give_producer_ids()
    for _ in range(20):
        world.fetch()
    assert 500 < world.machine.buffered_bytes <= 1_000
    plan = world.machine.plan_fetch(world.sources, 1, 0)
    assert plan.positions == []
    assert plan.pressed
    world.finish()
    world.check_arrived()
    assert world.machine.plan_fetch(world.sources, 1, world.now_ms).positions


def fetch_one_by_one(world: World, count: int) -> None:
    """The source gets a batch, and it is fetched, again and again; nothing is answered."""
    for _ in range(count):
        world.sources[source_of(0)].append(1)
        world.machine.fetched(
            [
                FetchedPartition(
                    source=wanted.topic_partition,
                    offset=wanted.offset,
                    records=world.sources[wanted.topic_partition].read(wanted.offset, 1 << 10),
                    source_end=world.sources[wanted.topic_partition].end,
                )
                for wanted in world.machine.plan_fetch(world.sources, 1, world.now_ms).positions
            ],
            100,
            world.now_ms,
        )
        world.perform()


def test_what_comes_while_answers_with_little_wait_to_be_sent_comes_together() -> None:
    world = make_world(chunk_batches_max=1_000)
    world.perform()
    world.give_producer_ids()
    fetch_one_by_one(world, 100)
    lane = world.machine.partitions[source_of(0)].lanes[0]
    assert len(lane.queue) == 1 + WINDOW, "one is under way, and a window's worth waits"
    plan = world.machine.plan_fetch(world.sources, 1, 0)
    assert (plan.positions, plan.pressed, plan.throttled) == ([], False, True)
    world.serve(0)
    world.perform()
    fetch_one_by_one(world, 1)
    assert max(chunk.batches for chunk in lane.queue) > 90
    world.finish()
    world.check_arrived()


def test_answers_are_fetched_ahead_where_the_destination_takes_one_batch_a_request() -> None:
    world = make_world()
    world.perform()
    world.give_producer_ids()
    fetch_one_by_one(world, 100)
    assert len(world.machine.partitions[source_of(0)].lanes[0].queue) == 100
    world.finish()
    world.check_arrived()


def test_answers_that_fill_requests_are_fetched_ahead() -> None:
    world = make_world(chunk_batches_max=1_000, produce_bytes=100)
    world.perform()
    world.give_producer_ids()
    fetch_one_by_one(world, 20)
    assert len(world.machine.partitions[source_of(0)].lanes[0].queue) == 20
    world.finish()
    world.check_arrived()


def test_a_partition_whose_answers_hold_no_whole_batch_asks_for_more() -> None:
    world = make_world(fetch_partition_bytes=100)
    source = source_of(0)
    world.perform()
    world.give_producer_ids()
    world.sources[source].append(20)
    torn = world.sources[source].read(0, 1)[:100]
    answer = FetchedPartition(source=source, offset=0, records=torn, source_end=20)
    world.machine.fetched([answer], 100, 0)
    assert [wanted.max_bytes for wanted in world.machine.plan_fetch([source], 1, 0).positions] == [200]
    world.fetch()
    world.finish()
    assert world.machine.partitions[source].fetch_bytes == 100


def test_unreadable_bytes_rest_the_source_and_what_came_before_them_goes_on() -> None:
    world = make_world()
    source = source_of(0)
    world.perform()
    world.give_producer_ids()
    world.sources[source].append(2)
    good = world.sources[source].read(0, 1)
    garbage = bytearray(b"\x00" * 8 + b"\x00\x00\x00\x40" + b"\xff" * 64)
    answer = FetchedPartition(source=source, offset=0, records=good + garbage, source_end=9)
    world.machine.fetched([answer], len(good + garbage), 0)
    assert world.machine.partitions[source].position == 2
    again = FetchedPartition(source=source, offset=2, records=garbage, source_end=9)
    world.machine.fetched([again], len(garbage), 0)
    assert world.machine.plan_fetch([source], 1, 0).positions == []
    assert "CORRUPT_MESSAGE" in (world.machine.partitions[source].source_problem or "")
    world.finish()
    world.check_arrived()


def test_every_state_can_be_left_for_stopping_and_stopping_for_nothing() -> None:
    assert set(TRANSITIONS) == set(LaneState)
    for state, following in TRANSITIONS.items():
        assert state not in following
        assert (LaneState.STOPPING in following) == (state is not LaneState.STOPPING)


def test_a_source_is_not_asked_to_gather_more_than_half_of_what_it_may_send() -> None:
    world = filled_world(2, fetch_partition_bytes=100, gather_bytes=1 << 20, linger_ms=300)
    source = source_of(0)
    plan = world.machine.plan_fetch([source], 1, 0, busy=[source])
    assert ([wanted.max_bytes for wanted in plan.positions], plan.gather_bytes) == ([100], 50)
    world = filled_world(2, gather_bytes=1_000, linger_ms=300)
    assert world.machine.plan_fetch([source], 1, 0, busy=[source]).gather_bytes == 1_000


def test_a_source_is_asked_to_gather_of_what_brought_something_the_last_time() -> None:
    world = make_world(partitions=2, fetch_partition_bytes=100, gather_bytes=1 << 20, linger_ms=300)
    world.perform()
    world.give_producer_ids()
    sources = [source_of(0), source_of(1)]
    gathered = [
        world.machine.plan_fetch(sources, 1, 0, busy=busy).gather_bytes for busy in ([], sources[:1], sources)
    ]
    assert gathered == [0, 50, 100]
