"""One step of a member from what it has towards what it is to have.

A member first gives up what its target does not hold, at its old epoch; what it may keep stays its own
meanwhile. When it has said that it did, it goes to the target's epoch and gets what is free of its target;
the rest follows as other members give it up. So no partition ever belongs to two members, and nobody stops
consuming what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.groups.consumer_groups.members import (
    Assignment,
    MemberState,
    Partitions,
    TopicIdPartition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a member is to get; `is_free` tells whether nobody else has a partition."""

    epoch: int
    partitions: Partitions
    is_free: Callable[[TopicIdPartition], bool]


def next_assignment(current: Assignment, target: Target, owned: Partitions | None) -> Assignment:
    """What the member has after this step; `current` itself where it cannot go on yet.

    `owned` is what the member says it still has, None when it did not say.
    """
    match current.state:
        case MemberState.STABLE:
            return current if current.epoch == target.epoch else _step(current, target, owned, current.epoch)
        case MemberState.UNREVOKED:
            if _still_owns(current.revoking, owned):
                return current
            return _step(current, target, owned, current.epoch + 1)
        case MemberState.UNRELEASED:
            return _step(current, target, owned, current.epoch)


def _still_owns(revoking: Partitions, owned: Partitions | None) -> bool:
    return owned is None or not revoking.isdisjoint(owned)


def _step(current: Assignment, target: Target, owned: Partitions | None, epoch: int) -> Assignment:
    kept = current.assigned & target.partitions
    revoking = current.assigned - kept
    if revoking and _still_owns(revoking, owned):
        return _changed(
            current,
            Assignment(
                epoch=epoch,
                previous_epoch=current.epoch,
                state=MemberState.UNREVOKED,
                assigned=kept,
                revoking=revoking,
            ),
        )
    missing = target.partitions - kept
    released = frozenset(partition for partition in missing if target.is_free(partition))
    return _changed(
        current,
        Assignment(
            epoch=target.epoch,
            previous_epoch=current.epoch,
            state=MemberState.STABLE if len(released) == len(missing) else MemberState.UNRELEASED,
            assigned=kept | released,
        ),
    )


def _changed(before: Assignment, after: Assignment) -> Assignment:
    """A step that leaves a member where it is also leaves the epoch before it as it was."""
    same = (before.epoch, before.state, before.assigned, before.revoking) == (
        after.epoch,
        after.state,
        after.assigned,
        after.revoking,
    )
    return before if same else after
