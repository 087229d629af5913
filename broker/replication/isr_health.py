"""How well the partitions of a node are replicated, as a count of each kind of trouble."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.replication.replica import Replica


@dataclass(slots=True, kw_only=True)
class IsrHealth:
    """Partitions that a node leads; one may be in several counts."""

    led: int = 0
    under_replicated: int = 0
    """Replicas that are not in sync."""
    at_min_isr: int = 0
    """As few in sync as acks=all needs: one more that leaves stops such produces."""
    under_min_isr: int = 0
    """Fewer in sync: produces with acks=all are refused."""

    @classmethod
    def of(cls, replicas: Iterable[Replica]) -> IsrHealth:
        """Counted now."""
        health = cls()
        for replica in replicas:
            machine = replica.machine
            if not machine.is_leader:
                continue
            assignment, needed = machine.assignment, replica.log.config.min_insync_replicas
            in_sync = len(assignment.isr)
            health.led += 1
            health.under_replicated += not set(assignment.replicas).issubset(assignment.isr)
            health.at_min_isr += in_sync == needed
            health.under_min_isr += in_sync < needed
        return health
