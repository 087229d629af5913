"""What comes into danger, and out of it."""

from __future__ import annotations

from broker.clock import SystemClock
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.timing.retention_watch import HANDOVER_MS, RetentionWatch
from mirrormaker.flow.timing.risk import Retention
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.topology.model import RouteName
from tests.flow.timing.partitions import ORDERS, partition_at

HOUR_MS = 3_600_000


class Watched:
    def __init__(self, margin_ms: int = HOUR_MS) -> None:
        self.events = RouteEvents(RouteName("r"), SystemClock())
        self.watch = RetentionWatch(margin_ms, self.events)

    def look(self, age_ms: int, now_ms: int, kept_ms: int | None = 24 * HOUR_MS) -> None:
        retention = None if kept_ms is None else Retention(ms=kept_ms)
        self.watch.look(partition_at(5, 10), 0, now_ms - age_ms, retention, now_ms, 100.0)

    def names(self) -> list[str]:
        return [event["name"] for event in self.events.describe()]


def test_danger_is_told_once_when_it_comes_and_once_when_it_goes() -> None:
    watched = Watched()
    watched.look(20 * HOUR_MS, 0)
    assert watched.names() == []
    assert not watched.watch.is_in_danger(partition_at(5, 10))
    watched.look(23 * HOUR_MS + 1, 10_000)
    watched.look(23 * HOUR_MS + 2, 20_000)
    assert watched.names() == ["retention_risk_met"]
    assert watched.watch.is_in_danger(partition_at(5, 10))
    assert watched.watch.in_danger == 1
    watched.watch.caught_up(ORDERS)
    watched.watch.caught_up(ORDERS)
    assert watched.names() == ["retention_risk_met", "retention_risk_passed"]
    assert watched.watch.describe(ORDERS) is None


def test_what_hangs_about_the_bound_is_told_of_once() -> None:
    watched = Watched()
    for at_ms, end in [(0, 1_000), (10_000, 11_000), (20_000, 20_000), (30_000, 30_000)]:  # some 3,600 s left
        watched.watch.look(partition_at(0, end), 0, None, Retention(bytes=351_100_000), at_ms, 100.0)
    assert watched.names() == ["retention_risk_met"]
    watched.watch.look(partition_at(0, 30_000), 0, None, Retention(bytes=351_100_000), 80_000, 100.0)
    assert watched.names() == ["retention_risk_met", "retention_risk_passed"]


def test_what_is_kept_shortly_is_in_danger_with_half_of_that_left() -> None:
    watched = Watched()
    watched.look(250_000, 0, kept_ms=600_000)
    assert watched.names() == []
    watched.look(301_000, 1_000, kept_ms=600_000)
    assert watched.names() == ["retention_risk_met"]
    told = watched.watch.describe(ORDERS)
    assert told is not None
    assert (told["deleted_by"], told["in_danger"]) == ("retention.ms", True)


def test_a_partition_in_danger_that_others_copy_now_is_told_of_until_they_must_have_noticed() -> None:
    watched = Watched()
    watched.look(24 * HOUR_MS, 0)
    for now_ms in (1_000, HANDOVER_MS):
        watched.watch.keep([], now_ms)
        assert watched.watch.in_danger == 1
    watched.watch.keep([], 1_000 + HANDOVER_MS)
    assert watched.watch.in_danger == 0
    assert watched.watch.describe(ORDERS) is None
    watched.watch.keep([], 2_000 + HANDOVER_MS)
    assert watched.names() == ["retention_risk_met", "retention_risk_given_up"]


def test_one_that_comes_back_in_time_is_in_danger_as_before() -> None:
    watched = Watched()
    for round_ms in (0, HANDOVER_MS - 1, 2 * HANDOVER_MS):
        watched.look(24 * HOUR_MS, round_ms)
        watched.watch.keep([ORDERS], round_ms)
        watched.watch.keep([], round_ms + 1)
    assert watched.watch.in_danger == 1
    assert watched.names() == ["retention_risk_met"]
    watched.watch.caught_up(ORDERS)
    watched.watch.keep([], 4 * HANDOVER_MS)
    assert watched.names() == ["retention_risk_met", "retention_risk_passed"]


def test_while_nothing_is_copied_the_danger_does_not_pass() -> None:
    watched = Watched()
    watched.look(24 * HOUR_MS, 0)
    watched.watch.keep([], 1_000)
    watched.watch.rest()
    watched.watch.keep([], 2 * HANDOVER_MS)
    assert watched.watch.in_danger == 1, "copying has just begun"
    assert watched.names() == ["retention_risk_met"]


def test_what_others_copy_now_and_was_in_no_danger_is_forgotten() -> None:
    watched = Watched()
    watched.look(20 * HOUR_MS, 0)
    assert watched.watch.describe(ORDERS) is not None
    watched.watch.keep([], 1_000)
    assert watched.watch.describe(ORDERS) is None
    assert watched.names() == []


def test_a_route_goes_before_others_for_what_it_copies_and_not_for_what_stands() -> None:
    watched, endangered = Watched(), partition_at(5, 10)
    assert not watched.watch.hastens({ORDERS: endangered})
    watched.look(24 * HOUR_MS, 0)
    assert watched.watch.hastens({ORDERS: endangered})
    assert not watched.watch.hastens({})
    endangered.trouble = Trouble(
        kind=TroubleKind.OVERSIZE, source=ORDERS, position=5, resume_at=6, problem="too large"
    )
    assert not watched.watch.hastens({ORDERS: endangered})
    assert watched.watch.in_danger == 1
