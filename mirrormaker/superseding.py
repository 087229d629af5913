"""Which routes of a daemon another one runs by a newer file, as each of them found last: one that starts
anew, or cannot ask its destination, has not found anything else yet. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrormaker.route_runner import RouteState
from mirrormaker.topology.model import RouteName, Topology

_UNDECIDED = frozenset({RouteState.STARTING.value, RouteState.STOPPED.value})


class SupersededRoutes:
    """See the module."""

    def __init__(self) -> None:
        self._reasons: dict[RouteName, str] = {}

    def take(self, topology: Topology, routes: Mapping[str, Mapping[str, Any]]) -> Mapping[RouteName, str]:
        """Take what routes of the topology tell now, by name; those that do not run tell nothing. Returns why
        each of those is left to another daemon that is.
        """
        names = [route.name for route in topology.routes if route.may_run]
        reasons = {name: self._reason(name, routes.get(name)) for name in names}
        self._reasons = {name: reason for name, reason in reasons.items() if reason is not None}
        return self._reasons

    def _reason(self, name: RouteName, told: Mapping[str, Any] | None) -> str | None:
        if told is None or told["state"] in _UNDECIDED:
            return self._reasons.get(name)
        if told["state"] == RouteState.FAILED.value and told["control_problem"] is not None:
            return self._reasons.get(name)
        return told["error"] if told["state"] == RouteState.SUPERSEDED.value else None
