"""Consumers with a filter: what they get, where they are, and what crosses the network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer import Consumer, ConsumerSettings, Isolation, OffsetReset
from broker.client.fetch import FetchedBatches
from broker.client.fetch_state import PartitionState
from broker.client.group_settings import GroupSettings
from broker.client.producer import Producer, ProducerSettings
from broker.client.topic_admin import NewTopic
from broker.client.transactional_producer import TransactionalProducer
from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.record_filter import RecordFilter
from broker.types import TopicPartition
from broker.wire.features import FETCH_FILTER
from broker.wire.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.client.logs import ServingPeer
from tests.client.peers import serving
from tests.client.running import QUICK, run, until
from tests.conftest import ClusterFactory

ZERO = TopicPartition("t", 0)
WANTED = RecordFilter.parse('value starts with "w"')


class FilteringPeer(ServingPeer):
    """Leaves everything out, and says so."""

    def api_versions(self) -> ApiVersionsResponse:
        response = super().api_versions()
        response.supported_features = [SupportedFeatureKey(name=FETCH_FILTER, min_version=1, max_version=1)]
        return response

    def fetch_now(self, request: FetchRequest) -> FetchResponse:
        response = super().fetch_now(request)
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.records:
                    answer.filtered_to = self.log().end
                    answer.records = b""
        return response


@asynccontextmanager
async def consuming(peer: ServingPeer, settings: ConsumerSettings) -> AsyncIterator[Consumer]:
    async with (
        serving([peer], partitions=1) as scripted,
        Cluster(
            scripted.bootstrap,
            settings=ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000),
            backoff=QUICK,
        ) as cluster,
        Consumer(cluster, settings=settings) as consumer,
    ):
        yield consumer


SETTINGS = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=10, record_filter=WANTED)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_consumer_filters_itself_where_nodes_do_not(codec: Codec) -> None:
    async def main() -> None:
        peer = ServingPeer()
        async with consuming(peer, SETTINGS) as consumer:
            peer.log().append(b"no", b"w1", b"no", b"w2", codec=codec)
            peer.log().append(b"no", b"no", codec=codec)
            consumer.assign([ZERO])
            first = await consumer.take(max_records=1)
            assert [(record.offset, record.value) for record in first] == [(1, b"w1")]
            assert consumer.position(ZERO) == 2
            assert [record.value for record in await consumer.take()] == [b"w2"]
            assert await consumer.take(timeout_ms=50) == []
            assert consumer.position(ZERO) == 6
            assert not any(request.record_filter for request in peer.seen(FetchRequest))

    run(main)


def test_positions_move_past_what_a_node_left_out() -> None:
    async def main() -> None:
        peer = FilteringPeer()
        async with consuming(peer, SETTINGS) as consumer:
            peer.log().append(b"no", b"no")
            consumer.assign([ZERO])
            taking = asyncio.create_task(consumer.take(timeout_ms=5_000))
            await until(lambda: consumer.position(ZERO) == 2)
            peer.log().append(b"no")
            await until(lambda: consumer.position(ZERO) == 3)
            assert peer.seen(FetchRequest)[-1].record_filter == WANTED.text
            taking.cancel()
            await asyncio.wait([taking])

    run(main)


def test_a_consumer_that_does_not_want_it_does_not_ask_nodes_to_filter() -> None:
    async def main() -> None:
        peer = FilteringPeer()
        settings = ConsumerSettings(
            offset_reset=OffsetReset.EARLIEST, record_filter=WANTED, filter_at_nodes=False
        )
        async with consuming(peer, settings) as consumer:
            consumer.assign([ZERO])
            await until(lambda: bool(peer.seen(FetchRequest)))
            assert peer.seen(FetchRequest)[0].record_filter == ""

    run(main)


def test_answers_without_records_do_not_pile_up() -> None:
    partition = PartitionState(ZERO, 100)
    partition.place(0)
    for offset in range(100):
        partition.buffer(
            FetchedBatches(
                topic_partition=ZERO,
                records=memoryview(b""),
                start_offset=offset,
                next_offset=offset + 1,
                leader_epoch=-1,
                high_watermark=100,
            )
        )
    fetched = partition.take_batches()
    assert fetched is not None
    assert (fetched.start_offset, fetched.next_offset, partition.position) == (0, 100, 100)
    assert not partition.readable


def flight(number: int) -> bytes:
    return json.dumps({"number": number, "airport": ["JFK", "EWR", "LGA"][number % 3]}).encode()


def test_nodes_send_only_the_batches_that_hold_wanted_records(cluster: ClusterFactory) -> None:
    async def main() -> tuple[list[int], int, int]:
        async with Cluster(node.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name="t", partitions=1, replication_factor=1))
            settings = ProducerSettings(codec=Codec.GZIP, batch_bytes=4_000, linger_ms=50)
            async with Producer(client, settings=settings) as producer:
                for number in range(3_000):
                    await producer.send("t", flight(number), b"%d" % (number // 1_000))
            wanted = RecordFilter.parse('key = "1" and $.airport = "JFK" and $.number < 1200')
            group = GroupSettings(group_id="g")
            fetched: list[int] = []
            for at_nodes in (True, False):
                consumer_settings = ConsumerSettings(
                    offset_reset=OffsetReset.EARLIEST,
                    record_filter=wanted,
                    filter_at_nodes=at_nodes,
                    fetch_max_wait_ms=50,
                )
                async with Consumer(client, settings=consumer_settings, group=group) as consumer:
                    consumer.assign({ZERO: 0})
                    found: list[int] = []
                    while consumer.position(ZERO) != 3_000:
                        found += [
                            json.loads(taken.value or b"")["number"] for taken in await consumer.take(50)
                        ]
                    fetched.append(consumer.metrics().fetched_bytes)
                    assert found == [number for number in range(1_000, 1_200) if number % 3 == 0]
            async with Consumer(client, settings=SETTINGS, group=group) as consumer:
                assert (await consumer.committed([ZERO]))[ZERO].offset == 3_000
            return found, fetched[0], fetched[1]

    node = cluster()
    _, filtered, everything = run(main)
    assert 0 < filtered < everything / 5


def test_filtered_readers_of_committed_records_see_no_aborted_ones(cluster: ClusterFactory) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name="t", partitions=1, replication_factor=1))
            settings = ProducerSettings(transactional_id="x", linger_ms=0)
            async with TransactionalProducer(client, settings=settings) as producer:
                await producer.init_transactions()
                for number, commits in enumerate((True, False, True, False)):
                    producer.begin_transaction()
                    for value in (b"w%d" % number, b"no"):
                        await (await producer.send("t", value))
                    if commits:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
            reading = ConsumerSettings(
                offset_reset=OffsetReset.EARLIEST,
                record_filter=WANTED,
                isolation=Isolation.READ_COMMITTED,
                fetch_max_wait_ms=50,
            )
            async with Consumer(client, settings=reading) as consumer:
                consumer.assign([ZERO])
                found: list[bytes | None] = []
                while consumer.position(ZERO) != 12:
                    found += [taken.value for taken in await consumer.take(50)]
            assert found == [b"w0", b"w2"]

    node = cluster()
    run(main)


def test_filters_that_cannot_be_read_or_are_asked_for_in_a_session_are_refused(
    cluster: ClusterFactory,
) -> None:
    async def main() -> None:
        async with Cluster(node.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name="t", partitions=1, replication_factor=1))
            await client.refresh(["t"])
            leader = client.leader(ZERO)
            assert leader is not None
            for text, session_epoch in (("key =", -1), ("key exists", 0)):
                request = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=0,
                    session_epoch=session_epoch,
                    topics=[
                        FetchTopic(
                            topic="t",
                            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)],
                        )
                    ],
                    record_filter=text,
                )
                answer = await client.request(leader, request, at_most=12)
                assert answer.error_code == ErrorCode.INVALID_REQUEST

    node = cluster()
    run(main)
