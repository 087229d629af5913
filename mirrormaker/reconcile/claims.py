"""Which route writes which topic of a destination: never two, unless they share it on purpose. Pure.

In one process the first route that asks has a topic. Where routes to one destination are run by several
processes of a daemon, the daemon decides (`workers/shared_claims`): a worker asks, and writes a topic once
that is granted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mirrormaker.topology.model import RouteName

Topics = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who has what of one destination, by another process's word."""

    granted: Mapping[RouteName, Topics]
    sharing: Collection[RouteName]
    """Routes that share topics on purpose."""


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
        claims = self._claims if decision is None else decision.granted
        sharing = self._sharing if decision is None else decision.sharing
        return {
            topic: owner
            for owner, topics in claims.items()
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
        claimed = self._claims.get(route, frozenset())
        if self._decision is None:
            return claimed
        return claimed & self._decision.granted.get(route, frozenset())

    def all(self) -> Mapping[RouteName, Topics]:
        """What each route claims."""
        return self._claims
