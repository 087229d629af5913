"""Drivers of several nodes on one tree: election, failover, fencing, and topics from request to role."""

from __future__ import annotations

import asyncio
import contextlib
from uuid import uuid4

import pytest

from broker.cluster.registration import register_broker
from broker.cluster.states import (
    announce_isr_changes,
    leave_isrs,
    read_cluster_image,
    read_states,
    write_isr,
)
from broker.cluster.topics import (
    add_partitions,
    alter_topic_config,
    create_topic,
    delete_topic,
)
from broker.coordination import paths
from broker.coordination.memory import MemorySession
from broker.coordination.protocol import NodeExistsError
from broker.coordination.znodes import ControllerEpochZnode, ControllerZnode, PartitionStateZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_LEADER, NO_TOPIC_ID, BrokerId, TopicId, TopicPartition
from tests.cluster.members import Cluster, run
from tests.cluster.nodes import DEADLINE_SECONDS, Member, until_empty
from tests.cluster.scenes import T0, T1, broker_znode, ids


def test_the_first_node_is_elected_and_every_node_knows_it() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await cluster.until(lambda: all(m.driver.controller_id == 1 for m in cluster.members.values()))
        assert [m.driver.is_controller for m in cluster.members.values()] == [True, False, False]
        znode = await admin.get(paths.CONTROLLER_EPOCH)
        assert znode is not None
        assert ControllerEpochZnode.decode(znode.data, "").epoch == 1
        with pytest.raises(ProtocolError, match="NOT_CONTROLLER"):
            await cluster.members[2].driver.elect_leaders(None)

    run(scenario, 1, 2, 3)


def test_a_created_topic_has_leaders_on_its_nodes() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        topic_id = await create_topic(
            admin, "t", assignment={0: ids(1, 2), 1: ids(2, 3)}, config={"retention.ms": "1"}
        )
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (1, 2))
        await cluster.until(lambda: cluster.members[1].node.leads(T0) and cluster.members[2].node.leads(T1))
        assert cluster.members[3].node.roles == {T1: (2, 0)}
        image = cluster.members[3].node.image
        assert image.topic_of_id(topic_id) is image.topic("t")
        direct = await read_cluster_image(admin)
        assert direct.topics == image.topics
        assert direct.controller_id == 1

    run(scenario, 1, 2, 3)


def test_a_topic_of_before_ids_existed_gets_one() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        async def make(name: str) -> None:
            await admin.create(paths.topic(name), b'{"version":1,"partitions":{"0":[1]}}')

        async def check(name: str) -> None:
            await cluster.until(lambda: cluster.members[1].node.leads(TopicPartition(name, 0)))
            await cluster.until(lambda: cluster.members[1].node.image.topic(name) is not None)
            znode = await admin.get(paths.topic(name))
            assert znode is not None
            written = TopicZnode.decode(znode.data, name)
            assert written.topic_id != NO_TOPIC_ID
            assert written.partitions == {0: (1,)}
            topic = cluster.members[1].node.image.topic(name)
            assert topic is not None
            assert topic.topic_id == written.topic_id

        await make("before")
        await cluster.join(1)
        await check("before")
        await make("later")
        await check("later")

    run(scenario)


def test_partitions_are_added_online() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        await add_partitions(admin, cluster.members[1].node.image, "t", 2)
        await cluster.until(lambda: cluster.leader(T1) == 2)

    run(scenario, 1, 2)


def test_a_node_that_dies_is_replaced_by_an_in_sync_one() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(3, 2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 3)
        await cluster.members.pop(3).leave()
        await cluster.until(lambda: cluster.leader(T0) == 2)
        assert (await cluster.state(T0)).isr == (3, 2), "the leader is to take it out"

    run(scenario, 1, 2, 3)


def test_another_node_takes_over_from_a_controller_that_dies() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1, 2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        await cluster.members.pop(1).leave()
        await cluster.until(lambda: cluster.controller() is not None and cluster.leader(T0) == 2)
        assert all(m.node.controller_epoch == 2 for m in cluster.members.values())

    run(scenario, 1, 2, 3)


def test_a_controller_that_lost_its_session_is_fenced_and_stands_again() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        old = cluster.members[1]
        assert isinstance(old.session, MemorySession)
        old.session.suspend()
        old.session.expire()
        await cluster.until(lambda: any(cluster.members[b].driver.is_controller for b in (2, 3)))
        await create_topic(admin, "t", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.members[2].node.leads(T0))
        assert old.driver.is_controller  # it cannot know yet
        old.session.resume()
        await cluster.until(lambda: not old.driver.is_controller)
        await register_broker(old.session, BrokerId(1), broker_znode(1), session_timeout_ms=1_000)
        await cluster.until(lambda: cluster.leader(T0) == 2 and old.driver.controller_id in (2, 3))

    run(scenario, 1, 2, 3)


def test_a_node_that_knows_a_newer_controller_ends_a_reign() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        reigning = cluster.required_controller()
        cluster.members[2].node.refusals = [ErrorCode.STALE_CONTROLLER_EPOCH]
        await create_topic(admin, "t", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        assert reigning.node.controller_epoch >= 2

    run(scenario, 1, 2)


def test_a_session_that_was_only_suspended_goes_on_reigning() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        session = cluster.members[1].session
        assert isinstance(session, MemorySession)
        session.suspend()
        await create_topic(admin, "t", assignment={0: ids(2)}, config={})
        session.resume()
        await cluster.until(lambda: cluster.leader(T0) == 2)
        assert cluster.members[1].driver.is_controller

    run(scenario, 1, 2)


def test_orders_reach_a_node_that_was_cut_off() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        away = cluster.members[2].node
        away.reachable = False
        await create_topic(admin, "t", assignment={0: ids(1), 1: ids(2)}, config={})
        await cluster.until(lambda: cluster.members[1].node.leads(T0))
        assert away.roles == {}
        away.reachable = True
        await cluster.until(lambda: away.leads(T1) and cluster.leader(T0) == 1)

    run(scenario, 1, 2)


def test_a_deleted_topic_leaves_nodes_and_zookeeper_and_its_name_is_free() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        assignment = {0: ids(1, 2), 1: ids(2, 1)}
        first = await create_topic(admin, "t", assignment=assignment, config={"retention.ms": "1"})
        await cluster.until(lambda: cluster.leader(T1) == 2)
        cluster.members[2].node.refusals = [ErrorCode.KAFKA_STORAGE_ERROR]
        await delete_topic(admin, "t")
        await cluster.until(lambda: cluster.members[2].node.deleted == {T0, T1})
        await until_empty(admin, paths.DELETE_TOPICS)
        assert await admin.children(paths.TOPICS) == []
        assert await admin.children(paths.TOPIC_CONFIGS) == []
        assert all(m.node.image.topics == {} for m in cluster.members.values())
        second = await create_topic(admin, "t", assignment=assignment, config={})
        assert second != first
        await cluster.until(lambda: cluster.leader(T1) == 2)

    run(scenario, 1, 2)


def test_a_leader_changes_its_isr_and_everyone_hears_of_it() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        session = cluster.members[2].session
        stored = (await read_states(session, [T0])).states[T0]
        alone = PartitionStateZnode(
            controller_epoch=stored.state.controller_epoch,
            leader=stored.state.leader,
            leader_epoch=stored.state.leader_epoch,
            isr=ids(2),
        )
        assert await write_isr(session, T0, alone, stored.version) == stored.version + 1
        await announce_isr_changes(session, [T0])

        def known(member: Member) -> bool:
            partition = member.node.image.partition(T0)
            return partition is not None and partition.isr == (2,)

        await cluster.until(lambda: all(known(m) for m in cluster.members.values()))
        await until_empty(admin, paths.ISR_CHANGES)

    run(scenario, 1, 2)


def test_a_node_that_may_have_lost_records_leaves_every_isr_with_another_member() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1), 1: ids(2)}, config={})
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (2, 2))
        assert (await leave_isrs(admin, BrokerId(2))).left == [T0]
        await cluster.until(lambda: cluster.leader(T0) == 1)
        assert (await cluster.state(T0)).isr == (1,)
        assert (await cluster.state(T1)).isr == (2,)

    run(scenario, 1, 2)


def test_a_controlled_shutdown_moves_leaderships_first() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        driver = cluster.required_controller().driver
        assert await driver.controlled_shutdown(BrokerId(2), -1) == []
        await cluster.until(lambda: cluster.leader(T0) == 1)
        with pytest.raises(ProtocolError, match="STALE_BROKER_EPOCH"):
            await driver.controlled_shutdown(BrokerId(2), 1)
        with pytest.raises(ProtocolError, match="BROKER_NOT_AVAILABLE"):
            await driver.controlled_shutdown(BrokerId(7), -1)

    run(scenario, 1, 2)


def test_elections_are_answered_per_partition() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1, 2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        driver = cluster.required_controller().driver
        assert await driver.elect_leaders([T0, T1]) == {
            T0: ErrorCode.ELECTION_NOT_NEEDED,
            T1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    run(scenario, 1, 2)


def test_a_topic_that_allows_unclean_election_gets_a_leader() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        stored = (await read_states(admin, [T0])).states[T0]
        alone = PartitionStateZnode(
            controller_epoch=1, leader=BrokerId(2), leader_epoch=stored.state.leader_epoch, isr=ids(2)
        )
        await write_isr(admin, T0, alone, stored.version)
        await announce_isr_changes(admin, [T0])
        await cluster.members.pop(2).leave()
        await cluster.until(lambda: cluster.leader(T0) == NO_LEADER)
        await admin.create(f"{paths.CONFIG_CHANGES}/zzz", b"no announcement")
        await alter_topic_config(admin, "t", lambda _: {"unclean.leader.election.enable": "true"})
        await cluster.until(lambda: cluster.leader(T0) == 1)

    run(scenario, 1, 2)


@pytest.mark.parametrize(
    "path",
    [
        "/brokers/ids/9",
        "/brokers/topics/broken",
        f"{paths.ISR_CHANGES}/isr_change_0000000007",
        f"{paths.CONFIG_CHANGES}/config_change_0000000007",
        paths.PREFERRED_REPLICA_ELECTION,
        "/config/topics/t",
        f"/brokers/ids/{2**40}",
        "/brokers/ids/two",
        "/brokers/topics/no name",
        f"/brokers/topics/{'long' * 100}",
        f"{paths.ISR_CHANGES}/with/children",
        f"{paths.LOG_DIR_EVENTS}/with/children",
        f"{paths.DELETE_TOPICS}/with/children",
        f"{paths.CONFIG_CHANGES}/zzz",
    ],
)
def test_a_corrupt_znode_does_not_stop_the_controller(path: str) -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await admin.create(path, b"\xff{")
        await create_topic(admin, "u", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.leader(TopicPartition("u", 0)) == 2)
        await cluster.members.pop(1).leave()
        await cluster.until(lambda: cluster.controller() is not None)
        await create_topic(admin, "v", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.leader(TopicPartition("v", 0)) == 2)

    run(scenario, 1, 2)


def test_a_topic_is_taken_up_once_its_znode_can_be_read() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await admin.create(paths.topic("t"), b"garbage")
        await create_topic(admin, "u", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(TopicPartition("u", 0)) == 1)
        await admin.set(
            paths.topic("t"), TopicZnode(topic_id=TopicId(uuid4()), partitions={0: ids(1)}).encode()
        )
        await cluster.until(lambda: cluster.leader(T0) == 1)

    run(scenario, 1)


def test_a_deleted_topic_goes_with_whatever_lies_below_it() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        await admin.create(f"{paths.partition_state(T0)}/odd/more", b"")
        await delete_topic(admin, "t")
        await until_empty(admin, paths.DELETE_TOPICS)
        assert await admin.get(paths.topic("t")) is None

    run(scenario, 1)


@pytest.mark.parametrize(
    "data", [b"garbage", ControllerZnode(broker_id=BrokerId(9), timestamp_ms=1).encode()]
)
def test_a_controller_that_was_written_by_hand_is_removed(data: bytes) -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await admin.set(paths.CONTROLLER, data)
        await until_elected(admin)
        await admin.delete(paths.CONTROLLER)
        with contextlib.suppress(NodeExistsError):
            await admin.create(paths.CONTROLLER, data)
        await until_elected(admin)
        await create_topic(admin, "t", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)

    run(scenario, 1, 2)


async def until_elected(admin: MemorySession) -> None:
    """Wait until a node's own word says that it is the controller."""
    changed = asyncio.Event()
    end_watch = admin.watch_data(paths.CONTROLLER, changed.set)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await _is_elected(admin):
            await changed.wait()
            changed.clear()
    end_watch()


async def _is_elected(admin: MemorySession) -> bool:
    znode = await admin.get(paths.CONTROLLER)
    return (
        znode is not None
        and znode.ephemeral_owner != 0
        and b'"brokerid":9' not in znode.data
        and (znode.data != b"garbage")
    )


def test_a_bug_in_a_reign_lets_another_be_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        first = cluster.required_controller()
        reign = first.driver._required_reign()

        def fail(_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(reign.machine, "handle", fail)
        await create_topic(admin, "t", assignment={0: ids(2)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)

    run(scenario, 1, 2)


def test_a_corrupt_state_is_never_written_over() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2, 1), 1: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 2)
        await admin.set(paths.partition_state(T0), b"garbage")
        await cluster.members.pop(2).leave()
        await cluster.until(
            lambda: cluster.leader(T1) == 1 and BrokerId(2) not in cluster.members[1].node.image.brokers
        )
        znode = await admin.get(paths.partition_state(T0))
        assert znode is not None
        assert znode.data == b"garbage"

    run(scenario, 1, 2)


@pytest.mark.parametrize("turns", range(8))
def test_a_controller_whose_connection_breaks_while_it_closes_does_close(turns: int) -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        controller = cluster.required_controller()
        assert isinstance(controller.session, MemorySession)
        await create_topic(admin, "t", assignment={0: ids(1, 2), 1: ids(2, 1)}, config={})
        for _ in range(turns):
            await asyncio.sleep(0)
        controller.session.suspend()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await controller.driver.close()
        controller.session.resume()

    run(scenario, 1, 2)
