import pytest

from broker.cluster.election import Electorate, first_state, preferred_state, repaired
from broker.coordination.znodes import PartitionStateZnode
from broker.types import BrokerId, LeaderEpoch
from tests.cluster.scenes import ids

EPOCH = 9


def state(leader: int, *isr: int, epoch: int = 4, controller_epoch: int = 1) -> PartitionStateZnode:
    return PartitionStateZnode(
        controller_epoch=controller_epoch,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=ids(*isr),
    )


def after(leader: int, *isr: int) -> PartitionStateZnode:
    return state(leader, *isr, epoch=5, controller_epoch=EPOCH)


@pytest.mark.parametrize(
    ("now", "alive", "stopping", "unclean", "expected"),
    [
        (state(1, 1, 2, 3), {1, 2, 3}, set(), False, None),
        (state(1, 1, 2, 3), {2, 3}, set(), False, after(2, 1, 2, 3)),
        (state(1, 1, 3), {2, 3}, set(), False, after(3, 1, 3)),
        (state(1, 1, 2, 3), {1, 3}, set(), False, None),
        (state(1, 1), {2, 3}, set(), False, after(-1, 1)),
        (state(1, 1), {2, 3}, set(), True, after(2, 2)),
        (state(1, 1), set(), set(), True, after(-1, 1)),
        (state(-1, 1), {2, 3}, set(), False, None),
        (state(-1, 1), {1, 2}, set(), False, after(1, 1)),
        (state(-1, 1), {2}, {2}, True, None),
        (state(1, 1, 2, 3), {1, 2, 3}, {1}, False, after(2, 1, 2, 3)),
        (state(1, 1), {1, 2, 3}, {1}, False, None),
        (state(1, 1), {1, 2, 3}, {1}, True, None),
        (state(2, 1, 2, 3), {1, 2, 3}, {1}, False, None),
        (state(1, 1, 2), {2}, {2}, False, after(-1, 1, 2)),
    ],
    ids=[
        "all well",
        "the leader died",
        "the leader died and the next replica is not in sync",
        "a follower died",
        "the only in-sync replica died",
        "the only in-sync replica died, unclean",
        "all died",
        "still without leader",
        "the last in-sync replica is back",
        "unclean does not take a stopping one",
        "the leader stops",
        "the leader stops and nobody can follow it",
        "a stopping leader is not replaced uncleanly",
        "a follower stops",
        "the leader died while the last follower stops",
    ],
)
def test_a_partition_is_repaired(
    now: PartitionStateZnode,
    alive: set[int],
    stopping: set[int],
    unclean: bool,
    expected: PartitionStateZnode | None,
) -> None:
    electorate = Electorate(alive=frozenset(ids(*alive)), stopping=frozenset(ids(*stopping)))
    got = repaired(now, ids(1, 2, 3), electorate, controller_epoch=EPOCH, unclean=unclean)
    assert got == expected


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    electorate = Electorate(alive=frozenset(ids(2, 3)))
    assert first_state(ids(1, 2, 3), electorate, EPOCH) == state(2, 2, 3, epoch=0, controller_epoch=EPOCH)
    assert first_state(ids(1), electorate, EPOCH) is None


def test_the_preferred_replica_leads_only_when_in_sync_and_alive() -> None:
    everyone = Electorate(alive=frozenset(ids(1, 2)))
    now = state(2, 2, 1)
    assert preferred_state(now, ids(1, 2), everyone, controller_epoch=EPOCH) == after(1, 2, 1)
    assert preferred_state(state(2, 2), ids(1, 2), everyone, controller_epoch=EPOCH) is None
    alone = Electorate(alive=frozenset(ids(2)))
    assert preferred_state(now, ids(1, 2), alone, controller_epoch=EPOCH) is None
