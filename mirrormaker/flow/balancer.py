"""What a process does for an even share of the work: it measures its buckets, and asks for a rebalance when
it has far more to do than the others. Owned by the copier; `run` it as a task.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Protocol

from broker.clock import Clock
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.bucket_rates import RateMeter, decode_load
from mirrormaker.flow.buckets import BucketAssignor, bucket_of
from mirrormaker.flow.load_watch import LoadWatch
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.topology.model import RouteSpec

MEASURE_INTERVAL_MS = 5_000


class Member(Protocol):
    """A member of the route's group."""

    @property
    def assignment(self) -> Collection[TopicPartition]: ...

    @property
    def assignment_user_data(self) -> bytes | None: ...

    def request_rejoin(self) -> None: ...


class Balancer:
    """See the module."""

    def __init__(self, route: RouteSpec, clock: Clock) -> None:
        self.members = 1
        """Processes of the route, as of the last generation of its group."""
        self._buckets = route.buckets
        self._clock = clock
        self._meter = RateMeter()
        self._watch = LoadWatch(clock.monotonic_ms())
        self.assignor = BucketAssignor(route.buckets, self._meter.rates)
        self._log = logger("copier").bind(route=route.name)

    def shared_out(self, member: Member) -> None:
        """A generation of the group began."""
        load = decode_load(member.assignment_user_data)
        held = {bucket_of(partition, self._buckets) for partition in member.assignment}
        self.members = max(load.members, 1)
        self.assignor.known = load.rates
        self._watch.shared_out(load, held, self._clock.monotonic_ms())

    async def run(self, machine: FlowMachine, member: Member) -> None:
        """Measure and compare, until cancelled."""
        while True:
            self.look(machine, member)
            await asyncio.sleep(MEASURE_INTERVAL_MS / 1000)

    def look(self, machine: FlowMachine, member: Member) -> None:
        """Measure once, and ask for a rebalance where that is due."""
        totals: Counter[int] = Counter()
        for partition in machine.partitions.values():
            totals[partition.bucket] += partition.copied_bytes
        now_ms = self._clock.monotonic_ms()
        self._meter.measure(totals, now_ms)
        rates = self._meter.rates()
        if self._watch.asks(rates, now_ms):
            self._log.info("rebalance_requested", bytes_per_second=sum(rates.values()), buckets=len(rates))
            member.request_rejoin()
