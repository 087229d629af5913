"""What a real node holds for clients that do not read or send by drops, and how it reads cold files."""

from __future__ import annotations

import os
import re
import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.records.batch import iterate_batches
from broker.types import HostPort
from broker.wire.header import encode_request
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.conftest import cluster_spec, forked, until
from tests.node.raw_client import (
    DEADLINE_SECONDS,
    FETCH_VERSION,
    NOW_MS,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch_request,
    produce,
)

SEGMENT_BYTES = 8 << 20
LOG_BYTES = 32 << 20
HELD_BYTES_MAX = 24 << 20
"""Far less than the clients ask for, far more than a node grows by chance."""
CONVERTED_VERSION = 2
CONVERTED_BYTES_MAX = 140 << 20
"""Of clients that ask for ten times as much at once."""
ANSWERS_EACH = 3


@pytest.fixture(scope="module")
def running(
    zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedCluster]:
    settings = {"log.segment.bytes": SEGMENT_BYTES, "message.max.bytes": 2 << 20}
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("pressure"), "node", settings=settings)
    with EmbeddedCluster(spec, forked) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def filled(running: EmbeddedCluster) -> str:
    """A topic of one partition with `LOG_BYTES` of records in several segments."""
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "filled")
        batch = batch_of(os.urandom(1_000_000))
        while produce(client, "filled", batch).base_offset * len(batch) < LOG_BYTES:
            pass
    return "filled"


def resident_bytes(running: EmbeddedCluster) -> int:
    (pid,) = running.pids.values()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def open_files(running: EmbeddedCluster) -> int:
    (pid,) = running.pids.values()
    return len(os.listdir(f"/proc/{pid}/fd"))


def answers(running: EmbeddedCluster) -> bool:
    """Whether the node serves somebody else."""
    with connected(running.bootstrap[0]) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return client.request(request).error_code == 0


def test_clients_that_ask_and_never_read_make_a_node_hold_little(
    running: EmbeddedCluster, filled: str
) -> None:
    request = fetch_request(filled, 0, max_bytes=LOG_BYTES)
    frame = b"".join(map(bytes, encode_request(request, FETCH_VERSION, 1, "greedy")))
    before, files_before = resident_bytes(running), open_files(running)
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(running.bootstrap[0])) for _ in range(20)]
        sent = 0
        for client in clients:
            client.setblocking(False)
            try:
                while sent < 100 << 20:
                    sent += client.send(frame * 1000)
            except BlockingIOError:
                pass
        assert answers(running)
        assert resident_bytes(running) - before < HELD_BYTES_MAX
        assert open_files(running) - files_before <= len(clients) + LOG_BYTES // SEGMENT_BYTES + 4
        assert sent > 100_000, "the clients asked for next to nothing"
    until(lambda: open_files(running) <= files_before + LOG_BYTES // SEGMENT_BYTES + 4)


def test_slow_clients_whose_answers_are_converted_make_a_node_hold_little(
    running: EmbeddedCluster, filled: str
) -> None:
    request = fetch_request(filled, 0, max_bytes=50 << 20)
    frame = b"".join(map(bytes, encode_request(request, CONVERTED_VERSION, 1, "old")))
    before = resident_bytes(running)
    reset_peak(running)
    with ExitStack() as stack:
        clients = [stack.enter_context(slow_connection(running.bootstrap[0])) for _ in range(30)]
        for client in clients:
            client.sendall(frame * ANSWERS_EACH)
        assert answers(running)
        sizes = drained(clients, ANSWERS_EACH)
    assert peak_bytes(running) - before < CONVERTED_BYTES_MAX
    assert min(map(min, sizes)) > 1_000_000
    assert max(map(max, sizes)) < 6 << 20


def slow_connection(address: HostPort) -> socket.socket:
    """One whose kernel takes little of an answer before its client does."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    return client


def drained(clients: list[socket.socket], count: int) -> list[list[int]]:
    """Read `count` answers of each client, all of them by and by; their sizes."""
    sizes: dict[socket.socket, list[int]] = {client: [] for client in clients}
    left = dict.fromkeys(clients, 0)
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(DEADLINE_SECONDS)
            assert ready, "the node sends nothing more"
            for key, _ in ready:
                client = cast(socket.socket, key.fileobj)
                if not left[client]:
                    (left[client],) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
                    sizes[client].append(left[client])
                data = client.recv(min(left[client], 1 << 18))
                assert data, "the node closed the connection"
                left[client] -= len(data)
                if not left[client] and len(sizes[client]) == count:
                    selector.unregister(client)
    return list(sizes.values())


def reset_peak(running: EmbeddedCluster) -> None:
    """Have the kernel measure the most that the node has in memory from now on."""
    (pid,) = running.pids.values()
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(running: EmbeddedCluster) -> int:
    (pid,) = running.pids.values()
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


def test_clients_that_send_half_a_request_hold_what_they_sent(running: EmbeddedCluster) -> None:
    before = resident_bytes(running)
    with ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(socket.create_connection(running.bootstrap[0]))
            client.sendall(struct.pack(">i", 90 << 20) + bytes(10_000))
        assert answers(running)
        assert resident_bytes(running) - before < HELD_BYTES_MAX


def test_a_cold_log_is_read_whole(running: EmbeddedCluster, filled: str) -> None:
    segments = sorted(Path(running.spec.directory).rglob(f"{filled}-0/*"))
    offset, sizes = 0, 0
    with connected(running.bootstrap[0]) as client:
        while sizes < LOG_BYTES - SEGMENT_BYTES:
            drop_from_memory(segments)
            read, offset = read_on(client, filled, offset)
            sizes += read


def test_a_time_is_found_in_a_cold_log(running: EmbeddedCluster, filled: str) -> None:
    segments = sorted(Path(running.spec.directory).rglob(f"{filled}-0/*"))
    asked = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in (NOW_MS, NOW_MS + 1)]
    with connected(running.bootstrap[0]) as client:
        for partition, expected in zip(asked, (0, -1), strict=True):
            drop_from_memory(segments)
            topics = [ListOffsetsTopic(name=filled, partitions=[partition])]
            (topic,) = client.request(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
            assert [found.offset for found in topic.partitions] == [expected]


def drop_from_memory(files: list[Path]) -> None:
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def read_on(client: RawClient, topic: str, offset: int) -> tuple[int, int]:
    """Bytes that a fetch brought, and the offset after them."""
    request = fetch_request(topic, offset, max_bytes=3 << 20)
    (answer,) = client.request(request, FETCH_VERSION).responses[0].partitions
    records = answer.records or b""
    headers = [header for _, header in iterate_batches(records)]
    assert headers[0].base_offset == offset
    return len(records), headers[-1].next_offset
