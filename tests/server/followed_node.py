"""A real node that leads a partition, and nodes that exist in ZooKeeper only, for which a test fetches."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.client.connection import Connection, ConnectionSettings
from broker.cluster.registration import register_broker
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import BrokerZnode, Endpoint, PartitionStateZnode
from broker.errors import ErrorCode
from broker.server.security import Listener
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.produce import PartitionProduceResponse
from tests.conformance.scene import until
from tests.node.raw_client import batch_of, produce_request
from tests.server.running_node import running_node

LEADER = 1
TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)
LONG_MS = 30_000


@dataclass(slots=True)
class Follower:
    """A node without a process: its session, and the connection that a test fetches over."""

    broker_id: int
    session: MemorySession
    epoch: int
    connection: Connection


@dataclass(slots=True)
class FollowedNode:
    """The topic's only partition is led by the node; everyone has a connection of his own."""

    tree: MemoryTree
    listener: Listener
    topic_id: UUID = field(default_factory=lambda: UUID(int=0))
    followers: dict[int, Follower] = field(default_factory=dict)
    connections: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def connect(self) -> Connection:
        connection = await Connection.open(self.listener.address, ConnectionSettings(client_id="test"))
        return await self.connections.enter_async_context(connection)

    async def register(self, broker_id: int) -> None:
        """Have a node registered, anew if it is already."""
        former = self.followers.get(broker_id)
        if former is not None:
            await former.session.close()
        session = MemorySession(self.tree)
        await session.start(timeout_ms=1000)
        endpoint = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=1, security_protocol="PLAINTEXT")
        znode = BrokerZnode(endpoints=(endpoint,), timestamp_ms=1, rack=f"rack-{broker_id}")
        epoch = await register_broker(session, BrokerId(broker_id), znode, session_timeout_ms=6000)
        connection = await self.connect() if former is None else former.connection
        self.followers[broker_id] = Follower(broker_id, session, epoch, connection)

    async def create(self, *brokers: int, **configs: str) -> None:
        """The topic, with a replica on every node; led by the first of `brokers` where they are given."""
        admin = await self.connect()
        brokers = brokers or (LEADER, *self.followers)
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        answer = await admin.request(CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS))
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        told = await until(lambda: admin.request(asked), lambda told: told.topics[0].topic_id.int != 0)
        self.topic_id = told.topics[0].topic_id

    def state(self) -> PartitionStateZnode:
        znode = self.tree.get(paths.partition_state(PARTITION))
        assert znode is not None
        return PartitionStateZnode.decode(znode.data, "state")

    async def until_isr(self, *brokers: int) -> None:
        async def isr() -> set[int]:
            return set(self.state().isr)

        await until(isr, lambda members: members == set(brokers))

    async def produce(
        self, *values: bytes, acks: int = -1, timeout_ms: int = LONG_MS, version: int | None = None
    ) -> PartitionProduceResponse:
        """One batch, over a connection of its own."""
        request = produce_request(TOPIC, batch_of(*values), acks=acks)
        request.timeout_ms = timeout_ms
        response = await (await self.connect()).request(request, version)
        return response.responses[0].partition_responses[0]

    async def fetch(
        self,
        broker_id: int,
        offset: int,
        *,
        max_wait_ms: int = 0,
        broker_epoch: int | None = None,
        **fields: Any,
    ) -> PartitionData:
        """What the node answers a follower."""
        follower = self.followers[broker_id]
        known = {"current_leader_epoch": self.state().leader_epoch}
        request = self.fetch_request(offset, max_wait_ms, **known | fields)
        epoch = follower.epoch if broker_epoch is None else broker_epoch
        request.replica_state = ReplicaState(replica_id=broker_id, replica_epoch=epoch)
        response = await follower.connection.request(request)
        return response.responses[0].partitions[0]

    async def consume(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        rack: str = "",
        version: int | None = None,
        **fields: Any,
    ) -> PartitionData:
        """What a consumer gets, over a connection of its own."""
        request = self.fetch_request(offset, max_wait_ms, **fields)
        request.min_bytes, request.rack_id = min_bytes, rack
        return (await (await self.connect()).request(request, version)).responses[0].partitions[0]

    def fetch_request(self, offset: int, max_wait_ms: int, **fields: Any) -> FetchRequest:
        """Of the partition alone."""
        partition = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
        topic = FetchTopic(topic=TOPIC, topic_id=self.topic_id, partitions=[partition])
        return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])

    async def list_offset(
        self, timestamp: int, *, version: int | None = None, replica_id: int = -1
    ) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(timestamp=timestamp)])
        request = ListOffsetsRequest(replica_id=replica_id, topics=[asked])
        return (await (await self.connect()).request(request, version)).topics[0].partitions[0]

    async def delete_before(self, offset: int, *, timeout_ms: int = LONG_MS) -> DeleteRecordsPartitionResult:
        """DeleteRecords, over a connection of its own."""
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=TOPIC, partitions=[asked])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        return (await (await self.connect()).request(request)).topics[0].partitions[0]


@contextlib.asynccontextmanager
async def followed_node(
    directory: Path, *followers: int, configs: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[FollowedNode]:
    """A node with these followers, each of which has fetched the empty partition once."""
    tree = MemoryTree()
    async with running_node(directory, tree=tree, broker_id=LEADER, **settings) as (listener, *_):
        node = FollowedNode(tree, listener)
        async with node.connections:
            for broker_id in followers:
                await node.register(broker_id)
            await known(node, *followers)
            await node.create(**configs or {})
            for broker_id in followers:
                assert (await node.fetch(broker_id, 0)).error_code == ErrorCode.NONE
            yield node


async def known(node: FollowedNode, *brokers: int) -> None:
    """Return once the node knows of these others."""
    admin = await node.connect()
    await until(
        lambda: admin.request(MetadataRequest(topics=[])), lambda told: len(told.brokers) > len(brokers)
    )
