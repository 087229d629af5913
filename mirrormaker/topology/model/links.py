"""Links: what all routes between two clusters share."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.topology.model.names import ClusterName
from mirrormaker.topology.model.simulation import SimulatedLink
from mirrormaker.topology.model.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """Limits of the way from one cluster to another, shared by all routes on it."""

    source: ClusterName
    """The cluster that it leads from."""
    destination: ClusterName
    """The cluster that it leads to."""
    bytes_per_second: int | None = None
    """What all routes together may write; left out, there is no limit."""
    windows: tuple[Window, ...] = ()
    """Times of the week in which another limit holds."""
    simulate: SimulatedLink = field(default_factory=SimulatedLink)
    """What a simulation assumes of it."""
