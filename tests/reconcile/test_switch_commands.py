"""Commands that say that they work on a failover group, and what is told of one that does not go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrormaker.reconcile.switch_board import describe_switch
from mirrormaker.reconcile.switch_commands import DEAD_MS, CommandWatch, command_key
from mirrormaker.reconcile.switches import Side, Stage, Switch, switch_key, switch_value
from mirrormaker.topology.failover_groups import FailoverGroup, failover_groups
from mirrormaker.topology.loader import load_topology

KEY = command_key("orders")
COMMAND = {"id": "1", "by": "ann@host", "pid": 7, "host": "host", "to": "standby", "beats": 0}
DRAINING = Switch(revision=1, side=Side.STANDBY, stage=Stage.DRAINING, fence={"orders": None})
FAILOVER, FAILBACK = "mirrormaker failover FILE orders", "mirrormaker failback FILE orders"


@pytest.fixture
def group() -> FailoverGroup:
    return failover_groups(load_topology(Path("topologies/disaster-recovery.yaml")))["orders"]


def test_a_command_is_at_work_while_what_it_says_changes() -> None:
    watch = CommandWatch()
    watch.take([(KEY, COMMAND), (switch_key("orders"), switch_value(DRAINING))], 10)
    assert watch.is_alive("orders", 9 + DEAD_MS)
    assert not watch.is_alive("orders", 10 + DEAD_MS)
    watch.take([(KEY, COMMAND)], DEAD_MS)
    assert not watch.is_alive("orders", 10 + DEAD_MS), "read once more"
    watch.take([(KEY, {**COMMAND, "beats": 1})], DEAD_MS)
    assert watch.is_alive("orders", 10 + DEAD_MS)
    watch.take([], DEAD_MS)
    assert (watch.told("orders"), watch.is_alive("orders", DEAD_MS)) == (None, False)


@pytest.mark.parametrize(
    ("switch", "command", "wanted"),
    [
        (DRAINING, COMMAND, f"run the same command again: {FAILOVER}, or to call it off: {FAILBACK}"),
        (DRAINING, None, f"run the same command again: {FAILOVER}, or to call it off: {FAILBACK}"),
        (Switch(side=Side.STANDBY, stage=Stage.SWITCHING), COMMAND, f"again: {FAILOVER}"),
        (Switch(side=Side.HOME, stage=Stage.SWITCHING), None, f"again: {FAILBACK}"),
        (Switch(side=Side.STANDBY, stage=Stage.TAIL), {**COMMAND, "to": "primary"}, f"again: {FAILBACK}"),
        (Switch(side=Side.STANDBY, stage=Stage.TAIL), COMMAND, f"again: {FAILOVER}"),
        (Switch(side=Side.STANDBY, stage=Stage.TAIL), None, f"again: {FAILOVER}"),
    ],
)
def test_a_switch_that_nobody_goes_on_with_is_a_problem_that_names_what_ends_it(
    group: FailoverGroup, switch: Switch, command: dict[str, Any] | None, wanted: str
) -> None:
    problem = describe_switch(group, switch, command)["problem"]
    assert problem.endswith(wanted)
    assert ("a command of ann@host (process 7 on host)" in problem) == (command is not None)
    assert describe_switch(group, switch, command, is_attended=True)["problem"] is None


@pytest.mark.parametrize("stage", [Stage.SETTLED, Stage.AWAY])
def test_a_switch_that_no_command_has_to_end_is_no_problem(group: FailoverGroup, stage: Stage) -> None:
    told = describe_switch(group, Switch(side=Side.STANDBY, stage=stage))
    assert (told["problem"], told["again"]) == (None, FAILOVER if stage is Stage.AWAY else None)


def test_the_side_that_is_fenced_is_named(group: FailoverGroup) -> None:
    told = describe_switch(group, DRAINING, COMMAND)
    assert (told["fenced_at"], told["fenced"]) == ("primary", ["orders"])
    assert told["command"] == {"by": "ann@host", "pid": 7, "host": "host", "to": "standby"}
    assert describe_switch(group, Switch())["fenced_at"] is None
