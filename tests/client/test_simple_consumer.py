"""Reading without any state: fetches of one and of many, and offsets before a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.fetch_state import PartitionError
from broker.client.offsets import EARLIEST, LATEST
from broker.client.producer import Producer
from broker.client.simple_consumer import FetchAt, SimpleConsumer
from broker.errors import BrokerError, ErrorCode
from broker.types import TopicPartition
from broker.wire.messages.fetch import FetchRequest, FetchResponse
from broker.wire.messages.list_offsets import ListOffsetsRequest
from tests.client.logs import Log, ServingPeer
from tests.client.peers import PeerCluster
from tests.client.running import QUICK, run
from tests.server.running_node import running_node

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
Play = Callable[[Cluster, PeerCluster, ServingPeer, ServingPeer], Awaitable[None]]


def played(play: Play) -> None:
    """Two nodes; the first leads `t-0`, the second `t-1`."""

    async def main() -> None:
        logs: dict[TopicPartition, Log] = {}
        async with ServingPeer(1, logs=logs) as one, ServingPeer(2, logs=logs) as two:
            nodes = PeerCluster(one, two)
            nodes.leaders = {"t": [1, 2]}
            for peer in (one, two):
                peer.versions[ListOffsetsRequest.api_key] = (1, 7)
            one.log("t", 0).append(b"a", b"b", b"c")
            one.log("t", 1).append(b"d")
            async with Cluster(nodes.bootstrap, backoff=QUICK) as cluster:
                await play(cluster, nodes, one, two)

    run(main)


def at(partition: int, offset: int, max_bytes: int = 0, topic: str = "t") -> FetchAt:
    return FetchAt(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)


def test_a_fetch_brings_records_from_its_offset_on_and_says_where_to_go_on() -> None:
    async def play(cluster: Cluster, _: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        consumer = SimpleConsumer(cluster)
        for offset, values in ((1, [b"b", b"c"]), (3, [])):
            fetched = await consumer.fetch(at(0, offset))
            assert [record.value for record in fetched.records()] == values
            assert (fetched.next_offset, fetched.high_watermark) == (3, 3)

    played(play)


def test_many_are_answered_in_order_with_one_request_to_each_leader() -> None:
    async def play(cluster: Cluster, _: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        one.log("t", 1).append(b"e")
        fetches = [at(1, 1), at(0, 0), at(1, 99), at(9, 0)]
        answers = await SimpleConsumer(cluster).multifetch(fetches)
        assert [answer.at for answer in answers] == fetches
        assert [record.value for record in answers[0].records()] == [b"e"]
        assert [record.value for record in answers[1].records()] == [b"a", b"b", b"c"]
        with pytest.raises(PartitionError, match="t-1 at offset 99: the offset is not"):
            answers[2].records()
        error = answers[3].error
        assert isinstance(error, PartitionError)
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(one.seen(FetchRequest)) == 1
        assert len(two.seen(FetchRequest)) == 2, "what is asked for twice takes two"

    played(play)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_a_leader_that_moved_is_found_again(code: ErrorCode) -> None:
    async def play(cluster: Cluster, nodes: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        consumer = SimpleConsumer(cluster)
        await consumer.fetch(at(0, 0))
        nodes.leaders, nodes.leader_epoch = {"t": [2, 2]}, 1
        one.trouble = lambda partition: code
        assert len((await consumer.fetch(at(0, 0))).records()) == 3
        assert await consumer.get_offsets_before("t", 0, LATEST, 1) == [3]

    played(play)


def test_one_node_alone_is_asked_when_it_is_named() -> None:
    async def play(cluster: Cluster, _: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        one.trouble = lambda partition: ErrorCode.NOT_LEADER_OR_FOLLOWER
        consumer = SimpleConsumer(cluster, node_id=1)
        with pytest.raises(PartitionError, match="NOT_LEADER_OR_FOLLOWER"):
            await consumer.fetch(at(1, 0))
        with pytest.raises(PartitionError, match="NOT_LEADER_OR_FOLLOWER"):
            await consumer.get_offsets_before("t", 1, LATEST, 1)
        assert not two.seen(FetchRequest)

    played(play)


def test_a_node_that_goes_is_the_error_of_what_it_leads() -> None:
    async def play(cluster: Cluster, _: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        two.on(FetchRequest, lambda _: two.disconnect())
        good, bad = await SimpleConsumer(cluster).multifetch([at(0, 0), at(1, 0)])
        assert len(good.records()) == 3
        with pytest.raises(BrokerError):
            bad.records()

    played(play)


def test_a_batch_that_old_nodes_tear_is_asked_for_whole() -> None:
    async def play(cluster: Cluster, _: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        def torn(request: FetchRequest) -> FetchResponse:
            response = one.fetch_now(request)
            for topic, asked in zip(response.responses, request.topics, strict=True):
                for data, wanted in zip(topic.partitions, asked.partitions, strict=True):
                    data.records = bytes(data.records or b"")[: wanted.partition_max_bytes]
            return response

        one.on(FetchRequest, torn)
        fetched = await SimpleConsumer(cluster).fetch(at(0, 0, max_bytes=10))
        assert len(fetched.records()) == 3
        assert len(one.seen(FetchRequest)) > 1

    played(play)


def test_nodes_without_the_first_version_tell_both_ends() -> None:
    async def play(cluster: Cluster, _: PeerCluster, one: ServingPeer, two: ServingPeer) -> None:
        consumer = SimpleConsumer(cluster)
        assert await consumer.get_offsets_before("t", 0, LATEST, 10) == [3, 0]
        assert await consumer.get_offsets_before("t", 0, LATEST, 1) == [3]
        assert await consumer.get_offsets_before("t", 0, EARLIEST, 10) == [0]
        assert await consumer.get_offsets_before("t", 0, 1_500, 10) == [2, 0]

    played(play)


def test_offsets_before_a_time_are_where_segments_begin(tmp_path: Path) -> None:
    """Segments hold one batch each; timestamps are 1,000 times the offsets."""

    async def main() -> None:
        async with (
            running_node(tmp_path) as listeners,
            Cluster([listeners[0].address], backoff=QUICK) as cluster,
        ):
            topic = NewTopic(
                name="t", partitions=1, configs={"segment.bytes": "1048576", "segment.index.bytes": "12"}
            )
            await Admin(cluster).create_topic(topic)
            async with Producer(cluster) as producer:
                for number in range(5):
                    await producer.send("t", bytes(600_000), partition=0, timestamp_ms=1_000 * (number + 1))
                    await producer.flush()
            consumer = SimpleConsumer(cluster)
            before = consumer.get_offsets_before
            assert await before("t", 0, LATEST, 10) == [5, 4, 3, 2, 1, 0]
            assert await before("t", 0, LATEST, 3) == [5, 4, 3]
            assert await before("t", 0, LATEST, 0) == []
            assert await before("t", 0, EARLIEST, 10) == [0]
            assert await before("t", 0, 3_000, 10) == [2, 1, 0]
            assert await before("t", 0, 9_000, 2) == [5, 4]
            with pytest.raises(PartitionError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await before("t", 1, LATEST, 1)

    run(main)
