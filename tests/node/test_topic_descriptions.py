"""What `broker topics describe` tells of a cluster that has lost a node."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ClusterFactory, until
from tests.node.test_cli import done

TIMEOUT_SECONDS = 60


def test_partitions_that_lack_replicas_or_leaders_are_found(cluster: ClusterFactory) -> None:
    nodes = cluster(brokers=3)
    addresses = ",".join(map(str, nodes.bootstrap))
    bootstrap = f"--bootstrap-server={addresses}"
    topics = {"all": [1, 2, 3], "some": [1, 2], "lost": [3]}
    new = [NewTopic(name, 1, replica_assignment=[replicas]) for name, replicas in topics.items()]
    admin = AdminClient({"bootstrap.servers": addresses})
    for made in admin.create_topics(new).values():
        made.result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": addresses, "acks": "all"})
    producer.produce("all", "value")
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert done("topics", "describe", "--under-replicated", bootstrap).lines == []
    assert done("topics", "describe", "--unavailable", bootstrap).lines == []
    assert done("topics", "describe", "all", "--lag", bootstrap).lines == [
        f"Topic: all\tPartition: 0\tReplica: {node}\tIn sync: yes\tEnd: 1\tLag: 0" for node in (1, 2, 3)
    ]
    nodes.kill_node(3)
    lost = "Topic: lost\tPartition: 0\tLeader: none\tReplicas: 3\tIsr: 3"
    until(lambda: done("topics", "describe", "--unavailable", bootstrap).lines == [lost])
    until(
        lambda: (
            done("topics", "describe", "--under-replicated", bootstrap).lines
            == ["Topic: all\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2"]
        )
    )
    *_, last = done("topics", "describe", "all", "--lag", bootstrap).lines
    assert last == "Topic: all\tPartition: 0\tReplica: 3\tIn sync: no\tEnd: unknown\tLag: unknown"
