"""The pipelines that a daemon keeps to their schedules, as its topology says just now.

Owned by the daemon's event loop; each pipeline is one task (`pipelines/keeper`, and its `share` beside it).
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

from broker.clock import Clock
from mirrormaker.pipelines.keeper import PipelineKeeper
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_marks import digest_of, is_bound
from mirrormaker.pipelines.share import SharedPipeline, ShareWish
from mirrormaker.pipelines.turns import Turns
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.topology.model import PipelineName, PipelineSpec, Topology

LEAVE_SECONDS = 3.0
"""For telling the others that a pipeline is given up."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One pipeline."""

    keeper: PipelineKeeper
    share: SharedPipeline | None
    """None where there is no cluster at which daemons could agree."""
    task: asyncio.Task[None]


class PipelinePool:
    """See the module. `tasks` runs the keepers; `close` before it ends."""

    def __init__(self, daemon_id: str, clock: Clock, log_level: str, tasks: asyncio.TaskGroup) -> None:
        self._daemon_id = daemon_id
        self._clock = clock
        self._log_level = log_level
        self._tasks = tasks
        self._turns = Turns(1)
        self._kept: dict[PipelineName, _Kept] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._is_closed = False

    def desire(self, topology: Topology, source: TopologyText) -> None:
        """Keep from now on those that are enabled and have a schedule; none once `close` was called."""
        if self._is_closed:
            return
        self._turns.limit = topology.pipelines_at_once
        wanted = {
            each.name: each for each in topology.pipelines if each.enabled and each.schedule is not None
        }
        for name, kept in list(self._kept.items()):
            if name not in wanted or (wanted[name].cluster is None) != (kept.share is None):
                self._let_go(name)
        for name, pipeline in wanted.items():
            if (known := self._kept.get(name)) is None:
                self._take(pipeline, topology, source)
                continue
            known.keeper.change(pipeline, source)
            if known.share is not None:
                known.share.change(_wish_of(topology, pipeline))

    async def close(self) -> None:
        """End every run; the next start goes on where they were, or another daemon does."""
        self._is_closed = True
        for name in list(self._kept):
            self._let_go(name)
        if self._ending:
            await asyncio.wait(self._ending)

    def describe(self) -> dict[str, dict[str, Any]]:
        """Each as plain data."""
        return {name: kept.keeper.describe() for name, kept in self._kept.items()}

    def _take(self, pipeline: PipelineSpec, topology: Topology, source: TopologyText) -> None:
        name, share = pipeline.name, None
        if pipeline.cluster is not None:
            wish = _wish_of(topology, pipeline)
            share = SharedPipeline(name, wish, self._daemon_id, socket.gethostname(), self._clock)
        keeper = PipelineKeeper(
            pipeline,
            source,
            PipelineFolder(topology.data_dir, name),
            self._clock,
            self._log_level,
            turns=self._turns,
            share=share,
        )
        kept = keeper.run() if share is None else keep_shared(keeper, share)
        task = self._tasks.create_task(kept, name=f"pipeline {name}")
        self._kept[name] = _Kept(keeper, share, task)

    def _let_go(self, name: PipelineName) -> None:
        kept = self._kept.pop(name)
        kept.keeper.end()
        self._ending = [task for task in self._ending if not task.done()]
        self._ending.append(kept.task)


async def keep_shared(keeper: PipelineKeeper, share: SharedPipeline) -> None:
    """Run both until the keeper ends: other daemons get the pipeline once nothing of it runs here. Where the
    cluster cannot be reached they get it a session later.
    """
    share.attendant = keeper
    async with asyncio.TaskGroup() as tasks:
        sharing = tasks.create_task(share.run(), name=f"share of {keeper.pipeline.name}")
        await keeper.run()
        share.close()
        await asyncio.wait([sharing], timeout=LEAVE_SECONDS)
        sharing.cancel()


def _wish_of(topology: Topology, pipeline: PipelineSpec) -> ShareWish:
    assert pipeline.cluster is not None
    return ShareWish(
        cluster=topology.clusters[pipeline.cluster],
        generation=topology.generation,
        digest=digest_of(pipeline),
        is_bound=is_bound(pipeline),
    )
