"""How far groups of a failover group are carried, by what was found at its idle side."""

from __future__ import annotations

from pathlib import Path

from broker.clock import SystemClock
from broker.types import TopicPartition
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.switch_board import SwitchBoard
from mirrormaker.reconcile.switches import NEVER_SWITCHED, IdleTail
from mirrormaker.topology.failover_groups import failover_groups
from mirrormaker.topology.loader import load_topology


def test_what_was_found_under_another_switch_holds_no_group() -> None:
    topology = load_topology(Path("topologies/disaster-recovery.yaml"))
    (group,), clock, first = (
        failover_groups(topology).values(),
        SystemClock(),
        {TopicPartition("orders", 0): 7},
    )
    found: list[IdleTail] = []
    boards = [ControlBoard(topology.clusters[name], clock) for name in (group.home, group.standby)]
    switch = SwitchBoard(
        group, group.leaving(group.home)[0], *boards, clock, lambda: found[-1] if found else None
    )
    assert switch.unread() == {}
    found.append(IdleTail(revision=NEVER_SWITCHED.revision, first=first))
    assert switch.unread() == first
    found.append(IdleTail(revision=NEVER_SWITCHED.revision + 1, first=first))
    assert switch.unread() == {}, "this process has not heard of that switch, or that one of this"
