"""One step of a member, from every state, whatever it says that it owns."""

from __future__ import annotations

import pytest

from broker.groups.consumer_groups.members import (
    NOTHING,
    Assignment,
    MemberState,
    Partitions,
    TopicIdPartition,
)
from broker.groups.consumer_groups.reconciliation import Target, next_assignment
from tests.groups.fixed_topics import topic_id

STABLE, UNREVOKED, UNRELEASED = MemberState


def some(*numbers: int) -> Partitions:
    return frozenset(TopicIdPartition(topic_id(1), number) for number in numbers)


def target(epoch: int, *numbers: int, taken: Partitions = NOTHING) -> Target:
    return Target(epoch=epoch, partitions=some(*numbers), is_free=lambda each: each not in taken)


HAS_0_1 = Assignment(epoch=5, previous_epoch=4, assigned=some(0, 1))
GIVES_UP_1 = Assignment(epoch=5, previous_epoch=5, state=UNREVOKED, assigned=some(0), revoking=some(1))
WAITS_FOR_2 = Assignment(epoch=5, previous_epoch=4, state=UNRELEASED, assigned=some(0))


@pytest.mark.parametrize(
    ("current", "target", "owned", "state", "epoch", "assigned", "revoking"),
    [
        (HAS_0_1, target(5, 0, 1), None, STABLE, 5, some(0, 1), some()),
        (HAS_0_1, target(6, 0, 1), None, STABLE, 6, some(0, 1), some()),
        (HAS_0_1, target(6, 0, 1, 2), None, STABLE, 6, some(0, 1, 2), some()),
        (HAS_0_1, target(6, 0, 1, 2, taken=some(2)), None, UNRELEASED, 6, some(0, 1), some()),
        (HAS_0_1, target(6, 0, 1, 2, 3, taken=some(2)), None, UNRELEASED, 6, some(0, 1, 3), some()),
        (HAS_0_1, target(6, 0), None, UNREVOKED, 5, some(0), some(1)),
        (HAS_0_1, target(6, 0), some(0, 1), UNREVOKED, 5, some(0), some(1)),
        (HAS_0_1, target(6, 0), some(0), STABLE, 6, some(0), some()),
        (HAS_0_1, target(6, 2), None, UNREVOKED, 5, some(), some(0, 1)),
        (HAS_0_1, target(6), some(), STABLE, 6, some(), some()),
        (GIVES_UP_1, target(6, 0, 2), None, UNREVOKED, 5, some(0), some(1)),
        (GIVES_UP_1, target(6, 0, 2), some(0, 1), UNREVOKED, 5, some(0), some(1)),
        (GIVES_UP_1, target(6, 0, 2), some(0), STABLE, 6, some(0, 2), some()),
        (GIVES_UP_1, target(6, 0, 2, taken=some(2)), some(0), UNRELEASED, 6, some(0), some()),
        (GIVES_UP_1, target(7, 2), some(0), UNREVOKED, 6, some(), some(0)),
        (GIVES_UP_1, target(7, 0, 1), some(0), STABLE, 7, some(0, 1), some()),
        (WAITS_FOR_2, target(5, 0, 2, taken=some(2)), None, UNRELEASED, 5, some(0), some()),
        (WAITS_FOR_2, target(5, 0, 2), None, STABLE, 5, some(0, 2), some()),
        (WAITS_FOR_2, target(6, 2), None, UNREVOKED, 5, some(), some(0)),
        (WAITS_FOR_2, target(6, 0), None, STABLE, 6, some(0), some()),
    ],
)
def test_every_state_goes_on_as_far_as_it_can(
    current: Assignment,
    target: Target,
    owned: Partitions | None,
    state: MemberState,
    epoch: int,
    assigned: Partitions,
    revoking: Partitions,
) -> None:
    following = next_assignment(current, target, owned)
    assert (following.state, following.epoch) == (state, epoch)
    assert (following.assigned, following.revoking) == (assigned, revoking)


@pytest.mark.parametrize(
    ("current", "target", "owned"),
    [
        (HAS_0_1, target(5, 0), None),
        (GIVES_UP_1, target(6, 0), None),
        (WAITS_FOR_2, target(5, 0, 2, taken=some(2)), None),
    ],
)
def test_a_member_that_cannot_go_on_stays_as_it_is(
    current: Assignment, target: Target, owned: Partitions | None
) -> None:
    assert next_assignment(current, target, owned) is current


def test_every_step_remembers_the_epoch_before_it() -> None:
    assert next_assignment(HAS_0_1, target(9, 0, 1), None).previous_epoch == 5
