"""What a process has for each of its routes, however often a route is started."""

from __future__ import annotations

from dataclasses import dataclass

from broker.clock import Clock
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.daemon_identity import DaemonIdentity
from mirrormaker.flow.bandwidth.links import Links
from mirrormaker.reconcile.claims import DestinationClaims
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.halt_keeper import RouteHalts
from mirrormaker.reconcile.routes import RouteWork
from mirrormaker.reconcile.switch_board import SwitchBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSurroundings:
    """Of one route; other routes have the same ones but for `board`, `claims` and `switch`."""

    identity: DaemonIdentity
    board: ControlBoard
    """What the control topic of its destination says."""
    claims: DestinationClaims
    """Who writes which topic of its destination."""
    links: Links
    cluster_ids: ClusterIds
    clock: Clock
    switch: SwitchBoard | None = None
    """Of its failover group."""

    def halts_of(self, work: RouteWork) -> RouteHalts:
        """What stops the route, or partitions of it, until somebody resumes them."""
        return RouteHalts(work, self.board, self.identity.daemon_id, self.clock)
