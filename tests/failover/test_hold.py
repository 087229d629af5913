"""Being the command that switches a group."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.clock import SystemClock
from mirrormaker.failover.hold import hold
from mirrormaker.failover.sides import open_sides
from mirrormaker.reconcile.control_board import TIMEOUT_MS
from mirrormaker.reconcile.switches import Side
from mirrormaker.topology.failover_groups import failover_groups
from mirrormaker.topology.loader import load_topology
from tests.client.running import run
from tests.conftest import ClusterFactory
from tests.daemon.failover_pair import group_file


@pytest.mark.timeout(120)
def test_a_command_that_is_interrupted_does_not_wait_for_a_side_that_is_gone(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    clusters = {name: cluster(name) for name in ("primary", "standby")}
    topology = load_topology(group_file(tmp_path, clusters))
    (group,) = failover_groups(topology).values()

    async def main() -> float:
        now = asyncio.get_running_loop().time
        async with open_sides(topology, group, SystemClock()) as sides, AsyncExitStack() as stack:
            await stack.enter_async_context(hold(sides, Side.STANDBY, print))
            await asyncio.to_thread(clusters["standby"].kill_node, 1)
            began = now()
            await stack.aclose()
            return now() - began

    assert run(main) < TIMEOUT_MS / 1000
