"""Which replica leads, and who is in sync, after brokers come and go. Pure rules on one partition.

Every decision of the controller takes the next leader epoch: nodes apply it because it is newer, and
followers of an older epoch are fenced. A leader comes out of the ISR; only an unclean election, where the
topic allows it, may take another, and it is the sole member of its new ISR. With no eligible replica the
partition is without a leader and keeps its ISR, so that only those that have every committed record can
come back as leader.

The ISR is left to leaders. A broker whose machine lost power is registered until its session ends, and may
be elected meanwhile: if the others were taken out then, it would come back as the only one that may lead,
without what it had not flushed. So whoever is away stays in the ISR until a leader takes it out, which is
alive for certain as it is the one that writes, or until it leaves by itself before it registers again.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from broker.coordination.znodes import PartitionStateZnode
from broker.types import NO_LEADER, BrokerId, LeaderEpoch

FIRST_LEADER_EPOCH = LeaderEpoch(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """The brokers that are alive and whose disk holds the replica, and which of those are shutting down."""

    alive: Set[BrokerId]
    stopping: Set[BrokerId] = frozenset()

    def is_eligible(self, broker_id: BrokerId) -> bool:
        return broker_id in self.alive and broker_id not in self.stopping


def first_state(
    replicas: tuple[BrokerId, ...], electorate: Electorate, controller_epoch: int
) -> PartitionStateZnode | None:
    """The state of a new partition: its first eligible replica leads, all eligible ones are in sync (they
    are empty).
    """
    eligible = tuple(replica for replica in replicas if electorate.is_eligible(replica))
    if not eligible:
        return None
    return PartitionStateZnode(
        controller_epoch=controller_epoch, leader=eligible[0], leader_epoch=FIRST_LEADER_EPOCH, isr=eligible
    )


def repaired(
    state: PartitionStateZnode,
    replicas: tuple[BrokerId, ...],
    electorate: Electorate,
    *,
    controller_epoch: int,
    unclean: bool = False,
) -> PartitionStateZnode | None:
    """What `state` has to become now that `electorate` is what it is; None when it is well as it is.

    A dead or stopping leader is replaced. A stopping leader that nobody can replace goes on leading.
    """
    if electorate.is_eligible(state.leader):
        return None
    elected = elected_state(state, replicas, electorate, controller_epoch=controller_epoch)
    if elected is not None:
        return elected
    if state.leader in electorate.alive:
        return None
    if unclean:
        candidates = [replica for replica in replicas if electorate.is_eligible(replica)]
        if candidates:
            return _next(state, controller_epoch, leader=candidates[0], isr=(candidates[0],))
    return None if state.leader == NO_LEADER else _next(state, controller_epoch, leader=NO_LEADER)


def elected_state(
    state: PartitionStateZnode,
    replicas: tuple[BrokerId, ...],
    electorate: Electorate,
    *,
    controller_epoch: int,
) -> PartitionStateZnode | None:
    """The first eligible in-sync replica as leader, in a new epoch; None when there is none."""
    leader = next((r for r in replicas if r in state.isr and electorate.is_eligible(r)), None)
    return None if leader is None else _next(state, controller_epoch, leader=leader)


def preferred_state(
    state: PartitionStateZnode,
    replicas: tuple[BrokerId, ...],
    electorate: Electorate,
    *,
    controller_epoch: int,
) -> PartitionStateZnode | None:
    """The preferred replica as leader; None when it cannot lead: not eligible, or not in sync."""
    if not replicas or replicas[0] not in state.isr or not electorate.is_eligible(replicas[0]):
        return None
    return _next(state, controller_epoch, leader=replicas[0])


def _next(
    state: PartitionStateZnode,
    controller_epoch: int,
    *,
    leader: BrokerId | None = None,
    isr: tuple[BrokerId, ...] | None = None,
) -> PartitionStateZnode:
    return replace(
        state,
        controller_epoch=controller_epoch,
        leader=state.leader if leader is None else leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=state.isr if isr is None else isr,
    )
