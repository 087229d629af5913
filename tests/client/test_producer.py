from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.partitioner import RoundRobinPartitioner
from broker.client.producer import Producer, ProducerRecord, ProducerSettings
from broker.errors import (
    ConfigurationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.records.batch import MAGIC_POSITION, TRANSACTIONAL_FLAG, Codec, read_header, restamp
from broker.records.builder import BatchBuilder
from broker.types import Buffer, TopicPartition
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.client.leaders import Leader, ProducingPeer
from tests.client.peers import PeerCluster, serving
from tests.client.running import QUICK, run, until

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
SETTINGS = ProducerSettings(linger_ms=1, delivery_timeout_ms=10_000, request_timeout_ms=5_000)


@asynccontextmanager
async def producing(
    settings: ProducerSettings = SETTINGS, *, partitions: int = 1, nodes: int = 1, is_old: bool = False
) -> AsyncIterator[tuple[Producer, PeerCluster, ProducingPeer]]:
    """A producer and the first of the scripted nodes it produces to; they share one log per partition. Old
    nodes give no producer ids.
    """
    logs: dict[TopicPartition, Leader] = {}
    peers = [ProducingPeer(number + 1, logs=logs) for number in range(nodes)]
    if is_old:
        for peer in peers:
            del peer.versions[InitProducerIdRequest.api_key]
    async with (
        serving(peers, partitions=partitions) as scripted,
        Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
    ):
        producer = Producer(cluster, settings=settings, backoff=QUICK, partitioner=RoundRobinPartitioner())
        await producer.start()
        try:
            yield producer, scripted, peers[0]
        finally:
            await producer.close(timeout_ms=100)


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_records_are_written_in_order_and_their_senders_told_where() -> None:
    async def main() -> None:
        async with producing() as (producer, _, peer):
            deliveries = [await producer.send("t", value, timestamp_ms=7) for value in values(*range(100))]
            assert [(await delivery).offset for delivery in deliveries] == list(range(100))
            assert deliveries[3].result() == ("t", 0, 3, 7)
            assert peer.log("t", 0).values == values(*range(100))
            assert producer.buffered_bytes == 0

    run(main)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_compressed_as_asked(codec: Codec) -> None:
    async def main() -> None:
        seen: list[Codec] = []

        def look(_: TopicPartition, batch: Buffer) -> ErrorCode:
            seen.append(read_header(batch).codec)
            return ErrorCode.NONE

        async with producing(ProducerSettings(codec=codec)) as (producer, _, peer):
            peer.trouble = look
            await (await producer.send("t", b"x" * 1000, b"key", headers=[("h", b"v"), ("n", None)]))
            assert peer.log("t", 0).values == [b"x" * 1000]
            assert seen == [codec]

    run(main)


def test_one_request_takes_a_batch_of_every_partition_of_the_node() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=10_000), partitions=8) as (producer, _, peer):
            for value in values(*range(16)):
                await producer.send("t", value)
            await producer.flush()
            (request,) = peer.seen(ProduceRequest)
            assert sorted(data.index for data in request.topic_data[0].partition_data) == list(range(8))
            assert peer.log("t", 3).values == values(3, 11)

    run(main)


def test_round_robin_goes_through_the_partitions_broker_by_broker_and_skips_those_without_a_leader() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=0), nodes=2) as (producer, scripted, _peer):
            scripted.leaders = {"t": [2, 1, -1, 2, 1]}
            deliveries = [await producer.send("t", b"v") for _ in range(5)]
            assert [(await delivery).partition for delivery in deliveries] == [1, 4, 0, 3, 1]

    run(main)


def test_flush_does_not_wait_for_the_linger_and_returns_when_all_is_written() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=60_000)) as (producer, _, _peer):
            delivery = await producer.send("t", b"v")
            await asyncio.sleep(0)
            assert not delivery.done()
            await producer.flush()
            assert delivery.result().offset == 0

    run(main)


def test_closing_sends_what_is_buffered() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=60_000)) as (producer, _, peer):
            await producer.send("t", b"v")
            await producer.close()
            assert peer.log("t", 0).values == [b"v"]
            with pytest.raises(RuntimeError, match="not running"):
                await producer.send("t", b"v")

    run(main)


def test_several_requests_are_in_flight_to_a_node_but_no_more_than_allowed() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with producing(ProducerSettings(linger_ms=0, batch_bytes=100, max_in_flight=3)) as (
            producer,
            _,
            peer,
        ):

            async def gated(request: ProduceRequest) -> ProduceResponse | None:
                await gate.wait()
                return peer.produce(request)

            await (await producer.send("t", b"first"))
            peer.on(ProduceRequest, gated)
            deliveries = [await producer.send("t", b"x" * 90) for _ in range(10)]
            queue = producer._sender.queue(TopicPartition("t", 0))
            await until(lambda: len(queue.in_flight) == 3)
            gate.set()
            assert [(await delivery).offset for delivery in deliveries] == list(range(1, 11))

    run(main)


def test_a_full_buffer_makes_senders_wait_until_something_is_written() -> None:
    async def main() -> None:
        settings = ProducerSettings(
            linger_ms=60_000, buffer_bytes=5_000, max_request_bytes=5_000, batch_bytes=1_000
        )
        gate = asyncio.Event()
        async with producing(settings) as (producer, _, peer):

            async def gated(request: ProduceRequest) -> ProduceResponse | None:
                await gate.wait()
                return peer.produce(request)

            peer.on(ProduceRequest, gated)
            senders = asyncio.gather(*(producer.send("t", b"x" * 900) for _ in range(20)))
            await until(lambda: len(peer.seen(ProduceRequest)) > 0)
            assert not senders.done()
            assert producer.buffered_bytes <= 5_000
            gate.set()
            deliveries = await senders
            await producer.flush()
            assert all(delivery.done() for delivery in deliveries)
            assert len(peer.log("t", 0).values) == 20

    run(main)


def test_a_sender_gives_up_waiting_for_room_after_the_time() -> None:
    async def main() -> None:
        settings = ProducerSettings(buffer_bytes=1_000, max_request_bytes=1_000, max_block_ms=30)
        async with producing(settings) as (producer, _, peer):
            peer.on(ProduceRequest, lambda _: None)
            await producer.send("t", b"x" * 800)
            with pytest.raises(RequestTimedOutError, match="no room for 870 bytes"):
                await producer.send("t", b"x" * 800)

    run(main)


def test_a_record_over_the_limit_is_refused_at_once() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(max_request_bytes=1_000)) as (producer, _, _peer):
            with pytest.raises(ProtocolError, match="MESSAGE_TOO_LARGE"):
                await producer.send("t", b"x" * 1_000)

    run(main)


def test_a_leader_that_moved_is_found_and_nothing_is_reordered() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=0, batch_bytes=100), nodes=2) as (
            producer,
            scripted,
            peer,
        ):

            def moved(_: TopicPartition, batch: Buffer) -> ErrorCode:
                scripted.leaders, scripted.leader_epoch = {"t": [2]}, 1
                return ErrorCode.NOT_LEADER_OR_FOLLOWER

            deliveries = [await producer.send("t", value * 30) for value in values(*range(5))]
            await deliveries[0]
            peer.trouble = moved
            deliveries += [await producer.send("t", value * 30) for value in values(*range(5, 30))]
            assert [(await delivery).offset for delivery in deliveries] == list(range(30))
            assert peer.log("t", 0).values == [value * 30 for value in values(*range(30))]

    run(main)


def test_a_batch_whose_answer_was_lost_is_written_once() -> None:
    async def main() -> None:
        async with producing() as (producer, _, peer):

            def written_but_unanswered(request: ProduceRequest) -> None:
                peer.produce(request)
                peer.disconnect()

            peer.once(ProduceRequest, written_but_unanswered)
            delivery = await producer.send("t", b"v")
            assert (await delivery).offset == 0
            assert peer.log("t", 0).values == [b"v"]
            assert len(peer.seen(ProduceRequest)) == 2

    run(main)


def test_a_duplicate_of_long_ago_counts_as_written_without_an_offset() -> None:
    async def main() -> None:
        async with producing() as (producer, _, peer):
            peer.trouble = lambda partition, batch: ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            assert (await (await producer.send("t", b"v"))).offset == -1

    run(main)


def test_a_leader_that_lost_what_it_knew_of_the_producer_is_served_under_a_new_producer_id() -> None:
    async def main() -> None:
        async with producing() as (producer, _, peer):
            await (await producer.send("t", b"a"))
            peer.log("t", 0).forget_producers()
            assert (await (await producer.send("t", b"b"))).offset == 1
            assert peer.log("t", 0).values == [b"a", b"b"]
            assert peer.producer_ids == 2

    run(main)


def test_a_refused_batch_fails_alone() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=0, batch_bytes=100)) as (producer, _, peer):
            refusals = iter([ErrorCode.NONE, ErrorCode.INVALID_RECORD])
            peer.trouble = lambda partition, batch: next(refusals, ErrorCode.NONE)
            deliveries = [await producer.send("t", value * 50) for value in values(*range(5))]
            await producer.flush()
            with pytest.raises(ProtocolError, match="INVALID_RECORD: t-0"):
                await deliveries[1]
            assert [deliveries[index].result().offset for index in (0, 2, 3, 4)] == [0, 1, 2, 3]

    run(main)


def test_a_batch_too_large_for_the_leader_is_split_until_it_fits() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(linger_ms=60_000)) as (producer, _, peer):
            peer.trouble = lambda partition, batch: (
                ErrorCode.MESSAGE_TOO_LARGE if len(batch) > 500 else ErrorCode.NONE
            )
            deliveries = [await producer.send("t", b"%03d" % number * 40) for number in range(10)]
            await producer.flush()
            assert [delivery.result().offset for delivery in deliveries] == list(range(10))
            assert peer.log("t", 0).values == [b"%03d" % number * 40 for number in range(10)]
            assert producer.buffered_bytes == 0

    run(main)


def test_a_single_record_too_large_for_the_leader_fails() -> None:
    async def main() -> None:
        async with producing() as (producer, _, peer):
            peer.trouble = lambda partition, batch: ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(ProtocolError, match="MESSAGE_TOO_LARGE"):
                await (await producer.send("t", b"v"))

    run(main)


def test_every_send_ends_when_nobody_answers_for_the_delivery_time() -> None:
    async def main() -> None:
        settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=80)
        async with producing(settings) as (producer, scripted, _peer):
            scripted.leaders = {"t": [-1]}
            with pytest.raises(RequestTimedOutError, match="t-0: not written within 80 ms"):
                await (await producer.send("t", b"v"))
            assert producer.buffered_bytes == 0

    run(main)


def test_a_topic_or_partition_that_is_not_there_is_an_error_at_once() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(max_block_ms=30)) as (producer, _, _peer):
            with pytest.raises(ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION: topic missing"):
                await producer.send("missing", b"v")
            with pytest.raises(ProtocolError, match="t has 1 partitions and no partition 4"):
                await producer.send("t", b"v", partition=4)

    run(main)


def test_a_cluster_that_refuses_producer_ids_fails_every_send() -> None:
    async def main() -> None:
        async with producing() as (producer, _, peer):
            refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            peer.on(InitProducerIdRequest, lambda _: refusal)
            with pytest.raises(ProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await (await producer.send("t", b"v"))
            with pytest.raises(ProtocolError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await producer.send("t", b"v")

    run(main)


def test_without_acks_a_record_counts_as_written_when_it_is_sent() -> None:
    async def main() -> None:
        async with producing(ProducerSettings(acks=0, idempotent=False)) as (producer, _, peer):
            deliveries = [await producer.send("t", value) for value in values(1, 2, 3)]
            assert [(await delivery).offset for delivery in deliveries] == [-1, -1, -1]
            await until(lambda: peer.log("t", 0).values == values(1, 2, 3))

    run(main)


def test_without_idempotence_order_is_kept_through_failures() -> None:
    async def main() -> None:
        settings = ProducerSettings(idempotent=False, linger_ms=0, batch_bytes=100)
        random = Random(5)
        async with producing(settings) as (producer, _, peer):
            peer.trouble = lambda partition, batch: (
                ErrorCode.NOT_ENOUGH_REPLICAS if random.random() < 0.3 else ErrorCode.NONE
            )
            deliveries = [await producer.send("t", b"%03d" % number * 20) for number in range(30)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(30))
            assert peer.producer_ids == 0

    run(main)


@pytest.mark.parametrize("seed", range(6))
def test_through_broken_connections_and_errors_each_record_is_written_once_and_in_order(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        settings = ProducerSettings(linger_ms=0, batch_bytes=300, delivery_timeout_ms=20_000, max_in_flight=5)
        async with producing(settings, partitions=3, nodes=2) as (producer, scripted, first):
            peers = [peer for peer in scripted.peers.values() if isinstance(peer, ProducingPeer)]

            def shaky(peer: ProducingPeer, request: ProduceRequest) -> ProduceResponse | None:
                fate = random.random()
                if fate < 0.05:
                    scripted.leaders = {"t": [random.choice([1, 2]) for _ in range(3)]}
                    scripted.leader_epoch += 1
                if fate < 0.15:
                    peer.disconnect()
                    return None
                answer = peer.produce(request)
                if fate > 0.9:
                    peer.disconnect()
                    return None
                return answer

            def refuses(peer: ProducingPeer, partition: TopicPartition) -> ErrorCode:
                leads = scripted.leaders["t"][partition.partition] == peer.node_id
                return (
                    ErrorCode.NONE if leads and random.random() > 0.05 else ErrorCode.NOT_LEADER_OR_FOLLOWER
                )

            for peer in peers:
                peer.on(ProduceRequest, partial(shaky, peer))
                peer.trouble = lambda partition, _, peer=peer: refuses(peer, partition)  # type: ignore[misc]
            deliveries = []
            for number in range(300):
                deliveries.append(await producer.send("t", b"%05d" % number * 20))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            await producer.flush()
            for delivery in deliveries:
                delivery.result()
            for partition in range(3):
                assert first.log("t", partition).values == [
                    b"%05d" % number * 20 for number in range(partition, 300, 3)
                ]

    run(main)


def test_a_ready_batch_is_stamped_and_sent_as_it_is() -> None:
    async def main() -> None:
        builder = BatchBuilder(Codec.ZSTD, size_max=10_000)
        for number in range(3):
            builder.append(1000 + number, None, b"%d" % number)
        batch = builder.build()
        restamp(
            batch,
            0,
            len(batch),
            attributes=TRANSACTIONAL_FLAG | 4,
            producer_id=9,
            producer_epoch=9,
            base_sequence=9,
        )
        body = bytes(batch[61:])
        async with producing() as (producer, _, peer):
            seen: list[bytes] = []
            peer.trouble = lambda partition, records: seen.append(bytes(records)) or ErrorCode.NONE  # type: ignore[func-returns-value]
            await producer.send("t", b"before")
            delivery = await producer.send_batch(TopicPartition("t", 0), batch)
            assert await delivery == ("t", 0, 1, 1000)
            header = read_header(seen[1])
            assert seen[1][61:] == body
            assert (header.base_offset, header.producer_id, header.base_sequence) == (0, 101, 1)
            assert not header.is_transactional
            assert peer.log("t", 0).values == [b"before", b"0", b"1", b"2"]

    run(main)


def test_what_is_no_whole_batch_is_refused() -> None:
    async def main() -> None:
        builder = BatchBuilder(size_max=10_000)
        builder.append(0, None, b"v")
        batch = builder.build()
        async with producing() as (producer, _, _peer):
            with pytest.raises(ProtocolError, match="not one whole batch"):
                await producer.send_batch(TopicPartition("t", 0), batch + b"x")
            with pytest.raises(ProtocolError, match="torn"):
                await producer.send_batch(TopicPartition("t", 0), batch[:20])

    run(main)


def test_a_list_of_records_is_sent_in_its_order() -> None:
    async def main() -> None:
        async with producing(partitions=2) as (producer, _, _peer):
            records = [ProducerRecord("t", value, partition=1) for value in values(*range(5))]
            deliveries = await producer.send_all(records)
            assert [(await delivery)[1:3] for delivery in deliveries] == [(1, number) for number in range(5)]

    run(main)


def test_contradicting_settings_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)acks is 3.*idempotent.*max_in_flight"):
        ProducerSettings(acks=3, max_in_flight=0)


UNORDERED_BY_NUMBER = replace(SETTINGS, idempotent=False)


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize("version", [0, 2])
def test_leaders_of_old_are_sent_messages(version: int, acks: int) -> None:
    async def main() -> None:
        seen: list[int] = []

        def look(_: TopicPartition, records: Buffer) -> ErrorCode:
            seen.append(records[MAGIC_POSITION])
            return ErrorCode.NONE

        async with producing(replace(UNORDERED_BY_NUMBER, acks=acks)) as (producer, _, peer):
            peer.versions[ProduceRequest.api_key] = (0, version)
            peer.trouble = look
            for value in values(*range(10)):
                await producer.send("t", value)
            await producer.flush()
            await until(lambda: peer.log("t", 0).values == values(*range(10)))
            assert set(seen) == {1 if version == 2 else 0}

    run(main)


def test_what_leaders_of_old_cannot_store_fails_at_once_and_alone() -> None:
    async def main() -> None:
        async with producing(UNORDERED_BY_NUMBER, partitions=2) as (producer, _, peer):
            peer.versions[ProduceRequest.api_key] = (0, 2)
            refused = await producer.send("t", b"with", partition=0, headers=[("h", b"v")])
            written = await producer.send("t", b"without", partition=1)
            with pytest.raises(ProtocolError, match=rf"{peer.address}.*version 2.*0\.11.*headers") as failure:
                await refused
            assert failure.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert (await written).offset == 0
            assert [request.acks for request in peer.seen(ProduceRequest)] == [-1]

    run(main)


def test_nodes_that_give_no_producer_ids_are_told_of_at_once() -> None:
    async def main() -> None:
        async with producing(is_old=True) as (producer, _, peer):
            with pytest.raises(ProtocolError, match=rf"{peer.address}.*0\.11.*enable\.idempotence=false"):
                await (await producer.send("t", b"value"))

    run(main)
