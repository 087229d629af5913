"""Which routes of a failover group are to be at work, by its last switch."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.reconcile.active_sides import ActiveSide, as_switched
from mirrormaker.reconcile.switches import Side, Stage, Switch
from mirrormaker.topology.failover_groups import failover_groups
from mirrormaker.topology.loader import load_topology

EXAMPLE = Path("topologies/disaster-recovery.yaml")


@pytest.mark.parametrize(
    ("side", "stage", "wanted"),
    [
        (Side.HOME, Stage.SETTLED, ["forth"]),
        (Side.STANDBY, Stage.SETTLED, ["back"]),
        (Side.STANDBY, Stage.DRAINING, ["forth"]),
        (Side.STANDBY, Stage.SWITCHING, []),
        (Side.STANDBY, Stage.AWAY, []),
        (Side.STANDBY, Stage.TAIL, ["forth"]),
        (Side.HOME, Stage.DRAINING, ["back"]),
    ],
)
def test_plans_are_made_for_the_routes_that_the_last_switch_has_at_work(
    side: Side, stage: Stage, wanted: list[str]
) -> None:
    topology = load_topology(EXAMPLE)
    (group,) = failover_groups(topology).values()
    active = ActiveSide(group=group, switch=Switch(side=side, stage=stage))
    assert active.cluster == ("primary" if side is Side.HOME else "standby")
    switched = as_switched(topology, {group.name: active})
    assert [route.name for route in switched.routes if route.enabled] == wanted
