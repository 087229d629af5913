"""How a partition stands: what it is doing, or what keeps it from going on. Pure.

Whatever keeps a partition standing has one state, `halted`, and a reason: the name of the failure policy that
is about it (see `trouble`), or `refused` for what none is about.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.flow.lane import LaneState
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.trouble import Trouble, TroubleKind, kind_of_refusal
from mirrormaker.missing_rights import UNAUTHORIZED_CODES

HALTED = "halted"
UNREADABLE = "unreadable"
"""The source fails, or gives bytes that are no batches."""
REFUSED = "refused"
"""The destination refuses what comes next, and no policy is about that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Of one partition, for `status`."""

    state: str
    """In a word."""
    reason: str | None = None
    """Why it is halted."""
    problem: str | None = None
    """What is wrong, for people; also of one that is at work."""


def standing_by(trouble: Trouble) -> Standing:
    """How a partition stands that has met this."""
    return Standing(state=HALTED, reason=trouble.kind.value, problem=trouble.problem)


def standing_of(
    partition: Partition, *, refusal: Trouble | None = None, is_misshapen: bool = False
) -> Standing:
    """How it stands now. `refusal`: what its destination has refused with since it took something last.
    `is_misshapen`: that has not all partitions that it should have.
    """
    trouble = partition.trouble or partition.obstacle
    if trouble is not None:
        return standing_by(trouble)
    if partition.source_problem is not None:
        if partition.source_error in UNAUTHORIZED_CODES:
            said = f"source: {partition.source_problem}"
            return Standing(state=HALTED, reason=TroubleKind.UNAUTHORIZED.value, problem=said)
        return Standing(state=UNREADABLE, problem=partition.source_problem)
    lane = partition.worst_lane
    code, lacking = lane.refused_with, lane.producer_problem
    problem = None if code is None else code.name
    if lane.said is not None:
        problem = f"{problem}: {lane.said}"
    kind = None if code is None else kind_of_refusal(code)
    if lacking is not None:
        problem = f"destination: {lacking.said}"
    elif refusal is not None and refusal.kind is kind:
        problem = refusal.problem
    if lane.state is LaneState.PAUSED or kind is TroubleKind.UNAUTHORIZED:
        return Standing(state=HALTED, reason=kind.value if kind is not None else REFUSED, problem=problem)
    if refusal is not None:
        return standing_by(refusal)
    unled = next((each.destination for each in partition.lanes if each.leader is None), None)
    if unled is not None and is_misshapen:
        reason = TroubleKind.PARTITION_MISMATCH.value
        return Standing(state=HALTED, reason=reason, problem=f"the destination has no {unled}")
    if unled is not None:
        return Standing(state="leaderless", problem=problem or f"{unled} has no leader at the destination")
    if partition.awaits_origins and lane.state is LaneState.COPYING:
        return Standing(state="awaiting_origins", problem=problem)
    return Standing(state=lane.state.value, problem=problem)
