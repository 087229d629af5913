"""Asks brokers for next to nothing from time to time, to know how long the way is.

On the connection for questions, where nothing large stands in line. Owned by the event loop of the route's
copier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.client.cluster import CONTROL_LANE, Cluster
from broker.clock import Clock
from broker.errors import BrokerError
from broker.wire.messages.api_versions import ApiVersionsRequest
from mirrormaker.flow.round_trips import RoundTrips

PING_INTERVAL_MS = 5_000
SOFTWARE_NAME, SOFTWARE_VERSION = "mirrormaker", "0"


class Pings:
    """Round trips to the brokers of one cluster that the route uses."""

    def __init__(self, cluster: Cluster, used: Callable[[], Iterable[int]], clock: Clock) -> None:
        """`used`: brokers to ask, at any time."""
        self.round_trips = RoundTrips()
        self._cluster = cluster
        self._used = used
        self._clock = clock
        self._asked_at_ms: dict[int, int] = {}

    async def ask(self) -> bool:
        """Ask those that have not been asked for a while; one that does not answer is asked later. Whether
        all were asked lately.
        """
        now_ms = self._clock.monotonic_ms()
        used = set(self._used())
        self.round_trips.keep(used)
        for broker in used:
            asked_at_ms = self._asked_at_ms.get(broker)
            if asked_at_ms is None or now_ms - asked_at_ms >= PING_INTERVAL_MS:
                await self._ask(broker, now_ms)
        return used <= self._asked_at_ms.keys()

    async def _ask(self, broker: int, now_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        try:
            connection = await self._cluster.connection(broker, CONTROL_LANE)
            if broker not in self.round_trips.by_broker:  # from before anything was copied
                self.round_trips.observe(broker, connection.round_trip_ms, now_ms)
            if connection.in_flight:
                return  # it would wait for other answers: soon again
            self._asked_at_ms[broker] = started_ms = self._clock.monotonic_ms()
            await connection.request(request)
        except BrokerError:
            self._asked_at_ms[broker] = now_ms
            return
        now_ms = self._clock.monotonic_ms()
        self.round_trips.observe(broker, now_ms - started_ms, now_ms)
