"""What a plan has to do with the daemon on the same `data_dir`: the routes that it runs by the topology that
it has in force, and waiting until it has another one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from broker.errors import ConfigurationError
from mirrormaker.plan.steps import ChangeRoute, RestartRoute, RouteStep, StartRoute, StopRoute
from mirrormaker.reconcile.routes import compare_routes, work_of
from mirrormaker.state import StateDirectory
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import Topology

FOLLOW_TIMEOUT_MS = 15_000
_LOOK_INTERVAL_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """A daemon that runs here."""

    file: Path
    """The topology file that it follows."""
    topology: Topology
    """What it has in force."""
    digest: str
    daemon_id: str
    """What it is known by."""


def find_daemon(topology: Topology) -> RunningDaemon | None:
    """The daemon on the topology's `data_dir`; None when there is none, or it has told nothing yet."""
    directory = StateDirectory(topology.data_dir)
    state = directory.read() if directory.is_locked() else None
    text = directory.kept_topology() if state is not None else None
    if state is None or text is None:
        return None
    told = state["topology"]
    file = Path(told["file"]).resolve()
    try:
        in_force = parse_topology(text, file)
        daemon_id = StateDirectory(in_force.data_dir).daemon_id()  # that may be another: `AskedDirectory`
        return RunningDaemon(file=file, topology=in_force, digest=told["digest"], daemon_id=daemon_id)
    except ConfigurationError:
        return None  # another version's idea of a good file


def plan_routes(topology: Topology, running: RunningDaemon | None) -> list[RouteStep]:
    """What the daemon does about its routes once `topology` is in force; nothing where none runs."""
    if running is None:
        return []
    steps = compare_routes(work_of(topology), work_of(running.topology))
    return [
        *(StopRoute(route=name) for name in steps.stop),
        *(RestartRoute(route=name) for name in steps.restart),
        *(ChangeRoute(route=work.name) for work in steps.change),
        *(StartRoute(route=work.name) for work in steps.start),
    ]


async def await_in_force(topology: Topology, file: Path, digest: str) -> str | None:
    """Until the daemon here has the file, a resolved path, in force; why that does not come about, None when
    it has.
    """
    running = find_daemon(topology)
    if running is None:
        return "no daemon runs here any more"
    if running.file != file:
        return f"the daemon here follows {running.file}: put the new text there, or POST it"
    directory = StateDirectory(topology.data_dir)
    try:
        async with asyncio.timeout(FOLLOW_TIMEOUT_MS / 1000):
            while True:
                state = directory.read()
                if state is not None and state["topology"]["digest"] == digest:
                    return None
                await asyncio.sleep(_LOOK_INTERVAL_MS / 1000)
    except TimeoutError:
        return "the daemon here does not take the file: see `mirrormaker status`"
