"""How late a route is, look by look: also while nothing of it is copied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.errors import RequestTimedOutError
from broker.types import TopicPartition
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.lag import EndHistory
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.timing import route_timing, waiting
from mirrormaker.flow.timing.first_waiting import FirstBatch
from mirrormaker.flow.timing.latency import Basis
from mirrormaker.flow.timing.objective import QUIET_MS
from mirrormaker.flow.timing.retention_watch import HANDOVER_MS
from mirrormaker.flow.timing.risk import Retention
from mirrormaker.flow.timing.route_timing import (
    LOOK_INTERVAL_MS,
    SETTINGS_AGE_MS,
    SETTINGS_RETRY_MS,
    AtWork,
    RouteTiming,
)
from mirrormaker.flow.timing.source_settings import SourceSettings
from mirrormaker.flow.timing.waiting import Waiting
from mirrormaker.topology.model import Objectives, RouteName
from tests.flow.timing.partitions import ORDERS
from tests.plan.worlds import route
from tests.storage.samples import ManualClock

OTHERS, BEATS = TopicPartition("others", 0), TopicPartition(HEARTBEATS_TOPIC, 0)
HOUR_S, HOUR_MS = 3_600, 3_600_000
LONG_S = (HANDOVER_MS + QUIET_MS) // 1000 + 5
"""After which a breach would be told as over, and a danger as given up."""


class Watched:
    """A route that promises a minute; what its copier has is set by the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.events = RouteEvents(RouteName("r"), self.clock)
        promised = Objectives(lag_seconds=60)
        self.timing = RouteTiming(route(objectives=promised), self.clock, self.events)
        self.begin()

    def begin(self) -> None:
        """A copier is at work, which is given nothing yet."""
        self.partitions: dict[TopicPartition, Partition] = {}
        self.histories: dict[TopicPartition, EndHistory] = {}
        self.share: frozenset[TopicPartition] | None = None
        nobody: Any = None
        self.timing.begin(
            AtWork(
                source=nobody,
                partitions=self.partitions,
                histories=self.histories,
                on_end=lambda _source, _end: None,
                read_committed=True,
                share=lambda: self.share,
            )
        )

    def give(self, *sources: TopicPartition) -> None:
        """The group gives the process these."""
        self.share = frozenset(sources)

    def copy(self, source: TopicPartition, *, late_ms: int = 0) -> Partition:
        """It is copied, with something that has waited for so long, or nothing."""
        partition = Partition(source, [source], 0, 100, 1 << 20)
        partition.source_end = 200 if late_ms else 100
        history = self.histories[source] = EndHistory()
        history.observe(partition.source_end, self.clock.now_ms() - late_ms)
        self.partitions[source] = partition
        return partition

    def lose(self, *sources: TopicPartition) -> None:
        """Nothing of these is copied any more."""
        for source in sources or tuple(self.partitions):
            del self.partitions[source], self.histories[source]

    def ask(
        self, monkeypatch: pytest.MonkeyPatch, *, age_ms: int, kept_ms: int, kept_bytes: int | None = None
    ) -> None:
        """The source is asked, and tells how old what waits first is, how long topics keep records, and how
        many bytes of them. Each has 100.
        """
        batch = FirstBatch(timestamp_ms=self.clock.now_ms() - age_ms, bytes_per_offset=100.0)
        settings = SourceSettings(retention=Retention(ms=kept_ms, bytes=kept_bytes), basis=Basis.CREATE)
        answered = asyncio.Event()

        async def until_answered() -> None:
            asking = asyncio.create_task(self.timing.follow_source())
            await answered.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

        async def read_source_settings(_source: Any, topics: set[str]) -> tuple[Any, None]:
            return dict.fromkeys(topics, settings), None

        async def sample_first(_source: Any, positions: Any, **_terms: bool) -> dict[Any, FirstBatch]:
            answered.set()
            return dict.fromkeys(positions, batch)

        monkeypatch.setattr(route_timing, "read_source_settings", read_source_settings)
        monkeypatch.setattr(waiting, "sample_first", sample_first)
        asyncio.run(until_answered())

    def look(self, times: int = 1) -> float | None:
        for _ in range(times):
            self.clock.advance(LOOK_INTERVAL_MS)
            self.timing.look()
        lag: float | None = self.timing.describe()["lag_seconds"]
        return lag

    def names(self) -> list[str]:
        return [event["name"] for event in self.events.describe()]


def late() -> Watched:
    """An hour behind, and the source deletes fast."""
    watched = Watched()
    watched.give(ORDERS, OTHERS, BEATS)
    watched.copy(ORDERS, late_ms=HOUR_MS)
    watched.copy(OTHERS)
    watched.copy(BEATS)
    watched.histories[ORDERS].start = 0
    watched.look()
    watched.histories[ORDERS].start = 90
    assert watched.look() == HOUR_S + 2
    assert watched.names() == ["lag_objective_breached", "retention_risk_met"]
    return watched


@pytest.mark.parametrize("lost", [(), (ORDERS,)], ids=["all", "a bucket"])
def test_what_is_lost_while_it_lags_goes_on_to_lag_and_stays_in_danger(
    lost: tuple[TopicPartition, ...],
) -> None:
    watched = late()
    watched.lose(*lost)
    assert watched.look(LONG_S) == HOUR_S + 2 + LONG_S
    assert watched.timing.describe()["in_danger"] == 1
    assert len(watched.names()) == 2
    partition = watched.copy(ORDERS, late_ms=HOUR_MS + LONG_S * 1000)
    partition.source_end = -1  # it is not heard of yet
    assert watched.look() == HOUR_S + 3 + LONG_S
    partition.source_end = 100
    assert watched.look(QUIET_MS // 1000 + 1) == 0
    assert watched.names()[2:] == ["retention_risk_passed", "lag_objective_recovered"]


def test_what_the_source_is_still_to_be_asked_for_brings_nothing_into_danger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched()
    watched.give(ORDERS)
    watched.copy(ORDERS, late_ms=1)
    watched.look()
    watched.ask(monkeypatch, age_ms=24 * HOUR_MS, kept_ms=7 * 24 * HOUR_MS)
    assert watched.look() == 24 * HOUR_S + 1
    assert watched.timing.describe()["in_danger"] == 0
    assert watched.names() == ["lag_objective_breached"]


def test_what_is_still_to_be_asked_for_is_as_late_and_as_much_in_danger_as_what_was_copied_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched()
    watched.give(ORDERS)
    partition = watched.copy(ORDERS, late_ms=1)
    watched.look()
    watched.ask(monkeypatch, age_ms=24 * HOUR_MS, kept_ms=24 * HOUR_MS + HOUR_MS // 2)
    assert watched.look() == 24 * HOUR_S + 1
    partition.lanes[0].acknowledged = 110
    assert watched.look() == 24 * HOUR_S + 2
    assert watched.timing.describe()["in_danger"] == 1
    assert watched.names() == ["retention_risk_met", "lag_objective_breached"]


def test_a_partition_of_which_nothing_was_copied_yet_is_in_danger_by_the_size_of_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched()
    watched.give(ORDERS)
    partition = watched.copy(ORDERS, late_ms=1)
    watched.look()
    watched.ask(monkeypatch, age_ms=0, kept_ms=24 * HOUR_MS, kept_bytes=100 * 300)
    partition.source_end += 50
    watched.look()
    assert watched.names() == ["retention_risk_met"]
    told = watched.timing.describe_partition(partition)["retention"]
    assert (told["deleted_by"], told["seconds"]) == ("retention.bytes", 3.0)


def test_settings_that_the_source_did_not_tell_are_asked_for_again_before_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched()
    watched.give(ORDERS)
    partition = watched.copy(ORDERS, late_ms=1)
    asked_ms: list[int] = []
    told: list[str | None] = []
    settings = SourceSettings(retention=Retention(ms=HOUR_MS), basis=Basis.CREATE)

    async def read_source_settings(_source: Any, topics: set[str]) -> tuple[Any, None]:
        asked_ms.append(watched.clock.monotonic_ms())
        if len(asked_ms) == 1:
            raise RequestTimedOutError("no settings")
        return dict.fromkeys(topics, settings), None

    async def look(_waiting: Waiting, _partitions: Any) -> None:
        watched.look()
        told.append(watched.timing.describe()["problem"])
        if len(told) == SETTINGS_AGE_MS // LOOK_INTERVAL_MS:
            watched.timing.end()

    monkeypatch.setattr(route_timing, "read_source_settings", read_source_settings)
    monkeypatch.setattr(route_timing, "LOOK_INTERVAL_MS", 0)
    monkeypatch.setattr(Waiting, "look", look)
    asyncio.run(watched.timing.follow_source())
    assert asked_ms == [asked_ms[0], asked_ms[0] + SETTINGS_RETRY_MS]
    assert told[:7] == ["no settings"] * 5 + [None] * 2
    assert watched.timing.describe_partition(partition)["timestamps"] == Basis.CREATE.value


def test_what_waits_there_is_no_problem_once_the_source_has_told_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    told: list[str | None] = []

    async def read_source_settings(_source: Any, topics: set[str]) -> tuple[dict[str, Any], None]:
        return {}, None

    async def look(_waiting: Waiting, _partitions: Any) -> None:
        told.append(watched.timing.describe()["problem"])
        if len(told) == 4:
            watched.timing.end()
        if len(told) == 2:
            raise RequestTimedOutError("no ends")

    monkeypatch.setattr(route_timing, "read_source_settings", read_source_settings)
    monkeypatch.setattr(route_timing, "LOOK_INTERVAL_MS", 0)
    monkeypatch.setattr(Waiting, "look", look)
    asyncio.run(watched.timing.follow_source())
    assert told == [None, None, "no ends", None]


def test_what_the_group_gives_to_another_lags_no_more_here() -> None:
    watched = late()
    watched.lose()
    watched.give()
    assert watched.look(LONG_S) == 0
    assert watched.timing.describe()["in_danger"] == 0
    assert watched.names()[2:] == ["lag_objective_recovered", "retention_risk_given_up"]


def test_of_what_is_lost_only_what_waited_counts() -> None:
    watched = late()
    watched.lose(OTHERS)
    watched.partitions[ORDERS].source_end = 100
    assert watched.look(QUIET_MS // 1000 + 1) == 0
    assert watched.names()[-1] == "lag_objective_recovered"
    watched.lose(ORDERS)
    assert watched.look() is None, "nothing but heartbeats is copied"


def test_a_route_that_begins_does_not_lag() -> None:
    watched = Watched()
    assert watched.look() is None
    watched.give(ORDERS)
    assert watched.look(LONG_S) is None
    watched.copy(ORDERS)
    assert watched.look() == 0
    assert watched.names() == []


def test_one_that_fails_and_begins_again_lags_until_it_has_copied() -> None:
    watched = late()
    watched.timing.end()
    assert watched.look(LONG_S) == HOUR_S + 2 + LONG_S
    watched.begin()
    assert watched.look(LONG_S) == HOUR_S + 2 + 2 * LONG_S
    watched.give(ORDERS)
    assert watched.look(LONG_S) == HOUR_S + 2 + 3 * LONG_S
    assert len(watched.names()) == 2
    watched.copy(ORDERS)
    assert watched.look() == 0


def test_how_partitions_were_when_they_were_looked_at_last_is_known_until_they_are_copied_again() -> None:
    watched = late()
    assert watched.timing.describe_left() == {}
    looked_ms = watched.clock.now_ms()
    since_ms = looked_ms - (HOUR_S + 2) * 1_000
    orders = {"looked_ms": looked_ms, "source_end": 200, "waiting_since_ms": since_ms}
    others = {"looked_ms": looked_ms, "source_end": 100, "waiting_since_ms": None}
    watched.lose(ORDERS)
    watched.look(3)
    assert watched.timing.describe_left() == {str(ORDERS): orders}
    others["looked_ms"] = watched.clock.now_ms()
    watched.timing.end()
    watched.look(LONG_S)
    assert watched.timing.describe_left() == {str(ORDERS): orders, str(OTHERS): others}
    watched.begin()
    watched.give(ORDERS)
    watched.copy(ORDERS)
    watched.look()
    assert watched.timing.describe_left() == {str(OTHERS): others}


def test_a_process_that_is_given_nothing_has_no_lag() -> None:
    watched = Watched()
    watched.give()
    assert watched.look() == 0


def test_a_route_of_whose_topics_none_can_be_copied_does_not_know_its_lag() -> None:
    watched = Watched()
    watched.give()
    for is_blind, lag in ((False, 0.0), (True, None), (False, 0.0)):
        watched.timing.is_blind = lambda is_blind=is_blind: is_blind
        watched.timing.look()
        assert watched.timing.describe()["lag_seconds"] == lag
