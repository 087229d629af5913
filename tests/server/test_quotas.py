"""Quotas on a node's own sockets: who exceeds one is told so, and held back; everybody else is not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.client.connection import Connection, ConnectionSettings
from broker.cluster.client_quotas import Component, EntityType, Quota
from broker.coordination.memory import MemoryTree
from broker.errors import ErrorCode
from broker.rates import RateWindows
from broker.server.quotas import Quotas
from broker.server.security import Listener
from broker.server.throttling import throttle_of
from broker.wire.messages import alter_client_quotas as alter
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from broker.wire.messages.fetch import FetchRequest, FetchResponse
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.messages.produce import ProduceRequest
from tests.conformance.scene import until
from tests.node.raw_client import batch_of, fetch_request, produce_request
from tests.server.running_node import running_node

CLIENT = "measured"
TOPIC = "topic"
FETCH_VERSION = 12


@contextlib.asynccontextmanager
async def connected(listener: Listener, client_id: str = CLIENT) -> AsyncIterator[Connection]:
    settings = ConnectionSettings(client_id=client_id)
    async with await Connection.open(listener.address, settings) as connection:
        yield connection


@contextlib.asynccontextmanager
async def node_with_topic(directory: Path, **settings: Any) -> AsyncIterator[Listener]:
    async with running_node(directory, **settings) as (listener, *_):
        async with connected(listener, "administrator") as admin:
            await create(admin, TOPIC)
        yield listener


async def create(connection: Connection, *names: str, partitions: int = 1, version: int | None = None) -> Any:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return await connection.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000), version)


async def limit(listener: Listener, *entity: tuple[str, str | None], **quotas: float) -> None:
    entry = alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[alter.OpData(key=key, value=value) for key, value in quotas.items()],
    )
    async with connected(listener, "administrator") as admin:
        (answer,) = (await admin.request(AlterClientQuotasRequest(entries=[entry]))).entries
        assert answer.error_code == 0, answer.error_message


def produced(size: int, *, acks: int = 1) -> ProduceRequest:
    return produce_request(TOPIC, batch_of(bytes(size)), acks=acks)


def size_of(response: FetchResponse) -> int:
    return sum(len(part.records or b"") for topic in response.responses for part in topic.partitions)


def test_a_client_that_produces_too_much_is_told_and_then_muted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path) as listener, connected(listener) as client:
            await limit(listener, ("client-id", CLIENT), producer_byte_rate=100_000)
            within = await client.request(produced(10_000))
            assert within.throttle_time_ms == 0
            over = await client.request(produced(1_050_000 - 100_000))
            assert over.throttle_time_ms == 0
            over = await client.request(produced(200_000))
            assert over.responses[0].partition_responses[0].error_code == 0
            assert 300 <= over.throttle_time_ms <= 1_700  # less as long as the three requests took
            started = time.monotonic()
            await client.request(MetadataRequest(topics=None))
            assert time.monotonic() - started >= over.throttle_time_ms / 1000 * 0.9
            async with connected(listener, "another") as other:
                assert (await other.request(produced(500_000))).throttle_time_ms == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [1, 3, 5, 8, 9, ProduceRequest.max_version])
def test_every_version_says_how_long_to_wait(tmp_path: Path, version: int) -> None:
    """Of the answers by the quick way too, which are made of templates."""

    async def scenario() -> None:
        async with (
            node_with_topic(tmp_path, quota_window_num=2) as listener,
            connected(listener) as first,
            connected(listener) as second,
        ):
            if version < 3:
                await limit(listener, ("client-id", CLIENT), request_percentage=0.000_001)
                assert (await first.request(produced(10), version)).throttle_time_ms > 0
                return
            await limit(listener, ("client-id", CLIENT), producer_byte_rate=1_000)
            for connection in (first, second):
                answer = await connection.request(produced(1_100), version)
                (part,) = answer.responses[0].partition_responses
                assert (part.error_code, answer.throttle_time_ms > 0) == (0, True)

    asyncio.run(scenario())


def test_producers_that_want_no_answer_are_muted_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path, quota_window_num=2) as listener, connected(listener) as client:
            await limit(listener, ("client-id", CLIENT), producer_byte_rate=100_000)
            client.send_and_forget(produced(150_000, acks=0), 9)
            started = time.monotonic()
            await client.request(MetadataRequest(topics=None))
            assert time.monotonic() - started >= 0.4

    asyncio.run(scenario())


def test_a_fetch_over_the_quota_gets_nothing_but_the_time_to_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path, quota_window_num=2) as listener, connected(listener) as client:
            for _ in range(4):
                await client.request(produced(60_000))
            await limit(listener, ("client-id", CLIENT), consumer_byte_rate=100_000)
            fetch = fetch_request(TOPIC, 0, max_bytes=1 << 20)
            first = await client.request(fetch, FETCH_VERSION)
            assert (60_000 < size_of(first) <= 100_000, first.throttle_time_ms) == (True, 0)
            second = await client.request(fetch, FETCH_VERSION)
            assert size_of(second) == 0
            assert second.throttle_time_ms > 0
            assert (second.error_code, second.session_id) == (0, 0)
            third = await client.request(fetch, FETCH_VERSION)
            while not size_of(third):
                third = await client.request(fetch, FETCH_VERSION)
            assert size_of(third) == size_of(first)

    asyncio.run(scenario())


def test_a_batch_that_no_window_has_room_for_is_read_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path, quota_window_num=2) as listener, connected(listener) as client:
            await client.request(produced(500_000))
            await limit(listener, ("client-id", CLIENT), consumer_byte_rate=1_000)
            response = await client.request(fetch_request(TOPIC, 0), FETCH_VERSION)
            assert size_of(response) > 500_000

    asyncio.run(scenario())


def test_a_throttled_session_goes_on_where_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path, quota_window_num=2) as listener, connected(listener) as client:
            for _ in range(2):
                await client.request(produced(60_000))
            full = fetch_request(TOPIC, 0)
            full.session_epoch = 0
            opened = await client.request(full, FETCH_VERSION)
            assert opened.session_id != 0
            await limit(listener, ("client-id", CLIENT), consumer_byte_rate=100_000)
            epoch, sizes = 0, []
            while sum(map(bool, sizes)) < 2:
                epoch += 1
                again = FetchRequest(
                    max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=epoch, topics=[]
                )
                response = await client.request(again, FETCH_VERSION)
                assert (response.error_code, response.session_id) == (0, opened.session_id)
                assert bool(size_of(response)) is (response.throttle_time_ms == 0)
                sizes.append(size_of(response))
            assert 0 in sizes

    asyncio.run(scenario())


def test_followers_are_not_limited(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path, quota_window_num=2) as listener, connected(listener) as client:
            await client.request(produced(60_000))
            await limit(listener, ("client-id", None), consumer_byte_rate=1)
            fetch = fetch_request(TOPIC, 0)
            fetch.replica_id = 2
            for _ in range(3):
                assert (await client.request(fetch, FETCH_VERSION)).throttle_time_ms == 0

    asyncio.run(scenario())


def test_request_time_is_limited_for_every_api(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with_topic(tmp_path) as listener, connected(listener) as client:
            await limit(listener, ("user", "ANONYMOUS"), request_percentage=0.000_01)
            answer = await client.request(MetadataRequest(topics=None))
            assert answer.throttle_time_ms == 1_000  # one window at most

    asyncio.run(scenario())


def test_work_that_waits_meets_the_failure_of_what_it_waited_for_itself(tmp_path: Path) -> None:
    async def handler(awaited: asyncio.Future[None]) -> str:
        try:
            await awaited
        except OSError as error:
            await asyncio.sleep(0)
            return f"handled {error}"
        raise AssertionError("nothing failed")

    async def scenario() -> None:
        quotas = Quotas(RateWindows(count=2), lambda: 0)
        quotas.table.set((Component(EntityType.CLIENT_ID, CLIENT),), {Quota.REQUEST_PERCENTAGE: 1.0})
        request = MetadataRequest(topics=[])
        throttle = throttle_of(quotas, ("user", CLIENT), request, version=request.max_version, size=100)
        assert throttle is not None
        awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(awaited.set_exception, OSError("broken"))
        assert await throttle.timed(handler(awaited)) == "handled broken"

    asyncio.run(scenario())


def test_clients_that_cannot_hear_of_it_are_only_slowed_when_they_change_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"controller_quota_window_num": 1}
        async with node_with_topic(tmp_path, **settings) as listener, connected(listener) as client:
            await limit(listener, ("client-id", CLIENT), controller_mutation_rate=1)
            answer = await create(client, "old-1", "old-2", partitions=8, version=5)
            assert [topic.error_code for topic in answer.topics] == [0, 0]
            assert 5_000 <= answer.throttle_time_ms <= 15_000  # the bucket held 1; time spent fills it again

    asyncio.run(scenario())


def test_clients_that_understand_it_are_refused_further_changes_of_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"controller_quota_window_num": 1}
        async with (
            node_with_topic(tmp_path, **settings) as listener,
            connected(listener) as first,
            connected(listener) as second,
            connected(listener) as third,
        ):
            await limit(listener, ("client-id", CLIENT), controller_mutation_rate=1)
            over = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            created = await create(first, "new-1", "new-2", partitions=12)
            assert sorted(topic.error_code for topic in created.topics) == [0, over]
            assert created.throttle_time_ms > 5_000
            grown = await second.request(
                CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=TOPIC, count=9, assignments=None)])
            )
            assert (grown.results[0].error_code, grown.throttle_time_ms > 5_000) == (over, True)
            deleted = await third.request(
                DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC, topic_id=UUID(int=0))])
            )
            assert (deleted.responses[0].error_code, deleted.throttle_time_ms > 5_000) == (over, True)

    asyncio.run(scenario())


def test_every_node_notices_a_quota_while_it_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        async with (
            running_node(tmp_path, tree=tree) as (first, *_),
            running_node(tmp_path, tree=tree, broker_id=2) as (second, *_),
            connected(second) as client,
        ):
            await limit(first, ("user", "ANONYMOUS"), ("client-id", CLIENT), request_percentage=0.000_01)

            async def is_throttled() -> bool:
                return bool((await client.request(MetadataRequest(topics=[]))).throttle_time_ms)

            await until(is_throttled, bool)
            async with connected(second, "another") as other:
                answer = await other.request(DescribeClientQuotasRequest())
                assert answer.throttle_time_ms == 0
                assert len(answer.entries or []) == 1

    asyncio.run(scenario())


def test_quotas_outlive_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        async with running_node(tmp_path, tree=tree) as (listener, *_):
            await limit(listener, ("client-id", None), request_percentage=0.000_01)
        async with running_node(tmp_path, tree=tree) as (listener, *_), connected(listener) as client:
            assert (await client.request(MetadataRequest(topics=[]))).throttle_time_ms > 0

    asyncio.run(scenario())


def test_a_node_stops_without_waiting_for_muted_clients(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            contextlib.AsyncExitStack() as outlives_the_node,
            node_with_topic(tmp_path, quota_window_size_seconds=3600) as listener,
        ):
            await limit(listener, ("client-id", CLIENT), producer_byte_rate=1)
            client = await outlives_the_node.enter_async_context(connected(listener))
            answer = await client.request(produced(1_000_000))
            assert answer.throttle_time_ms > 600_000

    asyncio.run(asyncio.wait_for(scenario(), 30))
