from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.client.producer_identity import ProducerIdentity
from broker.client.transaction_state import (
    TRANSITIONS,
    ProducerFencedError,
    Severity,
    TransactionAbortableError,
    TransactionState,
    TransactionStateError,
    TransactionStatus,
    severity_at_coordinator,
    severity_of_batch,
)
from broker.errors import ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import TopicPartition

FIRST, SECOND = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT = RequestTimedOutError("late")
FENCED = ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH)
S = TransactionStatus


def state_in(status: TransactionStatus, *, version: int = 0) -> TransactionState:
    """A machine that got there by the events that lead there."""
    state = TransactionState("id")
    if status is S.UNINITIALIZED:
        return state
    state.initialized(FIRST, version)
    if status is S.READY:
        return state
    state.begin()
    match status:
        case S.COMMITTING:
            state.begin_commit()
        case S.ABORTING:
            state.begin_abort()
        case S.ABORTABLE:
            state.failed(TIMEOUT, Severity.ABORTABLE)
        case S.DEAD:
            state.failed(FENCED, Severity.FATAL)
    return state


EVENTS: dict[str, Callable[[TransactionState], object]] = {
    "begin": lambda state: state.begin(),
    "write": lambda state: state.write(A),
    "send_offsets": lambda state: state.require_open("send offsets"),
    "commit": lambda state: state.begin_commit(),
    "abort": lambda state: state.begin_abort(),
    "abortable error": lambda state: state.failed(TIMEOUT, Severity.ABORTABLE),
    "fatal error": lambda state: state.failed(FENCED, Severity.FATAL),
}
REFUSED = {S.ABORTABLE: TransactionAbortableError, S.DEAD: ProducerFencedError}
"""What refusals raise, elsewhere TransactionStateError."""
TABLE: dict[tuple[TransactionStatus, str], TransactionStatus | None] = {
    (S.READY, "begin"): S.OPEN,
    (S.OPEN, "write"): S.OPEN,
    (S.OPEN, "send_offsets"): S.OPEN,
    (S.OPEN, "commit"): S.COMMITTING,
    (S.COMMITTING, "commit"): S.COMMITTING,
    (S.OPEN, "abort"): S.ABORTING,
    (S.ABORTABLE, "abort"): S.ABORTING,
    (S.ABORTING, "abort"): S.ABORTING,
    (S.OPEN, "abortable error"): S.ABORTABLE,
    (S.COMMITTING, "abortable error"): S.ABORTABLE,
    **{
        (status, "abortable error"): status
        for status in (S.UNINITIALIZED, S.READY, S.ABORTING, S.ABORTABLE, S.DEAD)
    },
    **{(status, "fatal error"): S.DEAD for status in S},
}
"""Where events lead; those that are missing are refused."""


@pytest.mark.parametrize("status", S)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_status_leads_where_the_table_says_or_is_refused(
    status: TransactionStatus, event: str
) -> None:
    state = state_in(status)
    expected = TABLE.get((status, event))
    if expected is None:
        with pytest.raises(REFUSED.get(status, TransactionStateError)):
            EVENTS[event](state)
        assert state.status is status
    else:
        EVENTS[event](state)
        assert state.status is expected
        assert expected is status or expected in TRANSITIONS[status]


def test_partitions_are_held_back_until_the_coordinator_knows_of_them() -> None:
    state = state_in(S.OPEN)
    assert not state.write(A)
    assert not state.write(A)
    assert state.partitions_to_add == {A}
    assert not state.is_known_to_coordinator
    state.added({A})
    assert state.write(A)
    assert not state.write(B)
    assert (state.partitions, state.partitions_to_add) == ({A}, {B})
    assert state.is_known_to_coordinator


def test_with_the_second_protocol_nothing_is_held_back_and_each_end_brings_an_epoch() -> None:
    state = state_in(S.OPEN, version=2)
    assert state.write(A)
    assert not state.partitions_to_add
    state.begin_commit()
    state.ended(SECOND, 2)
    assert (state.status, state.identity, state.partitions) == (S.READY, SECOND, frozenset())


def test_an_ended_transaction_leaves_nothing_behind() -> None:
    state = state_in(S.OPEN)
    state.write(A)
    state.offsets_sent()
    state.failed(TIMEOUT, Severity.ABORTABLE)
    state.begin_abort()
    state.ended(None, 0)
    assert (state.identity, state.error) == (FIRST, None)
    assert not state.is_known_to_coordinator
    state.begin()
    assert not state.write(A)


def test_who_is_fenced_is_told_so_and_why_a_transaction_must_be_aborted_too() -> None:
    with pytest.raises(ProducerFencedError, match="PRODUCER_FENCED: the producer's epoch is old"):
        state_in(S.DEAD).raise_error()
    with pytest.raises(TransactionAbortableError, match="id: to be aborted, because of late") as raised:
        state_in(S.ABORTABLE).raise_error()
    assert raised.value.__cause__ is TIMEOUT


@pytest.mark.parametrize(
    ("code", "at_coordinator", "of_batch"),
    [
        (ErrorCode.PRODUCER_FENCED, Severity.FATAL, Severity.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Severity.FATAL, Severity.ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, Severity.FATAL, Severity.ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Severity.FATAL, Severity.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Severity.FATAL, Severity.FATAL),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Severity.ABORTABLE, Severity.ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, Severity.ABORTABLE, Severity.ABORTABLE),
        (ErrorCode.ILLEGAL_GENERATION, Severity.ABORTABLE, Severity.ABORTABLE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Severity.ABORTABLE, Severity.ABORTABLE),
    ],
)
def test_errors_are_as_grave_as_for_javas_clients(
    code: ErrorCode, at_coordinator: Severity, of_batch: Severity
) -> None:
    assert severity_at_coordinator(ProtocolError(code)) is at_coordinator
    assert severity_of_batch(ProtocolError(code)) is of_batch
