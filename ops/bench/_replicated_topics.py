"""Topics of a cluster whose nodes come and go, by librdkafka."""

from __future__ import annotations

from time import monotonic, sleep

from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster

TIMEOUT_SECONDS = 180.0
REQUEST_SECONDS = 30.0
PROBE_SECONDS = 0.2


def create(cluster: EmbeddedCluster, topic: str, partitions: int, replicas: int) -> None:
    """A topic whose replicas are all in sync. Raises KafkaException, TimeoutError."""
    admin = _admin(cluster)
    (created,) = admin.create_topics([NewTopic(topic, partitions, replicas)]).values()
    created.result(TIMEOUT_SECONDS)
    wait_until_in_sync(cluster)


def leaders(cluster: EmbeddedCluster, topic: str) -> dict[int, int]:
    """Partition -> leader."""
    found = _admin(cluster).list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
    return {number: partition.leader for number, partition in found.partitions.items()}


def wait_until_in_sync(cluster: EmbeddedCluster) -> None:
    """Return once every partition has a leader and all its replicas in sync. Raises TimeoutError."""
    admin = _admin(cluster)
    deadline = monotonic() + TIMEOUT_SECONDS
    while not _are_in_sync(admin):
        if monotonic() > deadline:
            raise TimeoutError(f"replicas are not in sync within {TIMEOUT_SECONDS} s")
        sleep(PROBE_SECONDS)


def _are_in_sync(admin: AdminClient) -> bool:
    return all(
        partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
        for topic in admin.list_topics(timeout=REQUEST_SECONDS).topics.values()
        for partition in topic.partitions.values()
    )


def _admin(cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(map(str, cluster.bootstrap)), "log_level": 0})
