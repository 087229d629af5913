"""Taking over what a route copies exactly once; the destination is stood in for."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow import exactly_once
from mirrormaker.flow.exactly_once import ExactlyOnce
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.facts import Fact, PartitionPaused, PartitionRecovered
from mirrormaker.flow.positions import Place, SourceId, value_of
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.topology.shared_positions import PositionOwners
from tests.client.running import run
from tests.plan.worlds import route as a_route

SOURCE, COPY = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)


class Kept:
    """The topic of positions, which says this of the partition."""

    def __init__(self, value: dict[str, object]) -> None:
        source = SourceId(cluster_id="jfk", topic_id=NO_TOPIC_ID, partition=SOURCE, to=COPY.topic)
        self._key, self._value = source.key(), value

    async def read_to_end(self) -> None:
        pass

    def get(self, key: dict[str, object]) -> dict[str, object] | None:
        return self._value if key == self._key else None


def work_of(value: Mapping[str, object]) -> Any:
    return SimpleNamespace(
        route=SimpleNamespace(name="mine"),
        source=SimpleNamespace(cluster_id="jfk", topics={}),
        destination=None,
        clock=None,
        kept=Kept(dict(value)),
        lane="transactions",
        on_lost=None,
        on_not_taken=lambda *_: None,
        on_progress=lambda: None,
        on_fact=None,
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


class Refusing:
    """A bucket of these partitions, with what their lanes were refused with last; and what is told."""

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode | None]) -> None:
        self.facts: list[Fact] = []
        self._key = ProducerKey(0, 0, None)
        self.lanes: dict[TopicPartition, Any] = {
            source: SimpleNamespace(destination=COPY, error=error) for source, error in errors.items()
        }
        partitions = {
            source: SimpleNamespace(lanes=(lane,), committed=0) for source, lane in self.lanes.items()
        }
        work, machine, ignored = (
            work_of({}),
            cast(Any, SimpleNamespace(partitions=partitions)),
            cast(Any, None),
        )
        work.on_lost, work.on_fact = lambda lost: self.mode.leaving(lost.sources), self.facts.append
        self.mode = ExactlyOnce(work)
        self.mode.begin(machine, ignored, ignored)

    def _bucket(self, lost_with: ErrorCode | None) -> Any:
        transaction = SimpleNamespace(
            key=self._key,
            sources=frozenset(self.lanes),
            lost_with=lost_with,
            lost_because="so it is",
            is_fenced=False,
        )
        return SimpleNamespace(transaction=transaction)

    def lose(self, code: ErrorCode) -> None:
        bucket = self.mode._buckets[self._key] = self._bucket(code)
        self.mode._give_back(bucket)

    def commit(self) -> None:
        self.mode._have_gone_on(self._bucket(None))


def test_what_was_refused_is_over_with_the_next_commit_though_the_bucket_was_lost_meanwhile() -> None:
    """Lanes that refused something are gone with the bucket; another partition of it was taken all along, and
    one is refused still.
    """
    other, still = (TopicPartition("flights", number) for number in (1, 2))
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene = Refusing({SOURCE: refused, other: None, still: refused})
    scene.lose(ErrorCode.NOT_COORDINATOR)
    assert scene.facts == []
    scene.lanes[SOURCE].error = None
    scene.commit()
    assert scene.facts == [PartitionRecovered(source=SOURCE, failures=1)]
    for _ in range(2):
        scene.lose(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [fact.source for fact in scene.facts[1:]] == [SOURCE, other, still]
    scene.commit()
    assert scene.facts[4:] == [PartitionRecovered(source=each, failures=2) for each in (SOURCE, other)]


def test_a_refusal_is_told_again_of_a_partition_that_was_anothers_meanwhile() -> None:
    scene = Refusing({SOURCE: None})
    for is_anothers in (False, True, False):
        scene.lose(ErrorCode.KAFKA_STORAGE_ERROR)
        if is_anothers:
            scene.mode.leaving([SOURCE])
    assert [type(fact) for fact in scene.facts] == [PartitionPaused] * 2
