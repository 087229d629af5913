"""Taking over what a route copies exactly once; the destination is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from broker.clock import SystemClock
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow import exactly_once, passing_origins
from mirrormaker.flow.bucket_losses import LostBucket
from mirrormaker.flow.bucket_transaction import BucketTransaction
from mirrormaker.flow.delivery import KnownStart
from mirrormaker.flow.exactly_once import ExactlyOnce
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.facts import Fact, PartitionPaused, PartitionRecovered
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.owned_bucket import OwnedBucket
from mirrormaker.flow.passing_origins import PassingOrigins
from mirrormaker.flow.positions import POSITIONS_AT, Place, SourceId, value_of
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.transaction_steps import LanePositions, TransactionTerms
from mirrormaker.flow.trouble import SourceRange, Trouble, out_of_range, refused
from mirrormaker.topology.model import PartitionPolicy
from mirrormaker.topology.shared_positions import PositionOwners
from tests.client.running import run, until
from tests.plan.worlds import route as a_route

SOURCE, COPY = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
ELSEWHERE = 1
"""An origin."""


def lost_behind(end: int) -> Trouble:
    trouble = out_of_range(SOURCE, 110, -1, SourceRange(start=0, end=end))
    assert trouble is not None
    return trouble


class Kept:
    """The topic of positions, which says this of the partition."""

    def __init__(self, value: dict[str, object]) -> None:
        source = SourceId(cluster_id="jfk", topic_id=NO_TOPIC_ID, partition=SOURCE, to=COPY.topic)
        self.key, self._value = source.key(), value

    async def read_to_end(self) -> None:
        pass

    def get(self, key: dict[str, object]) -> dict[str, object] | None:
        return self._value if key == self.key else None

    def entries(self) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
        yield self.key, self._value


def work_of(value: Mapping[str, object]) -> Any:
    return SimpleNamespace(
        route=SimpleNamespace(name="mine"),
        source=SimpleNamespace(cluster_id="jfk", topics={}),
        destination=None,
        clock=None,
        kept=Kept(dict(value)),
        lane="transactions",
        deliverer=SimpleNamespace(
            on_lost=None,
            on_not_taken=lambda *_: None,
            on_progress=lambda: None,
            on_fact=None,
            find_refusal=lambda _: None,
        ),
        books=None,
        provenance=None,
        find_owners=lambda: PositionOwners(a_route()),
    )


@pytest.mark.parametrize(("route", "stored"), [("mine", (7,)), ("as it was named before", None)])
def test_a_position_that_another_name_is_written_by_is_gone_on_from_and_written_again(
    route: str, stored: LanePositions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[Place | None] = []
    transaction = SimpleNamespace(sources=frozenset())
    bucket: Any = SimpleNamespace(
        join=lambda partition, place: joined.append(place),
        transaction=transaction,
        work=SimpleNamespace(set=lambda: None),
    )

    async def fence(mode: ExactlyOnce, key: ProducerKey) -> None:
        mode._buckets[key] = bucket

    monkeypatch.setattr(exactly_once.ExactlyOnce, "_fence", fence)
    work = work_of(value_of(route, Place((7,))))
    lane = SimpleNamespace(acknowledged=7)
    machine: Any = SimpleNamespace(partitions={SOURCE: SimpleNamespace(source=SOURCE, lanes=(lane,))})
    ignored: Any = None

    async def main() -> None:
        mode = ExactlyOnce(work)
        mode.begin(machine, ignored, ignored)
        found = await mode.take_over([Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=0)])
        place = found[SOURCE]
        assert isinstance(place, Place)
        assert place.lanes == (7,)
        mode.joined([SOURCE])

    run(main)
    assert [None if place is None else place.lanes for place in joined] == [stored]


def test_why_a_bucket_is_not_taken_over_is_logged_once_until_it_is_or_the_reason_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, then = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE
    codes = [first, first, then, then, None, first]

    async def fence(mode: ExactlyOnce, key: ProducerKey) -> None:
        if (code := codes.pop(0)) is not None:
            raise ProtocolError(code, "refused")

    monkeypatch.setattr(exactly_once.ExactlyOnce, "_fence", fence)
    ignored: Any = None

    async def main() -> None:
        mode = ExactlyOnce(work_of({}))
        mode.begin(ignored, ignored, ignored)
        while codes:
            await mode.take_over([Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=0)])

    with capture_logs() as logs:
        run(main)
    told = [each["error"].split(":")[0] for each in logs if each["event"] == "bucket_not_taken_over"]
    assert told == [first.name, then.name, first.name]


def test_why_a_bucket_is_not_taken_over_is_logged_again_once_its_partitions_were_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fence(mode: ExactlyOnce, key: ProducerKey) -> None:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "refused")

    monkeypatch.setattr(exactly_once.ExactlyOnce, "_fence", fence)
    ignored: Any = None

    async def main() -> None:
        mode = ExactlyOnce(work_of({}))
        mode.begin(ignored, ignored, ignored)
        for _ in range(2):
            for _ in range(2):
                await mode.take_over([Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=0)])
            mode.leaving([SOURCE])

    with capture_logs() as logs:
        run(main)
    assert [each["event"] for each in logs] == ["bucket_not_taken_over"] * 2


class Taking:
    """One partition is copied, and another is being taken over, of another bucket or of the same."""

    OTHER, TO = TopicPartition("planes", 0), TopicPartition("jfk.planes", 0)

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        same_bucket: bool = False,
        value: Mapping[str, object] = value_of("mine", Place((0,))),
    ) -> None:
        """`value`: what the topic of positions says of what is copied."""
        self.not_taken: list[tuple[TopicPartition, BrokerError]] = []
        self.fenced: list[ProducerKey] = []
        self.can_fence, self.can_read = asyncio.Event(), asyncio.Event()
        self.fences, self.reads = asyncio.Event(), asyncio.Event()
        self.same_bucket = same_bucket
        work = work_of(value)
        work.deliverer.on_lost = lambda lost: self.mode.leaving(lost.sources)
        work.deliverer.on_not_taken = lambda source, error: self.not_taken.append((source, error))
        work.kept.read_to_end = self._read
        monkeypatch.setattr(ExactlyOnce, "_fence", lambda mode, key: self._fence(key))
        self.mode = ExactlyOnce(work)

    async def _fence(self, key: ProducerKey) -> None:
        self.fenced.append(key)
        self.fences.set()
        await self.can_fence.wait()
        identity, terms = ProducerIdentity(1, 0), TransactionTerms(interval_ms=1_000)
        transaction = BucketTransaction(key, identity, POSITIONS_AT, terms, 0)
        bucket = SimpleNamespace(key=key, transaction=transaction, work=Signal(), task=None)
        bucket.join = lambda partition, stored: transaction.join(partition, None)
        self.mode._buckets[key] = cast(Any, bucket)

    async def _read(self) -> None:
        self.reads.set()
        await self.can_read.wait()

    async def begin(self) -> asyncio.Task[Mapping[TopicPartition, KnownStart | None]]:
        """What the taking over of the other ends with."""
        self.machine = FlowMachine(FlowConfig())
        self.mode.begin(self.machine, cast(Any, None), lambda _: NO_TOPIC_ID)
        self.can_fence.set()
        self.can_read.set()
        copied = Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=0)
        await self.mode.take_over([copied])
        self.machine.assign([copied])
        self.mode.joined([SOURCE])
        for event in (self.can_fence, self.can_read, self.fences, self.reads):
            event.clear()
        bucket = 0 if self.same_bucket else 1
        return asyncio.create_task(
            self.mode.take_over(
                [Assignment(source=self.OTHER, destinations=(self.TO,), bucket=bucket, position=0)]
            )
        )

    def lose(self) -> None:
        """The bucket of what is copied."""
        bucket = self.mode._buckets[ProducerKey(0, 0, None)]
        bucket.transaction.lose("no answer")
        self.mode._give_back(bucket)


def test_that_a_bucket_is_taken_over_is_logged_once_until_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, identity = ProducerKey(0, 0, None), ProducerIdentity(1, 0, "mirror/mine/0")

    async def open_(bucket: OwnedBucket) -> ProducerIdentity:
        bucket.transaction = BucketTransaction(
            key, identity, POSITIONS_AT, TransactionTerms(interval_ms=1_000), 0
        )
        return identity

    monkeypatch.setattr(OwnedBucket, "open", open_)

    async def main() -> None:
        work = work_of(value_of("mine", Place((0,))))
        work.clock, work.deliverer.on_lost = SystemClock(), lambda _: None
        mode = ExactlyOnce(work)
        async with asyncio.TaskGroup() as tasks:
            mode.begin(FlowMachine(FlowConfig()), tasks, lambda _: NO_TOPIC_ID)
            for _ in range(3):
                await mode._fence(key)
                mode._buckets[key].transaction.lose("may not write")
                await until(lambda: key not in mode._buckets)
            mode._losses.end(key)
            await mode._fence(key)
            mode._let_go()

    with capture_logs() as logs:
        run(main)
    assert [each["event"] for each in logs].count("bucket_taken_over") == 2


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_bucket_that_is_lost_or_given_up_takes_none_along_that_is_being_taken_over(
    monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    async def main() -> None:
        scene = Taking(monkeypatch)
        taking = await scene.begin()
        scene.can_fence.set()
        await scene.reads.wait()
        if is_lost:
            scene.lose()
        else:
            scene.mode.leaving([SOURCE])
        scene.can_read.set()
        assert await taking == {scene.OTHER: None}
        assert (list(scene.mode._buckets), scene.not_taken) == ([ProducerKey(1, 0, None)], [])
        assert len(scene.fenced) == 2

    run(main)


def test_a_position_that_is_none_keeps_only_its_partition_from_being_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        scene = Taking(monkeypatch, value={"route": "mine", "position": "7"})
        scene.mode.begin(FlowMachine(FlowConfig()), cast(Any, None), lambda _: NO_TOPIC_ID)
        scene.can_fence.set()
        scene.can_read.set()
        odd = Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=0)
        other = Assignment(source=scene.OTHER, destinations=(scene.TO,), bucket=0, position=0)
        for _ in range(2):
            assert await scene.mode.take_over([odd, other]) == {scene.OTHER: None}
        assert len(scene.fenced) == 1
        assert [source for source, _ in scene.not_taken] == [SOURCE, SOURCE]
        said = str(scene.not_taken[0][1])
        assert "__mirrormaker_positions" in said
        assert '"topic":"flights"' in said
        assert "position '7' is no offset" in said

    run(main)


def test_what_is_not_taken_over_as_its_bucket_was_lost_meanwhile_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        scene = Taking(monkeypatch, same_bucket=True)
        taking = await scene.begin()
        await scene.reads.wait()
        scene.lose()
        scene.can_read.set()
        assert await taking == {}
        ((source, error),) = scene.not_taken
        assert (source, "lost meanwhile" in str(error)) == (scene.OTHER, True)

    run(main)


@pytest.mark.parametrize("begun", ["fences", "reads"])
def test_a_bucket_whose_partitions_are_given_up_while_it_is_taken_over_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    """It may be another process's: were they given back, the bucket would have to be taken over again."""

    async def main() -> None:
        scene = Taking(monkeypatch)
        taking = await scene.begin()
        if begun == "reads":
            scene.can_fence.set()
        await getattr(scene, begun).wait()
        scene.mode.leaving([scene.OTHER])
        scene.can_fence.set()
        scene.can_read.set()
        assert await taking == {}
        assert (list(scene.mode._buckets), scene.not_taken) == ([ProducerKey(0, 0, None)], [])
        assert scene.mode._joining == {}

    run(main)


class Refusing:
    """A bucket of these partitions, with what their lanes were refused with last; and what is told."""

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode | None]) -> None:
        self.facts: list[Fact] = []
        self.known: dict[TopicPartition, Trouble] = {}
        """By an arbiter; the machine has told of what lanes were refused with."""
        for source, error in errors.items():
            if error is not None:
                self._know(source, error)
        self.stored: dict[TopicPartition, LanePositions] = dict.fromkeys(errors, (0,))
        self.key = ProducerKey(0, 0, None)
        self.lanes: dict[TopicPartition, Any] = {
            source: SimpleNamespace(destination=COPY, refused_with=error, key_of=lambda _: self.key)
            for source, error in errors.items()
        }
        self.partitions: dict[TopicPartition, Any] = {
            source: SimpleNamespace(source=source, lanes=(lane,), committed=0, trouble=None, origin_floors={})
            for source, lane in self.lanes.items()
        }
        self.work = work_of({})
        self.work.provenance = SimpleNamespace(been=lambda _: ("lhr",))
        deliverer = self.work.deliverer
        deliverer.on_lost = lambda lost: self.mode.leaving(lost.sources)
        deliverer.on_fact, deliverer.find_refusal = self._take, self.known.get
        self.mode = ExactlyOnce(self.work)
        self.begin(cast(Any, None))

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        machine = cast(Any, SimpleNamespace(partitions=self.partitions, take_origins=lambda: None))
        self.mode.begin(machine, tasks, lambda _: NO_TOPIC_ID)

    def _take(self, fact: Fact) -> None:
        self.facts.append(fact)
        if isinstance(fact, PartitionPaused):
            self._know(fact.source, fact.error)
        elif isinstance(fact, PartitionRecovered):
            del self.known[fact.source]

    def _know(self, source: TopicPartition, error: ErrorCode) -> None:
        trouble = refused(source, 0, ProtocolError(error), "destination")
        assert trouble is not None
        self.known[source] = trouble

    def _bucket(self, lost_with: ErrorCode | None) -> Any:
        transaction = SimpleNamespace(
            key=self.key,
            sources=frozenset(self.lanes),
            lost_with=lost_with,
            lost_because="so it is",
            is_fenced=False,
            is_lost=lost_with is not None,
            identity=lambda _: None,
            leave=lambda _: None,
            committed=self.stored.get,
        )
        work: Any = SimpleNamespace(set=lambda: None)
        return SimpleNamespace(
            transaction=transaction, key=self.key, work=work, task=None, logs_gone=lambda _: 0
        )

    def take(self, fence: Callable[[int], Awaitable[ProducerIdentity]]) -> Any:
        """A bucket; `fence` is asked for what comes from elsewhere."""
        bucket = self.mode._buckets[self.key] = self._bucket(None)
        bucket.fence, identities = fence, dict[int, ProducerIdentity]()
        bucket.transaction.identity, bucket.transaction.take_origin = identities.get, identities.__setitem__
        return bucket

    def meet(self, source: TopicPartition) -> bool:
        """Something of it that comes from elsewhere is next; whether that may be taken in."""
        assert self.mode._passing is not None
        return self.mode._passing.is_ready(self.partitions[source], ELSEWHERE)

    def lose(self, code: ErrorCode) -> None:
        bucket = self.mode._buckets[self.key] = self._bucket(code)
        self.mode._give_back(bucket)

    def commit(self) -> None:
        self.mode._have_gone_on(self.mode._buckets.setdefault(self.key, self._bucket(None)))


def test_what_was_refused_is_over_once_it_is_committed_though_the_bucket_was_lost_meanwhile() -> None:
    """Lanes that refused something are gone with the bucket, of which others may commit before that comes
    again; another partition of it was taken all along, and one is refused still.
    """
    other, still = (TopicPartition("flights", number) for number in (1, 2))
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene = Refusing({SOURCE: refused, other: None, still: refused})
    scene.lose(ErrorCode.NOT_COORDINATOR)
    assert scene.facts == []
    scene.lanes[SOURCE].refused_with = None
    scene.commit()
    assert scene.facts == []
    scene.lose(ErrorCode.NOT_COORDINATOR)
    scene.stored[SOURCE] = (1,)
    scene.commit()
    assert scene.facts == [PartitionRecovered(source=SOURCE, failures=1)]
    for _ in range(2):
        scene.lose(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [fact.source for fact in scene.facts[1:]] == [SOURCE, other, still]
    scene.commit()
    assert scene.facts[4:] == [PartitionRecovered(source=each, failures=2) for each in (SOURCE, other)]


def test_a_bucket_that_is_lost_again_before_anything_was_committed_says_so() -> None:
    scene, lost = Refusing({SOURCE: None}), list[LostBucket]()
    scene.work.deliverer.on_lost = lost.append
    for is_committed in (False, True, False, False):
        scene.lose(ErrorCode.NOT_COORDINATOR)
        if is_committed:
            scene.commit()
    assert [each.is_again for each in lost] == [False, True, False, True]


def test_what_was_refused_is_waited_for_though_the_bucket_is_lost_again_before_it_is_copied() -> None:
    scene = Refusing({SOURCE: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    scene.lose(ErrorCode.NOT_COORDINATOR)
    scene.lanes[SOURCE].refused_with = None
    scene.mode._joining[SOURCE] = scene.key, None
    scene.mode.joined([SOURCE])
    scene.commit()
    assert scene.facts == []
    scene.stored[SOURCE] = (1,)
    scene.commit()
    assert scene.facts == [PartitionRecovered(source=SOURCE, failures=0)]


def test_a_refusal_is_told_again_once_nobody_knows_of_it_or_it_is_another() -> None:
    """The partition was another process's, or could not be begun, or its source failed and recovered."""
    scene, full = Refusing({SOURCE: None}), ErrorCode.KAFKA_STORAGE_ERROR
    for is_forgotten in (False, True, False):
        scene.lose(full)
        if is_forgotten:
            scene.known.clear()
    scene.lose(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    told = [fact.error for fact in scene.facts if isinstance(fact, PartitionPaused)]
    assert told == [full, full, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


def test_a_right_that_is_missing_for_records_from_elsewhere_is_told_of_what_waits_for_them_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each reason is logged once. What has nothing to do with it commits meanwhile."""
    monkeypatch.setattr(passing_origins, "RETRY_MS", 0)
    other = TopicPartition("flights", 1)
    lacking, passing = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE
    codes = [lacking, lacking, passing, lacking, None]
    scene = Refusing({SOURCE: None, other: None})

    async def fence(origin: int) -> ProducerIdentity:
        assert origin == ELSEWHERE
        assert list(scene.known) == ([] if len(codes) == 5 else [SOURCE])
        scene.commit()
        if (code := codes.pop(0)) is not None:
            raise ProtocolError(code, "mirror/mine/0/lhr")
        return ProducerIdentity(1, 0)

    async def main() -> None:
        scene.take(fence)
        async with asyncio.TaskGroup() as tasks:
            scene.begin(tasks)
            assert not scene.meet(SOURCE)
        assert scene.meet(SOURCE)
        assert scene.meet(other)

    with capture_logs() as logs:
        run(main)
    told = [each["error"].split(":")[0] for each in logs if each["event"] == "origin_not_taken_over"]
    assert told == [lacking.name, passing.name, lacking.name]
    paused, recovered = scene.facts
    assert isinstance(paused, PartitionPaused)
    assert (paused.source, paused.error) == (SOURCE, lacking)
    assert "mirror/mine/0/lhr" in (paused.said or "")
    assert recovered == PartitionRecovered(source=SOURCE, failures=0)


def test_what_comes_from_elsewhere_is_not_taken_over_from_whoever_has_the_bucket_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passing_origins, "RETRY_MS", 0)
    scene, asked = Refusing({SOURCE: None}), list[int]()

    async def fence(origin: int) -> ProducerIdentity:
        asked.append(origin)
        assert len(asked) == 1, "its owner would be fenced"
        bucket.transaction.sources = frozenset()
        scene.mode.leaving([SOURCE])
        raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "mirror/mine/0/lhr")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            scene.begin(tasks)
            scene.meet(SOURCE)

    bucket = scene.take(fence)
    run(main)
    assert scene.facts == []


def test_why_something_from_elsewhere_is_not_taken_over_is_logged_again_once_the_bucket_was_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passing_origins, "RETRY_MS", 0)
    scene, asked = Refusing({SOURCE: None}), list[int]()

    async def fence(origin: int) -> ProducerIdentity:
        asked.append(origin)
        if len(asked) % 2 == 0:  # tried again: told once
            asyncio.get_running_loop().call_soon(go)
        raise ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "mirror/mine/0/lhr")

    def go() -> None:
        bucket.transaction.sources = frozenset()
        scene.mode.leaving([SOURCE])

    async def main() -> None:
        for _ in range(2):
            scene.mode._buckets[bucket.key] = bucket
            async with asyncio.TaskGroup() as tasks:
                scene.begin(tasks)
                scene.meet(SOURCE)

    bucket = scene.take(fence)
    with capture_logs() as logs:
        run(main)
    assert [each["event"] for each in logs] == ["origin_not_taken_over"] * 2


@pytest.mark.parametrize(
    ("written", "stored", "gone_since", "floors"),
    [
        (0, 0, 0, (150,)),
        (0, 1, 0, ()),
        (1, 1, 0, (150,)),
        (1, 0, 0, (150,)),
        (1, 0, 1, (150,)),
        (0, 0, 1, ()),
    ],
)
def test_how_far_records_from_elsewhere_had_come_in_a_log_that_is_gone_leaves_nothing_out(
    written: int, stored: int, gone_since: int, floors: tuple[int, ...]
) -> None:
    """What there is in its place would be taken for what is at the destination already. Where more is written
    than stored a process was killed between the commits of what it had copied of the log in its place, which
    was lost before the position that is stored or behind it.
    """
    ignored: Any = None
    machine = FlowMachine(FlowConfig())
    machine.assign([Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=110)])
    partition = machine.partitions[SOURCE]
    bucket = OwnedBucket(ProducerKey(0, 0, None), ignored, None)
    identity = ProducerIdentity(7, 0)
    bucket.transaction = BucketTransaction(
        bucket.key, identity, POSITIONS_AT, TransactionTerms(interval_ms=100), 0
    )
    bucket.transaction.take_origin(ELSEWHERE, identity)
    bucket.join(partition, Place((110,), logs_gone=stored))
    for _ in range(gone_since):
        machine.go_on(lost_behind(100))
    kept: Any = SimpleNamespace(get=lambda key: value_of("mine", Place((150,), logs_gone=written)))
    provenance: Any = SimpleNamespace(been=lambda _: ("lhr",))
    passing = PassingOrigins(
        provenance,
        kept,
        None,
        bucket_of=lambda _: bucket,
        is_held=lambda _: True,
        id_of=lambda source: SourceId(cluster_id=None, topic_id=NO_TOPIC_ID, partition=source, to="copy"),
        on_refused=lambda *_: None,
        on_taken=lambda _: None,
    )
    assert passing.is_ready(partition, ELSEWHERE)
    assert partition.origin_floors == {ELSEWHERE: floors}
    machine.go_on(lost_behind(105))
    assert passing.is_ready(partition, ELSEWHERE)
    assert partition.origin_floors == {ELSEWHERE: ()}


def test_what_was_known_of_records_from_elsewhere_is_found_anew_once_the_log_is_another() -> None:
    machine = FlowMachine(FlowConfig())
    machine.assign([Assignment(source=SOURCE, destinations=(COPY,), bucket=0, position=110)])
    partition = machine.partitions[SOURCE]
    partition.origin_floors[ELSEWHERE] = (105,)
    partition.former = (FormerLanes("copy", (120, 90), PartitionPolicy.KEY),)
    machine.go_on(lost_behind(100))
    assert (partition.origin_floors, partition.logs_gone) == ({}, 1)
    assert partition.former == (FormerLanes("copy", (100, 90), PartitionPolicy.KEY),)
