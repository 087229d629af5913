"""How long the way is has to be known before anything follows from it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import ConnectionFailedError
from mirrormaker.flow.pings import PING_INTERVAL_MS, Pings


class Time:
    """A clock that stands, but for what an answer takes."""

    ms = 1_000

    def monotonic_ms(self) -> int:
        return self.ms


class Far:
    """A connection, and the cluster that has it."""

    round_trip_ms = 150.0
    in_flight = 0

    def __init__(self, time: Time) -> None:
        self.time = time
        self.asked = 0
        self.error: Exception | None = None

    async def connection(self, broker: int, lane: str) -> Far:
        if self.error is not None:
            raise self.error
        return self

    async def request(self, request: Any) -> None:
        self.asked += 1
        self.time.ms += 120


def pings_of(far: Far) -> Pings:
    return Pings(cast(Cluster, far), lambda: {1}, cast(Clock, far.time))


def test_a_busy_connection_tells_what_its_first_exchange_took_and_is_asked_as_soon_as_it_can() -> None:
    far = Far(Time())
    pings = pings_of(far)
    far.in_flight = 1
    assert not asyncio.run(pings.ask()), "it is to be asked soon again"
    assert (pings.round_trips.longest_ms, far.asked) == (150.0, 0)
    far.in_flight = 0
    assert asyncio.run(pings.ask())
    assert (pings.round_trips.longest_ms, far.asked) == (120.0, 1)


def test_a_broker_is_asked_from_time_to_time_whether_it_answers_or_not() -> None:
    far = Far(Time())
    pings = pings_of(far)
    far.error = ConnectionFailedError("nobody is there")
    asyncio.run(pings.ask())
    far.error = None
    asyncio.run(pings.ask())
    assert far.asked == 0
    far.time.ms += PING_INTERVAL_MS
    asyncio.run(pings.ask())
    asyncio.run(pings.ask())
    assert far.asked == 1
