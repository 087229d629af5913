"""Damaged znodes of the controller: what they held is found otherwise, or taken up once it is put right."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from broker.cluster.events import ControllerSettings
from broker.cluster.states import announce_isr_changes, leave_isrs, read_cluster_image, read_states, write_isr
from broker.cluster.topics import create_topic, delete_topic
from broker.coordination import paths
from broker.coordination.memory import MemorySession
from broker.coordination.znodes import EPOCH_MAX, ConfigZnode, ControllerEpochZnode, TopicZnode
from broker.errors import CoordinationError
from broker.types import NO_LEADER, BrokerId, TopicId
from tests.cluster.members import Cluster, run
from tests.cluster.nodes import until_empty
from tests.cluster.scenes import T0, T1, ids


async def epoch_of(admin: MemorySession) -> int:
    znode = await admin.get(paths.CONTROLLER_EPOCH)
    assert znode is not None
    return ControllerEpochZnode.decode(znode.data, "").epoch


async def fail_over(cluster: Cluster, admin: MemorySession) -> None:
    """Have another reign begin, and every node hear of it."""
    before = max(member.node.controller_epoch for member in cluster.members.values())
    await admin.delete(paths.CONTROLLER)
    await cluster.until(lambda: all(m.node.controller_epoch > before for m in cluster.members.values()))


@pytest.mark.parametrize("damage", [b"", b"\xff garbage", b"-3", b"%d" % 2**40])
def test_a_damaged_epoch_is_followed_by_one_that_no_controller_had(damage: bytes) -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1, 2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        for _ in range(3):
            await fail_over(cluster, admin)
        before = await epoch_of(admin)
        assert (await cluster.state(T0)).controller_epoch < before
        await admin.set(paths.CONTROLLER_EPOCH, damage)
        assert (await read_cluster_image(admin)).controller_epoch == -1
        with capture_logs() as logs:
            await fail_over(cluster, admin)
        told = [event for event in logs if event["event"] == "controller_epoch_recovered"]
        assert {event["path"] for event in told} == {paths.CONTROLLER_EPOCH}
        assert all(event["epoch"] >= before for event in told)
        assert await epoch_of(admin) - 1 in {event["epoch"] for event in told}

    run(scenario, 1, 2)


def test_a_controller_whose_epoch_was_damaged_writes_no_more_until_it_is_elected_again() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await cluster.until(lambda: all(m.node.controller_epoch == 1 for m in cluster.members.values()))
        await admin.set(paths.CONTROLLER_EPOCH, b"garbage")
        await create_topic(admin, "t", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        assert (await cluster.state(T0)).controller_epoch == await epoch_of(admin) > 1

    run(scenario, 1, 2)


def test_an_epoch_whose_znode_was_made_anew_is_known_from_what_nodes_heard() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await fail_over(cluster, admin)
        await admin.delete(paths.CONTROLLER_EPOCH)
        await admin.create(paths.CONTROLLER_EPOCH, b"garbage")
        await fail_over(cluster, admin)

    run(scenario, 1, 2)


def test_no_controller_reigns_when_no_epoch_is_left() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        stored = (await read_states(admin, [T0])).states[T0]
        highest = replace(stored.state, controller_epoch=EPOCH_MAX)
        await admin.set(paths.partition_state(T0), highest.encode())
        await admin.set(paths.CONTROLLER_EPOCH, b"garbage")
        with capture_logs() as logs:
            await admin.delete(paths.CONTROLLER)
            await cluster.until(lambda: any(e["event"] == "controller_election_failed" for e in logs))
        await admin.set(paths.CONTROLLER_EPOCH, b"7")
        await cluster.until(lambda: cluster.controller() is not None)

    run(scenario, 1)


def test_a_state_that_is_put_right_is_taken_up_at_once() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1), 1: ids(2, 1)}, config={})
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (2, 2))
        path = paths.partition_state(T0)
        state = (await cluster.state(T0)).encode()
        await admin.set(path, b"garbage")
        await fail_over(cluster, admin)
        await cluster.members.pop(2).leave()
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (NO_LEADER, 1))
        await admin.set(path, b"still garbage")
        await admin.set(path, state)
        await cluster.until(lambda: cluster.leader(T0) == 1)

    run(scenario, 1, 2)


def test_a_state_that_is_damaged_in_a_reign_is_taken_up_when_it_is_put_right() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1), 1: ids(1)}, config={})
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (2, 1))
        path = paths.partition_state(T0)
        state = (await cluster.state(T0)).encode()
        await admin.set(path, b"garbage")
        await cluster.members.pop(2).leave()
        reign = cluster.required_controller().driver._required_reign()
        await cluster.until(lambda: T0 in reign.machine.unreadable)
        await admin.set(path, state)
        await cluster.until(lambda: cluster.leader(T0) == 1)
        assert not reign.machine.unreadable

    run(scenario, 1, 2)


def test_a_state_that_is_put_right_begins_a_new_epoch() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        path = paths.partition_state(T0)
        state = await cluster.state(T0)
        await admin.set(path, b"garbage")
        await fail_over(cluster, admin)
        await admin.set(path, state.encode())
        await cluster.until(lambda: cluster.members[2].node.roles[T0] == (2, state.leader_epoch + 1))

    run(scenario, 1, 2)


def test_a_topic_with_a_state_that_cannot_be_read_can_be_deleted() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        await admin.set(paths.partition_state(T0), b"garbage")
        await fail_over(cluster, admin)
        await delete_topic(admin, "t")
        await until_empty(admin, paths.DELETE_TOPICS)
        assert not cluster.required_controller().driver._required_reign().machine.unreadable

    run(scenario, 1)


def test_a_topic_whose_settings_cannot_be_read_allows_no_unclean_election_until_they_are_put_right() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await admin.create(paths.topic_config("t"), b"garbage")
        assignment = TopicZnode(topic_id=TopicId(uuid4()), partitions={0: ids(2, 1), 1: ids(1)})
        await admin.create(paths.topic("t"), assignment.encode())
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (2, 1))
        await fail_over(cluster, admin)
        stored = (await read_states(admin, [T0])).states[T0]
        await write_isr(admin, T0, replace(stored.state, isr=ids(2)), stored.version)
        await announce_isr_changes(admin, [T0])
        await cluster.members.pop(2).leave()
        await cluster.until(lambda: cluster.leader(T0) == NO_LEADER)
        allowing = ConfigZnode(config={"unclean.leader.election.enable": "true"})
        await admin.set(paths.topic_config("t"), allowing.encode())
        await cluster.until(lambda: cluster.leader(T0) == 1)

    run(scenario, 1, 2, settings=ControllerSettings(unclean_leader_election=True))


def test_who_may_have_lost_records_does_not_go_on_before_it_has_left_every_state() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        await admin.set(paths.partition_state(T0), b"garbage")
        with pytest.raises(CoordinationError, match=paths.partition_state(T0)):
            await leave_isrs(admin, BrokerId(2))

    run(scenario, 1, 2)
