"""What a daemon judges of its routes from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.audit import watch
from mirrormaker.audit.findings import Findings
from mirrormaker.audit.gap_audit import Lane
from mirrormaker.audit.outcome import PartitionAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.watch import AuditWatch
from mirrormaker.topology.model import (
    ClusterName,
    Delivery,
    Objectives,
    RouteName,
    RouteSpec,
    TopicSelection,
)
from tests.audit.views import ONE, OTHER, TO, exactly_once_view, lane
from tests.client.running import until


def route_view(route: RouteSpec, end: int) -> RouteView:
    """A destination that ends there."""
    nothing: dict[Any, Any] = {}
    return RouteView(
        route=route,
        source=cast("Any", None),
        destination=cast("Any", None),
        partitions=(),
        lanes=nothing,
        windows=nothing,
        source_starts=nothing,
        ends=nothing,
        positions=nothing,
        to_windows=nothing,
        to_starts={TO: 0},
        to_ends={TO: end},
        to_reached={TO: end},
        passes=nothing,
        indexes=nothing,
    )


@pytest.mark.parametrize(
    ("delivery", "looked_to"),
    [
        (Delivery.AT_MOST_ONCE, [0, 300, 600]),
        (Delivery.AT_LEAST_ONCE, [300, 600, 600]),
        (Delivery.EXACTLY_ONCE, [300, 600, 600]),
    ],
)
def test_what_at_most_once_has_just_written_is_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch, delivery: Delivery, looked_to: list[int]
) -> None:
    route = RouteSpec(
        name=RouteName("a"),
        source=ClusterName("jfk"),
        destination=ClusterName("aggregate"),
        topics=TopicSelection(include=("flights",)),
        delivery=delivery,
    )
    views = iter([route_view(route, end) for end in (300, 600, 600)])

    async def view(*_: object, **__: object) -> RouteView:
        return next(views)

    monkeypatch.setattr(watch, "view_route", view)
    ends: list[int] = []

    def look(view: RouteView, _: object) -> SimpleNamespace:
        ends.append(view.to_ends[TO])
        return SimpleNamespace(looked_to={})

    monkeypatch.setattr(watch, "LedgerAudit", look)
    ledger = SimpleNamespace(is_read=True, view=None)
    nobody: Any = None
    clock = SimpleNamespace(now_ms=lambda: 0)
    cluster = cast("Any", SimpleNamespace(topics={}))
    audits = AuditWatch(
        lambda: route, nobody, cluster, cluster, cast("Any", ledger), lambda: (), cast("Any", clock)
    )
    for _ in range(3):
        asyncio.run(audits.audit())
    assert ends == looked_to


class Audits:
    """Of two lanes to one partition, by stubs: which partitions are judged, from where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = exactly_once_view({ONE: lane((0, 0, 100)), OTHER: lane((0, 100, 100))}, 200)
        self.faults: list[Exception] = []
        """What looking at the route meets, one after the other."""
        self.failing: set[TopicPartition] = set()
        self.looked_to: list[Mapping[Lane, int]] = []
        self.owned: tuple[TopicPartition, ...] = (ONE, OTHER)
        self.has_told_time = False
        self.judged: list[tuple[TopicPartition, Range]] = []
        self.here = SimpleNamespace(topics={"flights": SimpleNamespace(topic_id=TopicId(UUID(int=1)))})
        self.there = SimpleNamespace(topics={TO.topic: SimpleNamespace(topic_id=TopicId(UUID(int=2)))})
        monkeypatch.setattr(watch, "view_route", self._look)
        monkeypatch.setattr(watch, "LedgerAudit", self._judge)
        ledger = SimpleNamespace(is_read=True, view=None)
        clusters = cast("Any", self.here), cast("Any", self.there)
        self.watch = AuditWatch(
            lambda: self.view.route,
            cast("Any", None),
            *clusters,
            cast("Any", ledger),
            lambda: self.owned,
            cast("Any", SimpleNamespace(now_ms=self._tell_time)),
        )

    def _tell_time(self) -> int:
        self.has_told_time = True
        return 0

    async def _look(self, *_: object, **__: object) -> RouteView:
        if self.faults:
            raise self.faults.pop()
        return self.view

    def _judge(self, view: RouteView, looked_to: Mapping[Lane, int]) -> SimpleNamespace:
        self.looked_to.append(looked_to)
        known = dict(looked_to)

        async def partition(source: TopicPartition, _: object) -> PartitionAudit:
            known[source, TO] = 200
            if source in self.failing:
                raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "it does not answer")
            self.judged.append((source, view.windows[source]))
            findings = Findings(records=view.windows[source].length)
            return PartitionAudit(source=source, window=view.windows[source], findings=findings)

        return SimpleNamespace(looked_to=known, partition=partition)

    def audit(self) -> list[tuple[TopicPartition, Range]]:
        """What was judged."""
        self.judged = []
        asyncio.run(self.watch.audit())
        return self.judged


def test_what_was_told_before_an_audit_failed_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    audits = Audits(monkeypatch)
    audits.failing = {OTHER}
    with pytest.raises(ProtocolError):
        audits.audit()
    audits.failing = set()
    assert audits.audit() == [(ONE, Range(100, 100)), (OTHER, Range(0, 100))]
    assert audits.looked_to == [{}, {(ONE, TO): 200}]


def test_what_only_some_lanes_have_dealt_with_is_judged_once_the_position_is_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audits = Audits(monkeypatch)
    judged: list[Range] = []
    for position in (80, 100, 40):  # the last one by a seek
        audits.view = replace(audits.view, positions={ONE: position, OTHER: 100})
        judged.append(dict(audits.audit())[ONE])
    assert judged == [Range(0, 80), Range(80, 100), Range(100, 100)]


def test_what_a_seek_has_at_most_once_copy_again_is_judged_once_it_has_been(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audits = Audits(monkeypatch)
    route = replace(audits.view.route, delivery=Delivery.AT_MOST_ONCE)
    judged: list[Range] = []
    for position in (40, 120):  # it is told before the records are sent
        audits.view = replace(audits.view, route=route, positions={ONE: position, OTHER: 100})
        audits.view = replace(audits.view, windows={ONE: Range(0, 120), OTHER: Range(0, 100)})
        judged.append(dict(audits.audit())[ONE])
    assert judged == [Range(0, 40), Range(40, 100)]


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_source_that_was_made_anew_is_judged_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, has_ids: bool
) -> None:
    audits = Audits(monkeypatch)
    audits.audit()
    length = 150 if has_ids else 50
    anew = exactly_once_view({ONE: lane((0, 200, length)), OTHER: lane((0, 100, 100))}, 400)
    audits.view = anew
    if has_ids:
        audits.here.topics["flights"].topic_id = TopicId(UUID(int=3))
    judged = [(ONE, Range(0, length)), (OTHER, Range(0, 100) if has_ids else Range(100, 100))]
    assert audits.audit() == judged
    assert audits.looked_to[-1] == ({} if has_ids else {(OTHER, TO): 200})
    assert audits.watch.describe()["records"] == length + 100, "the former ones are of a log that is gone"


@pytest.mark.parametrize(("topic_id", "end"), [(3, 400), (0, 100)])
def test_what_was_copied_to_a_destination_that_was_made_anew_is_judged_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, topic_id: int, end: int
) -> None:
    audits = Audits(monkeypatch)
    if not topic_id:
        audits.there.topics[TO.topic].topic_id = NO_TOPIC_ID
    audits.audit()
    audits.audit()
    assert audits.looked_to[-1] == {(ONE, TO): 200, (OTHER, TO): 200}
    audits.view = replace(audits.view, to_ends={TO: end}, to_reached={TO: end})
    audits.there.topics[TO.topic].topic_id = TopicId(UUID(int=topic_id))
    for _ in ("found", "when the ledger tells of all that came before"):
        assert audits.audit() == [(ONE, Range(0, 100)), (OTHER, Range(0, 100))]
        assert audits.looked_to[-1] == {}
        assert audits.watch.describe()["records"] == 200, "what was found before is of a log that is gone"
    audits.view = replace(audits.view, to_reached={TO: 400})
    audits.audit()
    assert audits.audit() == [(ONE, Range(100, 100)), (OTHER, Range(100, 100))]


def test_nodes_that_tell_no_id_for_a_while_have_not_made_a_topic_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audits = Audits(monkeypatch)
    topic_id = audits.here.topics["flights"].topic_id
    audits.audit()
    for told in (NO_TOPIC_ID, topic_id):
        audits.here.topics["flights"].topic_id = told
        assert audits.audit() == [(ONE, Range(100, 100)), (OTHER, Range(100, 100))]
    audits.here.topics["flights"].topic_id = TopicId(UUID(int=3))
    assert audits.audit() == [(ONE, Range(0, 100)), (OTHER, Range(0, 100))]


def test_a_source_that_was_cut_is_judged_from_its_beginning_though_it_has_grown_past_what_was_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audits = Audits(monkeypatch)
    audits.audit()
    audits.view = replace(
        exactly_once_view({ONE: lane((0, 0, 60), (60, 200, 90)), OTHER: lane((0, 100, 100))}, 400),
        severed={(ONE, TO): lane((60, 60, 40))},
    )
    assert audits.audit() == [(ONE, Range(0, 150)), (OTHER, Range(100, 100))]
    assert audits.audit() == [(ONE, Range(150, 150)), (OTHER, Range(100, 100))]


def test_a_topic_that_is_not_copied_here_for_a_while_is_judged_from_its_beginning_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audits = Audits(monkeypatch)
    beside = TopicPartition("trains", 0)
    both = exactly_once_view({ONE: lane((0, 0, 100)), beside: lane((0, 100, 100))}, 200)
    audits.view, audits.owned = both, (ONE, beside)
    audits.audit()
    audits.view = exactly_once_view({ONE: lane((0, 0, 100))}, 200)
    audits.owned = (ONE,)
    assert audits.audit() == [(ONE, Range(100, 100))]
    assert audits.watch.describe()["records"] == 100
    audits.view, audits.owned = both, (ONE, beside)
    assert audits.audit() == [(ONE, Range(100, 100)), (beside, Range(0, 100))]
    assert audits.watch.describe()["records"] == 200


def test_a_fault_of_an_audit_is_told_and_ends_neither_the_audits_nor_the_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audits = Audits(monkeypatch)
    audits.view = replace(
        audits.view, route=replace(audits.view.route, objectives=Objectives(audit_window_ms=1))
    )
    audits.faults = [KeyError("no such partition")]
    problems: list[str | None] = []

    async def run() -> None:
        running = asyncio.create_task(audits.watch.run())
        await until(lambda: problems.append(audits.watch.problem) or audits.watch.audits > 0)
        running.cancel()

    asyncio.run(run())
    assert any("KeyError('no such partition')" in each for each in problems if each is not None)
    assert audits.watch.problem is None


def test_another_window_counts_from_when_the_route_is_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    audits = Audits(monkeypatch)

    def give(window_ms: int) -> None:
        objectives = Objectives(audit_window_ms=window_ms)
        audits.view = replace(audits.view, route=replace(audits.view.route, objectives=objectives))

    async def run() -> None:
        give(3_600_000)
        running = asyncio.create_task(audits.watch.run())
        await until(lambda: audits.has_told_time)
        give(1)
        audits.watch.change()
        await until(lambda: audits.watch.audits > 0)
        running.cancel()

    asyncio.run(run())
