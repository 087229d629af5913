"""Who may connect: how many at a time and how quickly, over all listeners of a node.

Connections over a limit are closed as soon as they are accepted. Nodes among themselves are never kept out by
`max.connections`, where they have a listener of their own: there the connection of somebody else that was
silent for longest makes room. Connections that come too quickly wait in the kernel's queue, so that a storm
is served evenly; those of one address, where that is limited by a quota, are closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.cluster.client_quotas import QuotaTable
from broker.rates import RateWindows, WindowedRate
from broker.server.config import INT_MAX, ConnectionLimits
from broker.server.security import Listener

RATES_MAX = 10_000
"""Addresses whose rates are remembered; of more the oldest is forgotten."""


class Connections(Protocol):
    """The connections of one processor."""

    @property
    def connection_count(self) -> int: ...

    def connections_of(self, host: str) -> int:
        """Those from one address."""
        ...

    def connections_on(self, listener: str) -> int:
        """Those that came in on one listener."""
        ...

    def close_quietest(self, *, not_on: str) -> bool:
        """Close the one that was silent for longest, but none on that listener; whether there was any."""
        ...


class Admission:
    """One for all acceptors of a node; owned by its event loop."""

    def __init__(
        self,
        processors: Sequence[Connections],
        quotas: QuotaTable,
        windows: RateWindows,
        now_ms: Callable[[], int],
        *,
        protected: str | None,
    ) -> None:
        self._processors = processors
        self._quotas = quotas
        self._windows = windows
        self._now_ms = now_ms
        self._protected = protected
        """The listener of the nodes among themselves, None where it is everybody's."""
        self._rate = WindowedRate(windows)
        self._rates_on: dict[str, WindowedRate] = {}
        self._rates_of: OrderedDict[str, WindowedRate] = OrderedDict()

    def refusal(self, listener: Listener, host: str, limits: ConnectionLimits) -> str:
        """Why an accepted connection must be closed; empty: it need not, and it is counted."""
        own = limits.of_listener(listener.name)
        if sum(each.connections_on(listener.name) for each in self._processors) >= own.connections_max:
            return f"listener.name.{listener.name.lower()}.max.connections is {own.connections_max}"
        allowed = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if sum(each.connections_of(host) for each in self._processors) >= allowed:
            return f"max.connections.per.ip is {allowed} for {host}"
        if not self._is_slow_enough(host):
            return f"connection_creation_rate of {host} is exceeded"
        if sum(each.connection_count for each in self._processors) >= limits.connections_max and not (
            listener.name == self._protected and self._make_room()
        ):
            return f"max.connections is {limits.connections_max}"
        return ""

    def rest_ms(self, listener: Listener, limits: ConnectionLimits) -> int:
        """Count an accepted connection; how long nothing more is to be accepted on its listener."""
        now_ms, own = self._now_ms(), limits.of_listener(listener.name)
        rates = [
            (self._rates_on.setdefault(listener.name, WindowedRate(self._windows)), own.creation_rate_max)
        ]
        if listener.name != self._protected:
            rates.append((self._rate, limits.creation_rate_max))
        rest_ms = 0
        for rate, bound in rates:
            if bound == INT_MAX:
                continue
            rate.record(1, now_ms)
            rest_ms = max(rest_ms, rate.throttle_ms(bound, now_ms))
        return min(rest_ms, self._windows.size_ms)

    def _is_slow_enough(self, host: str) -> bool:
        """Connections that are refused for their rate do not count."""
        bound = self._quotas.of_address(host)
        if bound is None:
            return True
        now_ms = self._now_ms()
        rate = self._rates_of.setdefault(host, WindowedRate(self._windows))
        if len(self._rates_of) > RATES_MAX:
            self._rates_of.popitem(last=False)
        rate.record(1, now_ms)
        if not rate.throttle_ms(bound, now_ms):
            return True
        rate.record(-1, now_ms)
        return False

    def _make_room(self) -> bool:
        protected = self._protected or ""
        return any(each.close_quietest(not_on=protected) for each in self._processors)
