"""What `broker topics describe` tells of a cluster that has lost a node."""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import ClusterFactory, until
from tests.node.commands import done

TIMEOUT_SECONDS = 60


def test_partitions_that_lack_replicas_or_leaders_are_found(cluster: ClusterFactory) -> None:
    nodes = cluster(brokers=3)
    addresses = ",".join(map(str, nodes.bootstrap))
    bootstrap = f"--bootstrap-server={addresses}"
    topics = {"all": [1, 2, 3], "some": [1, 2], "lost": [3]}
    new = [NewTopic(name, 1, replica_assignment=[replicas]) for name, replicas in topics.items()]
    new[0].config = {"min.insync.replicas": "2"}
    new.append(NewTopic("strict", 1, replica_assignment=[[1, 3]], config={"min.insync.replicas": "2"}))
    admin = AdminClient({"bootstrap.servers": addresses})
    for made in admin.create_topics(new).values():
        made.result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": addresses, "acks": "all"})
    producer.produce("all", "value")
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert done("topics", "describe", "--under-replicated", bootstrap).lines == []
    assert done("topics", "describe", "--unavailable", bootstrap).lines == []
    assert done("topics", "describe", "--under-min-isr", bootstrap).lines == []
    at_min = done("topics", "describe", "--at-min-isr", "strict", "all", bootstrap).lines
    assert at_min == ["Topic: strict\tPartition: 0\tLeader: 1\tReplicas: 1,3\tIsr: 1,3"]
    assert done("topics", "describe", "all", "--lag", bootstrap).lines == [
        f"Topic: all\tPartition: 0\tReplica: {node}\tIn sync: yes\tEnd: 1\tLag: 0" for node in (1, 2, 3)
    ]
    nodes.kill_node(3)
    lost = "Topic: lost\tPartition: 0\tLeader: none\tReplicas: 3\tIsr: 3"
    until(lambda: done("topics", "describe", "--unavailable", bootstrap).lines == [lost])
    shrunk = "Topic: all\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2"
    strict = "Topic: strict\tPartition: 0\tLeader: 1\tReplicas: 1,3\tIsr: 1"
    until(lambda: done("topics", "describe", "--under-replicated", bootstrap).lines == [shrunk, strict])
    assert done("topics", "describe", "--under-min-isr", bootstrap).lines == [strict]
    both = done("topics", "describe", "--under-min-isr", "--at-min-isr", "strict", "all", bootstrap).lines
    assert both == [strict, shrunk]
    *_, last = done("topics", "describe", "all", "--lag", bootstrap).lines
    assert last == "Topic: all\tPartition: 0\tReplica: 3\tIn sync: no\tEnd: unknown\tLag: unknown"
