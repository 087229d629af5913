"""What a copier works with beside its route and the two clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.coordination.protocol import Coordination
from mirrormaker.flow.arbiter import Halts
from mirrormaker.flow.books import Books
from mirrormaker.flow.heartbeats.passage import HeartbeatPassage
from mirrormaker.flow.origin_registry import OriginRegistry
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.timing.route_timing import RouteTiming
from mirrormaker.topology.model import RouteSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteParts:
    """Of one route; they come ready for use."""

    instance_id: str
    """A name of this process that survives its restarts; the group keeps its partitions for it."""
    halts: Halts
    events: RouteEvents
    timing: RouteTiming
    look_at_topics: Callable[[], None]
    """Has what is copied decided about anew, soon; `RouteCopier.set_topics` is called then."""
    heartbeats: HeartbeatPassage | None = None
    """For a route that carries them."""
    books: Books | None = None
    """Written before positions are committed."""
    origins: OriginRegistry | None = None
    """For a route with provenance."""
    coordination: Coordination | None = None
    """A session with the source's ZooKeeper, when that is where the group meets."""
    find_beside: Callable[[], Sequence[RouteSpec]] = tuple
    """Other routes that may bring the same topics to the same topics, by the file of now."""
