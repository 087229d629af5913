"""Where a group goes on at the other side, by the ledgers of both ways and the marks of who moved it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.errors import ErrorCode
from mirrormaker.carrying.decision import GroupStanding
from mirrormaker.flow.returned import Span
from mirrormaker.ledger.group_mark import GroupMark
from mirrormaker.ledger.page import Page
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.topology.model import (
    ClusterName,
    ClusterSpec,
    GroupSync,
    RouteName,
    RouteSpec,
    SyncSpec,
    TopicSelection,
)
from mirrormaker.working_route import RouteConnections, make_carrier
from tests.carrying.played_sides import AT, GROUP, PlayedSides, lane_ledger
from tests.client.running import run


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> PlayedSides:
    return PlayedSides(monkeypatch)


def test_a_group_that_may_not_be_moved_stays_where_it_is_and_is_looked_at(sides: PlayedSides) -> None:
    """As while a tail is copied: behind what was born there and the group has not read."""
    sides.forth.pages_ = lane_ledger((0, 0, 100), (1000, 200, 50))
    sides.forth.set_mark(GroupMark(source=95, to=95, before=90))
    sides.here.positions, sides.there.positions = {AT: 1050}, {AT: 95}
    may_move = False
    carrier = sides.carrier(may_move=lambda: may_move)
    run(carrier.carry)
    assert sides.there.positions == {AT: 95}
    assert sides.forth.written == []
    assert carrier.groups[GROUP][0].decision.standing is GroupStanding.CARRIED
    may_move = True
    run(carrier.carry)
    assert sides.there.positions == {AT: 250}


def test_a_group_that_sides_are_switched_under_while_it_is_carried_is_not_moved_behind_that(
    sides: PlayedSides,
) -> None:
    sides.forth.pages_ = lane_ledger((0, 0, 100))
    sides.here.positions, sides.there.positions = {AT: 90}, {AT: 20}
    sides.forth.set_mark(GroupMark(source=20, to=20, before=20))
    carrier = sides.carrier(may_move=lambda: not sides.forth.written)
    run(carrier.carry)
    assert sides.forth.written == [GroupMark(source=90, to=90, before=20)], "fits where it stands"
    assert (sides.there.positions, carrier.moved) == ({AT: 20}, 0)


@pytest.mark.parametrize("carries", [True, False])
def test_a_route_of_a_failover_group_moves_groups_as_its_switch_says(carries: bool) -> None:
    parts: Any = SimpleNamespace(carries=lambda: carries, cluster_id="there")
    route = RouteSpec(
        name=RouteName("forth"),
        source=ClusterName("here"),
        destination=ClusterName("there"),
        topics=TopicSelection(include=("orders",)),
        sync=SyncSpec(groups=GroupSync()),
    )
    here, there = ClusterSpec(name=ClusterName("here")), ClusterSpec(name=ClusterName("there"))
    work = RouteWork(route=route, source=here, destination=there)
    ends = RouteConnections(source=parts, destination=parts, origins=None, coordination=None)
    carrier = make_carrier(lambda: work, ends, parts, dict, switch=parts)
    assert carrier is not None
    assert carrier._may_move() is carries


def test_a_group_is_not_carried_past_what_was_written_at_the_other_side_and_never_came(
    sides: PlayedSides,
) -> None:
    """Between two stretches that came by the route; the ledger takes it for another's."""
    sides.forth.pages_ = lane_ledger((0, 0, 100), (100, 110, 50))
    sides.here.positions, sides.there.positions = {AT: 150}, {AT: 160}
    sides.forth.set_mark(GroupMark(source=150, to=160, before=90))
    carrier = sides.carrier()

    async def carry() -> None:
        await carrier.carry(unread={AT: 100})
        await carrier.carry(unread={AT: 100})

    run(carry)
    assert sides.there.positions == {AT: 100}
    (crossing,) = carrier.groups[GROUP]
    assert (crossing.decision.standing, crossing.decision.to) == (GroupStanding.HELD, None)


@pytest.mark.parametrize("stood", [None, 10])
def test_a_group_among_copies_that_no_ledger_tells_of_is_carried_with_care(
    sides: PlayedSides, stood: int | None
) -> None:
    """Behind them is what was born here and went there."""
    sides.forth.pages_ = lane_ledger((100, 100, 20))
    page = Page(0)
    page.cover(100)
    page.returned = Span(0, 100)
    sides.forth.pages_.put(page)
    sides.here.positions = {AT: 40}
    if stood is not None:
        sides.there.positions = {AT: stood}
        sides.forth.set_mark(GroupMark(source=stood, to=stood, before=None))
    carrier = sides.carrier()
    run(carrier.carry)
    assert sides.there.positions == {AT: stood or 0}
    assert carrier.groups[GROUP][0].decision.standing is GroupStanding.CAREFUL
    sides.here.positions = {AT: 110}
    run(carrier.carry)
    assert sides.there.positions == {AT: 110}, "behind them it is as ever"
    assert carrier.groups[GROUP][0].decision.standing is GroupStanding.CARRIED


def test_a_group_is_left_where_it_stood_until_it_moves_on_where_it_was_carried_to(sides: PlayedSides) -> None:
    """By the way back, that begins behind a tail which was left where it is."""
    sides.back.pages_ = lane_ledger((0, 0, 100))
    sides.back.set_mark(GroupMark(source=100, to=100, before=None))
    sides.forth.pages_ = lane_ledger((100, 108, 50))
    sides.here.positions, sides.there.positions = {AT: 100}, {AT: 100}
    carrier = sides.carrier()
    run(carrier.carry)
    assert sides.there.positions == {AT: 100}
    assert carrier.groups[GROUP][0].decision.standing is GroupStanding.OWN
    run(lambda: carrier.carry(heeds_given=False))
    assert sides.there.positions == {AT: 108}, "as when sides are switched"
    sides.here.positions = {AT: 110}
    run(carrier.carry)
    assert sides.there.positions == {AT: 118}


def test_a_group_that_is_put_where_it_was_before_it_was_carried_stays_there(sides: PlayedSides) -> None:
    sides.forth.pages_ = lane_ledger((0, 0, 100))
    sides.here.positions, sides.there.positions = {AT: 40}, {AT: 20}
    sides.forth.set_mark(GroupMark(source=20, to=20, before=None))
    carrier = sides.carrier()

    async def carry(rounds: int) -> None:
        for _ in range(rounds):
            await carrier.carry()

    run(lambda: carry(1))
    assert sides.forth.written == [GroupMark(source=40, to=40, before=20)], (
        "where it may be, until it is seen"
    )
    run(lambda: carry(3))
    assert sides.forth.written[1:] == [GroupMark(source=40, to=40, before=40)], "once"
    sides.there.positions = {AT: 20}
    run(lambda: carry(2))
    assert sides.there.positions == {AT: 20}
    assert carrier.groups[GROUP][0].decision.standing is GroupStanding.OWN


@pytest.mark.parametrize(
    ("position", "stood"),
    [(40, 20), (20, 40)],
    ids=["goes back by itself", "reads on to where it stood when it was brought back"],
)
def test_a_group_that_is_where_it_stood_before_it_was_seen_to_be_moved_has_moved_itself(
    sides: PlayedSides, position: int, stood: int
) -> None:
    sides.forth.pages_ = lane_ledger((0, 0, 100))
    sides.here.positions, sides.there.positions = {AT: position}, {AT: stood}
    sides.forth.set_mark(GroupMark(source=stood, to=stood, before=stood))
    carrier = sides.carrier()
    run(carrier.carry)
    assert sides.there.positions == {AT: position}
    sides.there.positions = {AT: stood}

    async def carry() -> None:
        await carrier.carry()
        await carrier.carry()

    run(carry)
    assert sides.there.positions == {AT: stood}
    assert carrier.groups[GROUP][0].decision.standing is GroupStanding.OWN
    assert sides.forth.written[1:] == [GroupMark(source=position, to=position, before=position)], "once"
    run(sides.carrier().carry)
    assert sides.there.positions == {AT: stood}, "for those who come later, too"


def test_what_could_not_be_committed_is_tried_again(sides: PlayedSides) -> None:
    sides.forth.pages_ = lane_ledger((0, 0, 100))
    sides.forth.set_mark(GroupMark(source=40, to=40, before=20))
    sides.here.positions, sides.there.positions = {AT: 40}, {AT: 20}
    run(sides.carrier().carry)
    assert sides.there.positions == {AT: 40}


def test_a_group_whose_position_is_refused_says_by_whom_and_why_until_it_is_taken(sides: PlayedSides) -> None:
    notes: list[tuple[str, dict[str, Any]]] = []
    sides.forth.note = lambda name, **details: notes.append((name, details))
    sides.forth.pages_ = lane_ledger((0, 0, 100))
    sides.here.positions, sides.there.refusal = {AT: 40}, ErrorCode.GROUP_AUTHORIZATION_FAILED
    carrier = sides.carrier()
    run(carrier.carry)
    run(carrier.carry)
    ((name, told),) = notes
    lacking = "the mirror lacks the right to Read group 'readers' at 'there'"
    assert (name, told["cluster"]) == ("group_refused", "there")
    assert lacking in told["error"]
    assert lacking in str(carrier.first_failure)
    sides.there.refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    run(carrier.carry)
    assert [name for name, _ in notes] == ["group_refused", "group_refused"]
    sides.there.refusal = None
    run(carrier.carry)
    assert (sides.there.positions, carrier.first_failure) == ({AT: 40}, None)


def test_groups_are_carried_from_a_cluster_that_cannot_list_all_that_they_committed(
    sides: PlayedSides,
) -> None:
    sides.here.lists_all = False
    sides.forth.pages_ = lane_ledger((0, 0, 100))
    sides.here.positions = {AT: 40}
    carrier = sides.carrier()
    run(carrier.carry)
    assert (sides.there.positions, carrier.failures) == ({AT: 40}, {})
