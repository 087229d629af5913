"""Time, and the processor time that a cluster uses meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ops.bench.comparison.cases import Figure, Plan
from ops.bench.comparison.processor_time import cpu_seconds


class Stopwatch:
    """Runs from its making on. `leaders` are the broker ids of those who lead the partitions, if they count
    apart from the other nodes.
    """

    def __init__(self, plan: Plan, leaders: Sequence[int] = ()) -> None:
        self._pids = [node.pid for node in plan.nodes]
        self._leader = leaders[0] - 1 if len(leaders) == 1 else None
        self._cpu = self._cpu_seconds()
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    def figure(self, size: int) -> Figure:
        """What `size` bytes of record values took until now."""
        seconds = self.seconds
        used = [now - before for now, before in zip(self._cpu_seconds(), self._cpu, strict=True)]
        leader = 0.0 if self._leader is None else used[self._leader]
        return Figure(bytes=size, seconds=seconds, cpu_seconds=sum(used), leader_cpu_seconds=leader)

    def _cpu_seconds(self) -> list[float]:
        return [cpu_seconds(pid) for pid in self._pids]
