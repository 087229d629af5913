"""How fast a mirror copies a topic that was filled before."""

from __future__ import annotations

import asyncio
import time

import psutil

from broker.child_process import ChildProcess
from broker.client.cluster import Cluster
from broker.client.offsets import latest_offsets
from broker.types import HostPort, TopicPartition
from ops.bench.comparison.cases import Figure
from ops.bench.comparison.processor_time import cpu_seconds
from ops.bench.mirrors.cases import Copying
from ops.bench.mirrors.contenders import MIRROR_CORE, pin
from ops.bench.mirrors.filling import Filled, until_led

POLL_SECONDS = 0.02
START_TIMEOUT_SECONDS = 60.0
WARM_UP_SHARE_MAX = 0.3
"""Of the records, copied before anything counts."""
END_SHARE = 0.99
"""The last batches may wait for others."""


async def watch_copying(
    mirror: ChildProcess,
    destination: HostPort,
    copy: str,
    partitions: int,
    filled: Filled,
    *,
    warm_up_seconds: float,
    seconds: float,
) -> Copying:
    """What the mirror does in so many seconds after it has warmed up, or until it has nearly all. Raises
    SystemExit when nothing comes.
    """
    async with Cluster([destination]) as cluster:
        copies = [TopicPartition(copy, number) for number in range(partitions)]
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            await until_led(cluster, copies)
        watch = _Watch(mirror, cluster, copies)
        await watch.until_copied(1)
        warm_at = time.monotonic() + warm_up_seconds
        while time.monotonic() < warm_at and watch.reached < filled.records * WARM_UP_SHARE_MAX:
            await watch.look()
        if warm_up_seconds:
            pin(mirror.pid, MIRROR_CORE)
            await watch.look()
        return await watch.measure(seconds, filled)


class _Watch:
    """Looks at how far a copy is. `before` is the last look but one."""

    def __init__(self, mirror: ChildProcess, cluster: Cluster, copies: list[TopicPartition]) -> None:
        self.reached = 0
        self._mirror = mirror
        self._process = psutil.Process(mirror.pid)
        self._cluster = cluster
        self._copies = copies
        self._resident = 0
        self._at, self._cpu = time.monotonic(), cpu_seconds(mirror.pid)
        self._before = (self._at, self._cpu, 0)

    async def look(self) -> None:
        await asyncio.sleep(POLL_SECONDS)
        self._before = (self._at, self._cpu, self.reached)
        self.reached = sum((await latest_offsets(self._cluster, self._copies)).values())
        self._at, self._cpu = time.monotonic(), cpu_seconds(self._mirror.pid)
        self._resident = max(self._resident, self._process.memory_info().rss)
        if self._mirror.has_exited():
            raise SystemExit(self._mirror.log_tail())

    async def until_copied(self, records: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while self.reached < records:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._mirror.name} copied nothing:\n{self._mirror.log_tail()}")
            await self.look()

    async def measure(self, seconds: float, filled: Filled) -> Copying:
        """From the last look at which less was there until now."""
        started, cpu, reached = self._before
        while self.reached < filled.records * END_SHARE and self._at - started < seconds:
            await self.look()
        share = (self.reached - reached) / filled.records
        figure = Figure(
            bytes=int(share * filled.bytes), seconds=self._at - started, cpu_seconds=self._cpu - cpu
        )
        return Copying(figure=figure, resident_bytes=self._resident)
