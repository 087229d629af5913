"""Bounds of the network side of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener allows; each field names its setting, prefixed with `listener.name.NAME.`."""

    connections_max: int = INT_MAX
    """`max.connections`."""
    creation_rate_max: int = INT_MAX
    """`max.connection.creation.rate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one node allows its peers; each field names its setting."""

    queued_bytes_max: int = -1
    """`queued.max.request.bytes`; below 1: any number."""
    request_size_max: int = 100 * 1024 * 1024
    """`socket.request.max.bytes`."""
    connections_max: int = INT_MAX
    """`max.connections`."""
    creation_rate_max: int = INT_MAX
    """`max.connection.creation.rate`."""
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    """What single listeners allow, by name."""
    connections_per_ip_max: int = INT_MAX
    """`max.connections.per.ip`."""
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`."""
    idle_ms_max: int = 600_000
    """`connections.max.idle.ms`; negative: never."""
    send_buffer_size: int = -1
    """`socket.send.buffer.bytes`; -1 leaves it to the kernel, which adapts it to the link."""
    receive_buffer_size: int = -1
    """`socket.receive.buffer.bytes`; likewise."""
    backlog_size: int = 1024
    """`socket.listen.backlog.size`."""

    def of_listener(self, name: str) -> ListenerLimits:
        """What a listener allows by itself."""
        return self.listeners.get(name, NO_LIMITS)


NO_LIMITS = ListenerLimits()
