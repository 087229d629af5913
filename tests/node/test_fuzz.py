"""Vandals on a node's socket: whatever they send, it lives, stays small, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from broker.client.connection import Connection
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.server.dispatch import Route
from broker.server.routes import ROUTES
from broker.wire.header import encode_request
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.registry import APIS
from tests.conformance.cases import BETWEEN_NODES
from tests.conftest import cluster_spec, forked
from tests.wire.samples import sample

REQUEST_SIZE_MAX = 64 << 20
"""Far more than the node may come to use for what is only claimed."""
GROWTH_MAX = 96 << 20
ROUNDS = 500
AT_ONCE = 25
PATIENCE_SECONDS = 0.3
"""How long a vandal waits for an answer; requests that wait are cut off."""
FOR_ALL = [route for route in ROUTES if route.request not in BETWEEN_NODES]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, random: Random) -> bytes:
    client_id = random.choice((b"\xff\xff", b"\0\0", b"\0\4fuzz", b"\x7f\xff"))
    return struct.pack(">hhi", api_key, version, random.getrandbits(31)) + client_id


def valid(route: Route, random: Random) -> bytes:
    version = random.randint(route.oldest, route.newest)
    request = sample(route.request, version, random)
    return b"".join(map(bytes, encode_request(request, version, 7, "fuzz")))


def random_bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((1, 4, 5, 50, 5_000)))


def random_frames(random: Random) -> bytes:
    return b"".join(framed(random.randbytes(random.randrange(200))) for _ in range(random.randrange(1, 5)))


def any_header_before_garbage(random: Random) -> bytes:
    """Of every API that there is, served or not, in any version."""
    api_key = random.choice((*APIS, -1, 999))
    version = random.choice((random.randrange(20), -1, 32_767))
    return framed(header(api_key, version, random) + random.randbytes(random.randrange(300)))


def served_header_before_garbage(random: Random) -> bytes:
    route = random.choice(FOR_ALL)
    version = random.randint(route.oldest, route.newest)
    start = header(route.request.api_key, version, random)
    if route.request.is_flexible(version):
        start += b"\0"
    garbage = random.choice(
        (random.randbytes(200), b"\xff" * 50, b"\x7f" * 50, bytes(50), b"\xff\xff\xff\x7f" * 9)
    )
    return framed(start + garbage)


def valid_but_cut(random: Random) -> bytes:
    whole = valid(random.choice(FOR_ALL), random)
    return framed(whole[4 : random.randrange(4, len(whole))])


def valid_but_unfinished(random: Random) -> bytes:
    whole = valid(random.choice(FOR_ALL), random)
    return whole[: random.randrange(len(whole))]


def valid_but_damaged(random: Random) -> bytes:
    whole = bytearray(valid(random.choice(FOR_ALL), random))
    for _ in range(random.randrange(1, 6)):
        whole[random.randrange(4, len(whole))] = random.choice(
            (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
        )
    return bytes(whole)


def several_valid_at_once(random: Random) -> bytes:
    return b"".join(valid(random.choice(FOR_ALL), random) for _ in range(5))


VANDALS: list[Callable[[Random], bytes]] = [
    random_bytes,
    random_frames,
    any_header_before_garbage,
    served_header_before_garbage,
    valid_but_cut,
    valid_but_unfinished,
    valid_but_damaged,
    several_valid_at_once,
]


@pytest.fixture(scope="module")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A node that may be spoilt."""
    settings = {"socket.request.max.bytes": REQUEST_SIZE_MAX}
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("fuzz"), "node", settings=settings)
    with EmbeddedCluster(spec, forked) as running:
        yield running


def resident_size(node: EmbeddedCluster) -> int:
    (line,) = [line for line in proc_status(node).splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def proc_status(node: EmbeddedCluster) -> str:
    return Path(f"/proc/{node.pids[1]}/status").read_text()


def errors_of(node: EmbeddedCluster) -> list[str]:
    """Lines of the log that say that something is wrong with the node, and those that are no log."""
    lines = (node.spec.directory / "node-1.log").read_text().splitlines()
    return [
        line
        for line in lines
        if not line.startswith("{") or json.loads(line)["level"] in ("error", "critical")
    ]


@contextlib.asynccontextmanager
async def witness(node: EmbeddedCluster) -> AsyncIterator[Callable[[], int]]:
    """Someone who asks again and again over one connection; fails when it is not answered."""
    answers = 0

    async def ask() -> None:
        nonlocal answers
        async with await Connection.open(node.bootstrap[0]) as connection:
            while True:
                assert (await connection.request(MetadataRequest(topics=[]))).brokers
                answers += 1
                await asyncio.sleep(0)

    task = asyncio.create_task(ask())
    try:
        yield lambda: answers
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def more_than(count: int, answers: Callable[[], int]) -> None:
    """Return once the witness has had more answers."""
    while True:
        if answers() > count:
            return
        await asyncio.sleep(0)


async def send(node: EmbeddedCluster, data: bytes) -> None:
    """Send, stop sending, and take whatever comes for a moment."""
    reader, writer = await asyncio.open_connection(*node.bootstrap[0])
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await reader.read(1 << 16):
                pass
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("vandal", VANDALS, ids=lambda vandal: vandal.__name__)
def test_whatever_arrives_the_node_lives_and_others_are_served(
    node: EmbeddedCluster, vandal: Callable[[Random], bytes]
) -> None:
    seed = random.randrange(2**32)

    async def scenario() -> None:
        rng = Random(seed)
        async with witness(node) as answers:
            for _ in range(0, ROUNDS, AT_ONCE):
                before = answers()
                await asyncio.gather(*(send(node, vandal(rng)) for _ in range(AT_ONCE)))
                await more_than(before, answers)

    before = resident_size(node)
    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert node.dead_nodes() == {}, f"seed {seed}"
    assert errors_of(node) == [], f"seed {seed}"
    assert resident_size(node) - before < GROWTH_MAX, f"seed {seed}"


def test_sizes_that_are_only_claimed_take_no_memory(node: EmbeddedCluster) -> None:
    async def scenario() -> None:
        async with witness(node) as answers, contextlib.AsyncExitStack() as stack:
            for _ in range(200):
                sock = stack.enter_context(socket.create_connection(node.bootstrap[0]))
                sock.sendall(struct.pack(">i", REQUEST_SIZE_MAX) + bytes(1_000))
            await more_than(answers() + 5, answers)
            assert resident_size(node) - resident_before < GROWTH_MAX

    resident_before = resident_size(node)
    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff"])
def test_lengths_that_are_only_claimed_take_no_memory(node: EmbeddedCluster, count: bytes) -> None:
    """Of the first array of every API that is not in its flexible version."""

    async def scenario() -> None:
        for route in FOR_ALL:
            for version in range(route.oldest, route.newest + 1):
                start = struct.pack(">hhih", route.request.api_key, version, 1, -1)
                await send(node, framed(start + count + bytes(100)))

    resident_before = resident_size(node)
    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert errors_of(node) == []
    assert resident_size(node) - resident_before < GROWTH_MAX


def test_a_peer_that_sends_a_byte_at_a_time_is_understood(node: EmbeddedCluster) -> None:
    async def scenario() -> None:
        request = MetadataRequest(topics=[])
        frame = b"".join(map(bytes, encode_request(request, 1, 5, "slow")))
        reader, writer = await asyncio.open_connection(*node.bootstrap[0])
        async with witness(node):
            for byte in frame:
                writer.write(bytes([byte]))
                await writer.drain()
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            assert (await reader.readexactly(size))[:4] == struct.pack(">i", 5)
        writer.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
