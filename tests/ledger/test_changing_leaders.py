"""The ledger of a copy, by requests of several batches, into a partition that others write, too, while its
leaders change in the middle of requests: on the logs that nodes have.
"""

from __future__ import annotations

from collections import deque
from random import Random

from broker.errors import ErrorCode, ProtocolError
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.books import ReadSoFar
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig, ProduceAnswer, ProduceCommand
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.recorder import LedgerRecorder
from mirrormaker.ledger.view import LedgerView
from tests.flow.test_machine import SourceLog
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, DiskAt, append, contents

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("all", 0)
LANE = LaneId("jfk", "flights", None, 0, "all", 0)
LEADER = BrokerId(0)
OTHERS = b"other"


class Replicas:
    """A leader, and the follower that takes its place when it fails."""

    def __init__(self) -> None:
        self._place = memory_place()
        self._count = 0
        self.epoch = 0
        self.leader, self.follower = self._new(), self._new()

    def _new(self) -> Log:
        self._count += 1
        return DiskAt(self._place.disk, self._place.path / str(self._count)).log(LogConfig())

    def replicate(self, size: int = 1 << 20) -> None:
        """The follower copies what it lacks, or only about so many bytes of it."""
        begin = self.follower.log_end_offset
        if begin < self.leader.log_end_offset:
            part = self.leader.read(begin, max_bytes=size, up_to=self.leader.log_end_offset)
            self.follower.append_as_follower(part.read())

    def fail_over(self) -> None:
        """What the follower lacks of the leader's log is gone."""
        self.leader, self.follower = self.follower, self._new()
        self.epoch += 1
        self.replicate()


class World:
    """A mirror of one partition; every step picks something that may happen next."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.replicas = Replicas()
        self.source = SourceLog()
        self.view = LedgerView()
        self.recorded = 0
        """Behind what the ledger has been written of."""
        self.wire: deque[ProduceCommand] = deque()
        self.producer_ids = 1000
        self.now_ms = 0
        self.begin()

    def begin(self) -> None:
        """A process begins where the ledger ends."""
        self.recorder = LedgerRecorder(str(self.producer_ids))
        config = FlowConfig(chunk_batches_max=4, fetch_partition_bytes=2_000)
        self.machine = FlowMachine(config, Hooks(on_copied=self.recorder.take))
        assignment = Assignment(
            source=SOURCE, destinations=(DESTINATION,), bucket=0, position=self.recorded, is_merged=True
        )
        self.machine.assign([assignment])
        partition = self.machine.partitions[SOURCE]
        self.recorder.begin(LANE, self.recorded, ReadSoFar(partition.epochs, partition.returned))
        self.machine.set_leaders({DESTINATION: LEADER})

    def perform(self) -> None:
        ready = self.machine.ready(self.now_ms)
        for key in ready.producers:
            self._give_identity(key)
        self.wire += ready.requests
        if ready.producers:
            self.perform()

    def _give_identity(self, key: ProducerKey) -> None:
        self.producer_ids += 1
        self.machine.set_producer(key, ProducerIdentity(self.producer_ids, 0))

    def fetch(self) -> None:
        for wanted in self.machine.plan_fetch([SOURCE], 1, self.now_ms).positions:
            records = self.source.read(wanted.offset, self.random.randint(1, 5))
            answer = FetchedPartition(
                source=SOURCE, offset=wanted.offset, records=records, source_end=self.source.end
            )
            self.machine.fetched([answer], len(records), self.now_ms)

    def append(self, command: ProduceCommand) -> ProduceAnswer:
        ((_, records),) = command.parts()
        try:
            found = self.replicas.leader.append(bytearray(records), self.replicas.epoch, now_ms=NOW_MS)
        except ProtocolError as error:
            return ProduceAnswer(error.code)
        return ProduceAnswer(ErrorCode.NONE, found.first_offset if found.first_offset >= 0 else None)

    def serve(self) -> None:
        """Answer the oldest request."""
        if self.wire:
            command = self.wire.popleft()
            answer = self.append(command)
            self.replicas.replicate()
            self.machine.answered(command, {DESTINATION: answer}, self.now_ms)

    def lose_answers(self) -> None:
        """Some of what is on the wire arrives, perhaps a part of the last; none of it is answered."""
        self.arrive_in_part()
        while self.wire:
            self.machine.failed(self.wire.popleft(), self.now_ms)

    def crash(self) -> None:
        """The process ends so."""
        self.arrive_in_part()
        self.wire.clear()
        self.begin()
        self.perform()

    def arrive_in_part(self) -> None:
        arrived = self.random.randint(0, len(self.wire))
        for index in range(arrived):
            self.append(self.wire[index])
            if index < arrived - 1 or self.random.random() < 0.3:
                self.replicas.replicate()
        self.replicas.replicate(self.random.randint(1, 500))
        if self.random.random() < 0.8:
            self.replicas.fail_over()
        self.replicas.replicate()

    def write_as_another(self) -> None:
        append(self.replicas.leader, *[OTHERS] * self.random.randint(1, 3), epoch=self.replicas.epoch)
        self.replicas.replicate()

    def write_ledger(self) -> None:
        self.recorded = self.machine.partitions[SOURCE].acknowledged
        self.recorder.advance({SOURCE: (self.recorded,)})
        due = self.recorder.due()
        for key, value in due.records:
            self.view.apply(encode_document(key), None if value is None else encode_document(value))
        self.recorder.settled(due)

    def step(self) -> None:
        match self.random.randrange(8):
            case 0 | 1:
                self.source.append(self.random.randint(1, 3))
            case 2:
                self.fetch()
            case 3:
                self.serve()
            case 4:
                self.write_ledger()
            case 5:
                self.lose_answers()
            case 6:
                self.write_as_another()
            case 7:
                self.now_ms += 5_000
        self.perform()

    def finish(self) -> None:
        for _ in range(200):
            self.now_ms += 10_000
            self.perform()
            self.fetch()
            self.perform()
            while self.wire:
                self.serve()
                self.perform()
            if self.machine.partitions[SOURCE].acknowledged == self.source.end:
                self.write_ledger()
                return
        raise AssertionError("stuck")

    def there(self) -> list[int | None]:
        """Source offsets of all records at the destination, None for those of others."""
        return [None if value == OTHERS else int(value) for _, value in contents(self.replicas.leader)]


def check(ledger: LaneLedger, there: list[int | None], end: int) -> int:
    """Whether the ledger tells where what is there is; how many offsets it only has a bound for."""
    bounds = 0
    for offset in range(end + 1):
        told = ledger.forward(offset)
        assert told.offset is not None
        bounds += not told.is_exact
        assert all(each is None or each < offset for each in there[: told.offset]), "some are missed"
        if told.is_exact:
            assert all(each is None or each >= offset for each in there[told.offset :]), "some come again"
    for at in range(len(there) + 1):
        told = ledger.back(at)
        if told.offset is None:
            continue
        assert all(each is None or each >= told.offset for each in there[at:]), "some are missed"
        if told.is_exact:
            assert all(each is None or each < told.offset for each in there[:at]), "some come again"
    return bounds


def test_what_the_ledger_says_is_so_whatever_part_of_a_request_a_new_leader_has() -> None:
    bounds = 0
    for seed in range(60):
        world = World(seed)
        for _ in range(80):
            world.step()
        world.finish()
        there = world.there()
        own = [each for each in there if each is not None]
        assert own == list(range(world.source.end)), seed
        if own:
            bounds += check(world.view.lanes[LANE], there, world.source.end)
    assert bounds


def test_translations_after_crashes_miss_nothing_either() -> None:
    for seed in range(60):
        world = World(seed)
        for number in range(80):
            if number % 20 == 19:
                world.crash()
            world.step()
        world.finish()
        there, ledger = world.there(), world.view.lanes.get(LANE, LaneLedger())
        for offset in range(world.source.end + 1):
            if (place := ledger.forward(offset).offset) is not None:
                assert {*range(offset, world.source.end)} <= {*there[place:]}, seed
        for place in range(len(there) + 1):
            if (reached := ledger.back(place).offset) is not None:
                assert {*range(reached)} <= {*there[:place]}, seed
