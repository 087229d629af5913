"""The states of a group and the one table of where each may lead."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class GroupType(Enum):
    """Which protocol a group speaks; the value is the name that ListGroups shows (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class State(Enum):
    """The value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD, State.EMPTY, State.STABLE}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD, State.STABLE, State.EMPTY}),
    State.DEAD: frozenset({State.DEAD}),
}
"""Between Empty and Stable directly: only when a log is read, one stored generation after another."""
