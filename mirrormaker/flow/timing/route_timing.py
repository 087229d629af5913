"""How a route keeps up: what of its source waits for how long, whether the source will delete it before it is
copied, how long records took, and whether that is what the file promises.

It outlives the copier, so that a route that fails goes on to be late, and in danger. While the copier is at
work (`begin` to `end`) its partitions are looked at once a second, and only those that have something waiting
cost more than a comparison; chunks are counted as they arrive. Partitions that the group gave this process
last and of which nothing is copied, as the group or a transaction was lost, are as late and as much in danger
as they were. How others were when they were looked at last is remembered: whoever looks at what waits of a
route that pauses knows by that what had come by then. Owned by the event loop of the route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import AuthenticationError, BrokerError, ConfigurationError
from broker.types import TopicPartition
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.heartbeats.passage import HeartbeatPassage
from mirrormaker.flow.lag import BeginHistory, EndHistory
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.timing.appearances import Appearances
from mirrormaker.flow.timing.latency import Latency, arrival_of
from mirrormaker.flow.timing.objective import Change, LagObjective
from mirrormaker.flow.timing.retention_watch import RetentionWatch
from mirrormaker.flow.timing.source_settings import SourceSettings, read_source_settings
from mirrormaker.flow.timing.waiting import Waiting
from mirrormaker.topology.model import RouteSpec

LOOK_INTERVAL_MS = 1_000
SETTINGS_AGE_MS = 60_000
SETTINGS_RETRY_MS = 5_000
"""Where the source did not answer."""
HEARTBEATS_AT = TopicPartition(HEARTBEATS_TOPIC, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """The parts of a copier that are looked at."""

    source: Cluster
    partitions: Mapping[TopicPartition, Partition]
    histories: MutableMapping[TopicPartition, EndHistory]
    on_end: Callable[[TopicPartition, int], None]
    """Is told where the source ends, of partitions that are not fetched."""
    read_committed: bool
    share: Callable[[], frozenset[TopicPartition] | None]
    """What the group gave this process when it last gave it anything; None: it has not yet."""
    settled_to: Callable[[Partition], int] | None = None
    """Up to which source offset readers see the copies, where that is later than their being acknowledged."""
    heartbeats: HeartbeatPassage | None = None
    """Those that the route carries; they are not counted with its records."""


class _Left(NamedTuple):
    """How a partition was at the last look at it, on the clock that never goes back."""

    looked_ms: int
    end: int
    """Of the source."""
    waiting_since_ms: int | None
    """None: nothing waited, or nobody knew."""


class _Copying:
    """What is known while a copier is at work."""

    def __init__(self, parts: AtWork, clock: Clock, begin_history: BeginHistory) -> None:
        self.parts = parts
        self.waiting = Waiting(
            parts.source,
            parts.histories,
            clock,
            parts.on_end,
            read_committed=parts.read_committed,
            begin_history=begin_history,
        )
        self.settings: dict[str, SourceSettings] = {}


class RouteTiming:
    """See the module. `run` as long as there is the route."""

    def __init__(self, route: RouteSpec, clock: Clock, events: RouteEvents) -> None:
        self.is_blind: Callable[[], bool] = lambda: False
        """Whether nothing is copied of the topics that there are: nobody looks how much of them waits."""
        self.appearances = Appearances(clock)
        self._settings_problem: str | None = None
        """Why settings of the source's topics are not known; what is copied is known all the same."""
        self._look_problem: str | None = None
        """The same of what waits there."""
        self._clock = clock
        self._events = events
        self._latency = Latency(clock.monotonic_ms())
        self._objective = LagObjective(route.objectives.lag_seconds)
        self._retention = RetentionWatch(route.objectives.retention_margin_ms, events)
        self._copying: _Copying | None = None
        self._heartbeats: HeartbeatPassage | None = None
        """Those of the copier that was at work last."""
        self._lag: float | None = None
        """In seconds, as of the last look; None: not known."""
        self._waiting_since_ms: dict[TopicPartition, int] = {}
        """Partitions that lacked something at the last look at them, on the clock that never goes back."""
        self._at_work: Mapping[TopicPartition, Partition] = {}
        """Those that were, at the last look."""
        self._looked_ms = 0
        self._left: dict[TopicPartition, _Left] = {}
        """Those that were at work before."""

    def change(self, route: RouteSpec) -> None:
        """Other objectives from now on."""
        self._objective.lag_seconds = route.objectives.lag_seconds
        self._retention.margin_ms = route.objectives.retention_margin_ms

    def begin(self, parts: AtWork) -> None:
        """A copier is at work."""
        self._copying = _Copying(parts, self._clock, self.appearances.begin_history)
        self._heartbeats = parts.heartbeats

    def end(self) -> None:
        """It is no more."""
        self._copying = None
        self._latency.give_up()
        self._retention.rest()

    @property
    def _wall_shift_ms(self) -> int:
        return self._clock.now_ms() - self._clock.monotonic_ms()

    # ---- what arrives

    def take(self, copied: Copied) -> None:
        """The destination has acknowledged this."""
        copying = self._copying
        if copying is None:
            return
        source, parts = copied.source, copying.parts
        if source.topic == HEARTBEATS_TOPIC:
            if parts.heartbeats is not None and parts.settled_to is None:
                parts.heartbeats.arrived(copied.next)
            return
        arrived_ms = arrival_of(copied, parts.histories.get(source), self._wall_shift_ms)
        if arrived_ms is None:
            return
        if parts.settled_to is None:
            self._latency.count(source, arrived_ms, copied.count, self._clock.monotonic_ms())
        else:
            self._latency.hold(source, copied.next, arrived_ms, copied.count)

    def settle(self) -> None:
        """Readers may see more of what has arrived."""
        if self._copying is None or self._copying.parts.settled_to is None:
            return
        parts, settled_to = self._copying.parts, self._copying.parts.settled_to
        partitions = parts.partitions
        beating = partitions.get(HEARTBEATS_AT)
        if parts.heartbeats is not None and beating is not None:
            parts.heartbeats.arrived(settled_to(beating))

        def position(source: TopicPartition) -> int | None:
            partition = partitions.get(source)
            return None if partition is None else settled_to(partition)

        self._latency.settle(position, self._clock.monotonic_ms())

    # ---- from time to time

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    def look(self) -> None:
        """How do things stand now?"""
        now_ms = self._clock.monotonic_ms()
        copying = self._copying
        share = None if copying is None else copying.parts.share()
        is_seen = copying is not None and share is not None and self._look_at(copying, share, now_ms)
        if self._waiting_since_ms:
            self._lag = max(now_ms - min(self._waiting_since_ms.values()), 0) / 1000
        else:
            self._lag = 0.0 if is_seen and not self.is_blind() else None
        match self._objective.look(self._lag, now_ms):
            case Change.BREACHED as change:
                self._events.note(change.value, lag_seconds=self._lag, objective=self._objective.lag_seconds)
            case Change.RECOVERED as change:
                worst = round(self._objective.worst_seconds, 3)
                self._events.note_end(change.value, lag_seconds=self._lag, worst_seconds=worst)

    def _look_at(self, copying: _Copying, share: frozenset[TopicPartition], now_ms: int) -> bool:
        """Find out since when partitions wait; those of the share that are not at work wait on. Whether any
        of the share is at work, or there is nothing to do.
        """
        wall_shift_ms = self._wall_shift_ms
        waiting, retention = copying.waiting, self._retention
        at_work = {
            source: partition
            for source, partition in copying.parts.partitions.items()
            if partition.source_end >= 0 and source != HEARTBEATS_AT
        }
        behind: dict[TopicPartition, int | None] = {}
        for source, partition in at_work.items():
            if partition.source_end <= partition.waits_from:
                retention.caught_up(source)
                continue
            timestamp_ms = waiting.timestamp_ms(partition)
            since_ms = waiting.since_ms(partition, timestamp_ms, wall_shift_ms)
            behind[source] = since_ms
            settings = copying.settings.get(source.topic)
            is_undated = timestamp_ms is None and not waiting.is_to_be_asked_for(partition)
            dated_ms = since_ms if is_undated else timestamp_ms
            retention.look(
                partition,
                waiting.start_of(source),
                None if dated_ms is None else dated_ms - wall_shift_ms,
                None if settings is None else settings.retention,
                now_ms,
                waiting.bytes_per_offset(partition),
            )
        absent = share - at_work.keys() - {HEARTBEATS_AT}
        retention.keep(absent.union(behind), now_ms)
        self._left |= self._gone(at_work)
        for source in self._left.keys() & at_work.keys():
            del self._left[source]
        self._at_work, self._looked_ms = at_work, now_ms
        self._waiting_since_ms = {
            source: since_ms for source, since_ms in self._waiting_since_ms.items() if source in absent
        } | {source: since_ms - wall_shift_ms for source, since_ms in behind.items() if since_ms is not None}
        return bool(at_work) or not absent

    def _gone(self, present: Mapping[TopicPartition, Partition]) -> dict[TopicPartition, _Left]:
        """Those that were at work at the last look, and are no more."""
        at_work, looked_ms = self._at_work, self._looked_ms
        return {
            source: _Left(looked_ms, at_work[source].source_end, self._waiting_since_ms.get(source))
            for source in at_work.keys() - present.keys()
        }

    async def follow_source(self) -> None:
        """Ask the source for what the copier does not fetch, until cancelled; within `begin` and `end`."""
        asked: set[str] = set()
        due_ms = 0
        while (copying := self._copying) is not None:
            topics, now_ms = {source.topic for source in copying.parts.partitions}, self._clock.monotonic_ms()
            if topics - asked or now_ms >= due_ms:
                is_read = await self._read_settings(copying, topics)
                asked, due_ms = topics, now_ms + (SETTINGS_AGE_MS if is_read else SETTINGS_RETRY_MS)
            await self._look_at_source(copying)
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)

    async def _read_settings(self, copying: _Copying, topics: set[str]) -> bool:
        """Whether the source answered."""
        try:
            copying.settings, problem = await read_source_settings(copying.parts.source, topics)
        except (AuthenticationError, ConfigurationError):
            raise  # the route fails, says why, and is tried again after a while
        except BrokerError as error:
            self._settings_problem = str(error)
            return False
        self._settings_problem = problem
        self._latency.bases = {topic: settings.basis for topic, settings in copying.settings.items()}
        return True

    async def _look_at_source(self, copying: _Copying) -> None:
        try:
            await copying.waiting.look(copying.parts.partitions)
        except (AuthenticationError, ConfigurationError):
            raise
        except BrokerError as error:
            self._look_problem = str(error)
        else:
            self._look_problem = None

    # ---- what there is to tell

    def is_in_danger(self, partition: Partition) -> bool:
        """Whether the source may soon delete what waits of it."""
        return self._retention.is_in_danger(partition)

    @property
    def hastens(self) -> bool:
        """Whether the route is to go before others for what the source may soon delete."""
        return self._copying is not None and self._retention.hastens(self._copying.parts.partitions)

    def waiting_since_ms(self, partition: Partition) -> int | None:
        """When the first record came to the source that the destination lacks, since the epoch."""
        copying = self._copying
        if copying is None or partition.source_end <= partition.waits_from:
            return None
        timestamp_ms = copying.waiting.timestamp_ms(partition)
        return copying.waiting.since_ms(partition, timestamp_ms, self._wall_shift_ms)

    def describe(self) -> dict[str, Any]:
        """The route as plain data, times since the epoch."""
        return {
            "lag_seconds": self._lag,
            "objective": self._objective.describe(self._lag, self._wall_shift_ms),
            "in_danger": self._retention.in_danger,
            "problem": self._settings_problem or self._look_problem,
            "latency": self._latency.describe(self._clock.monotonic_ms()),
            "heartbeats": {} if self._heartbeats is None else self._heartbeats.describe(),
        }

    def describe_left(self) -> dict[str, Any]:
        """How partitions were that are not at work any more, by their names; times since the epoch."""
        shift_ms = self._wall_shift_ms
        present = {} if self._copying is None else self._copying.parts.partitions
        return {
            str(source): {
                "looked_ms": left.looked_ms + shift_ms,
                "source_end": left.end,
                "waiting_since_ms": None
                if left.waiting_since_ms is None
                else left.waiting_since_ms + shift_ms,
            }
            for source, left in (self._left | self._gone(present)).items()
        }

    def describe_partition(self, partition: Partition) -> dict[str, Any]:
        """What there is to tell of one that is at work."""
        copying, source = self._copying, partition.source
        basis = self._latency.bases.get(source.topic)
        return {
            "timestamps": None if basis is None else basis.value,
            "waiting_since_ms": self.waiting_since_ms(partition),
            "source_start": -1 if copying is None else copying.waiting.start_of(source),
            "retention": self._retention.describe(source),
        }
