"""What a route may use, and what it is measured by."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.topology.model.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Bounds of one route; sizes are those of one process."""

    buffer_bytes: int = 48 << 20
    """Fetched and not yet acknowledged by the destination, over all partitions."""
    partition_buffer_bytes: int = 8 << 20
    """The same for one partition, so that a slow one cannot take all of the buffer."""
    fetch_bytes: int = 8 << 20
    """Answer size asked of a source node."""
    fetch_partition_bytes: int = 1 << 20
    """Answer size asked for one partition."""
    produce_bytes: int = 1 << 20
    """Size at which a produce request is full."""
    requests_in_flight: int = 5
    """Produce requests under way to one destination node."""
    bytes_per_second: int | None = None
    """What the route may write; left out, there is no limit but the link's."""
    windows: tuple[Window, ...] = ()
    """Times of the week in which another limit holds."""
    priority: int = 5
    """Share of a link that is too narrow for all: the higher goes first."""
    catch_up_bytes_per_second: int | None = None
    """What may be spent on old records while new ones arrive; left out, what the others leave."""
    workers: int = 1
    """Processes that the daemon runs for the route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What the route is expected to keep to; when it does not, status and metrics say so."""

    lag_seconds: int | None = None
    """Age that the oldest record not yet copied may have."""
    audit_window_ms: int = 300_000
    """Span of time that records are counted by when both ends are compared."""
