"""Who runs routes in a process: a daemon, or one of its workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mirrormaker.topology.model import RouteName, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonIdentity:
    """Who runs routes here, and by which generation of the file at the moment."""

    daemon_id: str
    """Survives restarts."""
    host: str
    generation: Callable[[], int]
    topology: Callable[[], Topology | None] = lambda: None
    """The one in force at the moment; None before there is one."""
    worker: int | None = None
    """Which of its workers this is; None: the daemon itself."""
    worker_since_ms: int | None = None
    """When that worker began."""

    def instance_of(self, route: RouteName) -> str:
        """What this process is known by in the group of a route, over restarts."""
        return instance_id(self.daemon_id, self.worker, route)


def instance_id(daemon_id: str, worker: int | None, route: RouteName) -> str:
    """What a process of a daemon is known by in the group of a route."""
    return f"{daemon_id}/{route}" if worker is None else f"{daemon_id}/{worker}/{route}"
