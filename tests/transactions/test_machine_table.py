"""Every state of a transactional id against every event: where it leads, and what the producer is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import ErrorCode
from broker.transactions.events import (
    AddPartitions,
    Effects,
    End,
    Event,
    ExpiryChecked,
    Initialise,
    MarkersWritten,
    Stored,
    TimeChecked,
)
from broker.transactions.machine import TransactionMachine
from broker.transactions.state import STORED, TRANSITIONS, State
from broker.transactions.transaction import EPOCH_LAST, Transaction
from broker.types import TopicPartition

NOW_MS = 1_000_000
TIMEOUT_MS = 60_000
ID, OTHER_ID, SPARE_ID = 7, 8, 9
FLIGHTS, WEATHER = TopicPartition("flights", 0), TopicPartition("weather", 1)
NONE = ErrorCode.NONE
SILENT = "silent"
DRAWS = "needs a producer id"
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = sorted(
    STORED, key=lambda state: state.number
)


def transaction(state: State, *, epoch: int = 3, version: int = 0) -> Transaction:
    """An id of producer 7 with this epoch, whose last end was decided by a client of `version`."""
    is_open = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    return Transaction(
        producer_id=ID,
        epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        updated_ms=NOW_MS - 100,
        started_ms=-1 if state is EMPTY else NOW_MS - 500,
        partitions=frozenset({FLIGHTS}) if is_open else frozenset(),
        client_version=version if state not in (EMPTY, ONGOING) else 0,
    )


def who(epoch: int = 3, producer_id: int = ID) -> ProducerIdentity:
    return ProducerIdentity(producer_id, epoch)


def told(machine: TransactionMachine, event: Event, *, now_ms: int = NOW_MS) -> object:
    """What the producer is told in the end; whatever is to be stored is."""
    effects = machine.handle(event, now_ms)
    if effects.needs_producer_id:
        assert machine.handle(event, now_ms).needs_producer_id, "nothing has changed"
        return DRAWS
    if effects.store is not None:
        assert effects.reply is None
        assert machine.is_busy
        effects = machine.handle(Stored(error=NONE), now_ms)
    return SILENT if effects.reply is None else effects.reply.error


EVENTS: Mapping[str, Event] = {
    "init by a new producer": Initialise(timeout_ms=TIMEOUT_MS),
    "init by the producer": Initialise(timeout_ms=TIMEOUT_MS, expected=who()),
    "init by one that is out of date": Initialise(timeout_ms=TIMEOUT_MS, expected=who(1)),
    "init by a stranger": Initialise(timeout_ms=TIMEOUT_MS, expected=who(0, OTHER_ID)),
    "add": AddPartitions(producer=who(), partitions=frozenset({WEATHER})),
    "add what is there": AddPartitions(producer=who(), partitions=frozenset({FLIGHTS})),
    "add by one that is out of date": AddPartitions(producer=who(2), partitions=frozenset({WEATHER})),
    "add by a stranger": AddPartitions(producer=who(3, OTHER_ID), partitions=frozenset({WEATHER})),
    "commit": End(producer=who(), commits=True, version=0),
    "abort": End(producer=who(), commits=False, version=0),
    "commit by one that is out of date": End(producer=who(2), commits=True, version=0),
    "commit by a stranger": End(producer=who(3, OTHER_ID), commits=True, version=0),
    "commit, version 2": End(producer=who(), commits=True, version=2),
    "abort, version 2": End(producer=who(), commits=False, version=2),
    "time, early": TimeChecked(),
    "markers": MarkersWritten(),
    "expiry, early": ExpiryChecked(expiration_ms=1000),
    "expiry": ExpiryChecked(expiration_ms=100),
}

MAPPING, FENCED = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
AGAIN, WRONG = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE

TABLE: Mapping[str, tuple[tuple[State, object], ...]] = {
    # event: next state and answer, in Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
    # CompleteAbort
    "init by a new producer": (
        (EMPTY, NONE),
        (PREPARE_ABORT, AGAIN),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (EMPTY, NONE),
        (EMPTY, NONE),
    ),
    "init by the producer": (
        (EMPTY, NONE),
        (PREPARE_ABORT, AGAIN),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (EMPTY, NONE),
        (EMPTY, NONE),
    ),
    "init by one that is out of date": (
        (EMPTY, FENCED),
        (ONGOING, FENCED),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (COMPLETE_COMMIT, FENCED),
        (COMPLETE_ABORT, FENCED),
    ),
    "init by a stranger": tuple((state, FENCED) for state in sorted(STORED, key=lambda s: s.number)),
    "add": (
        (ONGOING, NONE),
        (ONGOING, NONE),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (ONGOING, NONE),
        (ONGOING, NONE),
    ),
    "add what is there": (
        (ONGOING, NONE),
        (ONGOING, NONE),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (ONGOING, NONE),
        (ONGOING, NONE),
    ),
    "add by one that is out of date": tuple(
        (state, FENCED) for state in sorted(STORED, key=lambda s: s.number)
    ),
    "add by a stranger": tuple((state, MAPPING) for state in sorted(STORED, key=lambda s: s.number)),
    "commit": (
        (EMPTY, WRONG),
        (PREPARE_COMMIT, NONE),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, WRONG),
        (COMPLETE_COMMIT, NONE),
        (COMPLETE_ABORT, WRONG),
    ),
    "abort": (
        (EMPTY, WRONG),
        (PREPARE_ABORT, NONE),
        (PREPARE_COMMIT, WRONG),
        (PREPARE_ABORT, AGAIN),
        (COMPLETE_COMMIT, WRONG),
        (COMPLETE_ABORT, NONE),
    ),
    "commit by one that is out of date": tuple(
        (state, FENCED) for state in sorted(STORED, key=lambda s: s.number)
    ),
    "commit by a stranger": tuple((state, MAPPING) for state in sorted(STORED, key=lambda s: s.number)),
    "commit, version 2": (
        (EMPTY, WRONG),
        (PREPARE_COMMIT, NONE),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (COMPLETE_COMMIT, WRONG),
        (COMPLETE_ABORT, WRONG),
    ),
    "abort, version 2": (
        (PREPARE_ABORT, NONE),
        (PREPARE_ABORT, NONE),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (PREPARE_ABORT, NONE),
        (PREPARE_ABORT, NONE),
    ),
    "time, early": tuple((state, SILENT) for state in sorted(STORED, key=lambda s: s.number)),
    "markers": (
        (EMPTY, SILENT),
        (ONGOING, SILENT),
        (COMPLETE_COMMIT, SILENT),
        (COMPLETE_ABORT, SILENT),
        (COMPLETE_COMMIT, SILENT),
        (COMPLETE_ABORT, SILENT),
    ),
    "expiry, early": tuple((state, SILENT) for state in sorted(STORED, key=lambda s: s.number)),
    "expiry": (
        (State.DEAD, SILENT),
        (ONGOING, SILENT),
        (PREPARE_COMMIT, SILENT),
        (PREPARE_ABORT, SILENT),
        (State.DEAD, SILENT),
        (State.DEAD, SILENT),
    ),
}


def test_the_table_is_complete() -> None:
    assert TABLE.keys() == EVENTS.keys()
    assert all(len(row) == len(STORED) for row in TABLE.values())


@pytest.mark.parametrize(
    ("state", "name"), list(product(sorted(STORED, key=lambda state: state.number), EVENTS))
)
def test_every_state_and_event(state: State, name: str) -> None:
    expected_state, expected_answer = TABLE[name][state.number]
    machine = TransactionMachine(transaction(state))
    assert told(machine, EVENTS[name]) == expected_answer
    assert machine.state is expected_state
    assert expected_state is state or expected_state in TRANSITIONS[state]


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("state", sorted(STORED, key=lambda state: state.number))
def test_while_a_record_is_on_its_way_nothing_else_happens(state: State, name: str) -> None:
    opening = {
        EMPTY: "add",
        ONGOING: "commit",
        PREPARE_COMMIT: "markers",
        PREPARE_ABORT: "markers",
        COMPLETE_COMMIT: "add",
        COMPLETE_ABORT: "add",
    }[state]
    machine = TransactionMachine(transaction(state))
    assert machine.handle(EVENTS[opening], NOW_MS).store is not None
    before = machine.transaction
    effects = machine.handle(EVENTS[name], NOW_MS)
    assert effects.store is None
    assert machine.transaction is before
    error = None if effects.reply is None else effects.reply.error
    assert error in (None, AGAIN, MAPPING, FENCED)


@pytest.mark.parametrize("name", EVENTS)
def test_an_id_that_nobody_had_belongs_to_nobody(name: str) -> None:
    machine = TransactionMachine()
    answer = told(machine, EVENTS[name])
    if name.startswith("init"):
        assert answer == DRAWS
        assert told(machine, replace(EVENTS[name], spare_producer_id=SPARE_ID)) is NONE  # type: ignore[type-var]
        assert machine.transaction is not None
        assert machine.transaction.producer == who(0, SPARE_ID)
    else:
        assert answer == (SILENT if name.startswith(("time", "markers", "expiry")) else MAPPING)


@pytest.mark.parametrize("state", sorted(STORED, key=lambda state: state.number))
@pytest.mark.parametrize("name", EVENTS)
def test_a_record_that_was_refused_leaves_all_as_it_was(state: State, name: str) -> None:
    machine = TransactionMachine(transaction(state))
    effects = machine.handle(EVENTS[name], NOW_MS)
    if effects.store is not None:
        effects = machine.handle(Stored(error=ErrorCode.COORDINATOR_NOT_AVAILABLE), NOW_MS)
        assert effects.reply is None or effects.reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not effects.sends_markers
    assert machine.transaction == transaction(state)
    assert not machine.is_busy


# Epochs


def stored(machine: TransactionMachine, event: Event, *, now_ms: int = NOW_MS) -> Effects:
    assert machine.handle(event, now_ms).store is not None
    return machine.handle(Stored(error=NONE), now_ms)


def test_every_owner_has_an_epoch_of_its_own() -> None:
    machine = TransactionMachine()
    for epoch in range(5):
        asked = Initialise(timeout_ms=TIMEOUT_MS, spare_producer_id=SPARE_ID)
        reply = stored(machine, asked).reply
        assert reply is not None
        assert reply.producer == who(epoch, SPARE_ID)


def test_a_producer_that_lost_the_answer_gets_the_same_epoch_again() -> None:
    machine = TransactionMachine(transaction(COMPLETE_COMMIT))
    asked = Initialise(timeout_ms=TIMEOUT_MS, expected=who(3))
    for _ in range(3):
        reply = stored(machine, asked).reply
        assert reply is not None
        assert reply.producer == who(4)
    stored(machine, Initialise(timeout_ms=TIMEOUT_MS))
    assert told(machine, asked) is FENCED


def test_a_fenced_transaction_is_aborted_with_an_epoch_that_nobody_gets() -> None:
    machine = TransactionMachine(transaction(ONGOING))
    effects = stored(machine, Initialise(timeout_ms=TIMEOUT_MS))
    assert effects.sends_markers
    assert machine.transaction is not None
    assert (machine.transaction.producer, machine.transaction.partitions) == (who(4), {FLIGHTS})
    for version in (0, 2):
        assert told(machine, End(producer=who(3), commits=True, version=version)) is FENCED
    stored(machine, MarkersWritten())
    for version in (0, 2):
        assert told(machine, End(producer=who(3), commits=False, version=version)) is FENCED
    reply = stored(machine, Initialise(timeout_ms=TIMEOUT_MS)).reply
    assert reply is not None
    assert reply.producer == who(5)


def test_a_transaction_that_is_overdue_is_aborted_over_its_producers_head() -> None:
    machine = TransactionMachine(transaction(ONGOING))
    due_ms = NOW_MS - 500 + TIMEOUT_MS
    assert told(machine, TimeChecked(), now_ms=due_ms) == SILENT
    assert machine.state is ONGOING
    assert stored(machine, TimeChecked(), now_ms=due_ms + 1).sends_markers
    assert machine.state is PREPARE_ABORT
    assert told(machine, AddPartitions(producer=who(), partitions=frozenset({WEATHER}))) is FENCED


@pytest.mark.parametrize("commits", [True, False])
def test_with_version_2_every_end_raises_the_epoch_and_may_be_repeated(commits: bool) -> None:
    machine = TransactionMachine(transaction(ONGOING))
    end = End(producer=who(3), commits=commits, version=2)
    reply = stored(machine, end).reply
    assert reply is not None
    assert reply.producer == who(4)
    assert told(machine, end) is AGAIN
    assert told(machine, replace(end, commits=not commits)) is WRONG
    assert told(machine, AddPartitions(producer=who(4), partitions=frozenset({WEATHER}))) is AGAIN
    stored(machine, MarkersWritten())
    again = machine.handle(end, NOW_MS).reply
    assert again is not None
    assert (again.error, again.producer) == (NONE, who(4))
    assert told(machine, replace(end, commits=not commits)) is WRONG
    assert told(machine, AddPartitions(producer=who(3), partitions=frozenset({WEATHER}))) is FENCED
    assert told(machine, AddPartitions(producer=who(4), partitions=frozenset({WEATHER}))) is NONE
    assert told(machine, end) is FENCED


def test_a_late_end_of_version_2_cannot_end_the_next_transaction() -> None:
    machine = TransactionMachine(transaction(ONGOING))
    late = End(producer=who(3), commits=True, version=2)
    stored(machine, replace(late, commits=False))
    stored(machine, MarkersWritten())
    stored(machine, AddPartitions(producer=who(4), partitions=frozenset({FLIGHTS})))
    assert told(machine, late) is FENCED
    assert machine.state is ONGOING


def test_used_up_epochs_lead_to_another_producer_id() -> None:
    machine = TransactionMachine(transaction(EMPTY, epoch=EPOCH_LAST))
    asked = Initialise(timeout_ms=TIMEOUT_MS, expected=who(EPOCH_LAST))
    assert told(machine, asked) == DRAWS
    asked = replace(asked, spare_producer_id=SPARE_ID)
    for _ in range(2):  # the second time the answer was lost
        reply = stored(machine, asked).reply
        assert reply is not None
        assert reply.producer == who(0, SPARE_ID)


def test_an_end_that_uses_up_the_epochs_gives_another_producer_id() -> None:
    machine = TransactionMachine(transaction(ONGOING, epoch=EPOCH_LAST))
    end = End(producer=who(EPOCH_LAST), commits=True, version=2)
    assert told(machine, end) == DRAWS
    end = replace(end, spare_producer_id=SPARE_ID)
    reply = stored(machine, end).reply
    assert reply is not None
    assert reply.producer == who(0, SPARE_ID)
    assert machine.transaction is not None
    assert machine.transaction.producer == who(EPOCH_LAST + 1), "whom the markers name"
    next_one = AddPartitions(producer=who(0, SPARE_ID), partitions=frozenset({FLIGHTS}))
    assert told(machine, next_one) is AGAIN
    assert told(machine, end) is AGAIN
    stored(machine, MarkersWritten())
    again = machine.handle(end, NOW_MS).reply
    assert again is not None
    assert (again.error, again.producer) == (NONE, who(0, SPARE_ID))
    assert told(machine, next_one) is NONE


def test_a_fence_may_take_the_last_epoch_of_all() -> None:
    machine = TransactionMachine(transaction(ONGOING, epoch=EPOCH_LAST))
    stored(machine, Initialise(timeout_ms=TIMEOUT_MS))
    stored(machine, MarkersWritten())
    assert told(machine, Initialise(timeout_ms=TIMEOUT_MS)) == DRAWS
    reply = stored(machine, Initialise(timeout_ms=TIMEOUT_MS, spare_producer_id=SPARE_ID)).reply
    assert reply is not None
    assert reply.producer == who(0, SPARE_ID)


# Verification


@pytest.mark.parametrize("state", sorted(STORED, key=lambda state: state.number))
def test_a_leader_is_told_what_is_part_of_the_transaction(state: State) -> None:
    machine = TransactionMachine(transaction(state))
    both = (FLIGHTS, WEATHER)
    assert machine.verify(who(3, OTHER_ID), both) == dict.fromkeys(both, MAPPING)
    assert machine.verify(who(2), both) == dict.fromkeys(both, FENCED)
    found = machine.verify(who(3), both)
    if state.is_prepared:
        assert found == dict.fromkeys(both, AGAIN)
    else:
        missing = ErrorCode.TRANSACTION_ABORTABLE
        assert found == {FLIGHTS: NONE if state is ONGOING else missing, WEATHER: missing}


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=30), st.data())
def test_whatever_happens_epochs_never_fall_and_only_table_steps_are_taken(
    names: list[str], data: st.DataObject
) -> None:
    machine = TransactionMachine(transaction(EMPTY))
    for name in names:
        before = machine.transaction
        event = EVENTS[name]
        if isinstance(event, AddPartitions | End) and before is not None and data.draw(st.booleans()):
            event = replace(event, producer=before.told_producer)
        effects = machine.handle(event, NOW_MS)
        if effects.store is None:
            continue
        machine.handle(Stored(error=data.draw(st.sampled_from([NONE, AGAIN]))), NOW_MS)
        after = machine.transaction
        if before is None or after is None:
            return
        assert after.epoch >= before.epoch
        assert after.state is before.state or after.state in TRANSITIONS[before.state]
