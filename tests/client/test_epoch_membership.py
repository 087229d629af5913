"""The membership of the consumer protocol as a machine: every state and event, and what follows."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.epoch_membership import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    TRANSITIONS,
    Answered,
    Broken,
    CameBack,
    Closed,
    DutyDone,
    Effects,
    EpochMembership,
    Event,
    Fenced,
    Heartbeat,
    Lose,
    MemberState,
    NotAnswered,
    PartitionOfId,
    Partitions,
    Refused,
    Revoke,
    StoodAside,
    Subscribed,
    TakeUp,
    Ticked,
)
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicId

TOPIC = TopicId(UUID(int=1))
A, B, C = (PartitionOfId(TOPIC, number) for number in range(3))
INTERVAL_MS = 5_000.0
REFUSAL = ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Member:
    """A membership under test, its clock, and what it wants done that is not done yet."""

    def __init__(self, **options: bool) -> None:
        self.machine = EpochMembership(**options)
        self.now_ms = 0.0
        self.heartbeat: Heartbeat | None = None
        self.duty: Revoke | TakeUp | Lose | None = None
        self.wake_at_ms: float | None = None

    @property
    def state(self) -> MemberState:
        return self.machine.state

    def tell(self, event: Event) -> Effects:
        effects = self.machine.handle(event, self.now_ms)
        if effects.heartbeat is not None:
            self.heartbeat = effects.heartbeat
            assert self.heartbeat.owned in (None, self.machine.owned)
        if effects.duty is not None:
            assert self.duty is None, "one duty at a time"
            self.duty = effects.duty
        self.wake_at_ms = effects.wake_at_ms
        return effects

    def answer(self, assignment: Partitions | None = None, *, epoch: int = 1) -> Heartbeat:
        """The coordinator answers the heartbeat under way, which is returned."""
        sent, self.heartbeat = self.heartbeat, None
        assert sent is not None
        epoch = sent.member_epoch if sent.leaves else epoch
        self.tell(
            Answered(
                heartbeat=sent, member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=assignment
            )
        )
        return sent

    def fail(self, kind: type[NotAnswered] | type[Fenced] = NotAnswered) -> None:
        sent, self.heartbeat = self.heartbeat, None
        assert sent is not None
        self.tell(kind(heartbeat=sent, retry_in_ms=100.0))

    def refuse(self) -> None:
        sent, self.heartbeat = self.heartbeat, None
        assert sent is not None
        self.tell(Refused(heartbeat=sent, error=REFUSAL))

    def do(self) -> Revoke | TakeUp | Lose:
        """The owner does its duty, which is returned."""
        duty, self.duty = self.duty, None
        assert duty is not None
        owned = self.machine.owned
        taken = isinstance(duty, TakeUp)
        self.tell(DutyDone(owned=owned | duty.partitions if taken else owned - duty.partitions))
        return duty

    def wait(self) -> None:
        assert self.wake_at_ms is not None
        self.now_ms = max(self.now_ms, self.wake_at_ms)
        self.tell(Ticked())

    def join(self, *partitions: PartitionOfId) -> Member:
        """In the group with these, and everything told."""
        self.tell(Subscribed(topics=frozenset({"t"})))
        self.answer(frozenset(partitions))
        if partitions:
            self.do()
            self.answer()
        return self


def test_a_member_joins_takes_up_what_it_is_given_and_says_so() -> None:
    member = Member()
    member.tell(Ticked())
    assert member.heartbeat is None, "nothing to subscribe to yet"
    member.tell(Subscribed(topics=frozenset({"t"})))
    joined = member.answer(frozenset({A, B}), epoch=3)
    assert joined == Heartbeat(member_epoch=0, topics=frozenset({"t"}), owned=NOTHING, is_full=True)
    assert (member.heartbeat, member.machine.epoch) == (None, 3)
    assert not member.machine.is_settled
    assert member.do() == TakeUp(frozenset({A, B}))
    assert member.machine.is_settled
    assert member.answer(epoch=3) == Heartbeat(member_epoch=3, owned=frozenset({A, B}))
    assert member.wake_at_ms == INTERVAL_MS
    member.wait()
    assert member.answer(epoch=3) == Heartbeat(member_epoch=3), "nothing new"


def test_what_is_given_up_is_told_when_it_is_given_up_and_not_before() -> None:
    member = Member().join(A, B)
    member.wait()
    member.answer(frozenset({B, C}), epoch=2)
    assert member.duty == Revoke(frozenset({A}))
    member.wait()
    assert member.answer(epoch=2) == Heartbeat(member_epoch=2), "heartbeats go on beside the duty"
    member.do()
    assert member.duty == TakeUp(frozenset({C}))
    assert member.answer(epoch=2) == Heartbeat(member_epoch=2, owned=frozenset({B}))
    member.do()
    assert member.answer(epoch=2).owned == {B, C}


def test_an_assignment_that_changes_during_a_duty_counts_when_that_is_done() -> None:
    member = Member().join(A)
    member.wait()
    member.answer(frozenset({A, B}))
    member.wait()
    member.answer(frozenset({C}))
    assert member.do() == TakeUp(frozenset({B}))
    assert member.do() == Revoke(frozenset({A, B}))
    assert member.do() == TakeUp(frozenset({C}))
    assert member.machine.is_settled


def test_what_could_not_be_taken_up_is_tried_again_later() -> None:
    member = Member()
    member.tell(Subscribed(topics=frozenset({"t"})))
    member.answer(frozenset({A, B}))
    member.duty = None
    member.tell(DutyDone(owned=frozenset({A}), retry_in_ms=500.0))
    assert not member.machine.is_settled
    assert member.answer().owned == {A}, "the rest is not told of"
    assert member.wake_at_ms == 500.0
    member.wait()
    assert member.do() == TakeUp(frozenset({B}))


def test_after_a_heartbeat_that_was_not_answered_the_next_tells_everything() -> None:
    member = Member().join(A)
    member.wait()
    member.fail()
    assert member.heartbeat is None
    member.wait()
    assert member.answer() == Heartbeat(
        member_epoch=1, topics=frozenset({"t"}), owned=frozenset({A}), is_full=True
    )


def test_another_subscription_is_told_at_once_and_a_pattern_is_taken_back() -> None:
    member = Member().join()
    member.tell(Subscribed(pattern="t.*"))
    assert member.answer() == Heartbeat(member_epoch=1, topics=frozenset(), pattern="t.*")
    member.tell(Subscribed(topics=frozenset({"u"})))
    assert member.answer() == Heartbeat(member_epoch=1, topics=frozenset({"u"}), pattern="")


def test_a_fenced_member_loses_everything_and_joins_anew() -> None:
    member = Member().join(A)
    member.wait()
    member.fail(Fenced)
    assert (member.state, member.machine.epoch) == (MemberState.FENCED, 0)
    assert member.do() == Lose(frozenset({A}))
    assert member.heartbeat is None, "after a pause"
    member.wait()
    again = member.answer(frozenset({A}), epoch=7)
    assert (again.member_epoch, again.owned, again.is_full) == (0, NOTHING, True)
    assert member.machine.epoch == 7


def test_a_member_that_is_fenced_during_a_duty_loses_what_that_brought_too() -> None:
    member = Member().join(A)
    member.wait()
    member.answer(frozenset({A, B}))
    member.wait()
    member.fail(Fenced)
    assert member.do() == TakeUp(frozenset({B}))
    assert member.do() == Lose(frozenset({A, B}))
    assert member.state is MemberState.JOINING


@pytest.mark.parametrize(("static", "epoch"), [(False, LEAVE_EPOCH), (True, LEAVE_STATIC_EPOCH)])
def test_a_member_that_is_closed_gives_up_everything_and_leaves(static: bool, epoch: int) -> None:
    member = Member(static=static).join(A)
    member.wait()
    under_way = member.heartbeat
    assert under_way is not None
    member.tell(Closed())
    assert member.machine.epoch == 1, "what it gives up may be committed"
    assert member.do() == Revoke(frozenset({A}))
    assert member.heartbeat == Heartbeat(member_epoch=epoch), "which waits for no other"
    member.tell(NotAnswered(heartbeat=under_way, retry_in_ms=0.0))
    assert member.state is MemberState.LEAVING
    member.answer()
    assert (member.state, member.machine.epoch) == (MemberState.OVER, 0)


def test_a_member_that_never_joined_has_nothing_to_leave() -> None:
    member = Member()
    member.tell(Closed())
    assert (member.state, member.heartbeat) == (MemberState.OVER, None)


def test_who_is_not_to_leave_just_ends_but_a_static_member_says_that_it_is_away() -> None:
    member = Member(leaves=False).join()
    member.tell(Closed())
    assert (member.state, member.heartbeat) == (MemberState.OVER, None)
    member = Member(leaves=False, static=True).join()
    member.tell(Closed())
    assert member.heartbeat == Heartbeat(member_epoch=LEAVE_STATIC_EPOCH)


def test_a_member_whose_reader_stays_away_is_out_until_that_is_back() -> None:
    member = Member().join(A)
    member.tell(StoodAside())
    assert member.machine.epoch == 0, "its commits do not count"
    assert member.do() == Lose(frozenset({A}))
    assert member.answer() == Heartbeat(member_epoch=LEAVE_EPOCH)
    assert member.wake_at_ms is None
    member.tell(CameBack())
    assert member.answer(frozenset({A})).member_epoch == 0
    member.do()
    member.tell(StoodAside())
    member.tell(CameBack())
    member.do()
    assert member.state is MemberState.ASIDE, "it leaves before it joins again"
    member.answer()
    assert (member.state, member.heartbeat) != (MemberState.JOINING, None)


def test_a_refused_member_loses_everything_and_is_over() -> None:
    member = Member().join(A)
    member.wait()
    member.refuse()
    assert member.do() == Lose(frozenset({A}))
    assert (member.state, member.machine.failure, member.heartbeat) == (MemberState.OVER, REFUSAL, None)


def test_a_member_that_fails_by_itself_leaves() -> None:
    member = Member().join(A)
    member.tell(Broken(error=REFUSAL))
    member.do()
    assert member.answer() == Heartbeat(member_epoch=LEAVE_EPOCH)
    assert (member.state, member.machine.failure) == (MemberState.OVER, REFUSAL)


def in_state(state: MemberState) -> Member:
    """A member that stays in this state, with a partition in hand and, where it sends any, a heartbeat under
    way.
    """
    member = Member()
    if state is MemberState.OVER:
        member.tell(Closed())
        return member
    if state is MemberState.JOINING:
        member.tell(Subscribed(topics=frozenset({"t"})))
        return member
    member.join(A)
    member.wait()
    if state is MemberState.FENCED:
        member.fail(Fenced)
    into = {
        MemberState.ASIDE: StoodAside(),
        MemberState.LEAVING: Closed(),
        MemberState.FAILED: Broken(error=REFUSAL),
    }
    if state in into:
        member.tell(into[state])
    return member


EVENTS: dict[type, object] = {
    Subscribed: Subscribed(topics=frozenset({"u"})),
    DutyDone: None,
    StoodAside: StoodAside(),
    CameBack: CameBack(),
    Closed: Closed(),
    Ticked: Ticked(),
    Broken: Broken(error=REFUSAL),
    Answered: None,
    NotAnswered: None,
    Fenced: None,
    Refused: None,
}
WAITED_FOR = {MemberState.FENCED: MemberState.JOINING}
"""Where a state leads when its duty is done."""


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("state", MemberState, ids=lambda state: state.value)
def test_every_event_in_every_state_leads_where_the_table_says(state: MemberState, kind: type) -> None:
    member = in_state(state)
    assert member.state is state
    if kind is DutyDone:
        if member.duty is not None:
            member.do()
        assert member.state is WAITED_FOR.get(state, state)
        return
    if (event := EVENTS[kind]) is not None:
        member.tell(event)  # type: ignore[arg-type]
    elif member.heartbeat is None:
        member.tell(NotAnswered(heartbeat=Heartbeat(member_epoch=LEAVE_EPOCH), retry_in_ms=0.0))
        assert member.state is state, "news of a heartbeat that nobody waits for"
        return
    elif kind is Answered:
        member.answer()
    elif kind is Refused:
        member.refuse()
    else:
        member.fail(kind)
    expected = TRANSITIONS.get((state, kind), state)
    if state is MemberState.JOINING and kind is Fenced:
        expected = MemberState.JOINING  # with nothing to lose, it joins again after a pause
    if state is MemberState.JOINING and kind is Refused:
        expected = MemberState.OVER
    assert member.state is expected


STEPS = st.sampled_from(
    ["answer", "assign", "fail", "fence", "do", "wait", "aside", "back", "subscribe", "again"]
)


@given(st.lists(st.tuples(STEPS, st.sets(st.sampled_from([A, B, C])))), st.booleans())
def test_whatever_happens_a_member_owns_what_it_took_up_and_comes_to_rest(
    steps: list[tuple[str, set[PartitionOfId]]], static: bool
) -> None:
    member = Member(static=static)
    member.tell(Subscribed(topics=frozenset({"t"})))
    held: set[PartitionOfId] = set()

    def do() -> None:
        duty = member.do()
        if isinstance(duty, TakeUp):
            assert not held & duty.partitions
            held.update(duty.partitions)
        else:
            assert duty.partitions <= held
            held.difference_update(duty.partitions)
        assert member.machine.owned == held

    def answer(assignment: Partitions | None) -> None:
        member.answer(assignment, epoch=member.machine.epoch + 1)

    for step, partitions in steps:
        in_flight = member.heartbeat is not None
        match step:
            case "answer" if in_flight:
                answer(None)
            case "assign" if in_flight:
                answer(frozenset(partitions))
            case "fail" if in_flight:
                member.fail()
            case "fence" if in_flight:
                member.fail(Fenced)
            case "do" if member.duty is not None:
                do()
            case "wait" if member.wake_at_ms is not None:
                member.wait()
            case "aside":
                member.tell(StoodAside())
            case "back":
                member.tell(CameBack())
            case "subscribe":
                member.tell(Subscribed(topics=frozenset({f"t-{len(partitions)}"})))
            case _:
                member.tell(Ticked())
    member.tell(CameBack())
    goal = frozenset({A, C})
    for _ in range(20):
        if member.duty is not None:
            do()
        elif member.heartbeat is not None:
            answer(goal)
        elif held != goal or not member.machine.is_settled:
            member.wait()
    assert member.machine.is_settled
    assert held == goal
    member.tell(Closed())
    for _ in range(10):
        if member.duty is not None:
            do()
        elif member.heartbeat is not None:
            member.answer()
    assert member.state is MemberState.OVER
    assert not held
