"""The blocking clients on real nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import pytest

from broker.client import blocking
from broker.client.consumer import ConsumerSettings, Isolation, OffsetReset
from broker.client.group_offset_admin import ShiftBy, ToEarliest
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import AnyGroupSettings, ConsumerGroupSettings, GroupSettings
from broker.client.offsets import LATEST
from broker.client.producer import ProducerRecord, ProducerSettings
from broker.client.simple_consumer import FetchAt
from broker.client.topic_admin import NewTopic
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import ProtocolError
from broker.types import TopicPartition
from tests.conftest import ClusterFactory, cluster_spec, forked

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Told(blocking.RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, set[TopicPartition]]] = []

    def before_releasing_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append(("releasing", set(partitions)))

    def before_starting_fetchers(self, share: Mapping[TopicPartition, int]) -> None:
        self.events.append(("starting", set(share)))


def fill(node: EmbeddedCluster) -> None:
    """Five records in each of two partitions of `t`."""
    with blocking.Cluster(node.bootstrap) as client:
        admin = blocking.Admin(client)
        admin.create_topic(NewTopic(name="t", partitions=2))
        assert admin.list_topics() == ["t"]
    with blocking.open_producer({"bootstrap.servers": str(node.bootstrap[0])}) as producer:
        producer.send_all([ProducerRecord("t", b"%d" % number, None, number % 2) for number in range(10)])
        producer.flush()


@pytest.fixture(scope="module")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A real one; every test has groups of its own there."""
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("blocking"), "blocking")
    with EmbeddedCluster(spec, forked) as started:
        fill(started)
        yield started


@pytest.mark.parametrize(
    "group",
    [
        GroupSettings(group_id="g", session_timeout_ms=6_000, heartbeat_interval_ms=100),
        ConsumerGroupSettings(group_id="g"),
    ],
    ids=["classic", "consumer"],
)
def test_a_transaction_takes_the_positions_of_a_group_along(
    cluster: ClusterFactory, group: AnyGroupSettings
) -> None:
    node = cluster()
    fill(node)
    assigned: list[frozenset[TopicPartition]] = []
    settings = ConsumerSettings(
        offset_reset=OffsetReset.EARLIEST, isolation=Isolation.READ_COMMITTED, auto_commit_interval_ms=0
    )
    with (
        blocking.Cluster(node.bootstrap) as client,
        blocking.TransactionalProducer(client, settings=ProducerSettings(transactional_id="x")) as producer,
        blocking.Consumer(client, settings=settings, group=group) as consumer,
    ):
        consumer.subscribe(["t"], on_assigned=assigned.append)
        read = list(islice(consumer, 7))
        consumer.commit()
        stored = consumer.committed([ZERO, ONE])
        assert sum(each.offset for each in stored.values()) == len(read) == 7
        assert assigned == [frozenset({ZERO, ONE})]
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"last", partition=0)
            offsets = {ZERO: OffsetAndMetadata(offset=5), ONE: OffsetAndMetadata(offset=5)}
            producer.send_offsets_to_transaction(offsets, "g", consumer.membership)
        with pytest.raises(ProtocolError), producer.transaction():
            producer.send("t", b"never", partition=9)
        assert [record.value for record in islice(consumer, 4)].count(b"last") == 1


def test_a_consumer_made_of_options_commits_when_it_ends(node: EmbeddedCluster) -> None:
    options = {
        "bootstrap.servers": str(node.bootstrap[0]),
        "group.id": "options",
        "auto.offset.reset": "earliest",
    }
    with blocking.open_consumer(options) as reader:
        reader.assign([ONE])
        assert [record.offset for record in islice(reader, 2)] == [0, 1]
    with blocking.Cluster(node.bootstrap) as client:
        assert committed(blocking.Admin(client), "options") == 2


def test_a_simple_consumer_finds_offsets_and_fetches(node: EmbeddedCluster) -> None:
    with blocking.Cluster(node.bootstrap) as client:
        simple = blocking.SimpleConsumer(client)
        assert simple.get_offsets_before("t", 1, LATEST, 1) == [5]
        fetched = simple.fetch(FetchAt(topic="t", partition=1, offset=3))
        assert [record.offset for record in fetched.records()] == [3, 4]


def test_a_connector_streams_tells_its_listener_and_ends(node: EmbeddedCluster) -> None:
    told = Told()
    with blocking.Cluster(node.bootstrap) as client:
        streaming = blocking.ConsumerConnector(
            client,
            GroupSettings(group_id="streams"),
            settings=ConsumerSettings(offset_reset=OffsetReset.EARLIEST),
            rebalance_listener=told,
        )
        with streaming as connector:
            (stream,) = connector.create_message_streams({"t": 1})["t"]
            assert len({(record.partition, record.offset) for record in islice(stream, 10)}) == 10
            assert told.events == [("starting", {ZERO, ONE})]
        assert list(stream) == []
        assert told.events == [("starting", {ZERO, ONE}), ("releasing", {ZERO, ONE})]


def reader_of(client: blocking.Cluster, group: str) -> blocking.Consumer:
    settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST)
    return blocking.Consumer(client, settings=settings, group=GroupSettings(group_id=group))


def test_what_was_handed_out_is_committed_at_the_end_but_not_after_a_failure(node: EmbeddedCluster) -> None:
    with blocking.Cluster(node.bootstrap) as client:
        admin = blocking.Admin(client)
        with reader_of(client, "kept") as keeper:
            keeper.assign([ONE])
            assert len(list(islice(keeper, 3))) == 3
        assert committed(admin, "kept") == 3  # and not what was fetched with these
        assert admin.group_lags("kept")[ONE].lag == 2
        with pytest.raises(ValueError, match="7"):
            fail_on_a_record(reader_of(client, "kept"))
        assert committed(admin, "kept") == 3


def test_offsets_of_a_group_are_moved(node: EmbeddedCluster) -> None:
    with blocking.Cluster(node.bootstrap) as client:
        admin = blocking.Admin(client)
        with reader_of(client, "moved") as reader:
            reader.assign([ONE])
            assert len(list(islice(reader, 3))) == 3
        assert admin.move_group_offsets("moved", ShiftBy(-2), validate_only=True) == {ONE: 1}
        assert committed(admin, "moved") == 3
        assert admin.move_group_offsets("moved", ToEarliest(), [ZERO, ONE]) == {ZERO: 0, ONE: 0}
        assert committed(admin, "moved") == 0


def fail_on_a_record(consumer: blocking.Consumer) -> None:
    with consumer:
        consumer.assign([ONE])
        raise ValueError(next(iter(consumer)).value)


def committed(admin: blocking.Admin, group: str) -> int:
    return admin.group_offsets(group)[ONE].offset
