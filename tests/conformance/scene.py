"""What the cases of `test_every_version` play with: a node, a topic with records on it, one connection.

Nothing here is particular to our node: the same cases are true of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from broker.client.connection import Connection
from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.records.message_set import build_message_set
from broker.records.reader import read_all
from broker.records.record import Record
from broker.types import HostPort
from broker.wire.message import Request, ResponseType
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.offset_fetch import OffsetFetchRequest
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

T = TypeVar("T")

NONE = ErrorCode.NONE
SHELF_VALUES = (b"a", b"b", b"c")
MISSING_TOPIC = "no-such-topic"
MISSING_ID = UUID(int=7)
MISSING_PARTITION = 99
TIMEOUT_MS = 10_000
RECORDS_SIZE_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node and what stands on it: `shelf` is a topic with `SHELF_VALUES` in its one partition, a
    millisecond apart from `shelf_ms` on.
    """

    address: HostPort
    node_id: int
    cluster_id: str
    shelf: str
    shelf_id: UUID
    shelf_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A place, and a connection to its node; a closed connection fails the case."""

    place: Place
    connection: Connection

    async def ask(self, request: Request[ResponseType], version: int | None = None) -> ResponseType:
        """The node's answer, in exactly this version (none: the newest that both know)."""
        return await self.connection.request(request, version)

    async def new_topic(
        self, *, partitions: int = 1, settings: Mapping[str, str] | None = None, count: int = 0
    ) -> str:
        """Create a topic with a name of its own; `count` of the shelf's values are put on partition 0."""
        name = f"topic-{uuid4().hex}"
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        created = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        assert created.topics[0].error_code == NONE
        if count:
            records = batch(SHELF_VALUES[:count])
            response = await self.ask(produce_request(name, records))
            assert response.responses[0].partition_responses[0].error_code == NONE
        return name

    async def topic_id(self, name: str) -> UUID:
        """The id of a topic."""
        described = await self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        return described.topics[0].topic_id

    async def values(self, topic: str) -> list[bytes | None]:
        """All that partition 0 holds."""
        request = fetch_request(FetchTopic(topic=topic, partitions=[fetch_partition()]))
        response = await self.ask(request, 12)
        return read_values(response.responses[0].partitions[0].records)

    async def new_group(self) -> str:
        """A group id that no other case uses, on a coordinator that answers."""
        group_id = f"group-{uuid4().hex}"
        await until(
            lambda: self.ask(OffsetFetchRequest(group_id=group_id, topics=None), 7),
            lambda response: response.error_code == NONE,
        )
        return group_id


async def until(attempt: Callable[[], Awaitable[T]], accepts: Callable[[T], bool]) -> T:
    """Repeat `attempt` until its result is accepted; the test's time limit ends it."""
    while True:
        result = await attempt()
        if accepts(result):
            return result
        await asyncio.sleep(0.01)


# Requests that several cases send


def batch(
    values: tuple[bytes, ...],
    *,
    first_ms: int | None = None,
    producer_id: int = -1,
    base_sequence: int = -1,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """One batch of magic 2, a millisecond between its records."""
    builder = BatchBuilder(
        codec,
        size_max=RECORDS_SIZE_MAX,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=base_sequence,
    )
    first_ms = time.time_ns() // 1_000_000 if first_ms is None else first_ms
    for index, value in enumerate(values):
        builder.append(first_ms + index, b"key", value)
    return builder.build()


def records_for(version: int, values: tuple[bytes, ...] = SHELF_VALUES) -> bytes | bytearray:
    """Records in the format that a Produce of `version` carries."""
    if version >= 3:
        return batch(values)
    magic = 1 if version == 2 else 0
    now_ms = time.time_ns() // 1_000_000 if magic else -1
    records = [
        Record(index, now_ms, 0 if magic else -1, b"key", value, ()) for index, value in enumerate(values)
    ]
    return build_message_set(records, magic, Codec.NONE)


def produce_request(
    topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """Produce to one partition."""
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    """Fetch what is there."""
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": RECORDS_SIZE_MAX, "topics": list(topics), **fields}
    )


def fetch_partition(offset: int = 0, *, partition: int = 0, leader_epoch: int = -1) -> FetchPartition:
    """One partition of a fetch."""
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        partition_max_bytes=RECORDS_SIZE_MAX,
    )


def read_values(records: Any) -> list[bytes | None]:
    """The values in fetched records of any format."""
    return [record.value for record in read_all(records, size_max=RECORDS_SIZE_MAX)]


# The place


async def prepare(address: HostPort) -> Place:
    """Set the shelf up on a running node, once it coordinates groups and gives producers their ids."""
    async with await Connection.open(address) as connection:
        cluster = await connection.request(MetadataRequest(topics=[]))
        place = Place(
            address=address,
            node_id=cluster.controller_id,
            cluster_id=cluster.cluster_id or "",
            shelf="",
            shelf_id=UUID(int=0),
            shelf_ms=time.time_ns() // 1_000_000,
        )
        scene = Scene(place=place, connection=connection)
        coordinator = FindCoordinatorRequest(coordinator_keys=["any"])
        await until(
            lambda: scene.ask(coordinator, 4), lambda response: response.coordinators[0].error_code == NONE
        )
        producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        await until(lambda: scene.ask(producer), lambda response: response.error_code == NONE)
        shelf = await scene.new_topic()
        produced = await scene.ask(produce_request(shelf, batch(SHELF_VALUES, first_ms=place.shelf_ms)))
        assert produced.responses[0].partition_responses[0].error_code == NONE
        return replace(place, shelf=shelf, shelf_id=await scene.topic_id(shelf))
