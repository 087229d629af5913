"""What a route may use, and what it is measured by."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.topology.model.windows import Window

OLD_AFTER_MS = 60_000
"""Where the route has no objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Bounds of one route; sizes are those of one process."""

    buffer_bytes: int = 48 << 20
    """Fetched and not yet acknowledged by the destination, over all partitions."""
    partition_buffer_bytes: int | None = None
    """The same for one partition, so that a slow one cannot take all of the buffer; left out, 8 MiB, and half
    of the buffer where a cluster is far.
    """
    fetch_bytes: int | None = None
    """Answer size asked of a source node; left out, it follows from round trip and speed: 8 MiB at first."""
    fetch_partition_bytes: int | None = None
    """Answer size asked for one partition; left out, 1 MiB, and more of a busy one that is far."""
    produce_bytes: int | None = None
    """Size at which a produce request is full; left out, 1 MiB, more where much has to be under way, less
    under a low limit.
    """
    requests_in_flight: int | None = None
    """Produce requests under way to one destination node; left out, it follows from round trip and speed: 5
    where the node is near.
    """
    bytes_per_second: int | None = None
    """What the route may write; left out, there is no limit but the link's."""
    windows: tuple[Window, ...] = ()
    """Times of the week in which another limit holds."""
    priority: int = 5
    """Weight of the route among those that share a link with a limit: 10 gets ten times what 1 gets."""
    catch_up_bytes_per_second: int | None = None
    """What may be spent on old records, in partitions that are behind; left out, half of what the route gets
    while new ones wait, and all of it while none do.
    """
    workers: int = 1
    """Processes that the daemon runs for the route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What the route is expected to keep to; when it does not, status and metrics say so."""

    lag_seconds: int | None = None
    """How long a record may wait at the source before it is copied."""
    retention_margin_ms: int = 3_600_000
    """What the source will delete sooner than this before it is copied is told of, and copied first; half of
    what its topic keeps records for, where that is less.
    """
    audit_window_ms: int = 300_000
    """Span of time that records are counted by when both ends are compared."""

    @property
    def old_after_ms(self) -> int:
        """How long a record may wait before it counts as an old one, which others go before."""
        return OLD_AFTER_MS if self.lag_seconds is None else self.lag_seconds * 1000
