"""The transactions of a bucket: step by step, and against a destination with Kafka's rules of transactions,
whose owner may die, be frozen or be replaced between any two steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import ErrorCode
from broker.records.batch import BatchHeader, Codec, iterate_batches, next_sequence
from broker.records.reader import read_records
from broker.types import NO_TOPIC_ID, BrokerId, TopicPartition
from mirrormaker.flow.books import BooksStanding, BucketBooks
from mirrormaker.flow.bucket_transaction import BucketTransaction
from mirrormaker.flow.chunk import Chunk, Frame, SourceRun
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.exchange import (
    Assignment,
    FetchedPartition,
    FlowConfig,
    ProduceAnswer,
    ProduceCommand,
)
from mirrormaker.flow.fenced_origins import FencedOrigins
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.intake import Intake, IntakeConfig, Origins, OriginUnknownError
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.packing import Measure, Packer
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.standing import standing_of
from mirrormaker.flow.transaction_steps import (
    HOME,
    TRANSITIONS,
    AddPartitions,
    Commit,
    LanePositions,
    Phase,
    Step,
    TransactionTerms,
    Write,
)
from mirrormaker.flow.trouble import SourceRange, out_of_range, recreated
from tests.flow.test_lanes import SIZE_MAX, build_batch

KEY = ProducerKey(3, 0, None)
PRODUCER = 9
"""The id of the one for what was born at the source; those of other origins follow."""
POSITIONS = TopicPartition("positions", 0)
TERMS = TransactionTerms(interval_ms=100, settle_ms=500)
SOURCES = (TopicPartition("flights", 0), TopicPartition("flights", 1))
FAULTS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)
MAYBE_WRITTEN = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def destinations_of(source: TopicPartition, lanes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("copy", source.partition * lanes + lane) for lane in range(lanes))


# ---- step by step

COMMIT = Commit(origins=frozenset({HOME}))


def adding(*destinations: TopicPartition) -> AddPartitions:
    return AddPartitions(places=frozenset((HOME, each) for each in destinations))


def writing(positions: dict[TopicPartition, LanePositions]) -> Write:
    return Write(positions={HOME: positions})


def identity_of(bucket: BucketTransaction, origin: int = HOME) -> ProducerIdentity:
    identity = bucket.identity(origin)
    assert identity is not None
    return identity


def one_partition(chunks: int, books: BucketBooks | None = None) -> tuple[BucketTransaction, FlowMachine]:
    """A bucket with one partition that has so many chunks to send."""
    bucket = BucketTransaction(KEY, ProducerIdentity(9, 4, "mirror/r/3"), POSITIONS, TERMS, 0, books)
    machine = FlowMachine(FlowConfig(), Hooks(admissions=(Gate(bucket),), remedies=bucket))
    source, (destination,) = SOURCES[0], destinations_of(SOURCES[0], 1)
    machine.set_leaders({destination: BrokerId(1)})
    machine.assign([Assignment(source=source, destinations=(destination,), bucket=3, position=0)])
    bucket.join(machine.partitions[source], (0,))
    machine.ready(0)
    machine.set_producer(KEY, identity_of(bucket))
    for offset in range(chunks):
        batch = build_batch(0, offset, 1)
        answer = FetchedPartition(source=source, offset=offset, records=batch, source_end=9)
        machine.fetched([answer], len(batch), 0)
    return bucket, machine


class Gate:
    """The bucket as an admission."""

    def __init__(self, bucket: BucketTransaction) -> None:
        self.bucket = bucket

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        return wanted

    def fetched(self, size: int, now_ms: int) -> None:
        pass

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        return self.bucket.admit(lane, chunk)

    def wake_at_ms(self, now_ms: int) -> int | None:
        return None


def answer(
    machine: FlowMachine, command: ProduceCommand, code: ErrorCode = ErrorCode.NONE, now_ms: int = 0
) -> None:
    machine.answered(command, {lane.destination: ProduceAnswer(code) for lane, _ in command.entries}, now_ms)


def opened(chunks: int = 1) -> tuple[BucketTransaction, FlowMachine, list[ProduceCommand]]:
    """With the first chunk on its way."""
    bucket, machine = one_partition(chunks)
    assert machine.ready(0).requests == []
    (destination,) = destinations_of(SOURCES[0], 1)
    assert bucket.next_step(0) == adding(destination, POSITIONS)
    assert bucket.next_step(0) is None
    bucket.done(0)
    return bucket, machine, machine.ready(0).requests


def test_nothing_is_sent_before_the_coordinator_knows_the_partition() -> None:
    _, _, requests = opened()
    assert [command.transactional_id for command in requests] == ["mirror/r/3"]


def test_a_transaction_is_committed_with_the_positions_that_it_leads_to() -> None:
    bucket, machine, (command,) = opened()
    assert bucket.next_step(99) is None
    assert bucket.next_step(100) == writing({SOURCES[0]: (1,)})
    bucket.done(100)
    assert bucket.next_step(100) is None, "the answer is not there"
    answer(machine, command)
    assert bucket.committed(SOURCES[0]) == (0,)
    assert bucket.next_step(101) == COMMIT
    bucket.done(101)
    assert (bucket.phase, bucket.committed(SOURCES[0])) == (Phase.IDLE, (1,))
    assert bucket.next_step(200) is None, "nothing moved"


def test_what_was_refused_and_is_not_there_is_taken_back_from_the_positions() -> None:
    bucket, machine, (command,) = opened()
    assert bucket.next_step(100) == writing({SOURCES[0]: (1,)})
    bucket.done(100)
    answer(machine, command, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert bucket.next_step(101) == writing({SOURCES[0]: (0,)})
    bucket.done(101)
    assert bucket.next_step(102) == COMMIT


def test_a_repeat_is_sent_while_the_transaction_closes_and_nothing_new_is() -> None:
    bucket, machine, (command,) = opened(chunks=3)
    assert isinstance(bucket.next_step(100), Write)
    bucket.done(100)
    answer(machine, command, ErrorCode.REQUEST_TIMED_OUT)
    assert bucket.next_step(101) is None, "it may be there"
    (repeat,) = machine.ready(200).requests
    assert [chunk for _, chunk in repeat.entries] == [chunk for _, chunk in command.entries]
    answer(machine, repeat)
    assert machine.ready(201).requests == []
    assert bucket.next_step(202) == COMMIT
    bucket.done(202)
    assert machine.ready(203).requests == []
    assert isinstance(bucket.next_step(203), AddPartitions)


def test_a_commit_over_a_long_way_is_put_off_while_more_waits() -> None:
    """First far more than is under way, then what was not fetched yet; as many pieces as are under way do not
    count.
    """
    bucket, machine = one_partition(12)
    source, (destination,) = SOURCES[0], destinations_of(SOURCES[0], 1)
    machine.heard_of_end(source, 12)
    machine.ready(0)
    assert bucket.next_step(0) == adding(destination, POSITIONS)
    bucket.done(20)
    (first,) = machine.ready(20).requests
    assert bucket.next_step(100) is None
    assert bucket.wake_at_ms() == 105
    answer(machine, first)
    sent = [first, *machine.ready(110).requests]
    machine.heard_of_end(source, 13)
    assert bucket.next_step(110) is None
    machine.heard_of_end(source, 12)
    assert bucket.next_step(120) == writing({source: (len(sent),)})


def test_a_batch_of_unknown_outcome_loses_the_bucket_after_a_while() -> None:
    bucket, machine, (command,) = opened()
    bucket.next_step(100)
    bucket.done(100)
    answer(machine, command, ErrorCode.REQUEST_TIMED_OUT)
    assert bucket.wake_at_ms() == 600
    assert bucket.next_step(600) is None
    assert bucket.is_lost
    assert not bucket.is_fenced


@pytest.mark.parametrize(
    ("code", "is_fenced"), [(ErrorCode.INVALID_PRODUCER_EPOCH, True), (ErrorCode.INVALID_TXN_STATE, False)]
)
def test_a_refusal_of_the_identity_loses_the_bucket(code: ErrorCode, is_fenced: bool) -> None:
    bucket, machine, (command,) = opened()
    answer(machine, command, code)
    assert (bucket.is_lost, bucket.is_fenced) == (True, is_fenced)
    assert bucket.next_step(1_000) is None


def test_a_batch_that_is_refused_for_good_pauses_its_lane_and_not_the_transaction() -> None:
    bucket, machine, (command,) = opened()
    answer(machine, command, ErrorCode.MESSAGE_TOO_LARGE)
    standing = standing_of(machine.partitions[SOURCES[0]])
    assert (standing.state, standing.reason) == ("halted", "refused")
    assert bucket.next_step(100) == COMMIT


def test_a_batch_that_may_be_there_and_cannot_be_repeated_loses_the_bucket() -> None:
    bucket, machine, (command,) = opened()
    answer(machine, command, ErrorCode.REQUEST_TIMED_OUT)
    (repeat,) = machine.ready(100).requests
    answer(machine, repeat, ErrorCode.MESSAGE_TOO_LARGE, 100)
    assert bucket.is_lost


def test_what_went_to_a_topic_that_was_made_anew_amid_a_transaction_is_not_committed() -> None:
    bucket, machine, (command,) = opened()
    (lane,) = machine.partitions[SOURCES[0]].lanes
    lane.written_at = 500
    machine.answered(command, {lane.destination: ProduceAnswer(ErrorCode.NONE, 0)}, 1)
    assert (machine.ready(1).refresh_leaders, lane.leader) == (True, None)
    assert bucket.next_step(100) is None
    assert bucket.is_lost


def test_a_partition_that_is_refused_by_the_coordinator_is_tried_in_the_next_transaction() -> None:
    bucket, machine = one_partition(1)
    machine.ready(0)
    bucket.next_step(0)
    (destination,) = destinations_of(SOURCES[0], 1)
    bucket.done(0, frozenset({(HOME, destination)}))
    assert machine.ready(0).requests == []
    assert bucket.next_step(0) is None
    assert bucket.next_step(100) == COMMIT
    bucket.done(100)
    machine.ready(101)
    assert bucket.next_step(101) == adding(destination, POSITIONS)


def test_positions_that_moved_without_records_are_committed_too() -> None:
    bucket, machine = one_partition(0)
    gap = out_of_range(SOURCES[0], 0, -1, SourceRange(start=7, end=9))
    assert gap is not None
    machine.go_on(gap)
    assert bucket.next_step(99) is None
    assert bucket.next_step(100) == adding(POSITIONS)
    bucket.done(100)
    assert bucket.next_step(150) == writing({SOURCES[0]: (7,)})


def test_no_position_is_stored_of_a_topic_that_was_made_anew_before_copying_goes_on_with_it() -> None:
    bucket, machine = one_partition(0)
    bucket.join(machine.partitions[SOURCES[0]], None)
    anew = recreated(SOURCES[0], 0, SourceRange(start=0, end=9), NO_TOPIC_ID)
    machine.halt(anew)
    assert bucket.next_step(100) is None
    assert bucket.has_stored(SOURCES)
    machine.go_on(anew)
    assert bucket.next_step(200) == adding(POSITIONS)
    bucket.done(200)
    assert bucket.next_step(300) == writing({SOURCES[0]: (0,)})


def test_a_partition_that_is_given_up_in_the_midst_loses_the_bucket_and_after_a_commit_not() -> None:
    bucket, machine, (command,) = opened()
    machine.stop(SOURCES)
    answer(machine, command)
    bucket.hurry()
    assert not bucket.has_stored(SOURCES)
    assert isinstance(bucket.next_step(1), Write)
    bucket.done(1)
    assert bucket.next_step(1) == COMMIT
    bucket.done(1)
    assert bucket.has_stored(SOURCES)
    bucket.leave(SOURCES[0])
    assert not bucket.is_lost
    other, _, _ = opened()
    other.leave(SOURCES[0])
    assert other.is_lost


def test_an_identity_that_was_used_in_a_partition_is_not_for_a_lane_that_begins_there() -> None:
    bucket, _, _ = opened()
    assert bucket.has_used(destinations_of(SOURCES[0], 1))
    assert not bucket.has_used(destinations_of(SOURCES[1], 1))


def test_a_transaction_takes_no_more_from_elsewhere_than_its_positions_can_tell_of() -> None:
    terms = replace(TERMS, passing_runs_max=3)
    bucket = BucketTransaction(KEY, ProducerIdentity(9, 4, "mirror/r/3"), POSITIONS, terms, 0)
    bucket.take_origin(1, ProducerIdentity(10, 0, "mirror/r/3/from:x"))
    machine = FlowMachine(FlowConfig(), Hooks(admissions=(Gate(bucket),), remedies=bucket))
    source, (destination,) = SOURCES[0], destinations_of(SOURCES[0], 1)
    machine.assign([Assignment(source=source, destinations=(destination,), bucket=3, position=0)])
    bucket.join(machine.partitions[source], (0,))
    (lane,) = machine.partitions[source].lanes

    def from_elsewhere(offset: int, runs: int) -> Chunk:
        made = tuple(SourceRun(offset + 2 * number, 1) for number in range(runs))
        return Chunk(
            records=bytearray(),
            batches=1,
            frame=Frame(0),
            first_offset=offset,
            next_offset=offset + 2 * runs,
            first_timestamp=0,
            max_timestamp=0,
            count=runs,
            size=0,
            origin=1,
            runs=made if runs > 1 else (),
        )

    bucket.admit(lane, from_elsewhere(0, 1))
    bucket.admit(lane, from_elsewhere(0, 1))
    step = bucket.next_step(0)
    assert isinstance(step, AddPartitions)
    bucket.done(0)
    assert bucket.next_step(0) is None
    assert [bucket.admit(lane, from_elsewhere(0, 2)) for _ in range(3)] == [True] * 3, "asked again"
    assert bucket.admit(lane, from_elsewhere(10, 1))
    assert not bucket.admit(lane, from_elsewhere(20, 1))
    bucket.next_step(0)
    assert bucket.phase is not Phase.OPEN, "it ends at once"


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_can_be_lost_and_nothing_comes_after(phase: Phase) -> None:
    assert phase is Phase.LOST or Phase.LOST in TRANSITIONS[phase]
    bucket, _ = one_partition(1)
    bucket.phase = phase
    bucket.lose("a test")
    assert bucket.is_lost
    assert bucket.next_step(10_000) is None
    assert bucket.wake_at_ms() is None


# ---- with books

BOOKS = TopicPartition("books", 0)


@dataclass
class KeptBooks:
    """Books that have one page."""

    standing: BooksStanding = BooksStanding.KEPT
    told: list[Mapping[TopicPartition, LanePositions]] = field(default_factory=list)
    is_settled: bool = False
    is_owed: bool = False

    @property
    def at(self) -> TopicPartition:
        return BOOKS

    def is_due(self, sources: Iterable[TopicPartition]) -> bool:
        return self.is_owed and SOURCES[0] in sources

    def due(self, positions: Mapping[TopicPartition, LanePositions]) -> tuple[Entry, ...]:
        self.told.append(positions)
        return (({"page": 1}, {}),)

    def settled(self) -> None:
        self.is_settled = True

    def refused(self) -> None:
        self.standing = BooksStanding.REFUSED


def test_books_are_written_once_all_is_settled_and_count_when_it_is_committed() -> None:
    books = KeptBooks()
    bucket, machine = one_partition(1, books)
    (destination,) = destinations_of(SOURCES[0], 1)
    machine.ready(0)
    assert bucket.next_step(0) == adding(destination, POSITIONS, BOOKS)
    bucket.done(0)
    (command,) = machine.ready(0).requests
    assert bucket.next_step(100) == writing({SOURCES[0]: (1,)})
    bucket.done(100)
    assert bucket.next_step(101) is None, "the answer says where the record is"
    assert books.told == []
    answer(machine, command)
    assert bucket.next_step(102) == Write(positions={}, entries=(({"page": 1}, {}),))
    bucket.done(102)
    assert books.told == [{SOURCES[0]: (1,)}]
    assert bucket.next_step(103) == COMMIT
    assert not books.is_settled
    bucket.done(103)
    assert books.is_settled


def test_no_transaction_is_begun_while_books_are_awaited() -> None:
    books = KeptBooks(BooksStanding.AWAITED)
    bucket, machine = one_partition(1, books)
    machine.ready(0)
    assert bucket.next_step(100) is None
    assert bucket.phase is Phase.IDLE
    books.standing = BooksStanding.KEPT
    machine.ready(101)
    assert isinstance(bucket.next_step(101), AddPartitions)


def test_where_books_may_not_be_written_it_goes_on_without() -> None:
    books = KeptBooks()
    bucket, machine = one_partition(1, books)
    machine.ready(0)
    bucket.next_step(0)
    bucket.done(0, frozenset({(HOME, BOOKS)}))
    (command,) = machine.ready(0).requests
    answer(machine, command)
    assert bucket.next_step(100) == writing({SOURCES[0]: (1,)})
    bucket.done(100)
    assert bucket.next_step(101) == COMMIT
    bucket.done(101)
    assert (books.told, books.is_settled) == ([], False)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_was_committed_without_books_is_written_once_they_may_be_though_nothing_more_comes(
    is_lost: bool,
) -> None:
    """Unless the source has lost it meanwhile: it would be written of the log in its place."""
    books = KeptBooks(BooksStanding.REFUSED)
    bucket, machine = one_partition(1, books)
    machine.ready(0)
    bucket.next_step(0)
    bucket.done(0)
    (command,) = machine.ready(0).requests
    answer(machine, command)
    assert bucket.next_step(100) == writing({SOURCES[0]: (1,)})
    bucket.done(100)
    assert bucket.next_step(101) == COMMIT
    bucket.done(101)
    books.is_owed = True
    assert bucket.next_step(1_000) is None, "they may not be written"
    books.standing = BooksStanding.KEPT
    assert bucket.next_step(2_000) == AddPartitions(places=frozenset({(HOME, POSITIONS), (HOME, BOOKS)}))
    bucket.done(2_000)
    if is_lost:
        lost = out_of_range(SOURCES[0], 1, -1, SourceRange(start=0, end=0))
        assert lost is not None
        machine.go_on(lost)
    assert bucket.next_step(2_001) == Write(positions={}, entries=(({"page": 1}, {}),))
    assert books.told == [{} if is_lost else {SOURCES[0]: (1,)}]
    if is_lost:
        return
    bucket.done(2_001)
    assert bucket.next_step(2_002) == COMMIT
    bucket.done(2_002)
    assert books.is_settled
    books.is_owed = False
    assert bucket.next_step(3_000) is None


# ---- against a destination


MEASURE = Measure(
    batch_bytes=SIZE_MAX, batch_bytes_max=SIZE_MAX, gather_bytes=SIZE_MAX, decoded_bytes_max=SIZE_MAX
)


class Scatter:
    """One lane: as it is. Several: record by record, by offset."""

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        lanes = partition.lanes
        if len(lanes) == 1:
            return take_in(answer.records, partition.position, config, frame, floors=partition.floors)
        intake = Intake(position=partition.position)
        assert config.origins is not None
        for position, header in iterate_batches(answer.records):
            try:
                origin = config.origins.origin_of(header)
            except OriginUnknownError:
                intake.awaits_origins = True
                break
            assert origin is not None
            batch = memoryview(answer.records)[position : position + header.size]
            records = read_records(batch, header, size_max=SIZE_MAX)
            floors = partition.floors(origin) or [partition.position] * len(lanes)
            for lane in lanes:
                wanted = [
                    record
                    for record in records
                    if record.offset % len(lanes) == lane.index and record.offset >= floors[lane.index]
                ]
                packer = Packer(MEASURE, intake.chunks, Aside().oversize, noted_lane=None)
                for record in wanted:
                    packer.add(lane.index, origin, Codec.NONE, record, 1.0)
                packer.settle()
            intake.position = header.next_offset
        return intake


@dataclass(frozen=True)
class OriginsByOffset:
    """Where batches have been, by their first offset."""

    known: Mapping[int, int]

    def origin_of(self, header: BatchHeader) -> int | None:
        return self.known[header.base_offset]


@dataclass
class Transaction:
    """What is open under one epoch."""

    added: set[TopicPartition] = field(default_factory=set)
    records: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    """Destination, source partition, source offset."""
    positions: dict[TopicPartition, LanePositions] = field(default_factory=dict)


class Coordinated:
    """One transactional id at the coordinator and all leaders: what is committed under the newest epoch
    counts.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.open: Transaction | None = None
        self.positions: dict[TopicPartition, LanePositions] = {}
        self.sequences: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)

    def initialize(self) -> int:
        """A new epoch: what is open is aborted, what was there before is refused."""
        self.epoch += 1
        self.open = None
        self.sequences.clear()
        return self.epoch


class Destination:
    """By origin what has an id of its own, and what readers of committed records see."""

    def __init__(self) -> None:
        self.of: dict[int, Coordinated] = defaultdict(Coordinated)
        self.records: list[tuple[TopicPartition, int, int]] = []
        self.commits = 0

    def take(self, epochs: dict[int, int], step: Step) -> bool:
        """False: refused, of some origin at least."""
        match step:
            case AddPartitions(places=places):
                return all(self._add(epochs, *place) for place in sorted(places))
            case Write(positions=positions):
                return all(self._write(epochs, *each) for each in positions.items())
            case Commit(origins=origins):
                return all(self._commit(epochs, origin) for origin in origins)

    def _add(self, epochs: dict[int, int], origin: int, partition: TopicPartition) -> bool:
        coordinated = self.of[origin]
        if epochs[origin] != coordinated.epoch:
            return False
        coordinated.open = coordinated.open or Transaction()
        coordinated.open.added.add(partition)
        return True

    def _write(
        self, epochs: dict[int, int], origin: int, positions: Mapping[TopicPartition, LanePositions]
    ) -> bool:
        coordinated = self.of[origin]
        if epochs[origin] != coordinated.epoch:
            return False
        assert coordinated.open is not None
        assert POSITIONS in coordinated.open.added
        coordinated.open.positions.update(positions)
        return True

    def _commit(self, epochs: dict[int, int], origin: int) -> bool:
        coordinated = self.of[origin]
        if epochs[origin] != coordinated.epoch:
            return False
        if coordinated.open is not None:  # else it is a repeat
            self.commits += 1
            self.records += coordinated.open.records
            coordinated.positions |= coordinated.open.positions
        coordinated.open = None
        return True

    def append(self, lane: Lane, chunk: Chunk) -> ErrorCode:
        ((position, header),) = iterate_batches(chunk.records)
        coordinated = self.of[header.producer_id - PRODUCER]
        if header.producer_epoch != coordinated.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        assert header.is_transactional
        assert coordinated.open is not None
        assert lane.destination in coordinated.open.added
        sequences = coordinated.sequences[lane.destination]
        own = (header.base_sequence, header.last_sequence)
        if own in sequences[-5:]:
            return ErrorCode.NONE
        if header.base_sequence != (next_sequence(sequences[-1][1], 1) if sequences else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        sequences.append(own)
        batch = memoryview(chunk.records)[position : position + header.size]
        for record in read_records(batch, header, size_max=SIZE_MAX):
            entry = (lane.destination, int(record.key or b""), int(record.value or b""))
            coordinated.open.records.append(entry)
        return ErrorCode.NONE


class Owner:
    """A process that has the bucket, or believes so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.epochs: dict[int, int] = {}
        self.bucket = BucketTransaction(KEY, self.initialize(HOME), POSITIONS, TERMS, world.now_ms)
        hooks = Hooks(
            admissions=(Gate(self.bucket),),
            transit=Scatter(),
            remedies=self.bucket,
            origins=FencedOrigins(self, self.is_ready),
        )
        self.machine = FlowMachine(FlowConfig(), hooks)
        self.wire: list[ProduceCommand] = []
        self.step: Step | None = None
        self.wanted: set[int] = set()
        for source in SOURCES:
            stored = world.destination.of[HOME].positions.get(source)
            lanes = stored or (0,) * world.lanes
            self.machine.assign(
                [
                    Assignment(
                        source=source,
                        destinations=destinations_of(source, world.lanes),
                        bucket=3,
                        position=min(lanes),
                        lane_positions=lanes,
                    )
                ]
            )
            self.bucket.join(self.machine.partitions[source], stored)
        self.machine.set_leaders(
            {each: BrokerId(0) for source in SOURCES for each in destinations_of(source, world.lanes)}
        )

    def initialize(self, origin: int) -> ProducerIdentity:
        epoch = self.epochs[origin] = self.world.destination.of[origin].initialize()
        return ProducerIdentity(PRODUCER + origin, epoch, f"mirror/r/3/{origin}")

    # ---- origins

    def of(self, partition: Partition) -> Origins:
        return OriginsByOffset(self.world.origins[partition.source])

    def is_ready(self, partition: Partition, origin: int) -> bool:
        if self.bucket.identity(origin) is None:
            self.wanted.add(origin)
            return False
        if origin not in partition.origin_floors:
            positions = self.world.destination.of[origin].positions
            partition.origin_floors[origin] = positions.get(partition.source, ())
        return True

    def take_origins(self) -> None:
        for origin in self.wanted:
            self.bucket.take_origin(origin, self.initialize(origin))
        self.wanted.clear()
        self.machine.take_origins()

    # ---- work

    def perform(self) -> None:
        if self.bucket.is_lost:
            return
        ready = self.machine.ready(self.world.now_ms)
        for key in ready.producers:
            self.machine.set_producer(key, identity_of(self.bucket, key.origin))
        self.wire += ready.requests
        self.step = self.step or self.bucket.next_step(self.world.now_ms)

    def fetch(self) -> None:
        plan = self.machine.plan_fetch(SOURCES, 1, self.world.now_ms)
        for wanted in plan.positions:
            source, offset = wanted.topic_partition, wanted.offset
            records = self.world.read(source, offset)
            end = self.world.ends[source]
            self.machine.fetched(
                [FetchedPartition(source=source, offset=offset, records=records, source_end=end)],
                len(records),
                self.world.now_ms,
            )

    def take_step(self, *, is_answered: bool) -> None:
        if self.step is None:
            return
        if not is_answered:  # and repeated, if its owner lives so long
            if isinstance(self.step, Commit):
                some = frozenset({self.world.random.choice(sorted(self.step.origins))})
                self.world.destination.take(self.epochs, Commit(origins=some))
            else:
                self.world.destination.take(self.epochs, self.step)
            return
        is_taken = self.world.destination.take(self.epochs, self.step)
        self.step = None
        if is_taken:
            self.bucket.done(self.world.now_ms)
        else:
            self.bucket.lose("fenced", is_fenced=True)

    def serve(self, fault: ErrorCode | None, *, is_written: bool) -> None:
        """The first request is answered."""
        if not self.wire:
            return
        command = self.wire.pop(0)
        answers = {}
        for lane, chunk in command.entries:
            code = fault or ErrorCode.NONE
            if fault is None or (is_written and fault in MAYBE_WRITTEN):
                told = self.world.destination.append(lane, chunk)
                code = told if fault is None else fault
            answers[lane.destination] = ProduceAnswer(code)
        self.machine.answered(command, answers, self.world.now_ms)


class World:
    """A source, a destination, the owner and those who were it before and do not know better."""

    def __init__(self, random: Random, lanes: int, born_elsewhere: int = 0) -> None:
        """`born_elsewhere`: how many origins there are beside the source."""
        self.random = random
        self.lanes = lanes
        self.born_elsewhere = born_elsewhere
        self.origins: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        """By source, the origin of each batch by its offset."""
        self.origin_at: dict[tuple[TopicPartition, int], int] = {}
        """The origin of each record."""
        self.checked = -1
        self.now_ms = 0
        self.destination = Destination()
        self.ends = dict.fromkeys(SOURCES, 0)
        self.batches: dict[TopicPartition, list[tuple[int, bytearray]]] = defaultdict(list)
        self.written: dict[TopicPartition, list[int]] = defaultdict(list)
        self.frozen: list[Owner] = []
        self.owner = Owner(self)

    def write(self) -> None:
        source, count = self.random.choice(SOURCES), self.random.randint(1, 3)
        end = self.ends[source]
        self.batches[source].append((end, build_batch(source.partition, end, count)))
        origin = self.origins[source][end] = self.random.randint(0, self.born_elsewhere)
        self.origin_at |= {(source, offset): origin for offset in range(end, end + count)}
        self.written[source] += range(end, end + count)
        self.ends[source] = end + count + self.random.choice([0, 0, 2])

    def read(self, source: TopicPartition, offset: int) -> bytearray:
        later = [batch for base, batch in self.batches[source] if base >= offset]
        return bytearray(b"".join(bytes(batch) for batch in later[: self.random.randint(1, 3)]))

    def replace_owner(self) -> None:
        """The bucket is taken over; the former owner is dead, or wakes up later."""
        if self.random.random() < 0.5:
            self.frozen.append(self.owner)
        self.owner = Owner(self)

    def step(self) -> None:
        random = self.random
        owner = random.choice([self.owner, self.owner, self.owner, *self.frozen])
        match random.randrange(12):
            case 0 | 1:
                self.write()
            case 2 | 3:
                owner.fetch()
            case 4 | 5 | 6:
                owner.serve(None, is_written=True)
            case 7 | 8:
                owner.take_step(is_answered=random.random() < 0.9)
            case 9:
                self.now_ms += random.choice([1, 50, 200, 2_000])
            case 10:
                owner.serve(random.choice(FAULTS), is_written=random.random() < 0.5)
            case 11:
                if random.random() < 0.15:
                    self.replace_owner()
                else:
                    owner.take_origins()
        if self.owner.bucket.is_lost:
            self.owner = Owner(self)
        owner.perform()
        self.check()

    def check(self) -> None:
        """What readers see is what the positions say, each record once, in the order of its lane as far as
        records of one origin are concerned.
        """
        if self.destination.commits == self.checked:
            return
        self.checked = self.destination.commits
        seen: dict[tuple[TopicPartition, int], list[int]] = defaultdict(list)
        sources = {source.partition: source for source in SOURCES}
        for to, partition, offset in self.destination.records:
            seen[to, self.origin_at[sources[partition], offset]].append(offset)
        for source in SOURCES:
            for lane, destination in enumerate(destinations_of(source, self.lanes)):
                for origin in range(self.born_elsewhere + 1):
                    until = max(self.position(HOME, source, lane), self.position(origin, source, lane))
                    wanted = [
                        offset
                        for offset in self.written[source]
                        if offset < until
                        and (self.lanes == 1 or offset % self.lanes == lane)
                        and self.origin_at[source, offset] == origin
                    ]
                    assert seen[destination, origin] == wanted, (source, lane, origin)

    def position(self, origin: int, source: TopicPartition, lane: int) -> int:
        return self.destination.of[origin].positions.get(source, (0,) * self.lanes)[lane]

    def finish(self) -> None:
        for _ in range(300):
            self.now_ms += 31_000
            owner = self.owner
            owner.perform()
            owner.fetch()
            owner.take_origins()
            owner.perform()
            while owner.wire:
                owner.serve(None, is_written=True)
                owner.perform()
            owner.take_step(is_answered=True)
            owner.perform()
            if self.owner.bucket.is_lost:
                self.owner = Owner(self)
            self.check()
        seen = sorted((partition, offset) for _, partition, offset in self.destination.records)
        assert seen == sorted(
            (source.partition, offset) for source in SOURCES for offset in self.written[source]
        )


@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 32), lanes=st.integers(1, 2), born_elsewhere=st.integers(0, 2))
@pytest.mark.long
def test_readers_of_committed_records_see_each_once_whoever_dies_or_wakes_up(
    seed: int, lanes: int, born_elsewhere: int
) -> None:
    world = World(Random(seed), lanes, born_elsewhere)
    for _ in range(300):
        world.step()
    world.finish()


@pytest.mark.parametrize("born_elsewhere", [0, 1])
@pytest.mark.parametrize("steps", range(60))
def test_an_owner_may_die_after_any_step(steps: int, born_elsewhere: int) -> None:
    world = World(Random(7), 1, born_elsewhere)
    for _ in range(4):
        world.write()
    for step in range(steps):
        owner = world.owner
        owner.fetch()
        owner.take_origins()
        owner.perform()
        if step % 2:
            owner.serve(None, is_written=True)
        else:
            owner.take_step(is_answered=True)
        world.now_ms += 20
        owner.perform()
        world.check()
    world.owner = Owner(world)
    world.check()
    world.finish()
