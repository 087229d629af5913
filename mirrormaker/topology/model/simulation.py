"""What `mirrormaker plan --simulate` is to assume. Nothing else looks at it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which nothing passes."""

    after_ms: int
    """When it begins, from the start of the simulation on."""
    lasts_ms: int
    """How long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCluster:
    """A cluster in a simulation."""

    in_bytes_per_second: int | None = None
    """What it can take from all routes together; left out, there is no limit."""
    out_bytes_per_second: int | None = None
    """What it can give to all routes together; left out, there is no limit."""
    outages: tuple[Outage, ...] = ()
    """Times in which its mirrors cannot reach it; what is produced there goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLink:
    """A link in a simulation."""

    bytes_per_second: int | None = None
    """Its size; left out, 12.5 GB (100 Gbit/s)."""
    round_trip_ms: int = 0
    """Its round trip."""
    outages: tuple[Outage, ...] = ()
    """Times in which it is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRoute:
    """A route in a simulation. Sizes are those of batches as they cross."""

    bytes_per_second: int = 0
    """What is produced into its topics, on average over the day."""
    by_hour: tuple[int, ...] = ()
    """How that is spread: 24 numbers, for each hour of the day (UTC) the percentage of the average; left out,
    evenly.
    """
    partitions: int = 1
    """How many partitions its topics have."""
    hottest_percent: int | None = None
    """The part of the bytes that the busiest partition gets; left out, all get the same."""
    batch_bytes: int = 16 << 10
    """How large a batch is as it was produced."""
    behind_bytes: int = 0
    """What is still to be copied at the start."""
    retention_ms: int | None = None
    """How long the source keeps records; left out, for ever."""
