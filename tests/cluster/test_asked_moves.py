"""Moves asked for by `/admin/reassign_partitions`, as Kafka's tools did before KIP-455."""

from __future__ import annotations

import json
from dataclasses import replace

from structlog.testing import capture_logs

from broker.cluster.states import announce_isr_changes, read_states, write_isr
from broker.cluster.topics import create_topic, delete_topic
from broker.coordination import paths
from broker.coordination.memory import MemorySession
from broker.coordination.znodes import ReassignmentZnode, TopicZnode
from broker.types import TopicPartition
from tests.cluster.members import Cluster, run
from tests.cluster.nodes import until_gone
from tests.cluster.scenes import T0, T1, ids


async def ask(admin: MemorySession, moves: dict[TopicPartition, tuple[int, ...]]) -> None:
    znode = ReassignmentZnode(partitions={tp: ids(*target) for tp, target in moves.items()})
    await admin.create(paths.REASSIGN_PARTITIONS, znode.encode())


async def asked(admin: MemorySession) -> set[TopicPartition]:
    znode = await admin.get(paths.REASSIGN_PARTITIONS)
    return set(ReassignmentZnode.decode(znode.data, "").partitions) if znode else set()


async def catch_up(admin: MemorySession, tp: TopicPartition, *isr: int) -> None:
    """As the leader takes its followers in."""
    stored = (await read_states(admin, [tp])).states[tp]
    await write_isr(admin, tp, replace(stored.state, isr=ids(*isr)), stored.version)
    await announce_isr_changes(admin, [tp])


async def replicas(admin: MemorySession, tp: TopicPartition) -> tuple[int, ...]:
    znode = await admin.get(paths.topic(tp.topic))
    assert znode is not None
    return TopicZnode.decode(znode.data, "").partitions[tp.partition]


def is_moving(cluster: Cluster, *partitions: TopicPartition) -> bool:
    controller = cluster.controller()
    return controller is not None and set(controller.driver.reassignments()) == set(partitions)


def test_moves_are_made_and_the_request_is_gone_with_the_last() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1), 1: ids(1)}, config={})
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (1, 1))
        await ask(admin, {T0: (2, 3), T1: (3,)})
        await cluster.until(lambda: is_moving(cluster, T0, T1))
        await catch_up(admin, T0, 1, 2, 3)
        await cluster.until(lambda: is_moving(cluster, T1))
        await cluster.until(lambda: cluster.leader(T0) == 2)
        await catch_up(admin, T1, 1, 3)
        await until_gone(admin, paths.REASSIGN_PARTITIONS)
        assert (await replicas(admin, T0), await replicas(admin, T1)) == ((2, 3), (3,))

    run(scenario, 1, 2, 3)


def test_a_controller_that_takes_over_goes_on_with_them() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(2), 1: ids(3)}, config={})
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (2, 3))
        await ask(admin, {T0: (3,)})
        await cluster.until(lambda: is_moving(cluster, T0))
        await cluster.members.pop(1).leave()
        await ask_more(admin, T1, 2)
        await cluster.until(lambda: is_moving(cluster, T0, T1))
        assert await asked(admin) == {T0, T1}
        await catch_up(admin, T0, 2, 3)
        await catch_up(admin, T1, 2, 3)
        await until_gone(admin, paths.REASSIGN_PARTITIONS)

    run(scenario, 1, 2, 3)


async def ask_more(admin: MemorySession, tp: TopicPartition, *target: int) -> None:
    znode = await admin.get(paths.REASSIGN_PARTITIONS)
    assert znode is not None
    before = ReassignmentZnode.decode(znode.data, "").partitions
    more = ReassignmentZnode(partitions={**before, tp: ids(*target)})
    await admin.set(paths.REASSIGN_PARTITIONS, more.encode())


def test_a_move_by_request_takes_the_place_of_one_asked_for_here() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        await ask(admin, {T0: (2,)})
        await cluster.until(lambda: is_moving(cluster, T0))
        assert await cluster.required_controller().driver.reassign({T0: ids(3)}) == {T0: None}
        await until_gone(admin, paths.REASSIGN_PARTITIONS)
        await catch_up(admin, T0, 1, 3)
        await cluster.until(lambda: is_moving(cluster))
        assert await replicas(admin, T0) == (3,)

    run(scenario, 1, 2, 3)


def test_what_cannot_be_moved_is_told_and_the_rest_is() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1), 1: ids(1, 2)}, config={})
        await cluster.until(lambda: (cluster.leader(T0), cluster.leader(T1)) == (1, 1))
        unknown = TopicPartition("nowhere", 0)
        with capture_logs() as logs:
            await ask(admin, {T0: (9,), unknown: (1,), T1: (2, 1)})
            await until_gone(admin, paths.REASSIGN_PARTITIONS)
        refused = {event["partition"] for event in logs if event["event"] == "asked_move_refused"}
        assert refused == {str(T0), str(unknown)}
        assert (await replicas(admin, T0), await replicas(admin, T1)) == ((1,), (2, 1))

    run(scenario, 1, 2)


def test_a_deleted_topic_is_waited_for_no_more() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        await create_topic(admin, "t", assignment={0: ids(1)}, config={})
        await cluster.until(lambda: cluster.leader(T0) == 1)
        await ask(admin, {T0: (2,)})
        await cluster.until(lambda: is_moving(cluster, T0))
        await delete_topic(admin, "t")
        await until_gone(admin, paths.REASSIGN_PARTITIONS)

    run(scenario, 1, 2)


def test_a_request_that_cannot_be_read_is_removed() -> None:
    async def scenario(cluster: Cluster, admin: MemorySession) -> None:
        with capture_logs() as logs:
            for data in (b"garbage", json.dumps({"version": 1, "partitions": [{"topic": 5}]}).encode()):
                await admin.create(paths.REASSIGN_PARTITIONS, data)
                await until_gone(admin, paths.REASSIGN_PARTITIONS)
        told = [event["path"] for event in logs if event["event"] == "znode_unreadable"]
        assert told == [paths.REASSIGN_PARTITIONS] * 2

    run(scenario, 1)
