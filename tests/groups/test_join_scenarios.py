"""The four ways in which members come together, join by join: the state after each, and who is answered.

Whoever joins first where that means a rebalance starts it, and only the first; from then on every join waits
for the one delayed join of the rebalance, whoever it is from. The leader stays, and it alone is told who the
members are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from broker.groups.events import Waiter
from broker.groups.state import State
from tests.groups.scripted_group import CONFIG, NO_DELAY, ScriptedGroup

PREPARING, COMPLETING, STABLE = State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE
TIME = "time"
"""In the place of a member: the wait for more members ends."""


class Step(NamedTuple):
    """One join, the state after it, and the members whose joins it answers."""

    who: str
    state: State
    answers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Members are single letters, `a` is the leader; `before` share the work already."""

    before: str
    steps: tuple[Step, ...]


SCENARIOS = {
    "first_rebalance_all_wait_and_the_first_to_join_leads": Scenario(
        before="",
        steps=(
            Step("a", PREPARING, ""),
            Step("b", PREPARING, ""),
            Step("c", PREPARING, ""),
            Step(TIME, COMPLETING, "abc"),
        ),
    ),
    "leader_joins_again_first_and_all_others_have_to": Scenario(
        before="abc",
        steps=(Step("a", PREPARING, ""), Step("b", PREPARING, ""), Step("c", COMPLETING, "abc")),
    ),
    "followers_before_the_leader_are_answered_at_once_one_after_it_waits": Scenario(
        before="abcd",
        steps=(
            Step("b", STABLE, "b"),
            Step("c", STABLE, "c"),
            Step("a", PREPARING, ""),
            Step("d", PREPARING, ""),
            Step("b", PREPARING, ""),
            Step("c", COMPLETING, "abcd"),
        ),
    ),
    "newcomer_joins_first_and_even_followers_wait_for_the_leader_who_stays": Scenario(
        before="abc",
        steps=(
            Step("n", PREPARING, ""),
            Step("b", PREPARING, ""),
            Step("a", PREPARING, ""),
            Step("c", COMPLETING, "abcn"),
        ),
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_members_come_together(scenario: Scenario) -> None:
    before = scenario.before
    group = ScriptedGroup(NO_DELAY if before else CONFIG)
    ids = dict(zip(before, group.stable(len(before)) if before else (), strict=True))
    generation, rebalances = group.machine.standing.generation, group.facts.count("rebalance_started")
    joins: dict[str, Waiter] = {}
    for step in scenario.steps:
        waiting = {who for who, waiter in joins.items() if group.waits(waiter)}
        if step.who == TIME:
            group.advance(2 * CONFIG.initial_rebalance_delay_ms)
        else:
            joins[step.who] = group.join(ids.get(step.who, ""))
            waiting.add(step.who)
        answered = {who for who in waiting if not group.waits(joins[who])}
        assert (step, group.state, answered) == (step, step.state, set(step.answers))
        if group.state is STABLE:
            reply = group.joined(joins[step.who])
            assert (reply.generation, reply.leader, reply.members) == (generation, ids["a"], ())
    replies = {who: group.joined(waiter) for who, waiter in joins.items()}
    leader = ids.get("a", replies["a"].member_id)
    assert {reply.generation for reply in replies.values()} == {generation + 1}
    assert {reply.leader for reply in replies.values()} == {leader}
    assert {who: len(reply.members) for who, reply in replies.items() if reply.members} == {"a": len(joins)}
    assert group.facts.count("rebalance_started") == rebalances + 1
