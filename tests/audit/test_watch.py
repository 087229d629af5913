"""What a daemon judges of its routes from time to time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.types import TopicPartition
from mirrormaker.audit import watch
from mirrormaker.audit.route_view import RouteView
from mirrormaker.audit.watch import AuditWatch
from mirrormaker.topology.model import ClusterName, Delivery, RouteName, RouteSpec, TopicSelection

TO = TopicPartition("jfk.flights", 0)


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
    audits = AuditWatch(
        lambda: route, nobody, nobody, nobody, cast("Any", ledger), lambda: (), cast("Any", clock)
    )
    for _ in range(3):
        asyncio.run(audits.audit())
    assert ends == looked_to
