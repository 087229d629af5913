"""Producers that reach one node only, whatever the partitions' leaders."""

from __future__ import annotations

import pytest

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster, Routing
from broker.client.consumer import Consumer, ConsumerSettings, OffsetReset
from broker.client.partitioner import RoundRobinPartitioner
from broker.client.producer import Producer, ProducerSettings
from broker.errors import ProtocolError
from broker.types import TopicPartition
from tests.client.leaders import ProducingPeer
from tests.client.peers import serving
from tests.client.running import run
from tests.conftest import ClusterFactory


def test_records_for_every_leader_go_through_one_connection_to_one_node(cluster: ClusterFactory) -> None:
    running = cluster(brokers=3)

    async def main() -> None:
        async with Cluster(running.bootstrap) as direct:
            await Admin(direct).create_topic(NewTopic(name="t", partitions=6, replication_factor=2))
            async with Cluster([running.bootstrap[1]], routing=Routing.SINGLE) as single:
                await single.ensure(["t"])
                leaders = {single.metadata.leader(TopicPartition("t", number)) for number in range(6)}
                assert len(leaders) == 3
                settings = ProducerSettings(linger_ms=1, batch_bytes=300)
                async with Producer(
                    single, settings=settings, partitioner=RoundRobinPartitioner()
                ) as producer:
                    for number in range(600):
                        await producer.send("t", b"%03d" % number * 10)
                    await producer.flush()
                    assert producer.metrics.records_acknowledged == 600
                assert [address for address, _ in single._connections] == [running.bootstrap[1]]
            reading = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
            async with Consumer(direct, settings=reading) as consumer:
                consumer.assign([TopicPartition("t", number) for number in range(6)])
                values: dict[int, list[bytes]] = {}
                while sum(map(len, values.values())) < 600:
                    for record in await consumer.take(1_000):
                        values.setdefault(record.partition, []).append(record.value or b"")
            assert all(found == sorted(found) for found in values.values())
            assert sorted(value for found in values.values() for value in found) == [
                b"%03d" % number * 10 for number in range(600)
            ]

    run(main)


def test_single_routing_survives_the_death_of_a_leader(cluster: ClusterFactory) -> None:
    running = cluster(brokers=3)

    async def main() -> None:
        async with Cluster([running.bootstrap[0]], routing=Routing.SINGLE) as single:
            topic = NewTopic(name="t", assignments={0: [2, 1], 1: [3, 1], 2: [1, 2]})
            async with Cluster(running.bootstrap) as direct:
                await Admin(direct).create_topic(topic)
            await single.ensure(["t"])
            async with Producer(single, partitioner=RoundRobinPartitioner()) as producer:
                deliveries = [await producer.send("t", b"%d" % number) for number in range(30)]
                running.kill_node(3)
                deliveries += [await producer.send("t", b"%d" % number) for number in range(30, 60)]
                offsets: dict[int, list[int]] = {}
                for delivery in deliveries:
                    where = await delivery
                    offsets.setdefault(where.partition, []).append(where.offset)
            assert all(found == list(range(20)) for found in offsets.values())

    run(main)


def test_a_node_that_passes_nothing_on_is_told_from_one_that_does() -> None:
    async def main() -> None:
        peer = ProducingPeer()
        async with (
            serving([peer], partitions=1) as scripted,
            Cluster(scripted.bootstrap, routing=Routing.SINGLE) as single,
            Producer(single) as producer,
        ):
            with pytest.raises(ProtocolError, match=r"UNSUPPORTED_VERSION: .* does not pass records on"):
                await (await producer.send("t", b"v"))

    run(main)
