"""What the control topic of one destination says, at hand and up to date for all routes that lead there.

While the destination is away what was known before goes on to count, and so does what stands by a failure
policy and could not be written there, as where the destination has no room: it is written once that can be,
and ends, as what is written, when somebody resumes it. Owned by the daemon: one for each destination, and a
task for each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from broker.client.backoff import Backoff
from broker.clock import Clock
from broker.errors import BrokerError, ConnectionFailedError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.topic_silence import watch_silence
from mirrormaker.reconcile.control import CONTROL_TOPIC, Resumption, RouteWishes, read_wishes
from mirrormaker.reconcile.halts import Halt, halt_key, halt_value
from mirrormaker.reconcile.switch_commands import CommandWatch
from mirrormaker.reconcile.switches import Switch, read_switches
from mirrormaker.topology.model import ClusterSpec, RouteName

RETRY_BACKOFF = Backoff(initial_ms=200, max_ms=10_000)
CLIENT_ID = "mirrormaker-control"
TIMEOUT_MS = 15_000
"""How long the topic may take to be made, to be read to its end, and to be written to."""


class _Listener(NamedTuple):
    """A route that heeds what the topic says."""

    on_change: Callable[[], None]
    events: RouteEvents


@dataclass(slots=True)
class _Untold:
    """Halts of a route that could not be written yet."""

    resumption: Resumption | None
    """The last one that was known: a later one is about these, too."""
    halts: dict[TopicPartition, Halt] = field(default_factory=dict)


class ControlBoard:
    """See the module. `run` it as a task."""

    def __init__(self, spec: ClusterSpec, clock: Clock) -> None:
        self.spec = spec
        self._clock = clock
        self.problem: str | None = None
        """Why it cannot be read just now."""
        self._topic: KeptTopic | None = None
        """None while there is no connection."""
        self._wishes: dict[RouteName, RouteWishes] | None = None
        self._switches: dict[str, Switch] = {}
        self.commands = CommandWatch()
        """Those that work on failover groups."""
        self._untold: dict[RouteName, _Untold] = {}
        self._is_untold = asyncio.Event()
        self._looked = asyncio.Event()
        """Set when the first attempt is over, for better or worse."""
        self._listeners: dict[RouteName, _Listener] = {}
        self._log = logger("control").bind(cluster=spec.name)

    async def run(self) -> None:
        """Keep up with the topic until cancelled; it is created when there is none."""
        failures = 0
        while True:
            try:
                async with (
                    open_cluster(self.spec, client_id=CLIENT_ID) as cluster,
                    KeptTopic(
                        cluster, CONTROL_TOPIC, timeout_ms=TIMEOUT_MS, on_begun_anew=self._begun_anew
                    ) as topic,
                ):
                    await topic.read_to_end()
                    self._topic, failures = topic, 0
                    self._tell_read()
                    watch = watch_silence(topic, self.spec.name, self._tell_silence)
                    async with self._beside(self._tell_later()), self._beside(watch):
                        await self._follow(topic)
            except BrokerError as error:
                self._tell_problem(str(error))
                failures += 1
            finally:
                self._topic = None
                self._looked.set()
            self._tell()
            await asyncio.sleep(RETRY_BACKOFF.delay_ms(failures, random.random) / 1000)

    async def looked(self) -> None:
        """Return when it has been read, or could not be."""
        await self._looked.wait()

    def listen(self, route: RouteName, on_change: Callable[[], None], events: RouteEvents) -> None:
        """Call `on_change` when something of `route` may have changed; `events` get what befalls the topic.
        One listener a route.
        """
        self._listeners[route] = _Listener(on_change, events)
        if self.problem is not None:
            self._note_problem(events, self.problem)

    def forget(self, route: RouteName) -> None:
        """Nobody listens for it any more."""
        self._listeners.pop(route, None)

    def _tell_problem(self, problem: str) -> None:
        if self.problem is None:
            self._log.warning("control_topic_not_read", error=problem)
            for listener in self._listeners.values():
                self._note_problem(listener.events, problem)
        self.problem = problem

    def _note_problem(self, events: RouteEvents, problem: str) -> None:
        events.note("control_topic_not_read", cluster=self.spec.name, error=problem)

    def _tell_read(self) -> None:
        if self.problem is not None:
            for listener in self._listeners.values():
                listener.events.note_end("control_topic_read", cluster=self.spec.name)
        self.problem = None

    def _tell_silence(self, problem: str | None) -> None:
        if problem is None:
            self._tell_read()
        else:
            self._tell_problem(problem)

    def _begun_anew(self, topic: str, cluster: str, entries: int, reason: str) -> None:
        self._log.warning("kept_topic_begun_anew", topic=topic, entries=entries, reason=reason)
        for listener in self._listeners.values():
            listener.events.note_begun_anew(topic, cluster, entries, reason)

    @property
    def is_unused(self) -> bool:
        """Whether nobody listens."""
        return not self._listeners

    @property
    def is_read(self) -> bool:
        """Whether it is known what the topic says, or said."""
        return self._wishes is not None

    async def wishes(self, route: RouteName) -> RouteWishes:
        """What is said of a route. Raises ConnectionFailedError when nothing has ever been read."""
        await self._looked.wait()
        if self._wishes is None:
            raise ConnectionFailedError(self.problem or "the control topic has not been read")
        return self.known_wishes(route)

    def known_wishes(self, route: RouteName) -> RouteWishes:
        """The same, as far as known."""
        wishes = (self._wishes or {}).get(route, RouteWishes())
        untold = self._untold.get(route)
        if untold is None:
            return wishes
        return replace(wishes, halts=dict(sorted({**wishes.halts, **untold.halts}.items())))

    async def switch(self, group: str) -> Switch | None:
        """The last switch of a failover group; None where there has been none. Raises as `wishes` does."""
        await self._looked.wait()
        if self._wishes is None:
            raise ConnectionFailedError(self.problem or "the control topic has not been read")
        return self._switches.get(group)

    def known_switch(self, group: str) -> Switch | None:
        """The same, as far as known."""
        return self._switches.get(group)

    async def put(self, records: Collection[tuple[Document, Document | None]]) -> None:
        """Write records, None to take one back. Raises BrokerError."""
        await self._looked.wait()
        topic = self._topic
        if topic is None:
            raise ConnectionFailedError(self.problem or f"cluster {self.spec.name!r}: not connected yet")
        await topic.put(records)
        await topic.read_to_end()
        self._take(topic)

    async def halt(self, route: RouteName, halt: Halt) -> None:
        """It stands. Raises BrokerError where that is not written yet, and goes on to try."""
        source, known = halt.trouble.source, self.known_wishes(route).resumption
        self._forget_halt(route, source)
        try:
            await self.put([(halt_key(route, source), halt_value(halt))])
        except BrokerError:
            self._untold.setdefault(route, _Untold(known)).halts[source] = halt
            self._release_untold()
            self._is_untold.set()
            self._tell()
            raise

    async def take_back_halts(self, route: RouteName, sources: Collection[TopicPartition]) -> None:
        """They stand no more. Raises BrokerError."""
        for source in sources:
            self._forget_halt(route, source)
        await self.put([(halt_key(route, source), None) for source in sources])

    def _forget_halt(self, route: RouteName, source: TopicPartition) -> None:
        untold = self._untold.get(route)
        if untold is not None and untold.halts.pop(source, None) is not None and not untold.halts:
            del self._untold[route]

    @asynccontextmanager
    async def _beside(self, work: Coroutine[None, None, None]) -> AsyncIterator[None]:
        """Do this meanwhile."""
        task = asyncio.create_task(work, name=f"beside the control of {self.spec.name}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _tell_later(self) -> None:
        """Write what could not be written before."""
        failures = 0
        while True:
            if not self._untold:
                failures = 0
                self._is_untold.clear()
                await self._is_untold.wait()
            await asyncio.sleep(RETRY_BACKOFF.delay_ms(failures, random.random) / 1000)
            halts = [(route, halt) for route, each in self._untold.items() for halt in each.halts.values()]
            try:
                for route, halt in halts:
                    await self._tell_halt(route, halt)
            except BrokerError:
                failures += 1

    async def _tell_halt(self, route: RouteName, halt: Halt) -> None:
        source = halt.trouble.source
        await self.put([(halt_key(route, source), halt_value(halt))])
        untold = self._untold.get(route)
        now = None if untold is None else untold.halts.get(source)
        if now == halt:
            self._forget_halt(route, source)
        elif now is None:  # it was taken back meanwhile
            await self.put([(halt_key(route, source), None)])

    async def _follow(self, topic: KeptTopic) -> None:
        while True:
            self._take(topic)
            self._looked.set()
            await topic.changed()

    def _take(self, topic: KeptTopic) -> None:
        before = self._wishes, self._switches
        self.commands.take(topic.entries(), self._clock.monotonic_ms())
        self._wishes, self._switches = read_wishes(topic.entries()), read_switches(topic.entries())
        if before != (self._wishes, self._switches):
            self._release_untold()
            self._tell()

    def _release_untold(self) -> None:
        for route, untold in self._untold.items():
            resumption = self.known_wishes(route).resumption
            if resumption is None or resumption == untold.resumption:
                continue
            untold.resumption = resumption
            untold.halts = {
                source: replace(halt, released=resumption.release) if resumption.covers(source) else halt
                for source, halt in untold.halts.items()
            }

    def _tell(self) -> None:
        for listener in list(self._listeners.values()):
            listener.on_change()


class ControlBoards:
    """The boards of a process, one for each destination that routes lead to; they end when unused."""

    def __init__(self, tasks: asyncio.TaskGroup, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._boards: list[tuple[ControlBoard, asyncio.Task[None]]] = []

    def of(self, spec: ClusterSpec) -> ControlBoard:
        """That of a destination, reached as `spec` says."""
        for board, _ in self._boards:
            if _way(board.spec) == _way(spec):
                return board
        board = ControlBoard(spec, self._clock)
        task = self._tasks.create_task(board.run(), name=f"control of {spec.name}")
        self._boards.append((board, task))
        return board

    def sweep(self) -> None:
        """End those that nobody listens to."""
        for board, task in self._boards:
            if board.is_unused:
                task.cancel()
        self._boards = [(board, task) for board, task in self._boards if not board.is_unused]

    def close(self) -> None:
        """End all of them."""
        for _, task in self._boards:
            task.cancel()
        self._boards.clear()


def _way(spec: ClusterSpec) -> tuple[object, ...]:
    """What a connection is made by, and which cluster must be there."""
    return spec.name, spec.bootstrap, spec.security, spec.cluster_id
