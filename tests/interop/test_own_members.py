"""Our members of the consumer protocol (KIP-848) against the newest Apache Kafka, and in one group with
librdkafka's; there and at our nodes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer
from broker.errors import ProtocolError
from broker.types import TopicPartition
from tests.client.reading_members import PARTITIONS, QUICK_CONSUMER_GROUPS, SHORT_SESSIONS, Brokers, scene
from tests.client.running import until
from tests.client.test_epoch_members_on_nodes import (  # noqa: F401 collected here too
    NEW,
    run,
    test_a_live_classic_group_is_upgraded_by_restarting_its_members_one_by_one,
    test_a_member_that_is_killed_is_replaced_when_its_session_ends,
    test_a_pattern_brings_topics_that_come_later_and_gives_way_to_names,
    test_a_static_member_comes_back_to_its_partitions_and_holds_its_name_meanwhile,
    test_members_share_the_partitions_as_they_come_and_go_and_read_each_record_once,
    test_partitions_pass_on_when_the_listener_has_run_and_positions_are_stored,
    test_positions_are_stored_for_a_member_only_and_found_again,
    test_what_cannot_be_ends_the_consumer_with_what_the_node_says,
)
from tests.conftest import ClusterFactory
from tests.interop.apache import ApacheKafka
from tests.interop.kraft import KraftKafka


@pytest.fixture
def quick(newest_classpath: str, tmp_path: Path) -> Iterator[KraftKafka]:
    """Apache Kafka in the place of our nodes."""
    (directory := tmp_path / "kafka").mkdir()
    with KraftKafka(newest_classpath, directory, settings=QUICK_CONSUMER_GROUPS) as kafka:
        yield kafka


@pytest.fixture
def hasty(newest_classpath: str, tmp_path: Path) -> Iterator[KraftKafka]:
    """The same, where members are given up soon."""
    (directory := tmp_path / "kafka").mkdir()
    with KraftKafka(newest_classpath, directory, settings=SHORT_SESSIONS) as kafka:
        yield kafka


def test_a_broker_that_has_the_protocol_turned_off_is_named(apache_kafka: ApacheKafka) -> None:
    async def main() -> None:
        async with Cluster(apache_kafka.bootstrap) as client, Consumer(client, group=NEW) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(ProtocolError, match=f"{apache_kafka.address}.*KIP-848.*group.version"):
                await consumer.take()

    run(main)


class LibrdkafkaReader:
    """A member of librdkafka's, read by a thread of its own."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.has: set[TopicPartition] = set()
        self.values: list[str] = []
        self._ends = threading.Event()
        self._consumer = LibrdkafkaConsumer(
            {
                "bootstrap.servers": ",".join(map(str, brokers.bootstrap)),
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append((message.value() or b"").decode())
        self._consumer.close()

    def _assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        self.has |= {TopicPartition(each.topic, each.partition) for each in partitions}

    def _revoked(self, _: object, partitions: list[TopicPartition]) -> None:
        self.has -= {TopicPartition(each.topic, each.partition) for each in partitions}


@contextmanager
def librdkafka(brokers: Brokers, topic: str) -> Iterator[LibrdkafkaReader]:
    reader = LibrdkafkaReader(brokers, topic)
    try:
        yield reader
    finally:
        reader.close()


def share_a_group(brokers: Brokers) -> None:
    """Ours and librdkafka's, coming and going; each record is read once."""

    async def main() -> None:
        async with scene(brokers) as group:
            await group.send()
            first = await group.join(NEW)
            await until(lambda: group.is_shared_out([first]) and group.is_read())
            with librdkafka(brokers, group.topic) as theirs:
                second = await group.join(NEW)
                await until(lambda: group.is_shared_out([first, theirs, second]))
                await group.send()
                await until(lambda: group.is_read(theirs))
                await first.close()
                await until(lambda: group.is_shared_out([theirs, second]))
                await group.send()
                await until(lambda: group.is_read(theirs))
                await asyncio.to_thread(theirs.close)
            await until(lambda: group.is_shared_out([second]))
            await group.send()
            await until(lambda: group.is_read(theirs))
            assert set(group.counts(theirs).values()) == {1}
            await second.close()
            assert await group.committed("g") == dict.fromkeys(range(PARTITIONS), 40)

    run(main)


def test_a_group_outlives_a_broker_of_apache_kafkas_that_is_killed(quick: KraftKafka) -> None:
    async def main() -> None:
        async with scene(quick) as group:
            members = [await group.join(NEW) for _ in range(2)]
            await group.send()
            await until(lambda: group.is_shared_out(members) and group.is_read())
            await asyncio.to_thread(quick.kill)
            await asyncio.to_thread(quick.start)
            await group.send()
            await until(group.is_read)
            await until(lambda: group.is_shared_out(members))
            for member in members:
                await member.close()
            assert await group.committed("g") == dict.fromkeys(range(PARTITIONS), 20)

    run(main)


def test_ours_and_librdkafkas_share_a_group_of_apache_kafkas(quick: KraftKafka) -> None:
    share_a_group(quick)


def test_ours_and_librdkafkas_share_a_group_of_ours(cluster: ClusterFactory) -> None:
    share_a_group(cluster(settings=QUICK_CONSUMER_GROUPS))
