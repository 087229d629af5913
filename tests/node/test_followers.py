"""Three real nodes that follow each other: replicas are the same files, also after a leader was killed."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster
from broker.records.batch import iterate_batches
from tests.conftest import ClusterFactory, until

TOPIC = "flights"
PARTITIONS = 4
QUICK: Mapping[str, object] = {
    "replica.fetch.backoff.ms": 100,
    "replica.lag.time.max.ms": 3000,
    "zookeeper.session.timeout.ms": 3000,
    "log.segment.bytes": 200_000,
}


def bootstrap(cluster: EmbeddedCluster) -> str:
    return ",".join(map(str, cluster.bootstrap))


def make_topic(cluster: EmbeddedCluster, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})

    def is_made() -> bool:
        """The controller may hear only later of a node that is ready."""
        try:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=config)])[TOPIC].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    until(is_made)
    until(lambda: set(leaders(admin)) >= {1, 2, 3})
    return admin


def leaders(admin: AdminClient) -> list[int]:
    """Of each partition, as a node tells at this moment."""
    found = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    return [found[number].leader for number in sorted(found)]


def are_in_sync(admin: AdminClient) -> bool:
    found = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    return all(len(partition.isrs) == 3 for partition in found.values())


class Load:
    """Records by one producer, idempotent with `acks` of all; which of them were acknowledged, by partition
    and offset.
    """

    def __init__(self, cluster: EmbeddedCluster, acks: int = -1) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap(cluster),
                "acks": acks,
                "enable.idempotence": acks == -1,
                "batch.size": 10_000,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
            }
        )
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failures: list[KafkaError] = []
        self._sent = 0

    def send(self, count: int, size: int = 200, partition: int | None = None) -> None:
        for _ in range(count):
            value = b"%0*d" % (size, self._sent)
            where = self._sent % PARTITIONS if partition is None else partition
            self._producer.produce(TOPIC, value, partition=where, on_delivery=self._delivered)
            self._sent += 1
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0
        assert not self.failures

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition(), message.offset()] = message.value()
        else:
            self.failures.append(error)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Send all the time meanwhile."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(0.005):
                self.send(20)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.flush()


def consumed(cluster: EmbeddedCluster) -> dict[tuple[int, int], bytes]:
    """Everything in the topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap(cluster), "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found, ended = {}, set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found[message.partition(), message.offset()] = message.value()
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return found


def log_files(directory: Path, broker_id: int, partition: int) -> dict[str, bytes]:
    """The segments of one replica by name."""
    found = sorted((directory / f"node-{broker_id}" / f"{TOPIC}-{partition}").glob("*.log"))
    return {path.name: path.read_bytes() for path in found}


def has_same_files(cluster: EmbeddedCluster) -> bool:
    """Whether all replicas of every partition are the same at this moment."""

    def files(broker_id: int) -> list[dict[str, bytes]]:
        return [log_files(cluster.spec.directory, broker_id, partition) for partition in range(PARTITIONS)]

    return files(1) == files(2) == files(3)


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Processes do nothing meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def events(cluster: EmbeddedCluster, broker_id: int, name: str) -> int:
    text = (cluster.spec.directory / f"node-{broker_id}.log").read_text()
    return text.count(f'"event": "{name}"')


def test_what_is_acknowledged_by_all_is_in_the_same_files_everywhere(cluster: ClusterFactory) -> None:
    running = cluster(brokers=3, settings={**QUICK, "num.replica.fetchers": 2})
    admin = make_topic(running, **{"min.insync.replicas": "3"})
    load = Load(running)
    load.send(8_000)
    load.flush()
    assert has_same_files(running)
    assert len(log_files(running.spec.directory, 1, 0)) > 1
    assert consumed(running) == load.acknowledged
    until(lambda: are_in_sync(admin))
    assert not any(events(running, broker_id, "fetched_records_corrupt") for broker_id in (1, 2, 3))


def test_a_killed_leader_comes_back_as_a_follower_with_the_same_history(cluster: ClusterFactory) -> None:
    running = cluster(brokers=3, settings=QUICK)
    admin = make_topic(running, **{"min.insync.replicas": "2"})
    load = Load(running)
    with load.going_on():
        for victim in (1, 2):
            before = len(load.acknowledged)
            until(lambda before=before: len(load.acknowledged) > before + 500)  # type: ignore[misc]
            running.kill_node(victim)
            before = len(load.acknowledged)
            until(lambda before=before: len(load.acknowledged) > before + 500)  # type: ignore[misc]
            running.start_node(victim)
            until(lambda: are_in_sync(admin), seconds=60)
    until(lambda: are_in_sync(admin))
    found = consumed(running)
    assert load.acknowledged.items() <= found.items()
    assert max(Counter(found.values()).values()) == 1
    assert has_same_files(running)


def test_a_leader_whose_log_was_damaged_while_it_was_away_has_the_rest_of_it_from_the_others(
    cluster: ClusterFactory,
) -> None:
    """A batch in the middle is zeroed, and indexes that would lead past it are gone."""
    running = cluster(brokers=3, settings=QUICK)
    admin = make_topic(running)
    load = Load(running)
    load.send(400)
    load.flush()
    until(lambda: has_same_files(running))
    first = leaders(admin)[0]
    running.kill_node(first)
    (log,) = (running.spec.directory / f"node-{first}").rglob(f"{TOPIC}-0/{0:020d}.log")
    data = log.read_bytes()
    batches = list(iterate_batches(data))
    position, header = batches[len(batches) // 2]
    log.write_bytes(data[:position] + bytes(header.size) + data[position + header.size :])
    for index in log.parent.glob("*index"):
        index.unlink()
    running.start_node(first)
    until(lambda: are_in_sync(admin), seconds=60)
    load.send(400)
    load.flush()
    until(lambda: has_same_files(running))
    assert load.acknowledged.items() <= consumed(running).items()
    assert events(running, first, "log_damaged") == 1
    kept = log.with_name(f"{header.base_offset:020d}.log.cut").read_bytes()
    assert kept == bytes(header.size) + data[position + header.size :]


def test_what_only_a_killed_leader_had_is_cut_off_when_it_comes_back(cluster: ClusterFactory) -> None:
    running = cluster(brokers=3, settings=QUICK)
    admin = make_topic(running)
    load = Load(running, acks=1)
    load.send(400)
    load.flush()
    until(lambda: has_same_files(running))
    first = leaders(admin)[0]
    with stopped([pid for broker_id, pid in running.pids.items() if broker_id != first]):
        for _ in range(2):  # the first ones may be the answer to a fetch that waits already
            load.send(20, partition=0)
            load.flush()
        running.kill_node(first)
    until(lambda: leaders(admin)[0] not in (first, -1))
    running.start_node(first)
    until(lambda: are_in_sync(admin), seconds=60)
    load.send(400)
    load.flush()
    until(lambda: has_same_files(running))
    assert events(running, first, "follower_cut") == 1
