"""Load with next to no work in the client: produce requests encoded before, fetched bytes thrown away.

Several connections, each with a fixed number of produce requests, or one fetch, under way. This shows what
the server can do where a whole client library would be what is measured.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count, product
from typing import NamedTuple

from broker.client.connection import Connection
from broker.errors import ErrorCode
from broker.records.builder import BatchBuilder
from broker.types import Buffer, HostPort
from broker.wire.header import encode_request
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ops.bench.comparison.cases import Figure, Plan
from ops.bench.comparison.payload import record_values
from ops.bench.comparison.stopwatch import Stopwatch

CONNECTIONS = 4
IN_FLIGHT_BYTES = 1 << 20
"""Of produce requests on one connection."""
IN_FLIGHT_MAX = 32
PRODUCE_VERSION = 7
FETCH_VERSION = 11
PARTITION_BYTES_MAX = 1 << 20
FETCH_BYTES_MAX = 8 << 20
_SIZE = struct.Struct(">i")
_ERROR_POSITION = 4
"""Of the error code, counted from the partition index that ends the topic's header in a produce answer."""
_BATCH_START = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_POSITION = 23
_LENGTH_OVERHEAD = 12


class Batch(NamedTuple):
    """A batch and the bytes of the values in it."""

    records: bytearray
    value_bytes: int


def build_batch(plan: Plan) -> Batch:
    """As many records as fit the case's batch size, before compression."""
    case = plan.case
    builder = BatchBuilder(case.codec, size_max=case.batch_size)
    values = record_values(case.record_size)
    for index in count():
        if not builder.append(1_700_000_000_000, None, values[index % len(values)]):
            break
    value_bytes = builder.count * case.record_size
    return Batch(builder.build(), value_bytes)


# Producing


def produce_prebuilt(plan: Plan, leaders: Sequence[int], bytes_max: int) -> Figure:
    """Keep requests under way on every connection until the time or `bytes_max` of values are used up.

    `leaders` are the broker ids of those who lead the partitions; each has connections of its own.
    """
    batch = build_batch(plan)
    requests = [_produce_frame(plan, index, batch.records) for index in range(plan.case.partitions)]
    in_flight = max(min(IN_FLIGHT_BYTES // len(requests[0]), IN_FLIGHT_MAX), 1)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for leader, number in product(sorted(set(leaders)), range(CONNECTIONS)):
            port = plan.nodes[leader - 1].port
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            led = [request for request, by in zip(requests, leaders, strict=True) if by == leader]
            selector.register(connection, selectors.EVENT_READ, _Producing(connection, led, number))
        producing: list[_Producing] = [key.data for key in selector.get_map().values()]
        watch = Stopwatch(plan, leaders)
        for each in producing:
            each.send(in_flight)
        while any(each.under_way for each in producing):
            for key, _ in selector.select():
                answered = key.data.receive()
                sent_bytes = sum(each.sent for each in producing) * batch.value_bytes
                if watch.seconds < plan.seconds and sent_bytes < bytes_max:
                    key.data.send(answered)
        return watch.figure(sum(each.sent for each in producing) * batch.value_bytes)


class _Producing:
    """One connection; partitions in turn, from another one on each connection."""

    def __init__(self, connection: socket.socket, requests: list[bytes], first: int) -> None:
        self.sent = 0
        self.under_way = 0
        self._connection = connection
        self._requests = requests
        self._next = first
        self._received = b""

    def send(self, number: int) -> None:
        for _ in range(number):
            self._connection.sendall(self._requests[self._next % len(self._requests)])
            self._next += 1
        self.sent += number
        self.under_way += number

    def receive(self) -> int:
        """Take what answers there are; how many."""
        data = self._connection.recv(65536)
        assert data, "the server closed a connection"
        self._received += data
        answered = 0
        while len(self._received) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._received)[0]
            if len(self._received) < end:
                break
            _check_answer(self._received[:end])
            self._received = self._received[end:]
            answered += 1
        self.under_way -= answered
        return answered


def _produce_frame(plan: Plan, partition: int, records: Buffer) -> bytes:
    data = [PartitionProduceData(index=partition, records=records)]
    request = ProduceRequest(
        acks=plan.case.acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=plan.topic, partition_data=data)],
    )
    return b"".join(map(bytes, encode_request(request, PRODUCE_VERSION, 1, "bench")))


def _check_answer(frame: bytes) -> None:
    """The error code of the only partition: after correlation id, counts, and the topic's name."""
    name_size = struct.unpack_from(">h", frame, 12)[0]
    error = struct.unpack_from(">h", frame, 14 + name_size + 4 + _ERROR_POSITION)[0]
    assert not error, f"a produce request failed: {ErrorCode.of(error).name}"


# Fetching


def fetch_prebuilt(plan: Plan) -> Figure:
    """Every connection reads all partitions again and again, until the time is up."""
    batch = build_batch(plan)
    return asyncio.run(_fetch_all(plan, batch))


async def _fetch_all(plan: Plan, batch: Batch) -> Figure:
    watch = Stopwatch(plan)
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(_fetch_on_one(plan, watch)) for _ in range(CONNECTIONS)]
    return watch.figure(sum(reader.result() for reader in readers) * batch.value_bytes)


async def _fetch_on_one(plan: Plan, watch: Stopwatch) -> int:
    """How many batches came until the time was up."""
    partitions = [
        FetchPartition(partition=index, partition_max_bytes=PARTITION_BYTES_MAX)
        for index in range(plan.case.partitions)
    ]
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        topics=[FetchTopic(topic=plan.topic, partitions=partitions)],
    )
    batches = 0
    async with await Connection.open(HostPort("127.0.0.1", plan.nodes[0].port)) as connection:
        while watch.seconds < plan.seconds:
            response = await connection.request(request, FETCH_VERSION)
            came = 0
            for answer in response.responses[0].partitions:
                assert not answer.error_code, ErrorCode.of(answer.error_code).name
                number, next_offset = _walk(answer.records or b"")
                came += number
                if number:
                    partitions[answer.partition_index].fetch_offset = next_offset
            batches += came
            if not came:
                for partition in partitions:
                    partition.fetch_offset = 0
    return batches


def _walk(records: Buffer) -> tuple[int, int]:
    """How many whole batches, and the offset after the last."""
    position = number = next_offset = 0
    while position + _LENGTH_OVERHEAD < len(records):
        base_offset, length = _BATCH_START.unpack_from(records, position)
        end = position + _LENGTH_OVERHEAD + length
        if end > len(records):
            break
        delta = _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_POSITION)[0]
        next_offset = base_offset + delta + 1
        number += 1
        position = end
    return number, next_offset
