"""Records of switches: which routes run, and which record counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrormaker.reconcile.switches import (
    NEVER_SWITCHED,
    Side,
    Stage,
    Switch,
    latest,
    read_switches,
    switch_key,
    switch_value,
)

SWITCH = Switch(
    revision=7,
    epoch=2,
    side=Side.STANDBY,
    stage=Stage.TAIL,
    forced=True,
    at_ms=5,
    by="somebody",
    fence={"orders": None, "payments": "1000"},
    tail={"choice": "copy"},
    until={"orders-0": 9},
)


@pytest.mark.parametrize(
    ("stage", "home", "standby"),
    [
        (Stage.SETTLED, False, True),
        (Stage.DRAINING, True, False),
        (Stage.SWITCHING, False, False),
        (Stage.AWAY, False, False),
        (Stage.TAIL, True, False),
    ],
)
def test_routes_run_from_one_side_at_most(stage: Stage, home: bool, standby: bool) -> None:
    switch = replace(SWITCH, stage=stage)
    assert (switch.runs_from(Side.HOME), switch.runs_from(Side.STANDBY)) == (home, standby)
    other = replace(switch, side=Side.HOME)
    assert (other.runs_from(Side.STANDBY), other.runs_from(Side.HOME)) == (home, standby)


@pytest.mark.parametrize("stage", Stage)
def test_groups_are_moved_by_routes_from_the_side_at_work_once_it_is_settled(stage: Stage) -> None:
    switch = replace(SWITCH, stage=stage)
    assert switch.carries_from(Side.STANDBY) == (stage is Stage.SETTLED)
    assert not switch.carries_from(Side.HOME)
    assert NEVER_SWITCHED.carries_from(Side.HOME)


def test_what_was_written_is_read_and_what_is_not_understood_passed_over() -> None:
    records = [
        (switch_key("orders"), switch_value(SWITCH)),
        (switch_key("other"), {"epoch": 1}),
        (switch_key("third"), {**switch_value(SWITCH), "stage": "unheard of"}),
        (switch_key("fourth"), {**switch_value(SWITCH), "at_ms": float("inf")}),
        (switch_key("fifth"), {**switch_value(SWITCH), "until": {"orders-0": float("inf")}}),
        ({"route": "forth"}, {"generation": 1}),
    ]
    assert read_switches(records) == {"orders": SWITCH}


def test_the_greatest_revision_counts_and_without_any_the_group_is_at_home() -> None:
    older = replace(SWITCH, revision=6, at_ms=9)
    assert latest([older, SWITCH]) == latest([SWITCH, older]) == SWITCH
    assert latest([]) == NEVER_SWITCHED
    assert NEVER_SWITCHED.runs_from(Side.HOME)
