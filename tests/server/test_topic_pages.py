"""DescribeTopicPartitions: every topic and partition is on one page, whatever the size of the pages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.replication.node_connection import Connection
from broker.types import NO_TOPIC_ID
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.server.running_node import running_node

TOPICS = {"few": 1, "many": 5, "some": 3}
EVERY_PARTITION = [(name, number) for name, count in sorted(TOPICS.items()) for number in range(count)]
Ask = Callable[..., Awaitable[DescribeTopicPartitionsResponse]]


@contextlib.asynccontextmanager
async def node_with_topics(directory: Path, **settings: Any) -> AsyncIterator[Ask]:
    """A node with `TOPICS`, and a way to ask it for a page."""
    async with (
        running_node(directory, **settings) as (listener, *_),
        await Connection.open(listener.address) as connection,
    ):
        new = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in TOPICS.items()
        ]
        await connection.request(CreateTopicsRequest(topics=new))

        async def ask(
            *names: str, limit: int = 2000, cursor: Cursor | None = None
        ) -> DescribeTopicPartitionsResponse:
            topics = [TopicRequest(name=name) for name in names]
            return await connection.request(
                DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
            )

        yield ask


def partitions_of(page: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [
        (topic.name, partition.partition_index) for topic in page.topics for partition in topic.partitions
    ]


async def pages(ask: Ask, *names: str, limit: int) -> list[DescribeTopicPartitionsResponse]:
    found = [await ask(*names, limit=limit)]
    while (cursor := found[-1].next_cursor) is not None:
        found.append(await ask(*names, limit=limit, cursor=cursor))
    return found


@pytest.mark.parametrize("names", [(), ("some", "few", "many")])
def test_pages_of_any_size_have_every_partition_once_and_in_order(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with node_with_topics(tmp_path) as ask:
            for limit in range(1, len(EVERY_PARTITION) + 2):
                found = await pages(ask, *names, limit=limit)
                assert [place for page in found for place in partitions_of(page)] == EVERY_PARTITION
                assert len(found) == -(-len(EVERY_PARTITION) // limit)

    asyncio.run(scenario())


def test_a_page_is_never_larger_than_the_node_wants_it_nor_empty(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topics(tmp_path, max_request_partition_size_limit=4) as ask:
            assert len(partitions_of(await ask(limit=2000))) == 4
            assert len(partitions_of(await ask(limit=-7))) == 1

    asyncio.run(scenario())


def test_a_partition_is_described_as_metadata_does_and_what_its_topic_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topics(tmp_path) as ask:
            (topic,) = (await ask("few")).topics
            assert (topic.error_code, topic.name, topic.is_internal) == (0, "few", False)
            assert topic.topic_id != NO_TOPIC_ID
            assert topic.topic_authorized_operations > 0
            (partition,) = topic.partitions
            assert (partition.leader_id, partition.leader_epoch) == (1, 0)
            assert list(partition.replica_nodes) == list(partition.isr_nodes) == [1]
            assert not partition.offline_replicas
            assert not partition.eligible_leader_replicas
            assert not partition.last_known_elr

    asyncio.run(scenario())


def test_topics_that_are_not_there_are_told_apart_and_leave_the_others_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topics(tmp_path) as ask:
            answer = await ask("no such topic", "missing", "few")
            assert {topic.name: topic.error_code for topic in answer.topics} == {
                "no such topic": ErrorCode.INVALID_TOPIC_EXCEPTION,
                "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "few": ErrorCode.NONE,
            }

    asyncio.run(scenario())


def test_pages_go_on_after_a_topic_that_was_deleted_in_between(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topics(tmp_path) as ask:
            rest = await ask(cursor=Cursor(topic_name="gone", partition_index=2))
            assert partitions_of(rest) == [place for place in EVERY_PARTITION if place[0] > "gone"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="some", partition_index=0), Cursor(topic_name="few", partition_index=-1)]
)
def test_a_cursor_to_nowhere_is_refused(tmp_path: Path, cursor: Cursor) -> None:
    async def scenario() -> None:
        async with node_with_topics(tmp_path) as ask:
            (topic,) = (await ask("few", cursor=cursor)).topics
            assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])

    asyncio.run(scenario())
