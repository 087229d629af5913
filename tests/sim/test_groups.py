"""Groups of either protocol in a simulated cluster: whatever goes wrong, every partition has one member again
in the end, and no offset that was acknowledged is lost.
"""

from __future__ import annotations

import pytest

from tests.sim.group_world import GroupWorld, Story
from tests.sim.members import ClassicMember, ConsumerMember, Member

KINDS: dict[str, list[type[Member]]] = {
    "classic": [ClassicMember] * 3,
    "consumer": [ConsumerMember] * 3,
    "mixed": [ClassicMember, ClassicMember, ConsumerMember],
}
SEEDS = {"few": range(3), "more": range(3, 8)}


def member_dies(world: GroupWorld) -> None:
    world.living[0].die()


def member_leaves(world: GroupWorld) -> None:
    world.living[-1].is_leaving = True


def leader_dies_in_the_middle_of_a_rebalance(world: GroupWorld) -> None:
    world.add_member(type(world.living[-1]))
    machine = world.coordinator
    assert machine is not None
    world.later((0.1, 0.6), machine.kill)
    world.later((4.0, 5.0), machine.start)


def coordinator_moves(world: GroupWorld) -> None:
    machine = world.coordinator
    assert machine is not None
    machine.stop()
    world.later((2.0, 3.0), machine.start)


def coordinator_is_cut_off_while_another_takes_over(world: GroupWorld) -> None:
    machine = world.coordinator
    assert machine is not None
    assert machine.session is not None
    machine.session.cut()
    for other in world.machines:
        if other is not machine:
            world.network.cut(machine.name, other.name)
            world.network.cut(other.name, machine.name)
    world.later((4.0, 6.0), world.faults.end)


def heartbeat_comes_late_and_a_commit_from_a_zombie(world: GroupWorld) -> None:
    for member in world.living[:2]:
        world.faults.pause_member(member)


STORIES: list[Story] = [
    member_dies,
    member_leaves,
    leader_dies_in_the_middle_of_a_rebalance,
    coordinator_moves,
    coordinator_is_cut_off_while_another_takes_over,
    heartbeat_comes_late_and_a_commit_from_a_zombie,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("kinds", KINDS)
def test_a_group_comes_through(kinds: str, story: Story) -> None:
    for seed in range(2):
        world = GroupWorld(seed, KINDS[kinds], story=story)
        world.run()
        assert len(world.ledger.acknowledged) == world.scenario.partitions


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("seeds", ["few", pytest.param("more", marks=pytest.mark.long)])
def test_a_group_comes_through_whatever_goes_wrong(kinds: str, seeds: str) -> None:
    for seed in SEEDS[seeds]:
        GroupWorld(seed, KINDS[kinds]).run()


def test_nobody_has_anything_to_do_when_the_members_have_gone_home() -> None:
    GroupWorld(400, KINDS["consumer"]).run()
