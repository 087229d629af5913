"""Every trouble under every policy: what the route does, and that it is told, counted and shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow import arbiter
from mirrormaker.flow.arbiter import Arbiter
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.courses import Course, course_of
from mirrormaker.flow.exchange import Assignment, FetchedPartition, FlowConfig, ProduceAnswer
from mirrormaker.flow.facts import (
    ObstacleMet,
    PartitionPaused,
    PartitionRecovered,
    SourceGap,
    SourceTruncated,
    TopicRecreated,
)
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.standing import Standing, standing_of
from mirrormaker.flow.trouble import (
    FULL_CODES,
    NO_POSITION,
    OBSTACLES,
    PASSING,
    UNAUTHORIZED_CODES,
    WHOLE_TOPIC,
    Trouble,
    TroubleKind,
    kind_of_refusal,
    policy_for,
    refused,
    went_back,
)
from mirrormaker.topology.model import (
    ClusterName,
    FailurePolicies,
    FailurePolicy,
    RecordErrorPolicy,
    RouteName,
    RouteSpec,
    TopicSelection,
)
from tests.flow.test_machine import SourceLog

SOURCE = TopicPartition("flights", 0)
DESTINATION = TopicPartition("jfk.flights", 0)
POSITION = 100
LASTING = frozenset(TroubleKind) - PASSING - OBSTACLES
POLICIES_THAT_HALT = {kind: {kind.value: FailurePolicy.PAUSE_PARTITION} for kind in LASTING}
WAITING_ALONE = frozenset({TroubleKind.UNAUTHORIZED, TroubleKind.DESTINATION_FULL})
"""Files that would skip for these are refused."""


def trouble_of(kind: TroubleKind) -> Trouble:
    resume_at = {
        TroubleKind.SOURCE_GAP: 150,
        TroubleKind.SOURCE_TRUNCATED: 90,
        TroubleKind.TOPIC_RECREATED: 0,
        **dict.fromkeys(OBSTACLES, POSITION + 1),
    }.get(kind, POSITION)
    return Trouble(
        kind=kind,
        source=SOURCE,
        position=POSITION,
        resume_at=resume_at,
        problem="so it is",
    )


def policies_of(kind: TroubleKind) -> Iterator[FailurePolicies]:
    """All that a file may say about it and that end at the arbiter."""
    if kind is TroubleKind.RECORD_ERROR:
        yield FailurePolicies(record_error=RecordErrorPolicy.FAIL)
        return
    for policy in FailurePolicy:
        if policy is FailurePolicy.SKIP_AND_RECORD and (kind in WAITING_ALONE or kind in OBSTACLES):
            continue
        yield FailurePolicies(**{kind.value: policy})


CASES = [(kind, policies) for kind in TroubleKind for policies in policies_of(kind)]


@dataclass
class Kept:
    """The halts of the route, as the control topic would have them."""

    halts: dict[TopicPartition, tuple[Trouble, bool]] = field(default_factory=dict)
    released: set[TopicPartition] = field(default_factory=set)
    on_take_back: Callable[[], None] = lambda: None
    """What happens while that is written."""

    def standing(self, source: TopicPartition) -> Trouble | None:
        return self.halts[source][0] if source in self.halts else None

    def is_released(self, trouble: Trouble) -> bool:
        stood = self.standing(trouble.source)
        return trouble.source in self.released and stood is not None and stood.is_same(trouble)

    async def tell(self, trouble: Trouble, *, stops_route: bool) -> None:
        self.halts[trouble.source] = (trouble, stops_route)
        self.released.discard(trouble.source)

    async def take_back(self, source: TopicPartition) -> None:
        self.on_take_back()
        self.halts.pop(source, None)


@dataclass
class Scene:
    """An arbiter at work on a machine that has one partition."""

    policies: FailurePolicies
    source: TopicPartition = SOURCE
    kept: Kept = field(default_factory=Kept)
    notes: list[Trouble] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    ends: int = 0
    stored: list[tuple[int, Trouble | None]] = field(default_factory=list)
    """Positions, with what the partition stood for when they were stored."""
    on_note: Callable[[], None] = lambda: None
    on_store: Callable[[], None] = lambda: None
    """What happens meanwhile."""
    is_copied: bool = True
    """What the topic is by now is to be copied."""
    start: int | None = None
    """Of the source's log now; None: it does not tell."""
    copied: list[Copied] = field(default_factory=list)
    """What books are told of."""

    def __post_init__(self) -> None:
        route = RouteSpec(
            name=RouteName("a"),
            source=ClusterName("jfk"),
            destination=ClusterName("aggregate"),
            topics=TopicSelection(include=("flights",)),
            on=self.policies,
        )
        self.machine = FlowMachine(FlowConfig(), Hooks(on_copied=self.copied.append))
        self._take(POSITION)
        assert self.machine.partitions[self.source].may_fetch(0)
        self.arbiter = Arbiter(
            route,
            self.kept,
            self,
            on_event=lambda name, **details: self.events.append(name),
            on_failure=self._end,
        )

    def _take(self, position: int) -> None:
        self.machine.assign(
            [Assignment(source=self.source, destinations=(DESTINATION,), bucket=0, position=position)]
        )
        self.machine.set_leaders({DESTINATION: BrokerId(1)})
        for key in self.machine.ready(0).producers:
            self.machine.set_producer(key, ProducerIdentity(producer_id=1, epoch=0))

    def leave_and_return(self, position: int, *, at_once_again: bool = False) -> None:
        """The partition was another's for a while."""
        self.machine.release([self.source])
        self.arbiter.left([self.source], at_once_again=at_once_again)
        self._take(position)

    async def write(self, trouble: Trouble, on_failure: Callable[[BrokerError], None]) -> None:
        """What is being noted as left out must not cross meanwhile."""
        assert trouble.kind in PASSING or not self.machine.partitions[self.source].may_fetch(0)
        self.notes.append(trouble)
        self.on_note()

    async def _store(self, source: TopicPartition) -> None:
        self.stored.append((self.position, self.kept.standing(source)))
        self.on_store()

    async def _is_copied_still(self, topic: str) -> bool:
        assert topic == self.source.topic
        return self.is_copied

    def _end(self) -> None:
        self.ends += 1

    def run(self, *steps: Callable[[], None]) -> None:
        """Each step, and what comes of it."""
        asyncio.run(self._run(steps))

    async def _run(self, steps: tuple[Callable[[], None], ...]) -> None:
        for step in steps:
            async with asyncio.TaskGroup() as tasks:
                self.begin(tasks)
                step()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        self.arbiter.begin(
            self.machine, tasks, lambda trouble: None, self._store, self._is_copied_still, self._find_start
        )

    async def _find_start(self, source: TopicPartition) -> int:
        assert source == self.source
        if self.start is None:
            raise ConnectionFailedError("no leader")
        return self.start

    @property
    def state(self) -> tuple[str, str | None]:
        standing = standing_of(self.machine.partitions[self.source])
        return standing.state, standing.reason

    @property
    def position(self) -> int:
        return self.machine.partitions[self.source].position


@pytest.mark.parametrize(("kind", "policies"), CASES)
def test_every_trouble_is_told_counted_and_shown_and_does_what_the_policy_says(
    kind: TroubleKind, policies: FailurePolicies
) -> None:
    scene, trouble = Scene(policies), trouble_of(kind)
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert "trouble_met" in scene.events
    assert scene.machine.counts.troubles == {kind: 1}
    course = course_of(kind, policy_for(kind, policies), is_released=False)
    assert (scene.arbiter.failure, scene.ends) == ((trouble, 1) if course is Course.STOP_ROUTE else (None, 0))
    assert scene.notes == ([trouble] if course is Course.LEAVE_OUT else [])
    told = course in (Course.STOP_ROUTE, Course.STAND, Course.STAND_AND_TRY)
    assert scene.kept.halts == ({SOURCE: (trouble, course is Course.STOP_ROUTE)} if told else {})
    if course is Course.LEAVE_OUT:
        assert scene.position == trouble.resume_at
    elif kind not in PASSING:  # of those the machine has told, and shows the state
        assert scene.state == ("halted", kind.value)
        assert scene.position == POSITION


@pytest.mark.parametrize(("kind", "policies"), CASES)
def test_heartbeats_go_on_whatever_the_policy_says_and_nothing_of_them_is_lost(
    kind: TroubleKind, policies: FailurePolicies
) -> None:
    beats = TopicPartition(HEARTBEATS_TOPIC, 0)
    scene, trouble = Scene(policies, beats), replace(trouble_of(kind), source=beats)
    scene.run(lambda: scene.arbiter.meet(trouble), scene.arbiter.look_again)
    assert (scene.arbiter.failure, scene.ends, scene.notes, scene.kept.halts) == (None, 0, [], {})
    assert scene.position == trouble.resume_at
    assert scene.state[0] != "halted"
    is_waited_for = kind in PASSING
    assert scene.events == (["trouble_met"] if is_waited_for else [])
    assert scene.machine.counts.troubles == ({kind: 1} if is_waited_for else {})
    assert scene.machine.counts.offsets_lost_at_source == 0
    told = {type(fact) for fact in scene.machine.ready(0).facts}
    assert told.isdisjoint({SourceGap, SourceTruncated, TopicRecreated})


def test_heartbeats_that_stood_before_go_on() -> None:
    beats = TopicPartition(HEARTBEATS_TOPIC, 0)
    trouble = replace(trouble_of(TroubleKind.SOURCE_GAP), source=beats)
    scene = Scene(FailurePolicies(source_gap=FailurePolicy.PAUSE_PARTITION), beats)
    scene.kept.halts[beats] = (trouble, False)
    scene.run(lambda: scene.arbiter.joined([beats]))
    assert (scene.position, scene.kept.halts, scene.notes) == (trouble.resume_at, {}, [])


@pytest.mark.parametrize(("kind", "policies"), CASES)
def test_what_is_released_is_noted_and_left_behind_and_its_halt_taken_back(
    kind: TroubleKind, policies: FailurePolicies
) -> None:
    scene, trouble = Scene(policies), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble, policy_for(kind, policies) is FailurePolicy.FAIL)
    scene.kept.released.add(SOURCE)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert scene.kept.halts == {}
    assert scene.arbiter.failure is None
    assert scene.notes == ([] if kind in PASSING else [trouble])
    assert scene.position == trouble.resume_at
    assert scene.state[0] != "halted"


@pytest.mark.parametrize("start", [None, 140, 170])
def test_what_the_source_deleted_while_a_partition_stood_for_a_gap_is_left_out_with_the_rest(
    start: int | None,
) -> None:
    met = trouble_of(TroubleKind.SOURCE_GAP)
    scene = Scene(FailurePolicies(source_gap=FailurePolicy.PAUSE_PARTITION), start=start)
    scene.run(lambda: scene.arbiter.meet(met))
    scene.kept.released.add(SOURCE)
    scene.run(scene.arbiter.look_again)
    (note,) = scene.notes
    assert (note.position, note.resume_at) == (POSITION, 170 if start == 170 else 150)
    assert (scene.position, scene.kept.halts) == (note.resume_at, {})
    assert scene.machine.counts.troubles == {TroubleKind.SOURCE_GAP: 1}


@pytest.mark.parametrize("kind", sorted(LASTING | OBSTACLES, key=lambda kind: kind.value))
def test_a_release_holds_until_the_position_behind_it_is_stored(kind: TroubleKind) -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert (scene.stored, scene.kept.halts) == ([(trouble.resume_at, trouble)], {})


@pytest.mark.parametrize("kind", sorted((LASTING | OBSTACLES), key=lambda kind: kind.value))
@pytest.mark.parametrize("when", ["on_note", "on_store"])
def test_a_release_holds_for_the_next_process_where_the_partition_is_given_up_before_it_was_stored(
    kind: TroubleKind, when: str
) -> None:
    def give_up() -> None:
        scene.machine.release([SOURCE])
        scene.arbiter.left([SOURCE])
        setattr(scene, when, lambda: None)

    scene, trouble = Scene(FailurePolicies()), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    setattr(scene, when, give_up)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert scene.kept.halts == {SOURCE: (trouble, False)}
    scene._take(POSITION)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert (scene.position, scene.kept.halts) == (trouble.resume_at, {})
    assert scene.state[0] != "halted"


def test_a_topic_that_was_made_anew_and_is_not_to_be_copied_as_it_is_does_not_go_on() -> None:
    skips = FailurePolicies(topic_recreated=FailurePolicy.SKIP_AND_RECORD)
    for is_copied in (False, True):
        scene = Scene(skips, is_copied=is_copied)
        trouble = trouble_of(TroubleKind.TOPIC_RECREATED)
        scene.run(lambda scene=scene, trouble=trouble: scene.arbiter.meet(trouble))  # type: ignore[misc]
        assert scene.machine.partitions[SOURCE].may_fetch(0) == is_copied
        assert (scene.position == trouble.resume_at, bool(scene.stored)) == (is_copied, is_copied)


def test_a_release_that_was_gone_by_is_taken_back_by_the_next_process() -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.TOPIC_RECREATED)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    scene.leave_and_return(0)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert (scene.position, scene.notes, scene.kept.halts) == (0, [], {})


def test_a_release_of_a_topic_that_was_made_anew_holds_wherever_the_next_process_meets_it() -> None:
    scene = Scene(FailurePolicies())
    trouble = replace(trouble_of(TroubleKind.TOPIC_RECREATED), topic_id="one")
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    scene.leave_and_return(0)
    met = replace(trouble, position=0)

    def begin() -> None:
        scene.arbiter.meet(met)
        scene.arbiter.joined([SOURCE])

    scene.run(begin)
    assert (scene.position, scene.notes, scene.kept.halts) == (0, [met], {})
    assert scene.state[0] != "halted"


@pytest.mark.parametrize("kind", sorted(OBSTACLES, key=lambda kind: kind.value))
def test_a_release_holds_where_the_next_process_begins_before_it(kind: TroubleKind) -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    scene.leave_and_return(POSITION - 10)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert (scene.notes, scene.kept.halts) == ([], {SOURCE: (trouble, False)})
    scene.leave_and_return(POSITION)
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert (scene.notes, scene.kept.halts) == ([trouble], {})


@pytest.mark.parametrize("comes_to", [POSITION - 10, POSITION, POSITION + 10])
def test_a_release_holds_though_the_partition_recovers_from_something_else_before_it(comes_to: int) -> None:
    """The facts of an answer are told once all that is in it has been taken in."""
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.OVERSIZE)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    scene.leave_and_return(POSITION - 10)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    scene.machine.partitions[SOURCE].extend_to(comes_to)
    scene.run(lambda: scene.arbiter.take_fact(PartitionRecovered(source=SOURCE, failures=1)))
    assert scene.kept.halts == {SOURCE: (trouble, False)}
    scene.machine.partitions[SOURCE].extend_to(POSITION)
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert (scene.notes, scene.kept.halts) == ([trouble], {})


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_partition_that_is_refused_something_before_an_obstacle_stands_in_front_of_it_on(
    code: ErrorCode,
) -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.OVERSIZE)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.leave_and_return(POSITION - 10)
    refusal = PartitionPaused(source=SOURCE, destination=DESTINATION, error=code, offset=POSITION - 10)
    recovered = PartitionRecovered(source=SOURCE, failures=1)
    scene.run(
        lambda: scene.arbiter.joined([SOURCE]),
        lambda: scene.arbiter.take_fact(refusal),
        lambda: scene.arbiter.take_fact(recovered),
    )
    assert scene.kept.halts == {SOURCE: (trouble, False)}
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert scene.kept.halts == {SOURCE: (trouble, False)}
    scene.kept.released.add(SOURCE)
    scene.run(scene.arbiter.look_again)
    assert (scene.notes, scene.kept.halts) == ([trouble], {})


def test_a_release_ends_once_the_position_behind_it_is_stored_though_it_was_not_met_again() -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.OVERSIZE)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.add(SOURCE)
    scene.leave_and_return(POSITION - 10)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    partition = scene.machine.partitions[SOURCE]
    partition.extend_to(POSITION + 10)
    before = (POSITION, POSITION + 10), (POSITION + 10, POSITION)  # stored before it is sent, at most once
    for stored, taken in (*before, (POSITION + 1, POSITION + 1)):
        assert scene.kept.halts == {SOURCE: (trouble, False)}
        partition.lanes[0].acknowledged = taken
        scene.machine.committed({SOURCE: stored})
        scene.run(scene.arbiter.stored)
    assert (scene.notes, scene.kept.halts) == ([], {})


@pytest.mark.parametrize("kind", sorted(LASTING, key=lambda kind: kind.value))
def test_a_partition_that_stood_stands_in_the_next_process_too(kind: TroubleKind) -> None:
    scene, trouble = Scene(FailurePolicies(**{kind.value: FailurePolicy.PAUSE_PARTITION})), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert scene.state == ("halted", kind.value)
    assert scene.kept.halts == {SOURCE: (trouble, False)}


@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize("how", ["begun_anew", "found_again", "never_missed"])
def test_a_topic_that_was_taken_for_deleted_stands_no_more_when_it_is_copied_again(
    is_other: bool, how: str
) -> None:
    """Which may be by a process that did not miss it: only another did, and has nothing of it now."""
    whole = TopicPartition(SOURCE.topic, WHOLE_TOPIC)
    deleted = replace(trouble_of(TroubleKind.TOPIC_DELETED), source=whole)
    scene = Scene(FailurePolicies())
    scene.kept.halts[whole] = (deleted, False)
    if is_other:
        scene.machine.halt(trouble_of(TroubleKind.TOPIC_RECREATED))
    ways: dict[str, Callable[[], None]] = {
        "begun_anew": lambda: scene.arbiter.joined([SOURCE]),
        "found_again": lambda: scene.arbiter.passed(whole),
        "never_missed": lambda: scene.arbiter.found(whole),
    }
    scene.run(ways[how])
    assert scene.kept.halts == ({whole: (deleted, False)} if is_other else {})


def test_a_topic_that_another_process_takes_for_deleted_stands_where_nothing_of_it_is_copied() -> None:
    whole = TopicPartition(SOURCE.topic, WHOLE_TOPIC)
    deleted = replace(trouble_of(TroubleKind.TOPIC_DELETED), source=whole)
    scene = Scene(FailurePolicies())
    scene.kept.halts[whole] = (deleted, False)
    scene.machine.release([SOURCE])
    scene.run(lambda: scene.arbiter.found(whole))
    assert scene.kept.halts == {whole: (deleted, False)}


@pytest.mark.parametrize("position", [80, 90])
def test_a_release_holds_where_the_position_went_back_with_what_the_source_lost(position: int) -> None:
    trouble = trouble_of(TroubleKind.SOURCE_TRUNCATED)
    scene = Scene(FailurePolicies(source_truncated=FailurePolicy.FAIL))
    scene.run(lambda: scene.arbiter.meet(trouble))
    scene.kept.released.add(SOURCE)
    scene.arbiter.failure = None  # at the route's next start
    scene.leave_and_return(position)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert scene.notes == [trouble]
    assert scene.position == position
    assert scene.state[0] != "halted"
    assert scene.kept.halts == {}


@pytest.mark.parametrize("is_answered", [True, False])
def test_what_is_on_its_way_arrives_before_a_route_goes_on_where_the_source_lost_its_end(
    monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """It is of the log that is gone: books that took it for the new one would have a route pass over what
    that has in its place. What the destination does not answer for long is not waited for, nor written down.
    """
    monkeypatch.setattr(arbiter, "SETTLE_TIMEOUT_MS", 30_000 if is_answered else 20)
    copied: list[Copied] = []
    scene = Scene(FailurePolicies(source_truncated=FailurePolicy.SKIP_AND_RECORD), copied=copied)
    machine, partition, log = scene.machine, scene.machine.partitions[SOURCE], SourceLog()
    log.append(POSITION)
    log.append(1)
    records = log.read(POSITION, 1)
    answer = FetchedPartition(source=SOURCE, offset=POSITION, records=records, source_end=log.end)
    machine.fetched([answer], len(records), 0)
    (command,) = machine.ready(0).requests
    trouble = replace(trouble_of(TroubleKind.SOURCE_TRUNCATED), position=partition.position)
    told = {DESTINATION: ProduceAnswer(ErrorCode.NONE, 7)}
    before: list[int] = []
    noted = asyncio.Event()
    scene.on_note = noted.set

    async def answer_late() -> None:
        await noted.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        before.append(partition.position)
        machine.answered(command, told, 0)
        scene.arbiter.acknowledged()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            scene.begin(tasks)
            scene.arbiter.meet(trouble)
            if is_answered:
                tasks.create_task(answer_late())

    asyncio.run(main())
    assert (partition.position, scene.notes) == (90, [trouble])
    if not is_answered:
        machine.answered(command, told, 0)
    assert before == [POSITION + 1] * is_answered
    assert [each.first for each in copied] == [POSITION] * is_answered
    assert partition.acknowledged == 90


@pytest.mark.parametrize("meets_it", [False, True])
def test_a_partition_that_comes_back_from_behind_what_the_source_lost_does_not_go_back_to_that(
    meets_it: bool,
) -> None:
    """Another process has gone on there while this one waited for what was on its way. What it meets as it
    comes back is seen to, though the same was met before.
    """
    scene = Scene(FailurePolicies(source_truncated=FailurePolicy.SKIP_AND_RECORD))
    machine, log = scene.machine, SourceLog()
    log.append(POSITION)
    log.append(1)
    records = log.read(POSITION, 1)
    answer = FetchedPartition(source=SOURCE, offset=POSITION, records=records, source_end=log.end)
    machine.fetched([answer], len(records), 0)
    assert machine.ready(0).requests
    trouble = replace(trouble_of(TroubleKind.SOURCE_TRUNCATED), position=POSITION + 1)
    settling = asyncio.Event()

    async def come_back() -> None:
        await settling.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        scene.leave_and_return(POSITION + 1 if meets_it else POSITION + 20)
        if meets_it:
            scene.arbiter.meet(trouble)

    async def main() -> None:
        async with asyncio.timeout(arbiter.SETTLE_TIMEOUT_MS / 2_000), asyncio.TaskGroup() as tasks:
            scene.begin(tasks)
            scene.on_note = settling.set
            scene.arbiter.meet(trouble)
            tasks.create_task(come_back())

    asyncio.run(main())
    if meets_it:
        assert (scene.position, len(scene.notes), len(scene.stored)) == (trouble.resume_at, 2, 1)
    else:
        assert (scene.position, scene.stored) == (POSITION + 20, [])


@pytest.mark.parametrize("kind", sorted(LASTING - {TroubleKind.TOPIC_DELETED}, key=lambda kind: kind.value))
@pytest.mark.parametrize("is_released", [False, True])
def test_a_partition_that_was_sent_elsewhere_stands_no_more(kind: TroubleKind, is_released: bool) -> None:
    scene, trouble = Scene(FailurePolicies()), replace(trouble_of(kind), position=POSITION - 50)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.kept.released.update({SOURCE} if is_released else ())
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert (scene.kept.halts, scene.notes, scene.position) == ({}, [], POSITION)
    assert scene.state[0] != "halted"


def test_what_a_partition_meets_as_it_begins_takes_the_place_of_what_passed_while_nobody_had_it() -> None:
    scene = Scene(FailurePolicies(unauthorized=FailurePolicy.FAIL))
    scene.kept.halts[SOURCE] = (trouble_of(TroubleKind.UNAUTHORIZED), True)
    met = went_back(SOURCE, POSITION, (POSITION + 10, POSITION + 50))

    def begin() -> None:
        scene.arbiter.meet(met)
        scene.arbiter.joined([SOURCE])

    scene.run(begin)
    assert scene.state == ("halted", "source_truncated")
    assert scene.kept.halts == {SOURCE: (met, False)}


@pytest.mark.parametrize("kind", sorted(OBSTACLES, key=lambda kind: kind.value))
def test_an_obstacle_of_before_is_tried_at_once_and_forgotten_when_it_has_passed(kind: TroubleKind) -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble, False)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert scene.state == ("halted", kind.value)
    assert scene.machine.counts.troubles == {}
    partition = scene.machine.partitions[SOURCE]
    assert partition.fetch_not_before_ms == 0
    partition.obstacle = partition.source_problem = None
    partition.extend_to(POSITION + 1)
    partition.lanes[0].acknowledged = POSITION + 1
    scene.machine.committed({SOURCE: POSITION + 1})
    scene.run(lambda: scene.arbiter.take_fact(PartitionRecovered(source=SOURCE, failures=1)))
    assert scene.kept.halts == {}


def test_an_obstacle_stands_once_however_often_it_is_met_and_goes_on_when_released() -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.OVERSIZE)
    fact = ObstacleMet(trouble=trouble)
    scene.run(lambda: scene.arbiter.take_fact(fact), lambda: scene.arbiter.take_fact(fact))
    assert scene.machine.counts.troubles == {TroubleKind.OVERSIZE: 1}
    assert scene.events == ["trouble_met"]
    scene.kept.released.add(SOURCE)
    scene.run(scene.arbiter.look_again)
    assert (scene.notes, scene.kept.halts, scene.position) == ([trouble], {}, POSITION + 1)
    assert scene.machine.counts.left_out == {TroubleKind.OVERSIZE: 1}


@pytest.mark.parametrize("policy", [FailurePolicy.FAIL, FailurePolicy.PAUSE_PARTITION])
@pytest.mark.parametrize("kind", [TroubleKind.OVERSIZE, TroubleKind.NOT_SHALLOW])
def test_an_obstacle_is_told_and_its_policy_heeded_where_something_else_is_wished_before_it_is_met(
    kind: TroubleKind, policy: FailurePolicy
) -> None:
    """The machine stands in front of it a moment before it tells of it."""
    scene, trouble = Scene(FailurePolicies(**{kind.value: policy})), trouble_of(kind)

    def meet() -> None:
        scene.machine.halt(trouble)
        scene.arbiter.look_again()
        scene.arbiter.take_fact(ObstacleMet(trouble=trouble))

    scene.run(meet)
    fails = policy is FailurePolicy.FAIL
    assert (scene.events, scene.machine.counts.troubles) == (["trouble_met"], {kind: 1})
    assert (scene.kept.halts, scene.ends) == ({SOURCE: (trouble, fails)}, int(fails))


@pytest.mark.parametrize("at_once_again", [False, True])
def test_what_was_released_while_the_partition_was_away_goes_on_when_it_is_back(at_once_again: bool) -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.OVERSIZE)
    scene.run(lambda: scene.arbiter.take_fact(ObstacleMet(trouble=trouble)))
    scene.leave_and_return(POSITION, at_once_again=at_once_again)
    scene.kept.released.add(SOURCE)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert (scene.notes, scene.kept.halts, scene.position) == ([trouble], {}, POSITION + 1)


def test_another_obstacle_than_before_the_partition_was_away_stands_too() -> None:
    scene, first = Scene(FailurePolicies()), trouble_of(TroubleKind.OVERSIZE)
    second = replace(first, position=POSITION + 50, resume_at=POSITION + 51)
    scene.run(lambda: scene.arbiter.take_fact(ObstacleMet(trouble=first)))
    scene.kept.halts.clear()
    scene.leave_and_return(second.position)
    scene.run(lambda: scene.arbiter.joined([SOURCE]), lambda: scene.arbiter.meet(second))
    assert scene.kept.halts == {SOURCE: (second, False)}
    assert scene.machine.counts.troubles == {TroubleKind.OVERSIZE: 2}


@pytest.mark.parametrize("kind", sorted(PASSING, key=lambda kind: kind.value))
def test_what_passed_while_the_partition_was_away_is_told_when_it_is_met_again(kind: TroubleKind) -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(kind)
    scene.run(lambda: scene.arbiter.meet(trouble))
    scene.leave_and_return(POSITION)
    assert scene.arbiter.refusal(SOURCE) is None
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert scene.events == ["trouble_met", "trouble_met"]


@pytest.mark.parametrize("kind", sorted(WAITING_ALONE, key=lambda kind: kind.value))
def test_a_refusal_is_told_once_and_shown_though_transactions_are_given_up_for_it_again_and_again(
    kind: TroubleKind,
) -> None:
    scene, codes = Scene(FailurePolicies()), UNAUTHORIZED_CODES | FULL_CODES
    code = min(code for code in codes if kind_of_refusal(code) is kind)
    paused = PartitionPaused(
        source=SOURCE, destination=DESTINATION, error=code, offset=POSITION, said="of what it keeps"
    )
    for _ in range(3):
        scene.run(lambda: scene.arbiter.take_fact(paused))
        scene.leave_and_return(POSITION, at_once_again=True)
        standing = standing_of(scene.machine.partitions[SOURCE], refusal=scene.arbiter.refusal(SOURCE))
        said = "destination: of what it keeps"
        assert standing == Standing(state="halted", reason=kind.value, problem=said)
    assert scene.events == ["trouble_met"]
    scene.run(lambda: scene.arbiter.take_fact(PartitionRecovered(source=SOURCE, failures=3)))
    assert scene.arbiter.refusal(SOURCE) is None


@pytest.mark.parametrize("kind", sorted(WAITING_ALONE, key=lambda kind: kind.value))
def test_what_a_destination_refuses_is_shown_on_when_its_source_has_recovered_from_something_else(
    kind: TroubleKind,
) -> None:
    scene, codes = Scene(FailurePolicies()), UNAUTHORIZED_CODES | FULL_CODES
    code = min(code for code in codes if kind_of_refusal(code) is kind)
    paused = PartitionPaused(source=SOURCE, destination=DESTINATION, error=code, offset=POSITION)
    scene.run(lambda: scene.arbiter.take_fact(paused))
    machine, empty = (
        scene.machine,
        FetchedPartition(source=SOURCE, offset=POSITION, records=bytearray(), source_end=POSITION),
    )
    machine.source_failed(SOURCE, ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR), 0)
    machine.fetched([empty], 0, 60_000)
    facts = machine.ready(60_000).facts
    assert PartitionRecovered in map(type, facts)
    for fact in (*facts, paused):
        scene.run(lambda fact=fact: scene.arbiter.take_fact(fact))
        standing = standing_of(machine.partitions[SOURCE], refusal=scene.arbiter.refusal(SOURCE))
        assert (standing.state, standing.reason) == ("halted", kind.value)
    assert scene.events == ["trouble_met"]


def test_a_right_at_the_source_that_is_back_when_a_lost_bucket_is_taken_over_again_halts_nothing() -> None:
    """The partition is begun anew, and nothing tells that it recovered: it has not failed."""
    scene = Scene(FailurePolicies())
    trouble = refused(SOURCE, POSITION, ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "source")
    assert trouble is not None
    for _ in range(2):
        scene.run(lambda: scene.arbiter.meet(trouble))
        scene.leave_and_return(POSITION, at_once_again=True)
        standing = standing_of(scene.machine.partitions[SOURCE], refusal=scene.arbiter.refusal(SOURCE))
        assert standing.state != "halted"
    assert scene.events == ["trouble_met"] * 2


def test_what_befalls_a_topic_as_a_whole_is_told_again_once_it_had_passed() -> None:
    scene = Scene(FailurePolicies(partition_mismatch=FailurePolicy.PAUSE_PARTITION))
    topic = TopicPartition(SOURCE.topic, WHOLE_TOPIC)
    trouble = replace(trouble_of(TroubleKind.PARTITION_MISMATCH), source=topic)
    for passes in (False, True):
        scene.run(lambda: scene.arbiter.meet(trouble))
        if passes:
            scene.arbiter.passed(topic)
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert scene.events == ["trouble_met", "trouble_met"]


@pytest.mark.parametrize("kind", sorted(LASTING | OBSTACLES, key=lambda kind: kind.value))
def test_a_halt_whose_record_is_gone_is_written_again_while_the_partition_stands(kind: TroubleKind) -> None:
    scene, trouble = Scene(FailurePolicies(**POLICIES_THAT_HALT.get(kind, {}))), trouble_of(kind)
    scene.run(lambda: scene.arbiter.meet(trouble))
    scene.kept.halts.clear()
    scene.run(scene.arbiter.look_again)
    assert scene.kept.halts == {SOURCE: (trouble, False)}
    assert scene.machine.counts.troubles == {kind: 1}


@pytest.mark.parametrize("policy", [FailurePolicy.PAUSE_PARTITION, FailurePolicy.FAIL])
def test_an_obstacle_met_while_the_one_before_is_left_behind_stands_too(policy: FailurePolicy) -> None:
    scene, first = Scene(FailurePolicies(oversize=policy)), trouble_of(TroubleKind.OVERSIZE)
    second = replace(first, position=POSITION + 3, resume_at=POSITION + 4)
    scene.kept.halts[SOURCE] = (first, False)
    scene.kept.released.add(SOURCE)

    def meet_second() -> None:
        scene.machine.halt(second)
        scene.arbiter.take_fact(ObstacleMet(trouble=second))

    scene.kept.on_take_back = meet_second
    scene.run(lambda: scene.arbiter.meet(first))
    assert scene.notes == [first]
    assert scene.kept.halts == {SOURCE: (second, policy is FailurePolicy.FAIL)}
    assert scene.machine.counts.troubles == {TroubleKind.OVERSIZE: 2}
    assert scene.events == ["trouble_met", "trouble_met"]


@pytest.mark.parametrize("kind", sorted(LASTING, key=lambda kind: kind.value))
def test_what_is_met_while_a_halt_is_taken_back_is_seen_to_afterwards(kind: TroubleKind) -> None:
    policies = FailurePolicies(**{kind.value: FailurePolicy.PAUSE_PARTITION})
    scene, trouble = Scene(policies), trouble_of(kind)
    scene.kept.halts[SOURCE] = (trouble_of(TroubleKind.UNAUTHORIZED), False)
    scene.kept.on_take_back = lambda: scene.arbiter.meet(trouble)
    scene.run(lambda: scene.arbiter.joined([SOURCE]))
    assert scene.kept.halts == {SOURCE: (trouble, False)}
    assert scene.state == ("halted", kind.value)


def test_a_release_is_of_one_record_alone() -> None:
    scene, trouble = Scene(FailurePolicies()), trouble_of(TroubleKind.RECORD_ERROR)
    scene.kept.halts[SOURCE] = (replace(trouble, position=50, resume_at=51), False)
    scene.kept.released.add(SOURCE)
    scene.run(lambda: scene.arbiter.meet(trouble))
    assert (scene.notes, scene.position) == ([], POSITION)
    assert scene.kept.halts == {SOURCE: (trouble, False)}


@pytest.mark.parametrize("code", ErrorCode)
def test_refusals_of_the_source_are_halts_where_a_policy_is_about_them(code: ErrorCode) -> None:
    scene = Scene(FailurePolicies())
    scene.machine.source_failed(SOURCE, ProtocolError(code), 0)
    unauthorized = kind_of_refusal(code) is TroubleKind.UNAUTHORIZED
    assert scene.state == (("halted", "unauthorized") if unauthorized else ("unreadable", None))


def test_what_is_met_once_the_route_fails_is_left_to_its_next_start() -> None:
    scene = Scene(FailurePolicies(partition_mismatch=FailurePolicy.FAIL))
    first, second = (
        Trouble(
            kind=TroubleKind.PARTITION_MISMATCH,
            source=TopicPartition(topic, WHOLE_TOPIC),
            position=NO_POSITION,
            resume_at=NO_POSITION,
            problem="too few",
        )
        for topic in ("flights", "planes")
    )
    scene.run(lambda: scene.arbiter.meet(first))
    scene.arbiter.meet(second)  # the route's tasks are over
    assert (scene.arbiter.failure, scene.ends) == (first, 1)
    assert scene.kept.halts.keys() == {first.source}
