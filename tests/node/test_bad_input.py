"""Whatever arrives on a socket, the node says so in its log, closes that connection, and lives on."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from broker.types import HostPort
from broker.wire.messages.metadata import MetadataRequest
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import RawClient, batch_of, connected, create_topic, produce, produce_request

REQUEST_SIZE_MAX = 2 << 20
GARBAGE = {
    "a negative size": struct.pack(">i", -1) + b"x" * 20,
    "a size over the limit": struct.pack(">i", REQUEST_SIZE_MAX + 1) + b"x" * 20,
    "the largest size": struct.pack(">i", 2**31 - 1) + b"x" * 20,
    "an unknown api": struct.pack(">ihhih", 10, 9999, 0, 1, -1),
    "a negative api": struct.pack(">ihhih", 10, -5, 0, 1, -1),
    "an api that is not served": struct.pack(">ihhih", 10, 74, 0, 1, -1) + bytes(4),
    "a version that is too new": struct.pack(">ihhih", 11, 3, 999, 1, -1) + b"\0",
    "a negative version": struct.pack(">ihhih", 10, 3, -1, 1, -1),
    "an empty frame": struct.pack(">i", 0),
    "half a header": struct.pack(">ihh", 4, 3, 1),
    "a client id beyond the frame": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "a body cut short": struct.pack(">ihhih", 12, 3, 1, 1, -1) + b"\0\0",
    "an array beyond the frame": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b" " * 100,
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(200),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_closes_its_connection_and_no_other(
    client: RawClient, address: HostPort, data: bytes
) -> None:
    with connected(address) as vandal:
        vandal.socket.sendall(data)
        assert vandal.is_closed_by_peer()
    assert client.request(MetadataRequest(topics=None)).brokers


def test_what_was_wrong_is_in_the_log_with_the_peer(node: EmbeddedCluster, address: HostPort) -> None:
    with connected(address) as vandal:
        peer = str(HostPort(*vandal.socket.getsockname()))
        vandal.socket.sendall(GARBAGE["a negative size"])
        assert vandal.is_closed_by_peer()
    log = node.spec.directory / "node-1.log"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (event,) = [event for event in events if event.get("peer") == peer]
    assert event["event"] == "connection_refused"
    assert "-1" in event["reason"]


def test_a_frame_that_is_never_finished_holds_nobody_up(client: RawClient, address: HostPort) -> None:
    with connected(address) as slow:
        slow.socket.sendall(struct.pack(">i", 1000) + b"half")
        assert client.request(MetadataRequest(topics=None)).brokers


def test_every_cut_of_a_produce_request_is_survived(client: RawClient, address: HostPort, topic: str) -> None:
    create_topic(client, topic)
    recorder = Recorder()
    RawClient(recorder).send(produce_request(topic, batch_of(b"value")))  # type: ignore[arg-type]
    frame = recorder.sent
    for cut in range(4, len(frame), 7):
        with connected(address) as vandal:
            vandal.socket.sendall(struct.pack(">i", cut - 4) + frame[4:cut])
            vandal.socket.shutdown(socket.SHUT_WR)
            while vandal.socket.recv(65536):
                pass
    assert produce(client, topic, batch_of(b"value")).error_code == 0


class Recorder:
    """Takes the bytes that a client would send."""

    def __init__(self) -> None:
        self.sent = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data


def test_random_damage_to_requests_is_survived(client: RawClient, address: HostPort, topic: str) -> None:
    create_topic(client, topic)
    recorder = Recorder()
    RawClient(recorder).send(produce_request(topic, batch_of(b"value")))  # type: ignore[arg-type]
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    for _ in range(200):
        frame = bytearray(recorder.sent)
        for _ in range(rng.randrange(1, 4)):
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
        with connected(address) as vandal:
            vandal.socket.sendall(frame)
            vandal.socket.shutdown(socket.SHUT_WR)
            while vandal.socket.recv(65536):
                pass
    assert produce(client, topic, batch_of(b"value")).error_code == 0, f"seed {seed}"


# Limits


def test_connections_over_the_limit_are_closed_and_room_is_found_again(cluster: ClusterFactory) -> None:
    address = cluster(settings={"max.connections": 2}).bootstrap[0]
    with ExitStack() as stack:
        first, second = (served_client(stack, address) for _ in range(2))
        with connected(address) as third:
            assert third.is_closed_by_peer()
        first.socket.close()
        served_client(stack, address)
        assert second.request(MetadataRequest(topics=None)).brokers


def test_connections_of_one_address_are_limited(cluster: ClusterFactory) -> None:
    limits = {"max.connections.per.ip": 100, "max.connections.per.ip.overrides": "127.0.0.1:1"}
    address = cluster(settings=limits).bootstrap[0]
    with ExitStack() as stack:
        first = served_client(stack, address)
        second = stack.enter_context(connected(address))
        assert second.is_closed_by_peer()
        assert first.request(MetadataRequest(topics=None)).brokers


def test_a_silent_connection_is_closed(cluster: ClusterFactory) -> None:
    running = cluster(settings={"connections.max.idle.ms": 200})
    with connected(running.bootstrap[0]) as client:
        assert client.is_closed_by_peer()


def served_client(stack: ExitStack, address: HostPort) -> RawClient:
    """A connection that the node serves; others may have to be gone first."""
    found: list[RawClient] = []

    def is_served() -> bool:
        client = stack.enter_context(connected(address))
        try:
            client.request(MetadataRequest(topics=None))
        except (AssertionError, ConnectionError):
            client.socket.close()
            return False
        found.append(client)
        return True

    until(is_served)
    return found[0]


# A data directory


def test_foreign_files_in_the_data_directory_are_logged_and_left_alone(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    data = tmp_path / "cluster" / "node-1"
    data.mkdir(parents=True)
    (data / "README.txt").write_text("not ours")
    running = cluster()
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
    assert (data / "README.txt").read_text() == "not ours"
    assert "foreign_file_left_alone" in (tmp_path / "cluster" / "node-1.log").read_text()
    foreign_inside = data / "t-0" / "notes.txt"
    running.stop_node(1)
    foreign_inside.write_text("not ours either")
    running.start_node(1)
    assert foreign_inside.exists()


@pytest.mark.parametrize("damage", [os.unlink, lambda path: Path(path).write_bytes(b"\xff" * 64)])
def test_a_damaged_checkpoint_costs_a_scan_and_no_record(
    cluster: ClusterFactory, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    running = cluster()
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "t")
        assert produce(client, "t", batch_of(b"kept")).error_code == 0
    running.stop_node(1)
    damage(tmp_path / "cluster" / "node-1" / "recovery-point-offset-checkpoint")
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        assert produce(client, "t", batch_of(b"next")).base_offset == 1
