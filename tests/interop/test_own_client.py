"""Our client against Apache Kafka, the last that works with ZooKeeper and the newest: what it does with our
nodes it does with Kafka's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.client.producer import Producer, ProducerSettings
from broker.client.topic_admin import NewTopic
from broker.embedded import EmbeddedZooKeeper
from broker.errors import ProtocolError
from broker.records.batch import Codec
from broker.types import TopicPartition
from tests.client.reading_members import Brokers
from tests.client.running import run
from tests.client.test_filters import (  # noqa: F401 collected here too
    test_filtered_readers_of_committed_records_see_no_aborted_ones,
)
from tests.client.test_nodes import (  # noqa: F401 collected here too
    READ_ALL,
    take,
    test_a_group_goes_on_where_it_committed,
    test_groups_are_listed_described_moved_and_deleted,
    test_members_of_a_group_share_the_partitions_as_they_come_and_go,
    test_nodes_quotas_replicas_lags_producers_and_transactions_are_administered,
    test_offsets_are_found_by_time_and_logs_are_cut_off,
    test_raw_batches_pass_from_one_topic_to_another_untouched,
    test_reading_goes_on_at_a_time_at_the_beginning_and_at_the_end,
    test_records_of_every_codec_come_back_as_they_were_sent,
    test_topics_are_created_listed_described_grown_configured_and_deleted,
    test_what_a_filter_does_not_match_is_passed_over_whoever_filters,
)
from tests.interop.apache import ApacheKafka, kafka_jars
from tests.interop.kraft import KraftKafka


@pytest.fixture(params=["last with zookeeper", "newest"])
def cluster(
    request: pytest.FixtureRequest, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> Iterator[Callable[[], Brokers]]:
    """Apache Kafka in the place of our nodes; each test starts one of its own."""
    with ExitStack() as stack:

        def start() -> Brokers:
            if request.param == "newest":
                newest = KraftKafka(request.getfixturevalue("newest_classpath"), tmp_path)
                return stack.enter_context(newest)
            chroot = zookeeper.connect_string(f"apache-{uuid.uuid4().hex[:8]}")
            kafka = ApacheKafka(request.getfixturevalue("kafka_classpath"), chroot, tmp_path)
            return stack.enter_context(kafka)

        yield start


def test_brokers_without_batches_are_written_to_and_read_from(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, topic: str
) -> None:
    """Kafka 0.10 stores messages of magic 1 and knows neither headers nor producer ids."""
    sent: list[tuple[bytes | None, bytes | None, int]] = []

    async def write(client: Cluster, codec: Codec) -> None:
        async with Producer(client, settings=ProducerSettings(codec=codec, idempotent=False)) as producer:
            for number in range(50):
                record = (None if number % 3 else b"key", codec.name.encode() * number, 1_000 + number)
                delivery = await producer.send(topic, record[1], record[0], timestamp_ms=record[2])
                sent.append(record)
            assert (await delivery).offset == len(sent) - 1

    async def main() -> None:
        async with Cluster(kafka.bootstrap) as client:
            await Admin(client).create_topic(NewTopic(name=topic, partitions=1, replication_factor=1))
            for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                await write(client, codec)
            async with Consumer(client, settings=READ_ALL) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                read = await take(consumer, len(sent))
                assert [(record.key, record.value, record.timestamp) for record in read] == sent
                assert [record.offset for record in read] == list(range(len(sent)))
            async with Producer(client) as producer:
                with pytest.raises(ProtocolError, match=r"before 0\.11"):
                    await (await producer.send(topic, b"numbered"))

    classpath = kafka_jars("0.10.2.2", tmp_path / "jars")
    connect = zookeeper.connect_string(f"old-{uuid.uuid4().hex[:8]}")
    with ApacheKafka(classpath, connect, tmp_path) as kafka:
        run(main)
