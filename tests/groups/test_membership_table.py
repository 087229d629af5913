"""Every state of a group against every event: where it leads, and what whoever asked is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from broker.errors import ErrorCode
from broker.groups.events import (
    CoordinatorMoved,
    Deleted,
    Downgraded,
    JoinTimer,
    Loaded,
    OffsetsCommitted,
    PendingMemberTimer,
    SessionTimer,
    Stored,
    SyncTimer,
    TimerFired,
    Upgraded,
    Waiter,
)
from broker.groups.state import TRANSITIONS, State
from tests.groups.scripted_group import NO_DELAY, ScriptedGroup, subscription

LEADER, FOLLOWER = "m1", "m2"
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State
NONE = ErrorCode.NONE
WAITS = "waits"
SILENT = "silent"
IMPOSSIBLE = "impossible"


def in_state(state: State) -> ScriptedGroup:
    """A group of m1, which leads, and m2 (empty and dead: after they left)."""
    group = ScriptedGroup(NO_DELAY)
    group.stable(2)
    assert group.members == [LEADER, FOLLOWER]
    match state:
        case State.STABLE:
            pass
        case State.COMPLETING_REBALANCE:
            group.join(LEADER)
            group.join(FOLLOWER)
        case State.PREPARING_REBALANCE:
            group.join(LEADER)
        case State.EMPTY:
            group.leave(LEADER, FOLLOWER)
        case State.DEAD:
            group.leave(LEADER, FOLLOWER)
            group.tell(Deleted())
    assert group.state is state
    group.writes_at_once = False
    return group


def told(group: ScriptedGroup, waiter: Waiter) -> object:
    answer = group.answers.get(waiter)
    return WAITS if answer is None else answer.error


def tell(event: object) -> Callable[[ScriptedGroup], object]:
    def act(group: ScriptedGroup) -> object:
        group.tell(event)  # type: ignore[arg-type]
        return SILENT

    return act


def store_reported(error: ErrorCode) -> Callable[[ScriptedGroup], object]:
    """A store of an earlier generation is reported: it must not disturb the present one."""

    def act(group: ScriptedGroup) -> object:
        stale = replace(group.log[-1], generation=group.log[-1].generation - 1)
        earlier = ScriptedGroup()
        earlier.writes_at_once = False
        earlier.join()
        earlier.sync("m1", {})
        store = replace(earlier.waiting_stores[0], metadata=stale)
        group.machine._stores.under_way += 1
        group.tell(Stored(store=store, error=error))
        return SILENT

    return act


def delete(group: ScriptedGroup) -> object:
    try:
        group.tell(Deleted())
    except AssertionError:
        return IMPOSSIBLE
    return SILENT


EVENTS: dict[str, Callable[[ScriptedGroup], object]] = {
    "join of a new member": lambda group: told(group, group.join()),
    "join without an id that must have one": lambda group: told(
        group, group.join(requires_known_member_id=True)
    ),
    "join of the leader": lambda group: told(group, group.join(LEADER)),
    "join of the follower, unchanged": lambda group: told(group, group.join(FOLLOWER)),
    "join of the follower, changed": lambda group: told(
        group, group.join(FOLLOWER, protocols={"range": subscription("other")})
    ),
    "join of a stranger": lambda group: told(group, group.join("stranger")),
    "join with no common protocol": lambda group: told(
        group, group.join(protocols={"odd": b""}, protocol_type="x")
    ),
    "join with a wild session timeout": lambda group: told(group, group.join(session_timeout_ms=1)),
    "sync of the leader": lambda group: told(group, group.sync(LEADER, {FOLLOWER: b"all"})),
    "sync of the follower": lambda group: told(group, group.sync(FOLLOWER)),
    "sync of an old generation": lambda group: told(group, group.sync(FOLLOWER, generation=1)),
    "sync of a stranger": lambda group: told(group, group.sync("stranger")),
    "heartbeat": lambda group: group.heartbeat(FOLLOWER),
    "heartbeat of an old generation": lambda group: group.heartbeat(FOLLOWER, generation=1),
    "heartbeat of a stranger": lambda group: group.heartbeat("stranger"),
    "leave of the follower": lambda group: group.leave(FOLLOWER)[0],
    "leave of the leader": lambda group: group.leave(LEADER)[0],
    "leave of everyone": lambda group: group.leave(LEADER, FOLLOWER)[0],
    "leave of a stranger": lambda group: group.leave("stranger")[0],
    "offsets committed": tell(OffsetsCommitted(member_id=FOLLOWER)),
    "session timer of the follower": tell(TimerFired(timer=SessionTimer(FOLLOWER))),
    "session timer of a stranger": tell(TimerFired(timer=SessionTimer("stranger"))),
    "pending member timer": tell(TimerFired(timer=PendingMemberTimer("m9"))),
    "join timer": tell(TimerFired(timer=JoinTimer())),
    "sync timer": tell(TimerFired(timer=SyncTimer())),
    "earlier generation stored": store_reported(NONE),
    "earlier generation not stored": store_reported(ErrorCode.NOT_COORDINATOR),
    "loaded": tell(Loaded()),
    "deleted": delete,
    "coordinator moved": tell(CoordinatorMoved()),
    "upgraded": tell(Upgraded()),
    "downgraded": tell(Downgraded()),
}

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
OLD = ErrorCode.ILLEGAL_GENERATION
REJOIN = ErrorCode.REBALANCE_IN_PROGRESS
MISMATCH = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
BAD_TIMEOUT = ErrorCode.INVALID_SESSION_TIMEOUT
NEEDS_ID = ErrorCode.MEMBER_ID_REQUIRED

# For each event: (state it leads to, what is told) from Empty, Preparing, Completing, Stable, Dead.
TABLE: dict[str, tuple[tuple[State, object], ...]] = {
    "join of a new member": (
        (COMPLETING, NONE), (PREPARING, WAITS), (PREPARING, WAITS), (PREPARING, WAITS), (DEAD, AWAY),
    ),
    "join without an id that must have one": (
        (EMPTY, NEEDS_ID), (PREPARING, NEEDS_ID), (COMPLETING, NEEDS_ID), (STABLE, NEEDS_ID), (DEAD, AWAY),
    ),
    "join of the leader": (
        (EMPTY, UNKNOWN), (PREPARING, WAITS), (COMPLETING, NONE), (PREPARING, WAITS), (DEAD, AWAY),
    ),
    "join of the follower, unchanged": (
        (EMPTY, UNKNOWN), (COMPLETING, NONE), (COMPLETING, NONE), (STABLE, NONE), (DEAD, AWAY),
    ),
    "join of the follower, changed": (
        (EMPTY, UNKNOWN), (COMPLETING, NONE), (PREPARING, WAITS), (PREPARING, WAITS), (DEAD, AWAY),
    ),
    "join of a stranger": (
        (EMPTY, UNKNOWN), (PREPARING, UNKNOWN), (COMPLETING, UNKNOWN), (STABLE, UNKNOWN), (DEAD, AWAY),
    ),
    "join with no common protocol": (
        (COMPLETING, NONE), (PREPARING, MISMATCH), (COMPLETING, MISMATCH), (STABLE, MISMATCH), (DEAD, AWAY),
    ),
    "join with a wild session timeout": (
        (EMPTY, BAD_TIMEOUT), (PREPARING, BAD_TIMEOUT), (COMPLETING, BAD_TIMEOUT), (STABLE, BAD_TIMEOUT),
        (DEAD, AWAY),
    ),
    "sync of the leader": (
        (EMPTY, UNKNOWN), (PREPARING, REJOIN), (COMPLETING, WAITS), (STABLE, NONE), (DEAD, AWAY),
    ),
    "sync of the follower": (
        (EMPTY, UNKNOWN), (PREPARING, REJOIN), (COMPLETING, WAITS), (STABLE, NONE), (DEAD, AWAY),
    ),
    "sync of an old generation": (
        (EMPTY, UNKNOWN), (PREPARING, OLD), (COMPLETING, OLD), (STABLE, OLD), (DEAD, AWAY),
    ),
    "sync of a stranger": (
        (EMPTY, UNKNOWN), (PREPARING, UNKNOWN), (COMPLETING, UNKNOWN), (STABLE, UNKNOWN), (DEAD, AWAY),
    ),
    "heartbeat": (
        (EMPTY, UNKNOWN), (PREPARING, REJOIN), (COMPLETING, NONE), (STABLE, NONE), (DEAD, AWAY),
    ),
    "heartbeat of an old generation": (
        (EMPTY, UNKNOWN), (PREPARING, OLD), (COMPLETING, OLD), (STABLE, OLD), (DEAD, AWAY),
    ),
    "heartbeat of a stranger": (
        (EMPTY, UNKNOWN), (PREPARING, UNKNOWN), (COMPLETING, UNKNOWN), (STABLE, UNKNOWN), (DEAD, AWAY),
    ),
    "leave of the follower": (
        (EMPTY, UNKNOWN), (COMPLETING, NONE), (PREPARING, NONE), (PREPARING, NONE), (DEAD, AWAY),
    ),
    "leave of the leader": (
        (EMPTY, UNKNOWN), (PREPARING, NONE), (PREPARING, NONE), (PREPARING, NONE), (DEAD, AWAY),
    ),
    "leave of everyone": (
        (EMPTY, UNKNOWN), (EMPTY, NONE), (EMPTY, NONE), (EMPTY, NONE), (DEAD, AWAY),
    ),
    "leave of a stranger": (
        (EMPTY, UNKNOWN), (PREPARING, UNKNOWN), (COMPLETING, UNKNOWN), (STABLE, UNKNOWN), (DEAD, AWAY),
    ),
    "offsets committed": (
        (EMPTY, SILENT), (PREPARING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "session timer of the follower": (
        (EMPTY, SILENT), (COMPLETING, SILENT), (PREPARING, SILENT), (PREPARING, SILENT), (DEAD, SILENT),
    ),
    "session timer of a stranger": (
        (EMPTY, SILENT), (PREPARING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "pending member timer": (
        (EMPTY, SILENT), (PREPARING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "join timer": (
        (EMPTY, SILENT), (COMPLETING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "sync timer": (
        (EMPTY, SILENT), (PREPARING, SILENT), (EMPTY, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "earlier generation stored": (
        (EMPTY, SILENT), (PREPARING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "earlier generation not stored": (
        (EMPTY, SILENT), (PREPARING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "loaded": (
        (EMPTY, SILENT), (PREPARING, SILENT), (COMPLETING, SILENT), (STABLE, SILENT), (DEAD, SILENT),
    ),
    "deleted": (
        (DEAD, SILENT), (PREPARING, IMPOSSIBLE), (COMPLETING, IMPOSSIBLE), (STABLE, IMPOSSIBLE),
        (DEAD, SILENT),
    ),
    "coordinator moved": (
        (DEAD, SILENT), (DEAD, SILENT), (DEAD, SILENT), (DEAD, SILENT), (DEAD, SILENT),
    ),
    "upgraded": (
        (DEAD, SILENT), (DEAD, SILENT), (DEAD, SILENT), (DEAD, SILENT), (DEAD, SILENT),
    ),
    "downgraded": (
        (EMPTY, SILENT), (PREPARING, SILENT), (PREPARING, SILENT), (PREPARING, SILENT), (DEAD, SILENT),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "event"), list(product(State, EVENTS)), ids=str)
def test_every_event_in_every_state(state: State, event: str) -> None:
    expected_state, expected_answer = TABLE[event][list(State).index(state)]
    group = in_state(state)
    assert EVENTS[event](group) == expected_answer
    assert group.state is expected_state


def test_every_state_leads_only_where_the_table_of_transitions_says() -> None:
    seen: dict[State, set[State]] = {state: set() for state in State}
    for state, event in product(State, EVENTS):
        group = in_state(state)
        EVENTS[event](group)
        seen[state].add(group.state)
    assert TRANSITIONS.keys() == set(State)
    assert seen[State.DEAD] == {State.DEAD}
    for state in State:
        assert State.DEAD in TRANSITIONS[state]
