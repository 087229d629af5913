"""What a copier has of its group; what is around it is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from broker.client.epoch_ends import EpochEnd
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.offsets import Listed, OffsetAndTimestamp
from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow import lost_ends, partings
from mirrormaker.flow.at_least_once import AtLeastOnce
from mirrormaker.flow.books import EpochMark, Reached
from mirrormaker.flow.bucket_losses import LostBucket
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.group_positions import GroupPositions, StartingPoint
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.holdings import Holdings
from mirrormaker.flow.losses import Loss, LossNotes
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.standing import Standing
from mirrormaker.flow.trouble import WHOLE_TOPIC, Trouble, TroubleKind, refused
from tests.client.running import run, until
from tests.plan.worlds import route
from tests.storage.samples import ManualClock

SOURCE, OTHER = TopicPartition("flights", 0), TopicPartition("planes", 0)
HEARTBEATS = TopicPartition(HEARTBEATS_TOPIC, 0)


def ignore(*_: object, **__: object) -> None:
    pass


def surroundings(**arbiter: object) -> Any:
    return SimpleNamespace(
        machine=SimpleNamespace(partitions={}, assign=ignore, release=ignore),
        reader=SimpleNamespace(spread=ignore),
        writer=SimpleNamespace(look_up_leaders=ignore, pump=ignore),
        mode=SimpleNamespace(joined=ignore, leaving=ignore),
        crossing=SimpleNamespace(
            outgrown=ignore,
            led=ignore,
            assignment=lambda source: Assignment(source=source, destinations=(), bucket=0, position=0),
        ),
        arbiter=SimpleNamespace(
            **{"joined": ignore, "left": ignore, "stored": ignore, "refusal": ignore} | arbiter
        ),
    )


def holdings_of(
    engine: Any,
    member: Any,
    standing: Callable[[TopicPartition], object] = ignore,
    books: Any = None,
) -> Holdings:
    halts = SimpleNamespace(standing=standing)
    parts: Any = SimpleNamespace(books=books, halts=halts, events=SimpleNamespace(note=ignore))
    source: Any = SimpleNamespace(topics={})
    losses = LossNotes(route().name, source, ManualClock())
    holdings = Holdings(route(), source, engine, parts, ManualClock(), ignore, losses)
    holdings.begin(member, ["flights", "planes"])
    return holdings


def test_the_share_is_what_the_group_gave_last_also_while_nothing_of_it_is_copied() -> None:
    member: Any = SimpleNamespace(assignment=frozenset(), subscribe=ignore)
    holdings = holdings_of(surroundings(), member)
    assert holdings.share is None
    member.assignment = frozenset({SOURCE, OTHER})
    holdings.take((), {})
    member.assignment = frozenset()
    holdings.release([SOURCE, OTHER])
    assert holdings.share == {SOURCE, OTHER}
    holdings.set_topics(["flights"])
    assert holdings.share == {SOURCE}
    holdings.take((), {})
    assert holdings.share == frozenset()


def test_what_could_not_be_begun_is_news_again_once_it_was_begun() -> None:
    met: list[Trouble] = []
    passed: list[TopicPartition] = []
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE, OTHER}))
    holdings = holdings_of(surroundings(meet=met.append, passed=passed.append), member)
    trouble = refused(SOURCE, 3, ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "source")
    assert trouble is not None
    holdings._meet(trouble)
    holdings.take([OTHER], {OTHER: StartingPoint((0,))})
    assert (met, passed) == ([trouble], [])
    said = Standing(state="halted", reason="unauthorized", problem=trouble.problem)
    assert holdings.not_begun == {SOURCE: said}
    for _ in range(2):
        holdings.take([SOURCE], {SOURCE: StartingPoint((3,))})
    assert passed == [SOURCE]
    assert holdings.not_begun == {}


def test_a_transaction_that_is_not_ended_yet_hides_nothing_that_the_destination_refuses() -> None:
    full = refused(SOURCE, 3, ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR), "destination")
    assert full is not None
    refusals = {SOURCE: full}
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE, OTHER}))
    holdings = holdings_of(surroundings(refusal=refusals.get), member)
    error = ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS, "producer id")
    for source in (SOURCE, OTHER):
        holdings.not_taken(source, error)
    stands = Standing(state="halted", reason="destination_full", problem=full.problem)
    assert holdings.not_begun == {SOURCE: stands, OTHER: Standing(state="unreadable", problem=str(error))}


@pytest.mark.parametrize(
    ("stood", "met_first"),
    [
        ({}, TroubleKind.SOURCE_TRUNCATED),
        ({TopicPartition("flights", WHOLE_TOPIC): TroubleKind.TOPIC_DELETED}, TroubleKind.TOPIC_RECREATED),
        ({SOURCE: TroubleKind.TOPIC_RECREATED}, None),
    ],
)
def test_a_topic_that_is_another_one_has_not_lost_its_end_though_the_source_tells_no_ids(
    stood: Mapping[TopicPartition, TroubleKind], met_first: TroubleKind | None
) -> None:
    met: list[Trouble] = []
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
    engine = surroundings(meet=met.append, goes_on_behind=lambda *_: False)

    def standing(source: TopicPartition) -> object:
        return SimpleNamespace(kind=stood[source]) if source in stood else None

    books = SimpleNamespace(begin=ignore)
    begun = {SOURCE: SimpleNamespace(epochs=None, returned=None)}
    engine.machine.assign = lambda _: engine.machine.partitions.update(begun)
    holdings = holdings_of(engine, member, standing, books)
    holdings._successors.notice([SOURCE])
    holdings.take([SOURCE], {SOURCE: StartingPoint((0,), lost=(5, 150))})
    assert [trouble.kind for trouble in met] == ([] if met_first is None else [met_first])


def met_as_the_ledger_is_read(known: Reached, come_to: int) -> tuple[list[Trouble], FlowMachine]:
    """What is met of a partition that was begun at 100, and has come to an offset before the ledger says what
    is known of it.
    """

    async def reached(assignments: Collection[Assignment]) -> Mapping[TopicPartition, Reached]:
        return {each.source: known for each in assignments} if books.is_known else {}

    async def main() -> None:
        engine.machine = FlowMachine(FlowConfig())
        engine.crossing.assignment = lambda source: Assignment(
            source=source, destinations=(TopicPartition("jfk.flights", 0),), bucket=0, position=0
        )
        async with asyncio.TaskGroup() as tasks:
            engine.tasks = tasks
            holdings = holdings_of(engine, member, books=books)
            assert holdings._booked is not None
            wanted = [engine.crossing.assignment(SOURCE)]
            points = await holdings._booked.compared(wanted, {SOURCE: at}, holdings._positions.tell)
            holdings.take([SOURCE], points)
            assert met == []
            engine.machine.partitions[SOURCE].extend_to(come_to)
            books.is_known = True

    met: list[Trouble] = []
    at = StartingPoint((100,))
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
    engine = surroundings(meet=met.append, goes_on_behind=lambda *_: False)
    books: Any = SimpleNamespace(is_known=False, reached=reached, begin=ignore)
    run(main)
    return met, engine.machine


@pytest.mark.parametrize("end", [120, 150])
def test_what_a_source_lost_is_found_once_the_ledger_has_been_read_though_copying_began_before(
    monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    async def list_offsets_found(_: object, wanted: Mapping[TopicPartition, int], **__: object) -> Listed:
        return Listed({each: OffsetAndTimestamp(offset=end) for each in wanted}, {})

    monkeypatch.setattr(lost_ends, "list_offsets_found", list_offsets_found)
    monkeypatch.setattr(lost_ends, "NEW_LEADER_MS", 1)
    met, _ = met_as_the_ledger_is_read(Reached(150, None), come_to=100)
    assert [(each.kind, each.position, each.lost) for each in met] == (
        [(TroubleKind.SOURCE_TRUNCATED, 100, (120, 150))] if end == 120 else []
    )


def test_what_a_source_lost_is_found_though_copying_has_come_past_it_as_the_ledger_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def epoch_ends_found(_: object, wanted: Mapping[TopicPartition, int], **__: object) -> Listed:
        assert wanted == {SOURCE: 7}
        return Listed({SOURCE: EpochEnd(7, 120)}, {})

    monkeypatch.setattr(partings, "epoch_ends_found", epoch_ends_found)
    (trouble,), machine = met_as_the_ledger_is_read(Reached(150, EpochMark(150, 7)), come_to=130)
    assert (trouble.position, trouble.resume_at, trouble.lost) == (130, 130, (120, 150))
    assert "went back to 100" in trouble.problem
    machine.go_on(trouble)
    partition = machine.partitions[SOURCE]
    assert (partition.position, partition.lanes[0].position) == (130, 130)


def test_what_a_source_lost_is_told_once_where_the_ledger_was_read_before_copying_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could not be asked as the partition was to be begun first, which came to nothing."""

    async def list_offsets_found(_: object, wanted: Mapping[TopicPartition, int], **__: object) -> Listed:
        return Listed({each: OffsetAndTimestamp(offset=120) for each in wanted}, {})

    async def reached(assignments: Collection[Assignment]) -> Mapping[TopicPartition, Reached]:
        return {each.source: Reached(150, None) for each in assignments} if books.is_known else {}

    async def gone_on(_: object) -> Mapping[TopicPartition, object]:
        return {}

    async def main() -> None:
        booked = holdings_of(engine, member, books=books)._booked
        assert booked is not None
        wanted = [
            Assignment(source=SOURCE, destinations=(TopicPartition("jfk.flights", 0),), bucket=0, position=0)
        ]
        for books.is_known in (False, True):
            points = await booked.compared(wanted, {SOURCE: StartingPoint((100,))}, tell)
        booked.begin(points)

    async def tell(_: object) -> None:
        pass

    monkeypatch.setattr(lost_ends, "list_offsets_found", list_offsets_found)
    monkeypatch.setattr(lost_ends, "NEW_LEADER_MS", 1)
    met: list[Trouble] = []
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
    engine = surroundings(meet=met.append, goes_on_behind=lambda *_: False)
    engine.tasks = None
    books: Any = SimpleNamespace(is_known=False, reached=reached, gone_on=gone_on)
    run(main)
    assert [each.lost for each in met] == [(120, 150)]


def test_a_partition_that_is_anothers_now_is_none_that_could_not_be_begun() -> None:
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
    holdings = holdings_of(surroundings(), member)
    holdings._positions.not_started[SOURCE] = "no leader"
    assert holdings.not_begun == {SOURCE: Standing(state="unreadable", problem="no leader")}
    member.assignment = frozenset()
    assert holdings.not_begun == {}


def test_why_a_partition_is_not_taken_over_is_shown_also_while_that_is_tried_again() -> None:
    async def main() -> None:
        member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
        engine, asked, answers = surroundings(), asyncio.Event(), asyncio.Event()

        async def take_over(wanted: object) -> Mapping[TopicPartition, None]:
            asked.set()
            await answers.wait()
            return {}

        engine.crossing.make_ready = ready
        engine.mode.take_over = take_over
        holdings = holdings_of(engine, member)
        holdings.not_taken(SOURCE, ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "of the bucket"))
        said = holdings.not_begun
        assert "of the bucket" in (said[SOURCE].problem or "")
        preparing = asyncio.create_task(holdings.prepare([SOURCE]))
        await asked.wait()
        assert holdings.not_begun == said
        preparing.cancel()
        holdings._unread[SOURCE] = "not the right to read"
        assert holdings.not_begun != said
        holdings.release([SOURCE])
        assert holdings.not_begun == {}

    async def ready(topics: object) -> None: ...

    run(main)


def test_why_a_partition_was_not_begun_is_not_told_of_it_after_it_was_anothers() -> None:
    """It was given up while it was asked for where it goes on."""

    async def main() -> None:
        member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
        engine, asked, answers = surroundings(), asyncio.Event(), asyncio.Event()

        async def make_ready(topics: object) -> None:
            asked.set()
            await answers.wait()
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "of the topic")

        engine.crossing.make_ready = make_ready
        holdings = holdings_of(engine, member)
        starting = asyncio.create_task(holdings._start_later(holdings._attempts.make([SOURCE], 0)))
        await asked.wait()
        member.assignment = frozenset()
        holdings.release([SOURCE])
        answers.set()
        await starting
        member.assignment = frozenset({SOURCE})
        assert holdings.not_begun == {}

    run(main)


@pytest.mark.parametrize("waits_for", ["time", "the topic", "the bucket", "its position"])
def test_what_the_group_took_and_gave_back_is_begun_once_though_it_was_to_be_taken_over_again(
    monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    """A bucket was lost, and the group takes its partition away and gives it back before it is taken over
    anew: whoever waits for that begins nothing, and notes no loss of what is at work.
    """

    async def main() -> None:
        asked, answers = asyncio.Event(), asyncio.Event()
        waiting: list[str] = []
        taken: list[list[TopicPartition]] = []
        noted: list[Loss] = []
        engine, member = surroundings(), SimpleNamespace(assignment=frozenset({SOURCE}))
        engine.machine = FlowMachine(FlowConfig())
        engine.crossing.assignment = lambda source: Assignment(
            source=source, destinations=(TopicPartition("jfk.flights", 0),), bucket=0, position=0
        )

        async def wait(what: str) -> None:
            if what in waiting:
                waiting.remove(what)
                asked.set()
                await answers.wait()

        async def make_ready(topics: object) -> None:
            await wait("the topic")

        async def take_over(wanted: Collection[Assignment]) -> Mapping[TopicPartition, None]:
            taken.append([each.source for each in wanted])
            await wait("the bucket")
            return {each.source: None for each in wanted}

        async def go_on(
            self: object, known: Collection[TopicPartition]
        ) -> Mapping[TopicPartition, StartingPoint]:
            points = {source: StartingPoint((9 + len(noted),), "5") for source in known}
            await wait("its position")
            return points

        async def write(lost: Collection[Loss]) -> None:
            noted.extend(lost)

        monkeypatch.setattr(GroupPositions, "go_on", go_on)
        engine.crossing.make_ready, engine.mode.take_over = make_ready, take_over
        async with asyncio.TaskGroup() as engine.tasks:
            holdings = holdings_of(engine, member)
            losses: Any = SimpleNamespace(write=write)
            holdings._losses = losses
            holdings.take([SOURCE], await holdings.prepare([SOURCE]))
            waiting.append(waits_for)
            key, sources = ProducerKey(0, 0, None), frozenset({SOURCE})
            holdings.lose_bucket(
                LostBucket(key=key, sources=sources, reason="gone", is_fenced=False, wait_ms=1)
            )
            if waits_for != "time":
                await asked.wait()
            member.assignment = frozenset()
            holdings.release([SOURCE])
            member.assignment = frozenset({SOURCE})
            preparing = asyncio.create_task(holdings.prepare([SOURCE]))
            if waits_for == "the bucket":
                answers.set()
            holdings.take([SOURCE], await preparing)
            at_work = engine.machine.partitions[SOURCE]
            answers.set()
        assert engine.machine.partitions == {SOURCE: at_work}
        assert taken == [[SOURCE]] * (2 if waits_for in ("time", "the topic") else 3)
        assert noted == [Loss(SOURCE, 5, 9), Loss(SOURCE, 9, 10)]

    run(main)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT])
def test_where_it_cannot_be_noted_what_may_be_lost_that_is_shown_and_keeps_no_other_partition(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    async def main() -> None:
        monkeypatch.setattr(GroupPositions, "go_on", go_on)
        engine = surroundings()
        engine.crossing.make_ready = ready
        engine.mode.take_over = take_over
        holdings = holdings_of(engine, member)
        holdings._losses = losses
        for _ in range(2):
            assert (await holdings.prepare([SOURCE, OTHER])).keys() == {OTHER}
            (said,) = holdings.not_begun.values()
            assert said.problem == f"destination: what may have been lost is not noted: {refusals[0]}"
        refusals.clear()
        assert (await holdings.prepare([SOURCE, OTHER])).keys() == {SOURCE, OTHER}
        assert holdings.not_begun == {}

    async def ready(topics: object) -> None: ...

    async def take_over(wanted: Collection[Assignment]) -> Mapping[TopicPartition, None]:
        return {each.source: None for each in wanted}

    async def go_on(self: object, known: object) -> Mapping[TopicPartition, StartingPoint]:
        return {SOURCE: StartingPoint((9,), "5"), OTHER: StartingPoint((5,), "5")}

    async def write(lost: Collection[Loss]) -> None:
        assert lost == [Loss(SOURCE, 5, 9)]
        for refusal in refusals:
            raise refusal

    refusals = [ProtocolError(code, "no notes now")]
    losses: Any = SimpleNamespace(write=write)
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE, OTHER}))
    run(main)


def test_a_partition_shows_what_its_transactions_are_refused_for_while_its_bucket_is_lost() -> None:
    trouble = refused(SOURCE, 3, ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "destination")
    assert trouble is not None
    refusals = {SOURCE: trouble}
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE, OTHER}))
    engine = surroundings(refusal=refusals.get)
    engine.machine.counts = SimpleNamespace(buckets_lost=0)
    engine.tasks = SimpleNamespace(create_task=lambda task, name: task.close())
    holdings = holdings_of(engine, member)
    key, sources = ProducerKey(0, 0, None), frozenset({SOURCE, OTHER})
    holdings.lose_bucket(
        LostBucket(key=key, sources=sources, reason="may not write", is_fenced=False, wait_ms=1)
    )
    said = Standing(state="halted", reason="unauthorized", problem=trouble.problem)
    assert holdings.not_begun == {SOURCE: said}
    refusals.clear()
    assert holdings.not_begun == {}


@pytest.mark.parametrize(
    ("sources", "what"),
    [({SOURCE, OTHER, HEARTBEATS}, "2 partitions"), ({HEARTBEATS}, "heartbeats")],
)
def test_partitions_that_await_a_commit_are_counted_without_that_of_heartbeats_which_no_status_has(
    sources: set[TopicPartition], what: str
) -> None:
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE, OTHER, HEARTBEATS}))
    engine = surroundings()
    engine.machine.counts = SimpleNamespace(buckets_lost=0)
    engine.tasks = SimpleNamespace(create_task=lambda task, name: task.close())
    holdings = holdings_of(engine, member)
    lost = LostBucket(
        key=ProducerKey(0, 0, None),
        sources=frozenset(sources),
        reason="may not write",
        is_fenced=False,
        wait_ms=1,
        has_gone_on=lambda: False,
    )
    holdings.lose_bucket(lost)
    assert holdings.problem == f"transactions of {what} are not committed: may not write"


def test_a_bucket_that_is_lost_again_is_told_once_for_each_reason_until_it_is_committed() -> None:
    events: list[str] = []
    member: Any = SimpleNamespace(assignment=frozenset({SOURCE}))
    engine = surroundings()
    engine.machine.counts = SimpleNamespace(buckets_lost=0)
    engine.tasks = SimpleNamespace(create_task=lambda task, name: task.close())
    holdings = holdings_of(engine, member)
    holdings._note = lambda event, **details: events.append(f"{event}: {details['reason']}")
    keys = [ProducerKey(number, 0, None) for number in range(2)]
    for reason, is_again in [("a", False), ("a", True), ("b", True), ("b", True), ("b", False)]:
        for key in keys:
            sources = frozenset({SOURCE})
            holdings.lose_bucket(
                LostBucket(
                    key=key, sources=sources, reason=reason, is_fenced=False, wait_ms=1, is_again=is_again
                )
            )
    assert events == [f"transaction_given_up: {reason}" for reason in "aabbbb"]
    assert engine.machine.counts.buckets_lost == 10


@pytest.mark.parametrize("failures", [0, 1])
def test_positions_that_are_waited_for_together_are_stored_together(failures: int) -> None:
    """Somebody has released what many partitions stood for, and the source is far away. Those whose request
    fails wait for the next.
    """
    sources = [TopicPartition("flights", number) for number in range(20)]

    class Member:
        def __init__(self) -> None:
            self.assignment = frozenset(sources)
            self.asked: list[frozenset[TopicPartition]] = []
            self.answers = asyncio.Event()

        async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            assert all(position.offset == 6 for position in offsets.values())
            self.asked.append(frozenset(offsets))
            await self.answers.wait()
            if 1 < len(self.asked) <= 1 + failures:
                raise ProtocolError(ErrorCode.NOT_COORDINATOR, "of the group")

    async def main() -> None:
        engine, member = surroundings(), Member()
        engine.machine, engine.mode = FlowMachine(FlowConfig()), AtLeastOnce()
        engine.mode.begin(engine.machine, None, lambda source: NO_TOPIC_ID)
        engine.reader.ranges = SimpleNamespace(topic_id=lambda source: NO_TOPIC_ID)
        engine.reader.answers = SimpleNamespace(forget=ignore)
        holdings = holdings_of(engine, member)
        for source in sources:
            at = Assignment(source=source, destinations=(source,), bucket=0, position=5)
            engine.machine.assign([at])
            engine.machine.partitions[source].extend_to(6)
        storing = [asyncio.create_task(holdings.store(source)) for source in sources]
        await until(lambda: bool(member.asked))
        member.answers.set()
        await asyncio.gather(*storing)
        assert member.asked == [{sources[0]}, *(set(sources[1 + count :]) for count in range(1 + failures))]
        committed = [partition.committed for partition in engine.machine.partitions.values()]
        assert committed.count(5) == failures

    run(main)
