"""Which route writes which topic of a destination, for all daemons that share its routes. Pure.

Within a daemon whoever asks first has a topic (`claims`). Where two routes of a file could write one topic,
two daemons might decide that differently. So there the topic `__mirrormaker_claims` of the destination does:

    {"topic": T}    {"route": R, "daemon": ID, "at_ms"}

The first record of a topic counts, in the order of the log, until it is taken back: who comes later sees
that before it writes anything. What was written over is written anew, as compaction keeps the last record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrormaker.flow.kept_view import decode_document
from mirrormaker.topology.further_topics import may_write
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, Topology
from mirrormaker.topology.naming import TopicNaming, compile_naming

CLAIMS_TOPIC = "__mirrormaker_claims"
Topics = frozenset[str]


class TopicOwners:
    """What the records say; a `TopicView`."""

    def __init__(self) -> None:
        self.owners: dict[str, RouteName] = {}
        self.overwritten: set[str] = set()
        """Topics of which the last record is not that of the owner."""

    def __len__(self) -> int:
        return len(self.owners)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """See `TopicView`."""
        topic = decode_document(key).get("topic")
        if not isinstance(topic, str):
            raise ValueError("no topic is named")
        if value is None:
            self.owners.pop(topic, None)
            self.overwritten.discard(topic)
            return
        route = decode_document(value).get("route")
        if not isinstance(route, str):
            raise ValueError("no route is named")
        if self.owners.setdefault(topic, RouteName(route)) == route:
            self.overwritten.discard(topic)
        else:
            self.overwritten.add(topic)

    def clear(self) -> None:
        """See `TopicView`."""
        self.owners.clear()
        self.overwritten.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """A route that leads to the destination."""

    route: RouteSpec
    naming: TopicNaming

    @property
    def merges(self) -> bool:
        """Whether it shares its topics on purpose."""
        return self.route.topics.merge

    def may_write(self, topic: str) -> bool:
        """Whether there could be records at the source that it would bring there."""
        return may_write(self.route, self.naming, topic)


class Contenders:
    """The routes of a file that lead to one destination, in its order."""

    def __init__(self, topology: Topology, destination: ClusterName) -> None:
        self._writers = {
            route.name: _Writer(route=route, naming=compile_naming(route.source, route.topics))
            for route in topology.routes
            if route.destination == destination and route.may_run
        }
        self._known: dict[tuple[RouteName, str], bool] = {}

    @property
    def routes(self) -> Collection[RouteName]:
        """Their names."""
        return self._writers.keys()

    def rivals(self, route: RouteName, topic: str) -> bool:
        """Whether another route could write the topic that this one wants, and should not."""
        known = self._known.get((route, topic))
        if known is None:
            known = self._known[route, topic] = self._has_rivals(route, topic)
        return known

    def _has_rivals(self, route: RouteName, topic: str) -> bool:
        own = self._writers.get(route)
        return own is not None and any(
            other.may_write(topic)
            for name, other in self._writers.items()
            if name != route and not (own.merges and other.merges)
        )

    def wanted(self, asked: Mapping[RouteName, Topics]) -> dict[str, RouteName]:
        """Who is to have each topic that is asked for and contended: whoever stands first in the file."""
        wanted: dict[str, RouteName] = {}
        for route in self._writers:
            for topic in asked.get(route, ()):
                if topic not in wanted and self.rivals(route, topic):
                    wanted[topic] = route
        return wanted

    def granted(self, owners: Mapping[str, RouteName]) -> dict[RouteName, Topics]:
        """What each route may write of these topics: its own, and what others share with it on purpose."""
        found: dict[RouteName, set[str]] = defaultdict(set)
        sharing = self.sharing
        for topic, owner in owners.items():
            found[owner].add(topic)
            for route in sharing if owner in sharing else ():
                if self._writers[route].may_write(topic):
                    found[route].add(topic)
        return {route: frozenset(topics) for route, topics in found.items()}

    @property
    def sharing(self) -> Collection[RouteName]:
        """Those that share topics on purpose."""
        return [name for name, writer in self._writers.items() if writer.merges]


def destinations_of_several(topology: Topology) -> list[ClusterName]:
    """Destinations of several routes."""
    counts = Counter(route.destination for route in topology.routes if route.may_run)
    return [name for name, count in counts.items() if count > 1]
