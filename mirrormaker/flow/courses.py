"""What a route does about a trouble, by the policy that it has for that. Pure."""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from mirrormaker.flow.trouble import OBSTACLES, PASSING, TroubleKind
from mirrormaker.topology.model import FailurePolicy


class Course(Enum):
    """What comes of it."""

    STOP_ROUTE = "stop_route"
    """The route ends, and stands until it is resumed or its file is put in force again."""
    STAND = "stand"
    """The partition stands until somebody releases it."""
    STAND_AND_TRY = "stand_and_try"
    """The same, but it is tried again meanwhile."""
    WAIT = "wait"
    """It is told of, and the partition tried again: nothing can be released."""
    LEAVE_OUT = "leave_out"
    """What is left out is noted, and then copying goes on behind it."""


def course_of(kind: TroubleKind, policy: FailurePolicy, *, is_released: bool) -> Course:
    """What comes of a trouble. `is_released`: somebody has said to go on behind this very one; behind what
    passes by itself there is nothing.
    """
    passes = kind in PASSING
    if is_released and not passes:
        return Course.LEAVE_OUT
    match policy:
        case FailurePolicy.FAIL:
            return Course.STOP_ROUTE
        case FailurePolicy.SKIP_AND_RECORD:
            return Course.LEAVE_OUT
        case FailurePolicy.PAUSE_PARTITION:
            if passes:
                return Course.WAIT
            return Course.STAND_AND_TRY if kind in OBSTACLES else Course.STAND
        case _:
            assert_never(policy)
