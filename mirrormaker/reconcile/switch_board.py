"""What the control topics of both clusters of a failover group say of its last switch.

A route of the group runs only when both have been read: the one that has not may know better. To stand by,
one of them is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.clock import Clock
from broker.errors import ConnectionFailedError
from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.switch_commands import name_command
from mirrormaker.reconcile.switches import IdleTail, Side, Stage, Switch, latest
from mirrormaker.topology.failover_groups import FailoverGroup
from mirrormaker.topology.model import RouteName, RouteSpec

_COMMAND_KEYS = ("by", "pid", "host", "to")


class SwitchBoard:
    """For one route of a group."""

    def __init__(
        self,
        group: FailoverGroup,
        route: RouteSpec,
        source: ControlBoard,
        destination: ControlBoard,
        clock: Clock,
        find_tail: Callable[[], IdleTail | None],
    ) -> None:
        """`find_tail`: what the daemon found at the idle side."""
        self.group = group
        self.side = Side.HOME if route.source == group.home else Side.STANDBY
        """The one that the route leads from."""
        self._source = source
        self._destination = destination
        self._clock = clock
        self._find_tail = find_tail

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

    def unread(self) -> Mapping[TopicPartition, int]:
        """While the route carries groups: by partition of its destination, the first record that only that
        one has, as far as found.
        """
        tail = self._find_tail()
        return {} if tail is None or tail.revision != self.known.revision else tail.first

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
        now_ms, name = self._clock.monotonic_ms(), self.group.name
        watches = self._source.commands, self._destination.commands
        command = next((told for each in watches if (told := each.told(name)) is not None), None)
        is_attended = any(each.is_alive(name, now_ms) for each in watches)
        return describe_switch(self.group, self.known, command, is_attended=is_attended)


def describe_switch(
    group: FailoverGroup, switch: Switch, command: Document | None = None, *, is_attended: bool = False
) -> dict[str, Any]:
    """The group as plain data. `command`: the one that says that it works on it; `is_attended`: it does."""
    clusters = {Side.HOME: group.home, Side.STANDBY: group.standby}
    is_left = switch.is_on_its_way and not is_attended
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
        "fenced_at": clusters[switch.side.other] if switch.fence else None,
        "command": None if command is None else {key: command.get(key) for key in _COMMAND_KEYS},
        "attended": is_attended,
        "again": _again(group, switch, command),
        "problem": _describe_left(group, switch, command) if is_left else None,
        "tail": dict(switch.tail),
        "routes": [route.name for route in group.routes],
    }


def _again(group: FailoverGroup, switch: Switch, command: Document | None) -> str | None:
    """What people are to say to end what was begun."""
    if switch.stage is Stage.SETTLED:
        return None
    target = switch.side
    if switch.stage is Stage.TAIL and command is not None:  # what it was to do next
        target = Side.HOME if command.get("to") == group.home else Side.STANDBY
    return _command_line(group, target)


def _command_line(group: FailoverGroup, target: Side) -> str:
    return f"mirrormaker {'failback' if target is Side.HOME else 'failover'} FILE {group.name}"


def _describe_left(group: FailoverGroup, switch: Switch, command: Document | None) -> str:
    """Who does not go on with a switch that is on its way, and what does."""
    who = "no command is at work on that"
    if command is not None:
        who = f"{name_command(command)} does not go on with that: it was killed, or hangs"
    again = f"run the same command again: {_again(group, switch, command)}"
    off = f", or to call it off: {_command_line(group, switch.side.other)}"
    return f"{who}; {again}{off if switch.stage is Stage.DRAINING else ''}"
