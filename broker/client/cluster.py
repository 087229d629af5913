"""A cluster as a client sees it: its metadata, and a pool of connections to its nodes.

Connections are kept per address and lane. A node answers the requests of one connection in order, so whoever
makes it wait (long polls, joins) takes a lane of its own. An address that failed is left alone for a while
that grows with each failure. Nothing here runs by itself: metadata is refreshed by whoever needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Self, TypeVar

from broker.client.backoff import Backoff, Random, Retries, system_random
from broker.client.connection import Connection, ConnectionSettings
from broker.client.metadata import ClusterMetadata, TopicMetadata
from broker.errors import (
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.types import HostPort, TopicPartition
from broker.wire.message import Request, ResponseType
from broker.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

CONTROL_LANE = "control"

_Key = TypeVar("_Key")
_T = TypeVar("_T")

_FIRST_VERSION_WITH_NULL_TOPICS = 1
_FIRST_VERSION_WITHOUT_FORCED_CREATION = 4
_FIRST_VERSION_WITH_KEY_TYPES = 1
_FIRST_VERSION_WITH_MANY_KEYS = 4


ANY_NODE = -1
"""Where records go that whoever receives them passes on."""


class Routing(Enum):
    """How records reach the leaders of their partitions."""

    LEADERS = "leaders"
    """Over a connection to each of them."""
    SINGLE = "single"
    """Over one connection, to one of the addresses that the cluster was made with (a balancer, perhaps): the
    node that receives them passes them on. Only our own nodes do that.
    """


class CoordinatorKind(IntEnum):
    """What a coordinator is asked for, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorNotToldError(ProtocolError):
    """Nobody says who coordinates a group or transactional id; it takes the right to describe that."""


@dataclass(slots=True, kw_only=True)
class _Rest:
    """An address that failed `failures` times in a row and is left alone until `until` (event loop's clock,
    seconds).
    """

    failures: int
    until: float


class Cluster:
    """Metadata and connections of one cluster, shared by any number of producers, consumers and members."""

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        *,
        settings: ConnectionSettings | None = None,
        backoff: Backoff | None = None,
        random: Random = system_random,
        routing: Routing = Routing.LEADERS,
        name: str | None = None,
    ) -> None:
        """`name`: what people call it, else its addresses."""
        if not bootstrap:
            raise ValueError("at least one bootstrap address is needed")
        self.settings = settings or ConnectionSettings()
        self.backoff = backoff or Backoff()
        self.random = random
        self.routing = routing
        self.metadata = ClusterMetadata()
        self._bootstrap = tuple(bootstrap)
        self.name = name or ",".join(map(str, bootstrap))
        self._connections: dict[tuple[HostPort, str], Connection] = {}
        self._dials: dict[tuple[HostPort, str], asyncio.Task[Connection]] = {}
        self._rests: dict[HostPort, _Rest] = {}
        self._refreshes: dict[tuple[frozenset[str] | None, bool], asyncio.Task[ClusterMetadata]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._lane_count = 0
        self._required_id: str | None = None
        self._displaced_by = ""
        """The id of another cluster that was met where `require_id` wants this one, last."""
        self._displaced = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, timeout_ms: float = 30_000) -> None:
        """Learn the cluster's nodes, trying for `timeout_ms`.

        Raises the last error: ConnectionFailedError names the peers.
        """
        retries = self.retries(timeout_ms)
        while True:
            try:
                await self.refresh([])
                return
            except BrokerError as error:
                await retries.pause(error)

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        self._closed = True
        tasks = [*self._dials.values(), *self._refreshes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections.values()):
            await connection.close()
        self._connections.clear()

    def retries(self, timeout_ms: float) -> Retries:
        """Attempts within `timeout_ms`, with this cluster's backoff."""
        return Retries(self.backoff, timeout_ms=timeout_ms, random=self.random)

    # Metadata

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, or None before the first answer and for nodes too old to tell."""
        return self.metadata.cluster_id

    def require_id(self, cluster_id: str) -> None:
        """From now on connect to no other cluster, should one come to be at these addresses."""
        self._required_id = cluster_id

    async def displacement(self) -> str:
        """Wait until another cluster is met where `require_id` wants this one: its id."""
        await self._displaced.wait()
        return self._displaced_by

    @property
    def topics(self) -> Mapping[str, TopicMetadata]:
        """The topics known so far: those asked for."""
        return self.metadata.topics

    def partitions(self, topic: str) -> list[int]:
        """Numbers of the topic's partitions, sorted; empty while it is not known."""
        return self.metadata.partitions(topic)

    def leader(self, topic_partition: TopicPartition) -> int | None:
        """Node id of the partition's leader, or None while there is none."""
        return self.metadata.leader(topic_partition)

    def write_node(self, topic_partition: TopicPartition) -> int | None:
        """Node id (or ANY_NODE) for records of the partition, or None while it has no leader."""
        leader = self.metadata.leader(topic_partition)
        return leader if leader is None or self.routing is Routing.LEADERS else ANY_NODE

    def use_bootstrap(self, bootstrap: Sequence[HostPort]) -> None:
        """Ask at these addresses from now on, beside those that metadata tells of."""
        self._bootstrap = tuple(bootstrap)

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> ClusterMetadata:
        """Ask any node about the topics (None: all of them) and return the metadata brought up to date.

        `create` lets the cluster create those that are missing, if its settings allow. Callers who ask for
        the same at the same time share one request. One round over the nodes, no further attempts: raises
        ConnectionFailedError, RequestTimedOutError or ProtocolError of the last node tried.
        """
        key = (None if topics is None else frozenset(topics), create)
        refresh = self._refreshes.get(key)
        if refresh is None:
            refresh = self._refreshes[key] = asyncio.create_task(self._refresh(*key))
            refresh.add_done_callback(lambda done: _ended(self._refreshes, key, done))
        return await asyncio.shield(refresh)

    async def ensure(
        self, topics: Collection[str], *, create: bool = False, timeout_ms: float = 30_000
    ) -> ClusterMetadata:
        """Metadata in which every topic is known, asked for until it is so, for `timeout_ms`.

        Raises ProtocolError with the code a topic has, and as `refresh` does.
        """
        retries = self.retries(timeout_ms)
        while True:
            try:
                if any(self._problem(topic) for topic in topics):
                    await self.refresh(topics, create=create)
                    self._raise_problem(topics)
                return self.metadata
            except BrokerError as error:
                await retries.pause(error)

    def _problem(self, topic: str) -> ErrorCode:
        known = self.metadata.topics.get(topic)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not known.partitions and not known.error:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return known.error

    def _raise_problem(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if code := self._problem(topic):
                raise ProtocolError(code, f"topic {topic}: {code.meaning}")

    async def _refresh(self, topics: frozenset[str] | None, create: bool) -> ClusterMetadata:
        connection = await self.any_connection()
        response = await _ask_metadata(connection, topics, create=create)
        version = connection.version_of(MetadataRequest)
        complete = topics is None or (not topics and version < _FIRST_VERSION_WITH_NULL_TOPICS)
        self.metadata = self.metadata.merged(response, complete=complete, version=version)
        await self._drop_moved_connections()
        return self.metadata

    async def _drop_moved_connections(self) -> None:
        """Close connections to addresses that no node has any more, once nobody waits for an answer there."""
        current = {node.address for node in self.metadata.nodes.values()} | set(self._bootstrap)
        for key, connection in list(self._connections.items()):
            if key[0] not in current and not connection.in_flight:
                del self._connections[key]
                await connection.close()

    # Connections

    async def connection(self, node_id: int, lane: str = CONTROL_LANE) -> Connection:
        """The open connection to a node in a lane, dialled when there is none.

        Raises ConnectionFailedError.
        """
        if node_id == ANY_NODE:
            return await self.any_connection(lane)
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionFailedError(f"node {node_id} is not known to the cluster at {self._describe()}")
        return await self._connect(node.address, lane)

    async def request(
        self,
        node_id: int,
        request: Request[ResponseType],
        *,
        lane: str = CONTROL_LANE,
        at_most: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseType:
        """Send one request to a node and wait for its answer. `at_most` bounds the version."""
        connection = await self.connection(node_id, lane)
        version = connection.version_of(type(request), at_most=at_most)
        return await connection.request(request, version, timeout_ms=timeout_ms)

    async def any_connection(self, lane: str = CONTROL_LANE) -> Connection:
        """A connection to whichever node can be reached, an open one first.

        Raises ConnectionFailedError naming them all.
        """
        failures: list[str] = []
        for address in self._candidates(lane):
            try:
                return await self._connect(address, lane)
            except (ConnectionFailedError, RequestTimedOutError) as error:
                failures.append(str(error))
        raise ConnectionFailedError(f"no node can be reached: {'; '.join(failures)}")

    async def controller(self) -> Connection:
        """A connection to the controller as last heard of, found out when unknown.

        Raises ProtocolError NOT_CONTROLLER.
        """
        if self.metadata.controller_id not in self.metadata.nodes:
            await self.refresh([])
        if self.metadata.controller_id not in self.metadata.nodes:
            raise ProtocolError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return await self.connection(self.metadata.controller_id)

    def new_lane(self, purpose: str) -> str:
        """The name of a lane that nobody else uses; give it back with `release_lane`."""
        self._lane_count += 1
        return f"{purpose}-{self._lane_count}"

    async def release_lane(self, lane: str) -> None:
        """Close the connections of a lane."""
        for key in [key for key in self._connections if key[1] == lane]:
            await self._connections.pop(key).close()

    def _candidates(self, lane: str) -> list[HostPort]:
        """Every address worth trying: open ones, then the others in random order, those that failed lately
        last.
        """
        addresses = set(self._bootstrap)
        if self.routing is Routing.LEADERS:
            addresses |= {node.address for node in self.metadata.nodes.values()}
        return sorted(addresses, key=lambda address: self._preference(address, lane))

    def _preference(self, address: HostPort, lane: str) -> tuple[bool, float, float]:
        connection = self._connections.get((address, lane))
        rest = self._rests.get(address)
        is_open = connection is not None and not connection.closed
        return not is_open, rest.until if rest is not None else 0.0, self.random()

    async def _connect(self, address: HostPort, lane: str) -> Connection:
        if self.routing is Routing.SINGLE:
            lane = CONTROL_LANE
        key = (address, lane)
        connection = self._connections.get(key)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise ConnectionFailedError(f"{address}: this client is closed")
        dial = self._dials.get(key)
        if dial is None:
            dial = self._dials[key] = asyncio.create_task(self._dial(address, lane))
            dial.add_done_callback(lambda done: _ended(self._dials, key, done))
        return await asyncio.shield(dial)

    async def _dial(self, address: HostPort, lane: str) -> Connection:
        loop = asyncio.get_running_loop()
        rest = self._rests.get(address)
        if rest is not None:
            await asyncio.sleep(max(0.0, rest.until - loop.time()))
        try:
            connection = await self._open(address)
        except BrokerError:
            failures = rest.failures + 1 if rest is not None else 1
            pause = self.backoff.delay_ms(failures, self.random) / 1000
            self._rests[address] = _Rest(failures=failures, until=loop.time() + pause)
            raise
        self._rests.pop(address, None)
        self._connections[address, lane] = connection
        return connection

    async def _open(self, address: HostPort) -> Connection:
        """One that leads to this cluster: nothing is asked of another before that is known."""
        connection = await Connection.open(address, self.settings)
        if self._required_id is None:
            return connection
        try:
            found = (await _ask_metadata(connection, frozenset(), create=False)).cluster_id
            if found != self._required_id:
                self._displaced_by = str(found)
                self._displaced.set()
                raise ConnectionFailedError(
                    f"{address}: this is the cluster {found!r}, not {self._required_id!r}"
                )
        except BaseException:
            await connection.close()
            raise
        return connection

    def _describe(self) -> str:
        return ", ".join(map(str, self._bootstrap))

    # Coordinators

    async def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """Node id of the coordinator of a group or transactional id; remembered until `forget_coordinator`.

        Raises ProtocolError (COORDINATOR_NOT_AVAILABLE is retriable), and as `refresh` does.
        """
        node_id = self._coordinators.get((kind, key))
        if node_id is not None and node_id in self.metadata.nodes:
            return node_id
        found = await self._find_coordinator(key, kind)
        if found.node_id not in self.metadata.nodes:
            await self.refresh([])
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Ask again next time: the coordinator moved or cannot be reached."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, key: str, kind: CoordinatorKind) -> Coordinator:
        connection = await self.any_connection()
        version = connection.version_of(FindCoordinatorRequest)
        if version >= _FIRST_VERSION_WITH_MANY_KEYS:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        elif version >= _FIRST_VERSION_WITH_KEY_TYPES:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        else:
            request = FindCoordinatorRequest(key=key)
        found = _found_coordinator(await connection.request(request, version), key, version)
        if found.error_code:
            code = ErrorCode.of(found.error_code)
            told = f"coordinator of {key}: {found.error_message or code.meaning}"
            raise CoordinatorNotToldError(code, told)
        return found


def _ended(shared: dict[_Key, asyncio.Task[_T]], key: _Key, task: asyncio.Task[_T]) -> None:
    """Those who waited have the outcome; whether anybody still did or not, it counts as taken."""
    shared.pop(key, None)
    if not task.cancelled():
        task.exception()


async def _ask_metadata(
    connection: Connection, topics: frozenset[str] | None, *, create: bool
) -> MetadataResponse:
    version = connection.version_of(MetadataRequest)
    request = MetadataRequest(
        topics=_asked_topics(topics, version),
        allow_auto_topic_creation=create or version < _FIRST_VERSION_WITHOUT_FORCED_CREATION,
    )
    return await connection.request(request, version)


def _asked_topics(topics: frozenset[str] | None, version: int) -> list[MetadataRequestTopic] | None:
    """The first version asks for all topics by an empty list, later ones by null."""
    if topics is None:
        return None if version >= _FIRST_VERSION_WITH_NULL_TOPICS else []
    return [MetadataRequestTopic(name=topic) for topic in sorted(topics)]


def _found_coordinator(response: FindCoordinatorResponse, key: str, version: int) -> Coordinator:
    if version < _FIRST_VERSION_WITH_MANY_KEYS:
        return Coordinator(
            key=key,
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
    for found in response.coordinators:
        if found.key == key:
            return found
    raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"coordinator of {key}: no answer about it")
