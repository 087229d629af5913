"""Streams that share a fetcher, against scripted nodes: few connections, bounds, and nobody held back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer_settings import ConsumerSettings, OffsetReset
from broker.client.record_stream import RecordStream
from broker.client.stream_fetching import StreamFetching
from broker.errors import ConnectionFailedError
from broker.types import TopicPartition
from broker.wire.messages.fetch import FetchRequest
from tests.client.logs import Log, ServingPeer
from tests.client.peers import PeerCluster, serving
from tests.client.running import QUICK, run, until

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
EARLIEST = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=10)
PARTITIONS = 8
ALL = [TopicPartition("t", number) for number in range(PARTITIONS)]


@asynccontextmanager
async def streaming(
    streams: int,
    settings: ConsumerSettings = EARLIEST,
    *,
    nodes: int = 1,
    connections: ConnectionSettings = CONNECTIONS,
) -> AsyncIterator[tuple[list[RecordStream], PeerCluster, ServingPeer]]:
    """So many streams, and the first of the scripted nodes they read from; those share the logs."""
    logs: dict[TopicPartition, Log] = {}
    peers = [ServingPeer(number + 1, logs=logs) for number in range(nodes)]
    async with (
        serving(peers, partitions=PARTITIONS) as scripted,
        Cluster(scripted.bootstrap, settings=connections, backoff=QUICK) as cluster,
    ):
        fetching = StreamFetching(cluster, settings)
        made = [fetching.new_stream(streams) for _ in range(streams)]
        fetching.start()
        yield made, scripted, peers[0]
        for stream in made:
            stream.end()
        await fetching.close()


async def values(stream: RecordStream, count: int) -> list[bytes]:
    return [(await anext(stream)).value or b"" for _ in range(count)]


def waiting(stream: RecordStream) -> int:
    """Bytes fetched for a stream and not taken."""
    return stream._queue.buffered_bytes


def is_full(stream: RecordStream) -> bool:
    """Whether nothing is, or will be, fetched for a stream before something is taken."""
    queue = stream._queue
    return queue.room_bytes <= 0 and not any(held.busy for held in queue.partitions.values())


def test_many_streams_need_no_more_connections_than_one() -> None:
    async def main() -> None:
        async with streaming(PARTITIONS, nodes=2) as (streams, scripted, peer):
            scripted.leaders["t"] = [1, 2] * (PARTITIONS // 2)
            for stream, partition in zip(streams, ALL, strict=True):
                stream.add(partition, 0)
            for round_number in range(5):
                for stream, partition in zip(streams, ALL, strict=True):
                    peer.log("t", partition.partition).append(b"%d" % round_number)
                    assert await values(stream, 1) == [b"%d" % round_number]
            for node in scripted.peers.values():
                assert node.connections <= 1 + EARLIEST.fetches_per_node
                asked = [
                    {entry.partition for topic in request.topics for entry in topic.partitions}
                    for request in node.seen(FetchRequest)
                ]
                assert max(map(len, asked)) == PARTITIONS // 2, (
                    "one fetch asks for the partitions of all streams"
                )

    run(main)


@pytest.mark.parametrize("answers_max", [0, 3])
def test_a_stream_that_nobody_reads_is_bounded_and_holds_nobody_back(answers_max: int) -> None:
    bounds = replace(
        EARLIEST, partition_max_bytes=10_000, buffer_bytes=40_000, stream_answers_max=answers_max
    )

    async def main() -> None:
        async with streaming(2, bounds) as (streams, _, peer):
            slow, quick = streams
            for partition in ALL:
                for _ in range(20):
                    peer.log("t", partition.partition).append(b"x" * 4_000)
                (quick if partition.partition < 2 else slow).add(partition, 0)
            await values(quick, 40)
            assert 0 < waiting(slow) < 2 * bounds.buffer_bytes
            await until(lambda: is_full(slow))
            before = waiting(slow)
            for partition in ALL[:2]:
                for _ in range(20):
                    peer.log("t", partition.partition).append(b"y" * 4_000)
            await values(quick, 40)
            assert waiting(slow) == before, "a stream that is full is not fetched for"
            await values(slow, 20 * 6)

    run(main)


def test_only_so_many_answers_wait_for_a_stream() -> None:
    async def main() -> None:
        async with streaming(1, replace(EARLIEST, stream_answers_max=2, partition_max_bytes=200)) as (
            (stream,),
            _,
            peer,
        ):
            stream.add(ALL[0], 0)
            for number in range(10):
                peer.log().append(b"%d" % number * 100)
            await until(lambda: is_full(stream))
            assert stream._queue.partitions[ALL[0]].buffered_answers == 2
            assert await values(stream, 10) == [b"%d" % number * 100 for number in range(10)]

    run(main)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 32), buffer_bytes=st.sampled_from([300, 3_000, 300_000]))
def test_whoever_reads_what_when_each_partition_stays_in_order(seed: int, buffer_bytes: int) -> None:
    random = Random(seed)
    bounds = replace(EARLIEST, partition_max_bytes=250, buffer_bytes=buffer_bytes, records_max=3)

    async def main() -> None:
        async with streaming(3, bounds) as (streams, _, peer):
            owners: dict[TopicPartition, RecordStream] = {}
            positions = dict.fromkeys(ALL, 0)
            for partition in ALL:
                for number in range(4):
                    numbers = [b"%d" % (3 * number + place) for place in range(3)]
                    peer.log("t", partition.partition).append(*numbers)
            while left := [partition for partition in ALL if positions[partition] < 12]:
                moved = random.choice(left)
                if moved in owners:
                    owners.pop(moved).remove([moved])
                owners[moved] = random.choice(streams)
                owners[moved].add(moved, positions[moved])
                for _ in range(random.randrange(9)):
                    reading = [stream for stream in streams if stream.partitions]
                    record = await random.choice(reading).next(5)
                    if record is not None:
                        partition = TopicPartition(record.topic, record.partition)
                        assert record.offset == positions[partition]
                        assert record.value == b"%d" % record.offset
                        positions[partition] += 1

    run(main)


def test_what_ends_the_fetching_is_told_by_every_stream() -> None:
    async def main() -> None:
        async with streaming(2, connections=ConnectionSettings(max_frame_bytes=5_000)) as (streams, _, peer):
            for stream, partition in zip(streams, ALL, strict=False):
                stream.add(partition, 0)
            assert await streams[1].next(1) is None
            peer.log().append(b"x" * 10_000)
            for stream in streams:
                with pytest.raises(ConnectionFailedError, match="over the limit of 5000"):
                    await anext(stream)

    run(main)
