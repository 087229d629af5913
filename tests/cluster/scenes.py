"""Small builders for scenes with brokers and topics, shared by the cluster's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from broker.cluster.image import BrokerInfo
from broker.coordination.znodes import BrokerZnode, Endpoint, TopicZnode
from broker.types import BrokerId, TopicId, TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def endpoint(broker_id: int) -> Endpoint:
    return Endpoint(
        listener="PLAINTEXT", host="127.0.0.1", port=9000 + broker_id, security_protocol="PLAINTEXT"
    )


def broker_znode(broker_id: int) -> BrokerZnode:
    return BrokerZnode(endpoints=(endpoint(broker_id),), timestamp_ms=1)


def broker(broker_id: int, epoch: int = 10) -> BrokerInfo:
    return BrokerInfo(id=BrokerId(broker_id), epoch=epoch, endpoints={"PLAINTEXT": endpoint(broker_id)})


def live(*broker_ids: int, **epochs: int) -> dict[BrokerId, BrokerInfo]:
    return {BrokerId(b): broker(b, epochs.get(f"epoch_{b}", 10)) for b in broker_ids}


def ids(*broker_ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(b) for b in broker_ids)


def topic(partitions: Mapping[int, Sequence[int]], number: int = 1) -> TopicZnode:
    return TopicZnode(
        topic_id=TopicId(UUID(int=number)),
        partitions={p: ids(*replicas) for p, replicas in partitions.items()},
    )
