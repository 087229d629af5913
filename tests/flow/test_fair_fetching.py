"""Under a limit topics are fetched in the ratio in which they are to be sent, whatever their partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from broker.errors import ErrorCode
from broker.records.batch import Codec, rebase
from broker.records.builder import BatchBuilder
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.bandwidth.link import DANGER_WEIGHT, LinkBandwidth, RouteTerms
from mirrormaker.flow.chunk import Frame
from mirrormaker.flow.exchange import (
    Assignment,
    FetchedPartition,
    FetchPlan,
    FlowConfig,
    ProduceAnswer,
    ProduceCommand,
)
from mirrormaker.flow.fetcher import SESSION_PARTITIONS_MIN, stand_back
from mirrormaker.flow.hooks import Hooks, Passage, Transit
from mirrormaker.flow.intake import Intake, IntakeConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.producers import ProducerIdentity

TICK_MS = 10
LIMIT = 1_000_000


def batch_of(size: int) -> bytes:
    builder = BatchBuilder(Codec.NONE, size_max=1 << 20)
    builder.append(0, b"key", b"v" * (size - 80))
    return bytes(builder.build())


BATCH = batch_of(10_000)


@dataclass
class Log:
    """A partition of the source; every batch is one record."""

    rate: float
    """Bytes a second that are produced into it."""
    produced: float = 0.0

    @property
    def end(self) -> int:
        return int(self.produced / len(BATCH))

    def read(self, offset: int, bytes_max: int) -> bytearray:
        """Whole batches."""
        records = bytearray()
        for base in range(offset, min(self.end, offset + bytes_max // len(BATCH))):
            batch = bytearray(BATCH)
            rebase(batch, 0, base, 0)
            records += batch
        return records


@dataclass
class Loop:
    """A fetch loop and its broker, which has a session for it."""

    sources: list[TopicPartition]
    session: list[TopicPartition] = field(default_factory=list)
    """In the order in which the broker serves them."""
    answer: list[FetchedPartition] | None = None
    comes_at_ms: int = 0
    is_contended: bool = False


@dataclass
class Simulation:
    """A machine with a limit between a source, read by one or more loops, and a destination."""

    logs: dict[TopicPartition, Log]
    loops_count: int = 1
    terms: RouteTerms = field(default_factory=lambda: RouteTerms(limit=LIMIT))
    source_ms: int = 10
    destination_ms: int = 10
    transit: Transit = field(default_factory=Passage)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.route = LinkBandwidth(0).join("r", self.terms, lambda: None)
        self.route.change(self.terms, 0)
        hooks = Hooks(pace=self.route, transit=self.transit)
        self.machine = FlowMachine(FlowConfig(produce_bytes=LIMIT // 10), hooks)
        self.machine.assign(
            Assignment(source=source, destinations=(source,), bucket=0, position=0) for source in self.logs
        )
        self.machine.set_leaders(dict.fromkeys(self.logs, BrokerId(0)))
        self.loops = [Loop(list(self.logs)[number :: self.loops_count]) for number in range(self.loops_count)]
        for loop in self.loops:
            loop.session = list(loop.sources)
        self.under_way: deque[tuple[int, ProduceCommand]] = deque()
        self.held_max = 0

    def run(self, until_ms: int) -> None:
        for now_ms in range(self.now_ms, until_ms, TICK_MS):
            self.now_ms = now_ms
            for log in self.logs.values():
                log.produced += log.rate * TICK_MS / 1000
            for loop in self.loops:
                self.fetch(loop)
            self.send()
            self.held_max = max(self.held_max, self.machine.buffered_bytes)

    def fetch(self, loop: Loop) -> None:
        if loop.answer is not None and loop.comes_at_ms <= self.now_ms:
            size = sum(len(part.records) for part in loop.answer)
            assert self.machine.fetched(loop.answer, size, self.now_ms) is None
            served = {part.source for part in loop.answer if part.records}
            stand_back(loop.sources, served, by_topic=loop.is_contended)
            stand_back(loop.session, served, by_topic=False)
            loop.answer = None
        if loop.answer is None:
            plan = self.machine.plan_fetch(loop.sources, self.loops_count, self.now_ms)
            if plan.positions:
                loop.answer, loop.is_contended = self.answer_to(plan, loop), plan.is_contended
                loop.comes_at_ms = self.now_ms + self.source_ms

    def answer_to(self, plan: FetchPlan, loop: Loop) -> list[FetchedPartition]:
        """As brokers fill it: in the order asked, or of the session, and with a batch at least."""
        positions = {position.topic_partition: position for position in plan.positions}
        order: Sequence[TopicPartition] = list(positions)
        if len(positions) >= SESSION_PARTITIONS_MIN and not plan.is_contended:
            order = [source for source in loop.session if source in positions]
        left, parts, is_empty = plan.answer_bytes, [], True
        for source in order:
            position, log = positions[source], self.logs[source]
            bytes_max = min(position.max_bytes, left)
            records = log.read(position.offset, max(bytes_max, len(BATCH)) if is_empty else bytes_max)
            is_empty = is_empty and not records
            left = max(left - len(records), 0)
            part = FetchedPartition(
                source=source, offset=position.offset, records=records, source_end=log.end
            )
            parts.append(part)
        return parts

    def send(self) -> None:
        while self.under_way and self.under_way[0][0] <= self.now_ms:
            _, command = self.under_way.popleft()
            answers = {lane.destination: ProduceAnswer(ErrorCode.NONE) for lane, _ in command.entries}
            self.machine.answered(command, answers, self.now_ms)
        ready = self.machine.ready(self.now_ms)
        for key in ready.producers:
            self.machine.set_producer(key, ProducerIdentity(1, 0))
        for command in ready.requests:
            self.under_way.append((self.now_ms + self.destination_ms, command))

    def copied(self, topic: str) -> int:
        """Bytes of a topic that arrived."""
        partitions = self.machine.partitions.values()
        return sum(each.copied_bytes for each in partitions if each.source.topic == topic)

    def lacking_ms(self, source: TopicPartition) -> float:
        """How long ago what comes next of a partition was produced."""
        log = self.logs[source]
        return (log.produced - self.machine.partitions[source].copied_bytes) * 1000 / log.rate


def logs_of(**topics: tuple[int, float]) -> dict[TopicPartition, Log]:
    """Partitions and the rate of each, by topic."""
    return {
        TopicPartition(topic, number): Log(rate)
        for topic, (partitions, rate) in topics.items()
        for number in range(partitions)
    }


@pytest.mark.parametrize("loops_count", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_quiet_topic_has_what_it_needs_beside_one_of_many_partitions(loops_count: int) -> None:
    """Its half of the limit is more than what is produced into it."""
    simulation = Simulation(
        logs_of(noisy=(40, 3 * LIMIT / 40), quiet=(1, 0.3 * LIMIT)), loops_count=loops_count
    )
    simulation.run(30_000)
    assert simulation.lacking_ms(TopicPartition("quiet", 0)) < 500
    assert simulation.copied("quiet") + simulation.copied("noisy") > 0.98 * LIMIT * 30


@pytest.mark.parametrize("loops_count", [pytest.param(1, marks=pytest.mark.long), 3])
def test_topics_that_want_more_get_as_much_as_each_other(loops_count: int) -> None:
    simulation = Simulation(logs_of(noisy=(40, LIMIT / 10), quiet=(1, 0.6 * LIMIT)), loops_count=loops_count)
    simulation.run(30_000)
    assert abs(simulation.copied("quiet") - simulation.copied("noisy")) < 0.05 * LIMIT * 30
    assert simulation.copied("quiet") + simulation.copied("noisy") > 0.98 * LIMIT * 30


def test_among_many_topics_it_does_not_matter_who_has_more_partitions() -> None:
    many: dict[str, tuple[int, float]] = {f"noisy-{number}": (10, LIMIT / 100) for number in range(12)}
    simulation = Simulation(logs_of(**many, quiet=(1, 0.06 * LIMIT)))
    simulation.run(20_000)
    assert simulation.lacking_ms(TopicPartition("quiet", 0)) < 4_000


@pytest.mark.parametrize(
    ("source_ms", "destination_ms"), [pytest.param(10, 10, marks=pytest.mark.long), (150, 100)]
)
def test_a_topic_that_is_alone_has_all_of_the_limit(source_ms: int, destination_ms: int) -> None:
    terms = RouteTerms(limit=LIMIT, ahead_ms=500 + 2 * (source_ms + destination_ms))
    logs = logs_of(noisy=(40, LIMIT / 10), idle=(3, 1.0))
    simulation = Simulation(logs, terms=terms, source_ms=source_ms, destination_ms=destination_ms)
    simulation.run(20_000)
    assert simulation.copied("noisy") > 0.97 * LIMIT * 20


@pytest.mark.parametrize("loops_count", [pytest.param(1, marks=pytest.mark.long), 3])
def test_what_is_in_danger_is_fetched_as_it_is_sent(loops_count: int) -> None:
    terms = RouteTerms(limit=LIMIT, is_in_danger=lambda partition: partition.source.topic == "endangered")
    logs = logs_of(endangered=(3, LIMIT), usual=(40, LIMIT / 10))
    simulation = Simulation(logs, loops_count=loops_count, terms=terms)
    simulation.run(30_000)
    assert simulation.copied("endangered") > 0.9 * DANGER_WEIGHT * simulation.copied("usual")
    assert simulation.copied("usual") > 0.15 * LIMIT * 30


class Dropping(Passage):
    """Leaves the topic `dropped` out."""

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        intake = super().take(partition, answer, config, frame)
        return Intake(position=intake.position) if partition.source.topic == "dropped" else intake


@pytest.mark.parametrize("partitions", [pytest.param(3, marks=pytest.mark.long), 6])
def test_a_topic_that_is_left_out_keeps_nothing_from_the_others(partitions: int) -> None:
    """What is not sent uses nothing of the limit."""
    logs = logs_of(dropped=(partitions, 100 * LIMIT), kept=(partitions, 0.3 * LIMIT / partitions))
    simulation = Simulation(logs, transit=Dropping())
    simulation.run(10_000)
    assert simulation.copied("kept") > 0.25 * LIMIT * 10


def test_many_topics_are_not_fetched_further_ahead_than_few() -> None:
    """Each brings a whole batch, however little it is asked for."""
    many: dict[str, tuple[int, float]] = {f"topic-{number}": (1, LIMIT / 20) for number in range(200)}
    simulation = Simulation(logs_of(**many), loops_count=3)
    simulation.run(3_000)
    ahead = LIMIT / 2
    assert simulation.held_max < 3 * ahead


def test_topics_of_which_somewhat_came_stand_back_together() -> None:
    sources = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]
    stand_back(sources, {TopicPartition("a", 1)}, by_topic=True)
    assert [f"{topic}{number}" for topic, number in sources] == ["b0", "b1", "b2", "a0", "a2", "a1"]
