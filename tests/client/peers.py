"""A scripted node: a real socket that answers by the wire tables, and misbehaves where a test says so."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Self
from uuid import UUID

from broker.types import HostPort
from broker.wire.header import decode_request_header, encode_response
from broker.wire.message import Message
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.registry import APIS, api_of

Answer = Message | bytes | None
"""A response, raw bytes to send in place of one, or None: no answer at all."""
Script = Callable[[Any], Answer | Awaitable[Answer]]


class Peer:
    """One node of a cluster of scripted nodes. `on(RequestClass, script)` says how it answers."""

    def __init__(self, node_id: int = 1, *, tls: ssl.SSLContext | None = None) -> None:
        self.node_id = node_id
        self.bare_frames: deque[Callable[[bytes], bytes | None]] = deque()
        """How to answer the next frames, which are no requests; None: by closing the connection."""
        self._tls = tls
        self.requests: list[Message] = []
        self.connections = 0
        self.versions: dict[int, tuple[int, int]] = {
            key: (api.min_version, api.max_version) for key, api in APIS.items()
        }
        self._scripts: dict[type[Message], Script] = {}
        self._queued: dict[type[Message], deque[Script]] = defaultdict(deque)
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._server: asyncio.Server | None = None
        self._port = 0
        self.on(ApiVersionsRequest, lambda _: self.api_versions())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.disconnect()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._server.wait_closed()
        if self._failures:
            raise self._failures[0]

    def disconnect(self) -> None:
        """Cut every connection now."""
        for writer in self._writers:
            writer.close()

    @property
    def address(self) -> HostPort:
        return HostPort("127.0.0.1", self._port)

    def on(self, request: type[Message], script: Script) -> None:
        """How to answer every such request."""
        self._scripts[request] = script

    def once(self, request: type[Message], *scripts: Script) -> None:
        """How to answer the next such requests, before `on` holds (again)."""
        self._queued[request].extend(scripts)

    def seen(self, request: type[Message]) -> list[Any]:
        """The requests of a kind that came in so far."""
        return [seen for seen in self.requests if type(seen) is request]

    def api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self.versions.items()
            ]
        )

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(partial(self._served, writer))

    def _served(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Close the connection: a task that is cancelled before its first step runs no `finally`."""
        self._writers.discard(writer)
        writer.close()
        self._serving.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failures.append(failure)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._answer(await reader.readexactly(size), writer)

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        if self.bare_frames:
            content = self.bare_frames.popleft()(frame)
            if content is None:
                raise ConnectionResetError
            writer.write(len(content).to_bytes(4, "big") + content)
            return
        header = decode_request_header(frame)
        api = APIS[header.api_key]
        request = api.request.decode(frame, header.api_version, header.body_position)
        self.requests.append(request)
        queued = self._queued[type(request)]
        script = queued.popleft() if queued else self._scripts[type(request)]
        answer = script(request)
        if not isinstance(answer, Message | bytes | None):
            answer = await answer
        if isinstance(answer, Message):
            answer = b"".join(
                encode_response(answer, api_of(answer), header.api_version, header.correlation_id)
            )
        if answer is not None:
            writer.write(answer)
            await writer.drain()


class PeerCluster:
    """Scripted nodes with one picture of themselves: who leads what, who coordinates."""

    def __init__(self, *peers: Peer) -> None:
        self.peers = {peer.node_id: peer for peer in peers}
        self.leaders: dict[str, list[int]] = {}
        self.leader_epoch = 0
        self.topic_ids: dict[str, UUID] = {}
        self.coordinator = self.controller = peers[0].node_id
        for peer in peers:
            peer.on(MetadataRequest, self.metadata)
            peer.on(FindCoordinatorRequest, self.find_coordinator)

    @property
    def bootstrap(self) -> list[HostPort]:
        return [peer.address for peer in self.peers.values()]

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = (
            [topic.name or "" for topic in request.topics] if request.topics is not None else [*self.leaders]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=peer.node_id, host=peer.address.host, port=peer.address.port)
                for peer in self.peers.values()
            ],
            cluster_id="scripted",
            controller_id=self.controller,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponseTopic(name=name, error_code=3)
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids.get(name, UUID(int=0)),
            partitions=[
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=leader,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=[leader],
                )
                for number, leader in enumerate(self.leaders[name])
            ],
        )

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        peer = self.peers[self.coordinator]
        found = Coordinator(
            key=(request.coordinator_keys or [request.key])[0],
            node_id=peer.node_id,
            host=peer.address.host,
            port=peer.address.port,
        )
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=[found])
        return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port)


@asynccontextmanager
async def serving(peers: Sequence[Peer], *, partitions: int) -> AsyncIterator[PeerCluster]:
    """These nodes at work; the first leads all partitions of a topic `t`."""
    async with AsyncExitStack() as stack:
        for peer in peers:
            await stack.enter_async_context(peer)
        cluster = PeerCluster(*peers)
        cluster.leaders = {"t": [peers[0].node_id] * partitions}
        yield cluster
