"""The registries of a route's ends: topics that say by producer id where its batches have been.

At the source it is read, to its end whenever an id comes up that is not known; at the destination every
producer id is written to it, and acknowledged, before the first batch with that id is sent. Entries outlive
the batches: none is ever removed.

    key    {"producer": ID}
    value  {"path": ["CLUSTER ID", ...]}      the clusters where its batches have been, the origin first

Owned by the event loop of the route's copier. What is known, and decided, is `provenance`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Protocol, Self

from broker.client.cluster import Cluster
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.flow.kept_topic import BegunAnew, KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.provenance import Path, Provenance
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.writer import obtain_producer_id
from mirrormaker.topology.model import ClusterId, ClusterName, ClusterSpec
from mirrormaker.topology.ways import Way, Ways

ORIGINS_TOPIC = "__mirrormaker_origins"
SILENT_RETRY_MS = 10_000
"""How often clusters are asked for their ids again that did not answer."""

ObtainIdentity = Callable[[ProducerKey], Awaitable[ProducerIdentity]]

_FINAL_CODES = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})

_log = logger("origins")


class Waiting(Protocol):
    """Who waits for origins: the copy machine."""

    def take_origins(self) -> None:
        """What was asked for may be known now."""
        ...


class OriginRegistry:
    """See the module. `async with` returns once both topics are there."""

    def __init__(
        self, source: Cluster, destination: Cluster, ids: ClusterIds, on_begun_anew: BegunAnew | None = None
    ) -> None:
        """The clusters come started. `on_begun_anew`: see `KeptTopic`. Raises ConfigurationError when one
        does not tell its id, or both have one.
        """
        here, there = _id_of(source, "source"), _id_of(destination, "destination")
        if here == there:
            raise ConfigurationError([f"source and destination have one cluster id: {here}"])
        self._wanted = Signal()
        self.provenance = Provenance(here, there, on_unknown=self._wanted.set)
        self._ids = ids
        self._ways = Ways()
        self._specs: tuple[ClusterSpec, ...] = ()
        self._silent: set[ClusterName] = set()
        """Clusters that did not answer when asked for their ids: they may have others than known."""
        self._source = source
        self._destination = destination
        self._read = KeptTopic(source, ORIGINS_TOPIC, on_begun_anew=on_begun_anew)
        self._written = KeptTopic(destination, ORIGINS_TOPIC, on_begun_anew=on_begun_anew)
        self._registered: dict[int, Path] = {}
        self._topics = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Raises as `KeptTopic` does."""
        async with self._topics:
            for kept in (self._read, self._written):
                await self._topics.enter_async_context(kept)
            self._topics = self._topics.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._topics.aclose()

    def plan(self, ways: Iterable[Way], clusters: Iterable[ClusterSpec]) -> None:
        """Go by these ways from now on; `clusters` are those on them."""
        self._ways, self._specs = Ways(ways), tuple(clusters)
        self._take_ids()

    def registering(self, obtain: ObtainIdentity | None) -> ObtainIdentity:
        """What `obtain` gets, once the destination has it where batches of that producer come from. None: any
        identity that nobody has used.
        """

        async def obtain_registered(key: ProducerKey) -> ProducerIdentity:
            if obtain is None:
                identity = await obtain_producer_id(self._destination)
                await self._register(identity.producer_id, key.origin)
                return identity
            while (identity := await obtain(key)).producer_id not in self._registered:
                await self._register(identity.producer_id, key.origin)  # it may be another by now
            return identity

        return obtain_registered

    async def _register(self, producer: int, origin: int) -> None:
        path = self.provenance.path_of(origin)
        await self._written.put([_entry(producer, path)])
        self._registered[producer] = path

    async def follow(self, machine: Waiting, on_known: Callable[[], None]) -> None:
        """Find out what is asked for, and tell; keep what was registered there. Runs until cancelled.

        Raises what waiting does not help against.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_registered(), name="keep registered")
            tasks.create_task(self._answer(machine, on_known), name="find origins")

    async def _answer(self, machine: Waiting, on_known: Callable[[], None]) -> None:
        failures = 0
        while True:
            is_wanted = await self._wanted.wait(SILENT_RETRY_MS if self._silent else None)
            is_complete = await self._find_out() if is_wanted else await self._ask_silent()
            machine.take_origins()
            on_known()
            failures = 0 if is_complete else failures + 1
            if not is_complete:
                await asyncio.sleep(self._source.backoff.delay_ms(failures, self._source.random) / 1000)
                self._wanted.set()

    async def _find_out(self) -> bool:
        """Look up what is wanted; whether all of it was found."""
        try:
            if self.provenance.unknown:
                await self._look_for(frozenset(self.provenance.unknown))
        except (AuthenticationError, ConfigurationError):
            raise
        except BrokerError as error:
            if isinstance(error, ProtocolError) and error.code in _FINAL_CODES:
                raise
            _log.warning("origins_not_read", topic=ORIGINS_TOPIC, error=str(error))
            return False
        if nameless := frozenset(self.provenance.nameless):
            self._silent = await self._ids.look_up(self._specs)
            self._take_ids()
            if missing := self.provenance.nameless_clusters:
                _log.warning("clusters_not_known", clusters=sorted(missing))
                return False
            self.provenance.settle(nameless)
        return True

    async def _ask_silent(self) -> bool:
        """Ask those that did not answer; True."""
        self._silent = await self._ids.look_up(spec for spec in self._specs if spec.name in self._silent)
        self._take_ids()
        return True

    async def _look_for(self, producers: frozenset[int]) -> None:
        await self._read.read_to_end()
        paths: dict[int, Path] = {}
        problems: dict[int, str] = {}
        for producer in producers:
            value = self._read.get({"producer": producer})
            if value is not None:
                try:
                    paths[producer] = path_in(value)
                except ValueError as error:
                    problems[producer] = f"topic {ORIGINS_TOPIC}: {error}"
        self.provenance.learn(producers, paths, problems)

    def _take_ids(self) -> None:
        self.provenance.plan(self._ways, self._ids.known({spec.name for spec in self._specs}))

    async def _keep_registered(self) -> None:
        """A registry that was emptied gets back what is in use here."""
        incarnation = self._written.incarnation
        while True:
            await self._written.changed()
            if incarnation != self._written.incarnation:
                incarnation = self._written.incarnation
                _log.warning("origins_registered_anew", topic=ORIGINS_TOPIC, producers=len(self._registered))
                await self._written.put([_entry(*each) for each in self._registered.items()])


def _id_of(cluster: Cluster, which: str) -> ClusterId:
    if cluster.cluster_id is None:
        raise ConfigurationError(
            [f"the {which} does not tell its cluster's id, which provenance needs: Kafka does since 0.10.1"]
        )
    return ClusterId(cluster.cluster_id)


def _entry(producer: int, path: Path) -> tuple[Document, Document]:
    return {"producer": producer}, {"path": list(path)}


def path_in(value: Document) -> Path:
    """The path that a value of the topic names. Raises ValueError when it names none."""
    path = value.get("path")
    if not isinstance(path, list) or not path or not all(isinstance(each, str) for each in path):
        raise ValueError(f"{value!r} names no path")
    return tuple(ClusterId(each) for each in path)
