"""Every state of a consumer group against every event: where it leads, and what whoever asked is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from broker.errors import ErrorCode
from broker.groups.consumer_groups.events import (
    MemberSyncTimer,
    MemberTimerFired,
    RejoinTimer,
    RevocationTimer,
)
from broker.groups.consumer_groups.image import GroupState
from broker.groups.consumer_groups.members import NOTHING
from broker.groups.events import Loaded, SessionTimer
from tests.groups.scripted_consumers import ScriptedConsumers, cooperative

EMPTY, ASSIGNING, RECONCILING, STABLE = GroupState
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
REJOIN = ErrorCode.REBALANCE_IN_PROGRESS
OLD = ErrorCode.ILLEGAL_GENERATION
MISMATCH = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
BAD_TIMEOUT = ErrorCode.INVALID_SESSION_TIMEOUT
NEEDS_ID = ErrorCode.MEMBER_ID_REQUIRED
SILENT = "silent"
RETIRED = "becomes a classic group"


def in_state(state: GroupState) -> ScriptedConsumers:
    """A group of m1 and m2 of the consumer protocol and c1 of the classic one, of four partitions: with m3
    gone (Assigning) or new and waiting for what others give up (Reconciling); Empty after all left.
    """
    group = ScriptedConsumers()
    for member_id in ("m1", "m2"):
        group.join(member_id)
    joined = group.classic_join("c1")
    assert joined is not None
    group.settle("m1", "m2")
    settle_classic(group)
    assert group.state is STABLE
    match state:
        case GroupState.EMPTY:
            for member_id in ("c1", "m1", "m2"):
                leave = group.classic_leave if member_id == "c1" else group.leave
                leave(member_id)
        case GroupState.ASSIGNING:
            group.join("m3")
            group.leave("m3")
        case GroupState.RECONCILING:
            group.join("m3")
        case GroupState.STABLE:
            pass
    assert group.state is state
    return group


def settle_classic(group: ScriptedConsumers) -> None:
    """c1 joins and syncs until it has all that is for it."""
    for _ in range(3):
        has = sorted(each.partition for each in group.image.assignment("c1").assigned)
        joined = group.classic_join(
            "c1", protocols={"cooperative-sticky": cooperative(["flights"], {"flights": has})}
        )
        assert joined is not None
        assert group.classic_sync("c1", joined.generation).error is NONE


def generation(group: ScriptedConsumers) -> int:
    return group.image.assignment("c1").epoch


def classic_join(group: ScriptedConsumers, member_id: str = "", **options: object) -> object:
    answer = group.classic_join(member_id, **options)  # type: ignore[arg-type]
    return RETIRED if group.retired else answer.error if answer is not None else None


def fire(event: object) -> Callable[[ScriptedConsumers], object]:
    def act(group: ScriptedConsumers) -> object:
        group.tell(event)  # type: ignore[arg-type]
        return SILENT

    return act


def delete(group: ScriptedConsumers) -> object:
    try:
        group.machine.retire(group.now_ms)
    except AssertionError:
        return "impossible"
    return SILENT


EVENTS: dict[str, Callable[[ScriptedConsumers], object]] = {
    "join of a new member": lambda group: group.join("new"),
    "join of a known member": lambda group: group.join("m1"),
    "join of a new static member": lambda group: group.join("new", instance_id="i"),
    "join with an unknown assignor": lambda group: group.join("new", assignor="best"),
    "heartbeat": lambda group: group.follow("m1"),
    "heartbeat of a newer epoch": lambda group: group.heartbeat("m1", epoch=99),
    "heartbeat of an old epoch": lambda group: group.heartbeat("m1", epoch=2, owned=NOTHING),
    "heartbeat of a stranger": lambda group: group.heartbeat("stranger", epoch=1),
    "heartbeat with other topics": lambda group: group.heartbeat("m1", topics=frozenset({"x"})),
    "leave": lambda group: group.leave("m1"),
    "leave of a stranger": lambda group: group.leave("stranger"),
    "classic join of a new member": lambda group: classic_join(group),
    "classic join without an id that must have one": lambda group: classic_join(
        group, requires_known_member_id=True
    ),
    "classic join of a known member": lambda group: classic_join(group, "c1"),
    "classic join with another kind of member": lambda group: classic_join(group, protocol_type="connect"),
    "classic join with no common protocol": lambda group: classic_join(
        group, protocols={"odd": cooperative(["flights"])}
    ),
    "classic join with a garbled subscription": lambda group: classic_join(
        group, protocols={"cooperative-sticky": b"?"}
    ),
    "classic join with a wild session timeout": lambda group: classic_join(group, session_timeout_ms=1),
    "classic sync": lambda group: group.classic_sync("c1", generation(group)).error,
    "classic sync of an old generation": lambda group: group.classic_sync("c1", 1).error,
    "classic sync with another protocol": lambda group: (
        group.classic_sync("c1", generation(group), protocol="odd").error
    ),
    "classic sync of a consumer": lambda group: group.classic_sync("m1", 1).error,
    "classic heartbeat": lambda group: group.classic_heartbeat("c1", generation(group)),
    "classic heartbeat of an old generation": lambda group: group.classic_heartbeat("c1", 1),
    "classic heartbeat of a consumer": lambda group: group.classic_heartbeat("m1", 1),
    "classic leave": lambda group: group.classic_leave("c1"),
    "classic leave of a consumer": lambda group: group.classic_leave("m1"),
    "session timer": fire(MemberTimerFired(timer=SessionTimer("m1"))),
    "session timer of a stranger": fire(MemberTimerFired(timer=SessionTimer("stranger"))),
    "revocation timer of one that has nothing to give up": fire(
        MemberTimerFired(timer=RevocationTimer("m1"))
    ),
    "rejoin timer of one that was not told": fire(MemberTimerFired(timer=RejoinTimer("c1"))),
    "sync timer": fire(MemberTimerFired(timer=MemberSyncTimer("c1"))),
    "loaded": fire(Loaded()),
    "deleted": delete,
}

# For each event: (state it leads to, what is told) from Empty, Assigning, Reconciling, Stable.
TABLE: dict[str, tuple[tuple[GroupState, object], ...]] = {
    "join of a new member": (
        (STABLE, NONE), (RECONCILING, NONE), (RECONCILING, NONE), (RECONCILING, NONE),
    ),
    "join of a known member": (
        (STABLE, NONE), (RECONCILING, NONE), (RECONCILING, NONE), (STABLE, NONE),
    ),
    "join of a new static member": (
        (STABLE, NONE), (RECONCILING, NONE), (RECONCILING, NONE), (RECONCILING, NONE),
    ),
    "join with an unknown assignor": tuple(
        (state, ErrorCode.UNSUPPORTED_ASSIGNOR) for state in GroupState
    ),
    "heartbeat": (
        (EMPTY, UNKNOWN), (RECONCILING, NONE), (RECONCILING, NONE), (STABLE, NONE),
    ),
    "heartbeat of a newer epoch": (
        (EMPTY, UNKNOWN), (ASSIGNING, FENCED), (RECONCILING, FENCED), (STABLE, FENCED),
    ),
    "heartbeat of an old epoch": (
        (EMPTY, UNKNOWN), (ASSIGNING, FENCED), (RECONCILING, FENCED), (STABLE, FENCED),
    ),
    "heartbeat of a stranger": (
        (EMPTY, UNKNOWN), (ASSIGNING, UNKNOWN), (RECONCILING, UNKNOWN), (STABLE, UNKNOWN),
    ),
    "heartbeat with other topics": (
        (EMPTY, UNKNOWN), (RECONCILING, NONE), (RECONCILING, NONE), (RECONCILING, NONE),
    ),
    "leave": (
        (EMPTY, UNKNOWN), (ASSIGNING, NONE), (ASSIGNING, NONE), (ASSIGNING, NONE),
    ),
    "leave of a stranger": (
        (EMPTY, UNKNOWN), (ASSIGNING, UNKNOWN), (RECONCILING, UNKNOWN), (STABLE, UNKNOWN),
    ),
    "classic join of a new member": (
        (EMPTY, RETIRED), (RECONCILING, NONE), (RECONCILING, NONE), (RECONCILING, NONE),
    ),
    "classic join without an id that must have one": (
        (EMPTY, RETIRED), (ASSIGNING, NEEDS_ID), (RECONCILING, NEEDS_ID), (STABLE, NEEDS_ID),
    ),
    "classic join of a known member": (
        (EMPTY, RETIRED), (RECONCILING, NONE), (RECONCILING, NONE), (STABLE, NONE),
    ),
    "classic join with another kind of member": (
        (EMPTY, RETIRED), (ASSIGNING, MISMATCH), (RECONCILING, MISMATCH), (STABLE, MISMATCH),
    ),
    "classic join with no common protocol": (
        (EMPTY, RETIRED), (ASSIGNING, MISMATCH), (RECONCILING, MISMATCH), (STABLE, MISMATCH),
    ),
    "classic join with a garbled subscription": (
        (EMPTY, RETIRED), (ASSIGNING, MISMATCH), (RECONCILING, MISMATCH), (STABLE, MISMATCH),
    ),
    "classic join with a wild session timeout": (
        (EMPTY, RETIRED), (ASSIGNING, BAD_TIMEOUT), (RECONCILING, BAD_TIMEOUT), (STABLE, BAD_TIMEOUT),
    ),
    "classic sync": (
        (EMPTY, UNKNOWN), (ASSIGNING, REJOIN), (RECONCILING, REJOIN), (STABLE, NONE),
    ),
    "classic sync of an old generation": (
        (EMPTY, UNKNOWN), (ASSIGNING, OLD), (RECONCILING, OLD), (STABLE, OLD),
    ),
    "classic sync with another protocol": (
        (EMPTY, UNKNOWN), (ASSIGNING, MISMATCH), (RECONCILING, MISMATCH), (STABLE, MISMATCH),
    ),
    "classic sync of a consumer": (
        (EMPTY, UNKNOWN), (ASSIGNING, UNKNOWN), (RECONCILING, UNKNOWN), (STABLE, UNKNOWN),
    ),
    "classic heartbeat": (
        (EMPTY, UNKNOWN), (ASSIGNING, REJOIN), (RECONCILING, REJOIN), (STABLE, NONE),
    ),
    "classic heartbeat of an old generation": (
        (EMPTY, UNKNOWN), (ASSIGNING, OLD), (RECONCILING, OLD), (STABLE, OLD),
    ),
    "classic heartbeat of a consumer": (
        (EMPTY, UNKNOWN), (ASSIGNING, UNKNOWN), (RECONCILING, UNKNOWN), (STABLE, UNKNOWN),
    ),
    "classic leave": (
        (EMPTY, UNKNOWN), (ASSIGNING, NONE), (ASSIGNING, NONE), (ASSIGNING, NONE),
    ),
    "classic leave of a consumer": (
        (EMPTY, UNKNOWN), (ASSIGNING, UNKNOWN), (RECONCILING, UNKNOWN), (STABLE, UNKNOWN),
    ),
    "session timer": (
        (EMPTY, SILENT), (ASSIGNING, SILENT), (ASSIGNING, SILENT), (ASSIGNING, SILENT),
    ),
    "session timer of a stranger": (
        (EMPTY, SILENT), (ASSIGNING, SILENT), (RECONCILING, SILENT), (STABLE, SILENT),
    ),
    "revocation timer of one that has nothing to give up": (
        (EMPTY, SILENT), (ASSIGNING, SILENT), (RECONCILING, SILENT), (STABLE, SILENT),
    ),
    "rejoin timer of one that was not told": (
        (EMPTY, SILENT), (ASSIGNING, SILENT), (RECONCILING, SILENT), (STABLE, SILENT),
    ),
    "sync timer": (
        (EMPTY, SILENT), (ASSIGNING, SILENT), (ASSIGNING, SILENT), (ASSIGNING, SILENT),
    ),
    "loaded": (
        (EMPTY, SILENT), (ASSIGNING, SILENT), (RECONCILING, SILENT), (STABLE, SILENT),
    ),
    "deleted": (
        (EMPTY, SILENT), (ASSIGNING, "impossible"), (RECONCILING, "impossible"), (STABLE, "impossible"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "event"), list(product(GroupState, EVENTS)), ids=str)
def test_every_event_in_every_state(state: GroupState, event: str) -> None:
    expected_state, expected_answer = TABLE[event][list(GroupState).index(state)]
    group = in_state(state)
    assert EVENTS[event](group) == expected_answer
    assert group.state is expected_state
