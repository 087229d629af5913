"""A route at work in this process: a member of its group at the source, which copies what it is assigned.

The copier joins the group, starts every partition at the group's committed offset (the earliest when there is
none), and commits what the destination has acknowledged: periodically, and before partitions are given up.
Everything runs as tasks of one group on one event loop; the machine is stepped only there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from broker.client.cluster import Cluster
from broker.client.group import GroupMember
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import GroupSettings
from broker.client.offsets import earliest_offsets
from broker.clock import Clock
from broker.errors import BrokerError, ErrorCode
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from broker.wire.messages.join_group import JoinGroupRequest
from mirrormaker.flow.balancer import Balancer
from mirrormaker.flow.buckets import bucket_of
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.facts import EVENT_NAMES, Fact, FlowCounts
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.writer import DestinationWriter, batches_taken_at_once
from mirrormaker.topology.model import CopyMode, RouteSpec

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
DRAIN_TIMEOUT_MS = 5_000
"""How long partitions that are given up may wait for answers of the destination."""
EVENTS_KEPT = 50

_FIRST_JOIN_VERSION_WITH_INSTANCES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a route, for `status`."""

    at_ms: int
    name: str
    details: Mapping[str, object]


class RouteCopier:
    """Copies for one route until `close`. The clusters come started, and are used by nobody else."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        destination: Cluster,
        clock: Clock,
        *,
        instance_id: str,
    ) -> None:
        """`instance_id`: a name of this process that survives its restarts; the group keeps its partitions
        for it.
        """
        self.route = route
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._source = source
        self._destination = destination
        self._clock = clock
        self._instance_id = instance_id
        self._topics: Mapping[str, str] = {}
        self._topic_ids: dict[str, TopicId] = {}
        self._machine: FlowMachine | None = None
        self._reader: SourceReader | None = None
        self._writer: DestinationWriter | None = None
        self._member: GroupMember | None = None
        self._tasks: asyncio.TaskGroup
        self._balancer = Balancer(route, clock)
        self._acknowledged = Signal()
        self._config: FlowConfig | None = None
        self._commit_due = Signal()
        self._closing = False
        self._log = logger("copier").bind(route=route.name)

    @property
    def machine(self) -> FlowMachine | None:
        """None before `run`."""
        return self._machine

    @property
    def reader(self) -> SourceReader | None:
        return self._reader

    @property
    def counts(self) -> FlowCounts:
        return self._machine.counts if self._machine is not None else FlowCounts()

    @property
    def generation(self) -> int:
        """Generation of the group this process takes part in, -1 while it takes part in none."""
        return self._member.generation if self._member is not None else -1

    def set_topics(self, topics: Mapping[str, str]) -> None:
        """Copy these, source name to destination name; the group rebalances when they change."""
        changed = topics.keys() != self._topics.keys()
        self._topics = dict(topics)
        if changed and self._member is not None:
            self._member.subscribe(frozenset(topics))
        if self._writer is not None:
            self._writer.look_up_leaders()

    def change(self, route: RouteSpec) -> None:
        """Go on with `route`, which differs in bounds and intervals, or in what `set_topics` is told of."""
        self.route = route
        self._commit_due.set()
        if self._member is not None:
            self._member.look_every(route.refresh_interval_ms)
        if self._machine is not None and self._config is not None:
            self._config = self._configured(self._config.chunk_batches_max)
            self._machine.configure(self._config)

    async def run(self) -> None:
        """Take part until `close`. Raises BrokerError, in an ExceptionGroup, when that cannot go on."""
        machine = self._machine = FlowMachine(await self._configure())
        member = self._member = await self._make_member()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._writer = DestinationWriter(
                    self._destination,
                    machine,
                    tasks,
                    self._clock,
                    on_acknowledged=self._on_acknowledged,
                    on_fact=self._take_fact,
                )
                self._reader = SourceReader(
                    self._source, machine, tasks, self._clock, on_progress=self._writer.pump
                )
                tasks.create_task(self._writer.perform(), name="perform")
                tasks.create_task(self._writer.follow_leaders(), name="follow destination leaders")
                tasks.create_task(self._reader.follow_leaders(), name="follow source leaders")
                tasks.create_task(self._commit_periodically(), name="commit")
                tasks.create_task(self._balancer.run(machine, member), name="balance")
                if not self._closing:
                    await member.run()
                raise _RouteClosedError  # ends the other tasks of the group
        except* _RouteClosedError:
            self._log.info("route_closed", batches=machine.counts.batches, bytes=machine.counts.bytes)

    async def close(self, *, for_good: bool = False) -> None:
        """Finish what is in flight, commit, give the partitions up; `run` returns then. `for_good`: others
        get them at once; else they wait for this process, a session timeout long.
        """
        self._closing = True
        if self._member is not None:
            await self._member.close(for_good=for_good)

    # ---- starting

    async def _configure(self) -> FlowConfig:
        self._config = self._configured(await batches_taken_at_once(self._destination))
        return self._config

    def _configured(self, chunk_batches_max: int) -> FlowConfig:
        resources = self.route.resources
        return FlowConfig(
            buffer_bytes=resources.buffer_bytes,
            partition_buffer_bytes=resources.partition_buffer_bytes,
            fetch_bytes=resources.fetch_bytes,
            fetch_partition_bytes=resources.fetch_partition_bytes,
            produce_bytes=resources.produce_bytes,
            requests_in_flight=resources.requests_in_flight,
            chunk_batches_max=chunk_batches_max,
            deep=self.route.copy is CopyMode.DEEP,
        )

    async def _make_member(self) -> GroupMember:
        connection = await self._source.any_connection()
        static = connection.version_of(JoinGroupRequest) >= _FIRST_JOIN_VERSION_WITH_INSTANCES
        settings = GroupSettings(
            group_id=self.route.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            instance_id=self._instance_id if static else None,
            metadata_max_age_ms=self.route.refresh_interval_ms,
        )
        return GroupMember(
            self._source,
            settings,
            subscription=frozenset(self._topics),
            assignors=(self._balancer.assignor,),
            on_assigned=self._take_over,
            on_revoked=self._give_up,
            on_lost=self._lose,
        )

    # ---- partitions come and go

    async def _take_over(self, partitions: Collection[TopicPartition]) -> None:
        assert self._member is not None
        self._balancer.shared_out(self._member)
        self._notice_topics({source.topic for source in partitions})
        positions = await self._start_positions(partitions)
        self._start_copying(positions)
        late = frozenset(partitions) - positions.keys()
        if late:
            self._tasks.create_task(self._start_later(late), name="start later")

    async def _start_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to start each partition; left out where the source does not tell. Raises BrokerError."""
        assert self._member is not None
        committed = await self._member.committed(partitions)
        positions: dict[TopicPartition, int] = {}
        for source, position in committed.items():
            if self._is_of_same_topic(source, position):
                positions[source] = position.offset
            else:
                self._note("topic_recreated", topic=source.topic, partition=source.partition)
        for source in frozenset(partitions) - positions.keys():
            try:
                positions.update(await earliest_offsets(self._source, [source]))
            except BrokerError as error:
                self._note("partition_not_started", partition=str(source), error=str(error))
        return positions

    def _is_of_same_topic(self, source: TopicPartition, position: OffsetAndMetadata) -> bool:
        """Whether a committed position counts: not when the topic was deleted and created again since."""
        topic_id = self._known_topic_id(source.topic)
        return topic_id == NO_TOPIC_ID or position.metadata in ("", str(topic_id))

    def _known_topic_id(self, topic: str) -> TopicId:
        known = self._source.topics.get(topic)
        return known.topic_id if known is not None else NO_TOPIC_ID

    def _notice_topics(self, topics: Collection[str]) -> None:
        """Tell of topics that are not those that had their names when they were taken over before."""
        for topic in topics:
            topic_id = self._known_topic_id(topic)
            before = self._topic_ids.get(topic, topic_id)
            if NO_TOPIC_ID not in (before, topic_id) and before != topic_id:
                self._note("topic_recreated", topic=topic)
            self._topic_ids[topic] = topic_id

    async def _start_later(self, partitions: frozenset[TopicPartition]) -> None:
        """Try again for partitions that could not be started, as long as they are this process's."""
        assert self._member is not None
        while partitions := partitions & self._member.assignment:
            await asyncio.sleep(self.route.refresh_interval_ms / 1000)
            try:
                positions = await self._start_positions(partitions & self._member.assignment)
            except BrokerError as error:
                self._log.info("positions_not_read", error=str(error))
                continue
            self._start_copying(
                {source: at for source, at in positions.items() if source in self._member.assignment}
            )
            partitions -= positions.keys()

    def _start_copying(self, positions: Mapping[TopicPartition, int]) -> None:
        assert self._machine is not None
        assert self._writer is not None
        assert self._reader is not None
        self._machine.assign(
            Assignment(
                source=source,
                destinations=(TopicPartition(self._topics[source.topic], source.partition),),
                bucket=bucket_of(source, self.route.buckets),
                position=position,
            )
            for source, position in positions.items()
            if source.topic in self._topics
        )
        self._writer.look_up_leaders()
        self._writer.pump()
        self._reader.spread()

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Let what is in flight be answered, commit, and forget the partitions."""
        assert self._machine is not None
        self._machine.stop(partitions)
        deadline_ms = self._clock.monotonic_ms() + DRAIN_TIMEOUT_MS
        while (
            self._machine.in_flight(partitions) and (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0
        ):
            await self._acknowledged.wait(left_ms)
        moved = self._machine.uncommitted()
        await self._commit({source: at for source, at in moved.items() if source in partitions})
        await self._lose(partitions)

    async def _lose(self, partitions: Collection[TopicPartition]) -> None:
        assert self._machine is not None
        assert self._reader is not None
        self._machine.release(partitions)
        self._reader.spread()

    # ---- positions

    async def _commit_periodically(self) -> None:
        assert self._machine is not None
        while True:
            await self._commit_due.wait(self.route.commit_interval_ms)
            await self._commit(self._machine.uncommitted())

    async def _commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Store positions at the source's group. A failure is not the end: they are stored with the next."""
        if not positions:
            return
        assert self._machine is not None
        assert self._reader is not None
        assert self._member is not None
        try:
            await self._member.commit(
                {source: self._position(source, offset) for source, offset in positions.items()}
            )
        except BrokerError as error:
            self._log.warning("positions_not_committed", count=len(positions), error=str(error))
            return
        self._machine.committed(positions)
        self._reader.forget(positions)

    def _position(self, source: TopicPartition, offset: int) -> OffsetAndMetadata:
        """The topic's id is stored along, so that a topic created again is not taken for the old one."""
        assert self._reader is not None
        topic_id = self._reader.topic_id(source)
        return OffsetAndMetadata(offset=offset, metadata="" if topic_id == NO_TOPIC_ID else str(topic_id))

    # ---- what happens

    def _on_acknowledged(self) -> None:
        assert self._reader is not None
        self._reader.room.set()
        self._acknowledged.set()

    def _take_fact(self, fact: Fact) -> None:
        details = {key: _plain(value) for key, value in asdict(fact).items()}
        self._note(EVENT_NAMES[type(fact)], **details)

    def _note(self, event: str, **details: object) -> None:
        self.events.append(Event(at_ms=self._clock.now_ms(), name=event, details=details))
        self._log.warning(event, **details)


class _RouteClosedError(Exception):
    """Raised within the task group to end it: the way the standard library's documentation gives."""


def _plain(value: object) -> object:
    """For logs: names rather than numbers."""
    match value:
        case ErrorCode():
            return value.name
        case (str(topic), int(number)):
            return f"{topic}-{number}"
        case _:
            return value
