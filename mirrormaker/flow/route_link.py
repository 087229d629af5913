"""What lies between the clusters of a route: how long and how wide it is, and what follows from that.

From time to time round trips and speed are looked at, and sizes and depths are set by them (`sizing`), and
limits by the time of day (`bandwidth`). Owned by the event loop of the route's copier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.client.cluster import Cluster
from broker.clock import Clock
from mirrormaker.flow.bandwidth.link import DANGER_WEIGHT, RouteBandwidth, RouteTerms
from mirrormaker.flow.bandwidth.links import Link, borrowed, need_of
from mirrormaker.flow.bandwidth.old_records import OldRecords
from mirrormaker.flow.bandwidth.schedule import Schedule
from mirrormaker.flow.bandwidth.shared_limits import catch_up_limit, route_limit
from mirrormaker.flow.bandwidth.statements import LimitName, Need
from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.pings import Pings
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.sizing import Ways, fetching, flow_config
from mirrormaker.flow.timing.route_timing import RouteTiming
from mirrormaker.flow.window_watch import WindowWatch
from mirrormaker.flow.writer import DestinationWriter
from mirrormaker.topology.model import RouteSpec

LOOK_INTERVAL_MS = 250
PINGED_INTERVAL_MS = 1_000
"""How soon it is looked whether there are other brokers to ask for their round trips."""
AHEAD_MS = 500
"""Fetched ahead under a limit, beside what round trips take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoundTrips:
    """What the topology says of them, in ms; None: measure."""

    source: int | None = None
    destination: int | None = None


class RouteLink:
    """See the module. `begin` once reader and writer are there; `run` then."""

    def __init__(
        self,
        route: RouteSpec,
        link: Link,
        expected: ExpectedRoundTrips,
        clock: Clock,
        timing: RouteTiming,
        *,
        on_admitted: Callable[[], None],
    ) -> None:
        """`timing` tells what is in danger. `on_admitted`: the machine is to be looked at."""
        self.route = route
        self.expected = expected
        self._link = link
        self._clock = clock
        self._timing = timing
        self._schedule = Schedule.of(route.resources)
        self._old_records: OldRecords | None = None
        self._source: Pings | None = None
        self._destination: Pings | None = None
        self._reader: SourceReader | None = None
        self._writer: DestinationWriter | None = None
        self._chunk_batches_max = 1
        self._config: FlowConfig | None = None
        self._windows = WindowWatch()
        self.bandwidth: RouteBandwidth = link.join(route.name, self._terms(), on_admitted, self)
        self.bandwidth.change(self._terms(), clock.monotonic_ms())

    def begin(
        self, source: Cluster, destination: Cluster, reader: SourceReader, writer: DestinationWriter
    ) -> None:
        """Reader and writer are there."""
        self._reader, self._writer = reader, writer
        self._source = Pings(source, lambda: reader.nodes, self._clock)
        self._destination = Pings(destination, lambda: writer.nodes, self._clock)
        self._old_records = OldRecords(reader.answers.histories)

    def change(self, route: RouteSpec, expected: ExpectedRoundTrips) -> None:
        """Other terms; in force with the next look."""
        self.route, self.expected = route, expected
        self._schedule = Schedule.of(route.resources)

    def leave(self) -> None:
        """The route has ended."""
        self._link.leave(self.route.name)

    def config(self, chunk_batches_max: int) -> FlowConfig:
        """Bounds as of now; `chunk_batches_max`: what the destination takes."""
        self._chunk_batches_max = chunk_batches_max
        self._config = flow_config(
            self.route.resources,
            self._ways(),
            chunk_batches_max=chunk_batches_max,
            copy=self.route.copy,
            batch=self.route.batch,
        )
        return self._config

    async def run(self, machine: FlowMachine) -> None:
        """Look from time to time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ping(), name="ping")
            while True:
                self.look(machine)
                await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    def look(self, machine: FlowMachine) -> None:
        """Put in force what follows from the ways, the file and the time of day as they are now."""
        assert self._reader is not None
        assert self._writer is not None
        former = self._config
        if self.config(self._chunk_batches_max) != former and self._config is not None:
            machine.configure(self._config)
        ways = self._ways()
        if self._config is not None and (piece_bytes := self._config.bound.answer_bytes):
            now_ms = self._clock.monotonic_ms()
            bound = self._windows.look(machine.partitions.values(), piece_bytes, ways.destination_ms, now_ms)
            machine.gather(partition.source for partition in bound)
        self._reader.configure(fetching(self.route.resources, ways), ways.source_ms)
        self._link.look()
        self.take_parts()
        self._writer.pump()

    def set_members(self, members: int) -> None:
        """So many processes run the route."""
        self._link.set_members(self.route.name, members, self.route.resources.workers)

    def needs(self) -> Mapping[LimitName, Need]:
        """Of its limits, where others share them."""
        name, members = self.route.name, self._members
        if members == 1:
            return {}
        limits = {
            route_limit(name): (self._limit(), self.bandwidth.appetite),
            catch_up_limit(name): (
                self.route.resources.catch_up_bytes_per_second,
                self.bandwidth.catch_up_appetite,
            ),
        }
        return {
            limit_name: need_of(appetite, limit, members)
            for limit_name, (limit, appetite) in limits.items()
            if limit
        }

    def take_parts(self) -> None:
        """Put terms in force as they are now, parts of limits among them."""
        now_ms = self._clock.monotonic_ms()
        self.bandwidth.appetite.look(now_ms)
        self.bandwidth.catch_up_appetite.look(now_ms)
        self.bandwidth.change(self._terms(), now_ms)

    async def _ping(self) -> None:
        assert self._source is not None
        assert self._destination is not None
        while True:
            are_asked = [await pings.ask() for pings in (self._source, self._destination)]
            await asyncio.sleep((PINGED_INTERVAL_MS if all(are_asked) else LOOK_INTERVAL_MS) / 1000)

    def _ways(self) -> Ways:
        return Ways(
            source_ms=_round_trip_ms(self.expected.source, self._source),
            destination_ms=_round_trip_ms(self.expected.destination, self._destination),
            delivery_rate=self._writer.delivery_rate if self._writer is not None else None,
            limit=self.bandwidth.limit if self._reader is not None else None,
        )

    def _terms(self) -> RouteTerms:
        resources, name, members = self.route.resources, self.route.name, self._members
        limit, part = self._limit(), self._link.part(route_limit(name), members)
        old_records = self._old_records
        if old_records is None:
            return RouteTerms(limit=limit, part=part, priority=resources.priority)
        haste = DANGER_WEIGHT if self._timing.hastens else 1
        old_records.wall_shift_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        old_records.lag_ms = self.route.objectives.old_after_ms
        ways = self._ways()
        return RouteTerms(
            limit=limit,
            part=part,
            priority=resources.priority * haste,
            catch_up_limit=resources.catch_up_bytes_per_second,
            catch_up_part=self._link.part(catch_up_limit(name), members),
            ahead_ms=AHEAD_MS + round(2 * (ways.source_ms + ways.destination_ms)),
            is_behind=old_records.is_behind,
            is_in_danger=self._timing.is_in_danger,
        )

    @property
    def _members(self) -> int:
        return self._link.members_of(self.route.name)

    def _limit(self) -> int | None:
        """Of the route, for all processes, at this time of the day."""
        return self._schedule.limit_at(self._clock.now_ms())

    def describe(self) -> dict[str, Any]:
        """For `status` and metrics; rates in bytes a second."""
        bandwidth, config = self.bandwidth, self._config
        rate = bandwidth.rate(self._clock.monotonic_ms())
        limit = bandwidth.limit
        return {
            "round_trip_ms": {
                "source": _by_broker(self._source),
                "destination": _by_broker(self._destination),
            },
            "fetches_at_a_time": self._reader.lanes if self._reader is not None else 1,
            "in_flight_bytes": config.in_flight_bytes if config is not None else None,
            "requests_in_flight": config.requests_in_flight if config is not None else None,
            "delivery_rate": self._writer.delivery_rate if self._writer is not None else None,
            "rate": round(rate),
            "limit": limit,
            "share_of_limit": rate / limit if limit else None,
            "throttled_ms": bandwidth.throttled_ms,
            "window_bound": self._windows.bound,
            "members": self._members,
            "borrowed": borrowed(bandwidth.terms.own_limit, self._limit(), self._members),
        }


def _round_trip_ms(expected: int | None, pings: Pings | None) -> float:
    if expected is not None:
        return expected
    measured = pings.round_trips.longest_ms if pings is not None else None
    return measured or 0.0


def _by_broker(pings: Pings | None) -> dict[str, float]:
    return {str(broker): took for broker, took in pings.round_trips.by_broker.items()} if pings else {}
