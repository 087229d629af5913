"""What the control topics of both clusters of a failover group say of its last switch.

A route of the group runs only when both have been read: the one that has not may know better. To stand by,
one of them is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.errors import ConnectionFailedError
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.switches import Side, Switch, latest
from mirrormaker.topology.failover_groups import FailoverGroup
from mirrormaker.topology.model import RouteName, RouteSpec


class SwitchBoard:
    """For one route of a group."""

    def __init__(
        self, group: FailoverGroup, route: RouteSpec, source: ControlBoard, destination: ControlBoard
    ) -> None:
        self.group = group
        self.side = Side.HOME if route.source == group.home else Side.STANDBY
        """The one that the route leads from."""
        self._source = source
        self._destination = destination

    def listen(self, route: RouteName, on_change: Callable[[], None], events: RouteEvents) -> None:
        """As a board's, of the source; the destination's is listened to anyway."""
        self._source.listen(route, on_change, events)

    def forget(self, route: RouteName) -> None:
        """Nobody listens for it any more."""
        self._source.forget(route)

    @property
    def known(self) -> Switch:
        """The last switch, as far as known."""
        found = (board.known_switch(self.group.name) for board in (self._source, self._destination))
        return latest(switch for switch in found if switch is not None)

    def carries(self) -> bool:
        """Whether the route is to move groups along, as far as known."""
        return self.known.carries_from(self.side)

    async def runs(self) -> bool:
        """Whether the route is to run. Raises ConnectionFailedError when that cannot be told."""
        missing: ConnectionFailedError | None = None
        found: list[Switch] = []
        for board in (self._source, self._destination):
            try:
                switch = await board.switch(self.group.name)
            except ConnectionFailedError as error:
                missing = error
            else:
                found += [] if switch is None else [switch]
        if not latest(found).runs_from(self.side):
            return False
        if missing is not None:
            raise missing
        return True

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        return describe_switch(self.group, self.known)


def describe_switch(group: FailoverGroup, switch: Switch) -> dict[str, Any]:
    """The group as plain data."""
    clusters = {Side.HOME: group.home, Side.STANDBY: group.standby}
    return {
        "group": group.name,
        "home": group.home,
        "standby": group.standby,
        "side": switch.side.value,
        "cluster": clusters[switch.side],
        "stage": switch.stage.value,
        "revision": switch.revision,
        "epoch": switch.epoch,
        "forced": switch.forced,
        "at_ms": switch.at_ms,
        "by": switch.by,
        "fenced": sorted(switch.fence),
        "tail": dict(switch.tail),
        "routes": [route.name for route in group.routes],
    }
