"""Which route writes which topic of a destination: never two, unless they share it on purpose. Pure.

In one process the first route that asks has a topic. Where routes to one destination are run by several
processes of a daemon, the daemon decides (`workers/shared_claims`): a worker asks, and writes a topic once
that is granted. About topics that several routes of the file could write all its daemons decide together
(`topic_owners`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from mirrormaker.topology.model import RouteName

Topics = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who has what of one destination, by another process's word."""

    granted: Mapping[RouteName, Topics]
    sharing: Collection[RouteName]
    """Routes that share topics on purpose."""
    is_about: Callable[[RouteName, str], bool] | None = None
    """Whether it says who has a topic that a route wants, or this process does. None: it does always."""


class DestinationClaims:
    """Those of one destination cluster."""

    def __init__(self) -> None:
        self._claims: dict[RouteName, Topics] = {}
        self._sharing: set[RouteName] = set()
        self._decision: Decision | None = None

    def decide(self, decision: Decision | None) -> None:
        """Others decide from now on; None: this process does."""
        self._decision = decision

    def of_others(self, route: RouteName, *, shares: bool = False) -> Mapping[str, RouteName]:
        """Topics that routes other than `route` write; if it `shares`, without those that they share too."""
        decision = self._decision
        sharing = self._sharing if decision is None else {*self._sharing, *decision.sharing}
        return {
            topic: owner
            for owner, topics in self._in_force().items()
            if owner != route and not (shares and owner in sharing)
            for topic in topics
        }

    def claim(self, route: RouteName, topics: Topics, *, shares: bool = False) -> None:
        """`route` writes these now, and nothing else. Those that belong to another stay the other's."""
        self._claims[route] = topics - self.of_others(route, shares=shares).keys()
        if shares:
            self._sharing.add(route)
        else:
            self._sharing.discard(route)

    def granted(self, route: RouteName) -> Topics:
        """What it claimed, as far as it may be written by now."""
        return self._claims.get(route, frozenset()) & self._in_force().get(route, frozenset())

    def _in_force(self) -> Mapping[RouteName, Topics]:
        """Who has what by now."""
        decision = self._decision
        if decision is None:
            return self._claims
        is_about = decision.is_about
        if is_about is None:
            return decision.granted
        return {
            route: decision.granted.get(route, frozenset())
            | {topic for topic in self._claims.get(route, ()) if not is_about(route, topic)}
            for route in self._claims.keys() | decision.granted.keys()
        }

    def all(self) -> Mapping[RouteName, Topics]:
        """What each route claims."""
        return self._claims
