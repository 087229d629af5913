from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.image import ClusterImage, ImageUpdate
from broker.cluster.topics import (
    add_partitions,
    alter_topic_config,
    create_topic,
    delete_topic,
    plan_topic,
    read_topic_config,
    validate_topic_name,
)
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import ConfigChangeZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition
from tests.cluster.scenes import ids, live
from tests.cluster.test_image import image as partition_image


def image(*names: str, brokers: int = 3) -> ClusterImage:
    return ClusterImage(cluster_id="c").apply(
        ImageUpdate(
            controller_id=BrokerId(1),
            controller_epoch=1,
            brokers=live(*range(1, brokers + 1)),
            partitions={TopicPartition(name, 0): partition_image(1) for name in names},
            topic_ids={name: TopicId(NO_TOPIC_ID) for name in names},
        )
    )


def run(scenario: Callable[[MemorySession], Awaitable[None]]) -> None:
    async def body() -> None:
        session = MemorySession(MemoryTree())
        await session.start(timeout_ms=1_000)
        await scenario(session)
        await session.close()

    asyncio.run(body())


async def assignment_of(session: MemorySession, name: str) -> dict[int, tuple[BrokerId, ...]]:
    znode = await session.get(paths.topic(name))
    assert znode is not None
    return dict(TopicZnode.decode(znode.data, name).partitions)


def refused(code: ErrorCode) -> pytest.RaisesExc[ProtocolError]:
    return pytest.raises(ProtocolError, check=lambda error: error.code is code)


@pytest.mark.parametrize("name", ["a", "flights.ewr_2013-01", "A" * 249, "...", "__consumer_offsets"])
def test_a_lawful_name_is_accepted(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "A" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_an_unlawful_name_is_refused(name: str) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        validate_topic_name(name)


@given(st.text(max_size=20))
def test_a_name_passes_only_if_it_can_be_a_directory(name: str) -> None:
    try:
        validate_topic_name(name)
    except ProtocolError:
        return
    assert name.isascii()
    assert "/" not in name
    assert name not in ("", ".", "..")


def test_a_topic_is_placed_on_live_brokers() -> None:
    assert plan_topic(image(), "t", partitions=2, replication_factor=2) == {0: (1, 2), 1: (2, 3)}
    planned = plan_topic(image(), "t", partitions=50, replication_factor=3, rng=Random(1))
    assert {replicas[0] for replicas in planned.values()} == {1, 2, 3}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "taken"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a_b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 0x7FFFFFFF}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignment": {}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {1: [1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: []}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [1, 1]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [1], 1: [1, 2]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: [9]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_impossible_topic_is_refused(arguments: dict[str, object], code: ErrorCode) -> None:
    wanted: dict[str, object] = {"name": "t", "partitions": 1, "replication_factor": 1, **arguments}
    with refused(code):
        plan_topic(image("taken", "a.b"), **wanted)  # type: ignore[arg-type]


def test_a_topic_and_its_configuration_appear_together() -> None:
    async def scenario(session: MemorySession) -> None:
        topic_id = await create_topic(session, "t", assignment={0: ids(1)}, config={"retention.ms": "5"})
        znode = await session.get(paths.topic("t"))
        assert znode is not None
        assert TopicZnode.decode(znode.data, "t").topic_id == topic_id
        assert await read_topic_config(session, "t") == {"retention.ms": "5"}
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            await create_topic(session, "t", assignment={0: ids(2)}, config={"retention.ms": "6"})
        assert await read_topic_config(session, "t") == {"retention.ms": "5"}

    run(scenario)


def test_of_two_that_create_a_topic_at_once_one_wins() -> None:
    async def scenario(session: MemorySession) -> None:
        results = await asyncio.gather(
            *(create_topic(session, "t", assignment={0: ids(b)}, config={"n": str(b)}) for b in (1, 2)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, ProtocolError) for result in results) == 1
        winner = (await assignment_of(session, "t"))[0][0]
        assert await read_topic_config(session, "t") == {"n": str(winner)}

    run(scenario)


def test_a_left_over_configuration_is_replaced() -> None:
    async def scenario(session: MemorySession) -> None:
        await session.create(paths.topic_config("t"), b"{}")
        await create_topic(session, "t", assignment={0: ids(1)}, config={"a": "b"})
        assert await read_topic_config(session, "t") == {"a": "b"}

    run(scenario)


def test_more_partitions_than_a_znode_holds_are_refused() -> None:
    async def scenario(session: MemorySession) -> None:
        with refused(ErrorCode.INVALID_PARTITIONS):
            await create_topic(session, "t", assignment=dict.fromkeys(range(90_000), ids(1, 2)), config={})

    run(scenario)


@pytest.mark.parametrize("partitions", [{}, {1: ids(1)}, {0: ids(1), 2: ids(1)}])
def test_a_topic_that_lacks_partitions_does_not_grow(partitions: dict[int, tuple[BrokerId, ...]]) -> None:
    async def scenario(session: MemorySession) -> None:
        await create_topic(session, "t", assignment=partitions, config={})
        with refused(ErrorCode.INVALID_PARTITIONS):
            await add_partitions(session, image(), "t", 4)
        assert await assignment_of(session, "t") == partitions

    run(scenario)


def test_partitions_only_grow() -> None:
    async def scenario(session: MemorySession) -> None:
        await create_topic(session, "t", assignment={0: ids(2, 3)}, config={})
        await add_partitions(session, image(), "t", 3)
        assert await assignment_of(session, "t") == {0: (2, 3), 1: (3, 1), 2: (1, 2)}
        for total in (3, 2, 0, 0x7FFFFFFF):
            with refused(ErrorCode.INVALID_PARTITIONS):
                await add_partitions(session, image(), "t", total)
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await add_partitions(session, image(), "unknown", 3)
        await add_partitions(session, image(), "t", 4, assignment=[ids(1, 3)])
        assert (await assignment_of(session, "t"))[3] == (1, 3)
        with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
            await add_partitions(session, image(), "t", 6, assignment=[ids(1, 3)])
        with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
            await add_partitions(session, image(), "t", 5, assignment=[ids(1)])
        await add_partitions(session, image(), "t", 5, validate_only=True)
        assert len(await assignment_of(session, "t")) == 4

    run(scenario)


def test_deletion_is_asked_for_once_and_only_of_what_exists() -> None:
    async def scenario(session: MemorySession) -> None:
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await delete_topic(session, "t")
        await create_topic(session, "t", assignment={0: ids(1)}, config={})
        await delete_topic(session, "t")
        await delete_topic(session, "t")
        assert await session.children(paths.DELETE_TOPICS) == ["t"]

    run(scenario)


def test_a_changed_configuration_is_announced() -> None:
    async def scenario(session: MemorySession) -> None:
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await alter_topic_config(session, "t", lambda _: {})
        await create_topic(session, "t", assignment={0: ids(1)}, config={})
        await session.delete(paths.topic_config("t"))
        await alter_topic_config(session, "t", lambda _: {"a": "1"})
        await alter_topic_config(session, "t", lambda _: {"a": "2"})
        assert await read_topic_config(session, "t") == {"a": "2"}
        changes = await session.children(paths.CONFIG_CHANGES)
        assert len(changes) == 2
        znode = await session.get(f"{paths.CONFIG_CHANGES}/{changes[0]}")
        assert znode is not None
        assert ConfigChangeZnode.decode(znode.data, "").entity_path == "topics/t"

    run(scenario)
