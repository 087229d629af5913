"""The pipelines that a daemon keeps to their schedules, as its topology says just now.

Owned by the daemon's event loop; each pipeline is one task (`pipelines/keeper`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from broker.clock import Clock
from mirrormaker.pipelines.keeper import PipelineKeeper
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.turns import Turns
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.topology.model import PipelineName, PipelineSpec, Topology


class PipelinePool:
    """See the module. `tasks` runs the keepers; `close` before it ends."""

    def __init__(self, clock: Clock, log_level: str, tasks: asyncio.TaskGroup) -> None:
        self._clock = clock
        self._log_level = log_level
        self._tasks = tasks
        self._turns = Turns(1)
        self._keepers: dict[PipelineName, PipelineKeeper] = {}
        self._running: dict[PipelineName, asyncio.Task[None]] = {}
        self._ending: list[asyncio.Task[None]] = []

    def desire(self, topology: Topology, source: TopologyText) -> None:
        """Keep these from now on: those that are enabled and have a schedule."""
        self._turns.limit = topology.pipelines_at_once
        wanted = {
            each.name: each for each in topology.pipelines if each.enabled and each.schedule is not None
        }
        for name in self._keepers.keys() - wanted.keys():
            self._let_go(name)
        for name, pipeline in wanted.items():
            if name in self._keepers:
                self._keepers[name].change(pipeline, source)
            else:
                self._take(pipeline, topology, source)

    async def close(self) -> None:
        """End every run; the next start goes on where they were."""
        for name in list(self._keepers):
            self._let_go(name)
        if self._ending:
            await asyncio.wait(self._ending)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Each as plain data."""
        return {name: keeper.describe() for name, keeper in self._keepers.items()}

    def _take(self, pipeline: PipelineSpec, topology: Topology, source: TopologyText) -> None:
        folder = PipelineFolder(topology.data_dir, pipeline.name)
        keeper = PipelineKeeper(pipeline, source, folder, self._clock, self._log_level, turns=self._turns)
        self._keepers[pipeline.name] = keeper
        task = self._tasks.create_task(keeper.run(), name=f"pipeline {pipeline.name}")
        self._running[pipeline.name] = task

    def _let_go(self, name: PipelineName) -> None:
        self._keepers.pop(name).end()
        self._ending = [task for task in self._ending if not task.done()]
        self._ending.append(self._running.pop(name))
