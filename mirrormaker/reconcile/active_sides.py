"""Where the failover groups of a topology are at work, as the clusters themselves tell: for those who ask
while no daemon runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from broker.errors import BrokerError
from mirrormaker.clusters import OPEN_TIMEOUT_MS
from mirrormaker.flow.kept_view import Document
from mirrormaker.reconcile.control_records import read_control_records
from mirrormaker.reconcile.switch_commands import BEAT_MS, DEAD_MS, read_commands
from mirrormaker.reconcile.switches import Side, Switch, latest, read_switches
from mirrormaker.topology.failover_groups import FailoverGroup, failover_groups
from mirrormaker.topology.model import ClusterName, RouteSpec, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSide:
    """One group."""

    group: FailoverGroup
    switch: Switch
    """The last one, as far as told."""
    problems: Mapping[ClusterName, str] = field(default_factory=dict)
    """Why a cluster did not tell: it may know better."""
    commands: Mapping[ClusterName, Document] = field(default_factory=dict)
    """The command that says at a cluster that it works on the group."""
    is_attended: bool = False
    """Whether it does, as far as was looked."""

    @property
    def cluster(self) -> ClusterName:
        """Where records are written, or will be once it is settled."""
        return self.group.home if self.switch.side is Side.HOME else self.group.standby

    def runs(self, route: RouteSpec) -> bool:
        """Whether a route of the group is to be at work."""
        return self.switch.runs_from(Side.HOME if route.source == self.group.home else Side.STANDBY)


class _Told(NamedTuple):
    """What a cluster says, by group."""

    switches: Mapping[str, Switch]
    commands: Mapping[str, Document]


async def find_active_sides(topology: Topology) -> dict[str, ActiveSide]:
    """Where each group is; clusters that do not answer in time are told in `problems`."""
    groups = failover_groups(topology)
    names = sorted({name for group in groups.values() for name in (group.home, group.standby)})
    told = dict(zip(names, await asyncio.gather(*(_ask(topology, name) for name in names)), strict=True))
    return {name: _where(group, told) for name, group in groups.items()}


async def attend(topology: Topology, sides: Mapping[str, ActiveSide]) -> dict[str, ActiveSide]:
    """The same, and whether the commands that say that they work on groups which are on their way do so: that
    shows by what they say changing, for which it is waited.
    """
    attended, waited_ms = dict(sides), 0
    while waited_ms < DEAD_MS and (
        open_ := {
            name: each
            for name, each in attended.items()
            if each.switch.is_on_its_way and each.commands and not each.is_attended
        }
    ):
        await asyncio.sleep(BEAT_MS / 1000)
        waited_ms += BEAT_MS
        now = await find_active_sides(topology)
        attended |= {
            name: replace(now[name], is_attended=now[name].commands != each.commands)
            for name, each in open_.items()
        }
    return attended


async def read_switch(topology: Topology, group: FailoverGroup) -> Switch:
    """The last switch of one group, as both clusters tell. Raises BrokerError."""
    names = (group.home, group.standby)
    told = [read_switches(await read_control_records(topology.clusters[name])) for name in names]
    return latest(switches[group.name] for switches in told if group.name in switches)


async def _ask(topology: Topology, name: ClusterName) -> _Told | str:
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_MS / 1000):
            records = await read_control_records(topology.clusters[name])
            return _Told(read_switches(records), read_commands(records))
    except (BrokerError, TimeoutError) as error:
        return str(error) or f"cluster {name!r}: no answer within {OPEN_TIMEOUT_MS} ms"


def _where(group: FailoverGroup, told: Mapping[ClusterName, _Told | str]) -> ActiveSide:
    found: list[Switch] = []
    commands: dict[ClusterName, Document] = {}
    problems: dict[ClusterName, str] = {}
    for name in (group.home, group.standby):
        match told[name]:
            case str(problem):
                problems[name] = problem
            case _Told(switches=switches, commands=said):
                found += [switches[group.name]] if group.name in switches else []
                commands |= {name: said[group.name]} if group.name in said else {}
    return ActiveSide(group=group, switch=latest(found), problems=problems, commands=commands)


def as_switched(topology: Topology, groups: Mapping[str, ActiveSide]) -> Topology:
    """The topology with those routes of its groups enabled that are to be at work."""
    return replace(
        topology,
        routes=tuple(
            route
            if route.failover_group is None
            else replace(route, enabled=groups[route.failover_group].runs(route))
            for route in topology.routes
        ),
    )
