"""Where a consumer reads a partition."""

from __future__ import annotations

import pytest

from broker.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from broker.client.read_replicas import LEASE_MS, ReadReplicas
from broker.errors import ErrorCode, ProtocolError
from broker.types import HostPort, TopicPartition

PARTITION = TopicPartition("t", 0)


def metadata(*nodes: int) -> ClusterMetadata:
    """The partition has replicas on 1, its leader, and on 2."""
    return ClusterMetadata(
        nodes={node: Node(id=node, address=HostPort("h", node)) for node in nodes},
        topics={
            "t": TopicMetadata(
                name="t", partitions={0: PartitionMetadata(leader=1, replicas=(1, 2), isr=(1, 2))}
            )
        },
    )


def test_a_follower_is_read_from_for_a_while() -> None:
    replicas = ReadReplicas()
    assert replicas.source(PARTITION, metadata(1, 2), 0) == 1
    replicas.send(PARTITION, 2, metadata(1, 2), now_ms=10)
    assert replicas.source(PARTITION, metadata(1, 2), 9 + LEASE_MS) == 2
    assert replicas.source(PARTITION, metadata(1, 2), 10 + LEASE_MS) == 1


def test_a_follower_that_went_is_left() -> None:
    replicas = ReadReplicas()
    replicas.send(PARTITION, 2, metadata(1, 2), now_ms=0)
    assert replicas.source(PARTITION, metadata(1), 1) == 1
    assert replicas.source(PARTITION, metadata(1, 2), 2) == 1


def test_a_recalled_consumer_asks_the_leader() -> None:
    replicas = ReadReplicas()
    assert not replicas.recall(PARTITION)
    replicas.send(PARTITION, 2, metadata(1, 2), now_ms=0)
    assert replicas.recall(PARTITION)
    assert replicas.source(PARTITION, metadata(1, 2), 1) == 1


@pytest.mark.parametrize("node", [2, 3])
def test_nobody_is_sent_to_a_node_that_is_not_known_to_have_the_partition(node: int) -> None:
    replicas = ReadReplicas()
    with pytest.raises(ProtocolError) as refused:
        replicas.send(PARTITION, node, metadata(1, 3), now_ms=0)
    assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
    assert replicas.source(PARTITION, metadata(1, 3), 0) == 1
