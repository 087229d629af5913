"""Appends to a node over one connection, beside a bare loop that does only what cannot be avoided.

    python -m ops.bench.broker_append [--directory DIR] [--seconds S]

The bare loop is asyncio with `sock_recv_into` one reused buffer (as large as the node's), CRC-32C, `pwrite`,
and an answer of 13 bytes. Both run in a process of their own and get the very same produce requests (version
9, acks=1, one batch) from the same client, which keeps `IN_FLIGHT` of them under way. Turns alternate, the
best of each counts. Printed: requests a second, MB/s, processor time of the server for each request, the
ratio with its goal, and the node's resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from crc32c import crc32c

from broker.loopback import free_ports
from broker.records.batch import ATTRIBUTES_POSITION
from broker.records.builder import BatchBuilder
from broker.server.receive_buffer import BUSY_CAPACITY
from broker.wire.header import encode_request
from broker.wire.message import Request
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ops.bench._nodes import nodes

GOALS = {1 << 20: 0.6, 16 << 10: 0.3}
IN_FLIGHT = {1 << 20: 8, 16 << 10: 64}
ROUNDS = 4
TOPIC = "bench"
PRODUCE_VERSION = 9
KEPT_BYTES = 256 << 20
"""Both sides give this much of the disk back again and again, so that both write into fresh pages."""
TAGS_AFTER_RECORDS = 3
FRAME_OVERHEAD_MAX = 1024
NODE_SETTINGS = {
    "message.max.bytes": 2 << 20,
    "log.segment.bytes": KEPT_BYTES,
    "log.retention.bytes": KEPT_BYTES,
    "log.retention.check.interval.ms": 200,
}
_SIZE = struct.Struct(">i")


class Server(NamedTuple):
    """One of the two that are compared."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Figure(NamedTuple):
    """Requests a second, and processor microseconds of the server for each."""

    rate: float
    cpu_us: float

    def better(self, other: Figure) -> Figure:
        return Figure(max(self.rate, other.rate), min(self.cpu_us, other.cpu_us))


def build_batch(size: int) -> bytearray:
    """One uncompressed batch of about `size` bytes."""
    builder = BatchBuilder(size_max=size)
    while builder.append(1_700_000_000_000, b"key", os.urandom(1000)):
        pass
    return builder.build()


def frame(request: Request[Any], version: int) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, 1, "bench")))


def produce_frame(batch: bytearray) -> bytes:
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    return frame(request, PRODUCE_VERSION)


# The bare loop


async def serve_bare(port: int, path: Path, records_size: int) -> None:
    loop = asyncio.get_running_loop()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        server.setblocking(False)
        while True:
            connection, _ = await loop.sock_accept(server)
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, contextlib.suppress(ConnectionError):
                await serve_one(loop, connection, descriptor, records_size)


async def serve_one(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, descriptor: int, records_size: int
) -> None:
    """Check and write the records of every frame, which end it but for a few tags."""
    view = memoryview(bytearray(max(BUSY_CAPACITY, records_size + FRAME_OVERHEAD_MAX)))
    answer = _SIZE.pack(9) + bytes(9)
    start = end = position = 0
    while count := await loop.sock_recv_into(connection, view[end:]):
        end += count
        answers = 0
        while end - start >= 4:
            size = _SIZE.unpack_from(view, start)[0]
            if end - start < 4 + size:
                break
            stop = start + 4 + size - TAGS_AFTER_RECORDS
            records = view[stop - records_size : stop]
            crc32c(records[ATTRIBUTES_POSITION:])
            os.pwrite(descriptor, records, position)
            position += records_size
            if position > KEPT_BYTES:
                os.ftruncate(descriptor, 0)
                position = 0
            start += 4 + size
            answers += 1
        if start:
            view[: end - start] = view[start:end]
            start, end = 0, end - start
        if answers:
            await loop.sock_sendall(connection, answer * answers)


@contextmanager
def bare_server(directory: Path, records_size: int) -> Iterator[Server]:
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "ops.bench.broker_append", "--bare", str(port), str(records_size)]
    with subprocess.Popen([*command, "--directory", str(directory)]) as process:
        try:
            wait_for_port(port)
            yield Server(port, process.pid)
        finally:
            process.terminate()


# The client


def wait_for_port(port: int) -> None:
    deadline = perf_counter() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if perf_counter() > deadline:
                raise


def drive(server: Server, request: bytes, in_flight: int, seconds: float) -> Figure:
    """Keep `in_flight` requests under way; a request counts when its answer is here."""
    with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        answer_size = 4 + _SIZE.unpack(connection.recv(4, socket.MSG_WAITALL))[0]
        connection.recv(answer_size - 4, socket.MSG_WAITALL)
        burst = memoryview(request * in_flight)
        cpu, start = server.cpu_seconds(), perf_counter()
        connection.sendall(burst)
        count = received = 0
        while perf_counter() < start + seconds:
            received += len(connection.recv(65536))
            answered = received // answer_size
            received -= answered * answer_size
            count += answered
            connection.sendall(burst[: answered * len(request)])
        return Figure(count / (perf_counter() - start), (server.cpu_seconds() - cpu) / count * 1e6)


def create_topic(port: int) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)])
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall(frame(request, 4))
        size = _SIZE.unpack(connection.recv(4, socket.MSG_WAITALL))[0]
        connection.recv(size, socket.MSG_WAITALL)


# The comparison


def compare(directory: Path, seconds: float) -> bool:
    """Print both sides for every size; True when all goals are met."""
    met = True
    with nodes(directory, NODE_SETTINGS) as cluster:
        node = Server(cluster.bootstrap[0].port, cluster.pids[1])
        create_topic(node.port)
        for size, goal in GOALS.items():
            met &= compare_size(directory, node, size, goal, seconds)
    return met


def compare_size(directory: Path, node: Server, size: int, goal: float, seconds: float) -> bool:
    batch = build_batch(size)
    request = produce_frame(batch)
    ours = theirs = Figure(0.0, float("inf"))
    with bare_server(directory, len(batch)) as bare:
        for _ in range(ROUNDS):
            theirs = theirs.better(drive(bare, request, IN_FLIGHT[size], seconds / ROUNDS))
            ours = ours.better(drive(node, request, IN_FLIGHT[size], seconds / ROUNDS))
    for name, figure in (("bare", theirs), ("node", ours)):
        megabytes = figure.rate * len(batch) / 1e6
        print(
            f"{len(batch):8d} bytes  {name}  {figure.rate:8.0f}/s {megabytes:6.0f} MB/s "
            f"{figure.cpu_us:7.1f} CPU us a request"
        )
    ratio = ours.rate / theirs.rate
    print(
        f"{'':16}ratio {ratio:.2f} (goal {goal}), by CPU {theirs.cpu_us / ours.cpu_us:.2f}; "
        f"node resident {node.resident_mb():.0f} MB",
        flush=True,
    )
    return ratio >= goal


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: temporary")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for each figure")
    parser.add_argument("--bare", nargs=2, type=int, metavar=("PORT", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        port, records_size = arguments.bare
        asyncio.run(serve_bare(port, arguments.directory / "bare", records_size))
        return 0
    directory = Path(tempfile.mkdtemp(prefix="broker-append-", dir=arguments.directory))
    try:
        return 0 if compare(directory, arguments.seconds) else 1
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
