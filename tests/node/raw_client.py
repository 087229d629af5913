"""A blocking client that sends exactly what a test says, and a batch to send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.records.reader import read_all
from broker.types import Buffer, HostPort
from broker.wire.header import decode_response, encode_request
from broker.wire.message import Request, ResponseType
from broker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from broker.wire.registry import api_of

DEADLINE_SECONDS = 30
NOW_MS = 1_700_000_000_000


class RawClient:
    """One connection; versions are the newest unless a test says otherwise."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._correlation_id = 0

    def request(self, request: Request[ResponseType], version: int | None = None) -> ResponseType:
        """Send one request and wait for its answer."""
        return self.receive(request, self.send(request, version), version)

    def send(self, request: Request[ResponseType], version: int | None = None) -> int:
        """Send one request and return its correlation id."""
        self._correlation_id += 1
        version = request.max_version if version is None else version
        parts = encode_request(request, version, self._correlation_id, "test")
        self.socket.sendall(b"".join(bytes(part) for part in parts))
        return self._correlation_id

    def receive(
        self, request: Request[ResponseType], correlation_id: int, version: int | None = None
    ) -> ResponseType:
        """The next answer, which must belong to the request."""
        version = request.max_version if version is None else version
        answered, response = decode_response(api_of(request), version, self.receive_frame())
        assert answered == correlation_id
        return response

    def receive_frame(self) -> bytes:
        """The next frame without its size."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def is_closed_by_peer(self) -> bool:
        """Wait for the other end to close or answer; True when it closes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            assert chunk, "the node closed the connection"
            received += chunk
        return received


@contextmanager
def connected(address: HostPort) -> Iterator[RawClient]:
    with socket.create_connection(address, timeout=DEADLINE_SECONDS) as sock:
        yield RawClient(sock)


def batch_of(
    *values: bytes,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """One batch with these values."""
    builder = BatchBuilder(
        codec,
        size_max=1 << 20,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    for value in values:
        builder.append(NOW_MS, b"key", value)
    return builder.build()


def produce_request(
    topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=DEADLINE_SECONDS * 1000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def produce(
    client: RawClient, topic: str, records: bytes | bytearray, *, version: int | None = None
) -> PartitionProduceResponse:
    """Produce to partition 0 and return its answer."""
    response = client.request(produce_request(topic, records), version)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str, *offsets: int, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> FetchRequest:
    """Of partitions 0 and up, each from its offset; for versions that name topics."""
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=max_bytes)
        for number, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


FETCH_VERSION = 12
"""The newest that names topics."""


def fetch(client: RawClient, topic: str, offset: int, *, version: int = FETCH_VERSION) -> PartitionData:
    """Fetch partition 0 without waiting."""
    return client.request(fetch_request(topic, offset), version).responses[0].partitions[0]


def values_of(records: Buffer | None) -> list[bytes | None]:
    """The values of all records in a fetch answer."""
    return [record.value for record in read_all(records or b"", size_max=1 << 20)]


def create_topic(client: RawClient, topic: str, *, partitions: int = 1, **settings: str) -> None:
    """Have a topic exist; settings with underscores for dots."""
    new = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items()
        ],
    )
    (created,) = client.request(CreateTopicsRequest(topics=[new])).topics
    assert created.error_code == 0, created.error_message
