"""The states of a transactional id, and which follows which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """As Kafka names them; `number` is how records of `__transaction_state` have it.

    Prepared states are the point of no return: the outcome is in the log, and its markers are being written.
    Dead and PrepareEpochFence are never stored: an id that is being removed is Dead, and a producer is fenced
    in one step, by the record that prepares the abort.
    """

    number: int

    def __new__(cls, number: int, text: str) -> State:
        member = object.__new__(cls)
        member._value_ = text
        member.number = number
        return member

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and not in all partitions yet."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """No transaction is open or being ended."""
        return self in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}
"""Where each state may lead."""

STORED = frozenset(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}
"""Those that records may have."""
