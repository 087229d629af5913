"""A route at work in this process: a member of its group at the source, which copies what it is assigned.

The copier joins the group, starts every partition where the route's delivery (`delivery`) or the group has
its position, and stores what counts: periodically, and before partitions are given up.
Everything runs as tasks of one group on one event loop; the machine is stepped only there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from broker.client.cluster import Cluster
from broker.client.group import GroupMember
from broker.clock import Clock
from broker.errors import AuthenticationError, BrokerError, ConfigurationError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.arbiter import Arbiter
from mirrormaker.flow.balancer import Balancer
from mirrormaker.flow.bandwidth.links import Link
from mirrormaker.flow.certainty import Certainty
from mirrormaker.flow.commits import PositionCommits
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.crossing import Crossing
from mirrormaker.flow.delivery import DeliveryMode, Say
from mirrormaker.flow.delivery_modes import Deliverer, open_delivery
from mirrormaker.flow.exactly_once import LostBucket
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.facts import (
    EVENT_NAMES,
    Fact,
    FlowCounts,
    SourceTruncated,
    TopicRecreated,
    details_of,
)
from mirrormaker.flow.group_positions import GroupPositions, StartingPoint
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.membership import PartitionOwner, Points, SourceMembership, group_settings
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.route_link import ExpectedRoundTrips, RouteLink
from mirrormaker.flow.route_parts import RouteParts
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.skips import SkipNotes
from mirrormaker.flow.successors import Successors
from mirrormaker.flow.timing.route_timing import AtWork
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.flow.writer import DestinationWriter, batches_taken_at_once
from mirrormaker.flow.zookeeper_membership import ZooKeeperMembership
from mirrormaker.topology.model import Delivery, Isolation, RouteSpec

DRAIN_TIMEOUT_MS = 5_000
"""How long partitions that are given up may wait for answers of the destination."""


class RouteCopier:
    """Copies for one route until `close`. The clusters come started, and are used by nobody else."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        destination: Cluster,
        clock: Clock,
        link: Link,
        expected: ExpectedRoundTrips,
        parts: RouteParts,
    ) -> None:
        """`link`: the one that the route takes."""
        self.route = route
        self.note = parts.events.note
        self._timing = parts.timing
        self._heartbeats = parts.heartbeats
        self._books = parts.books
        self._source = source
        self._destination = destination
        self._clock = clock
        self._instance_id = parts.instance_id
        self._origins = parts.origins
        self._coordination = parts.coordination
        self._topics: Mapping[str, str] = {}
        self._machine: FlowMachine | None = None
        self._reader: SourceReader | None = None
        self._writer: DestinationWriter | None = None
        self._member: SourceMembership | None = None
        self._tasks: asyncio.TaskGroup
        self._balancer = Balancer(route, clock)
        self._mode: DeliveryMode
        self._positions: GroupPositions
        self._commits: PositionCommits
        self._acknowledged = Signal()
        self._link = RouteLink(route, link, expected, clock, parts.timing, on_admitted=self._pump)
        self._crossing = Crossing(route, destination, parts.heartbeats)
        self._commit_due = Signal()
        self._regrowth: asyncio.Task[None] | None = None
        self._closing = False
        self._log = logger("copier").bind(route=route.name)
        self.arbiter = Arbiter(
            route,
            parts.halts,
            SkipNotes(route.name, destination, clock),
            on_event=self.note,
            on_failure=self._end_for_failure,
        )
        self._successors = Successors(source, parts.halts, self.arbiter)

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

    def ways(self) -> dict[TopicPartition, TopicPartition]:
        """Where each partition leads that this process copies; of one that is spread, the first place."""
        if self._machine is None:
            return {}
        return {
            source: partition.lanes[0].destination for source, partition in self._machine.partitions.items()
        }

    def set_topics(self, topics: Mapping[str, str]) -> None:
        """Copy these, source name to destination name; the group rebalances when they change."""
        changed = topics.keys() != self._topics.keys()
        self._topics = dict(topics)
        if changed and self._member is not None:
            self._member.subscribe(frozenset(topics))
        if self._writer is not None:
            self._writer.look_up_leaders()
        if self._machine is not None and (self._regrowth is None or self._regrowth.done()):
            outgrown = self._crossing.outgrown(self._machine.partitions.values())
            if outgrown:
                self._regrowth = self._tasks.create_task(self._take_anew(outgrown), name="take anew")

    @property
    def link(self) -> RouteLink:
        """The way that it takes, and how that is used."""
        return self._link

    def change(self, route: RouteSpec, expected: ExpectedRoundTrips) -> None:
        """Go on with `route`, which differs in bounds and intervals, or in what `set_topics` is told of."""
        self.route = self.arbiter.route = route
        self._link.change(route, expected)
        self._commit_due.set()
        if self._member is not None:
            self._member.look_every(route.refresh_interval_ms)

    async def run(self) -> None:
        """Take part until `close`. Raises RouteHaltedError when a policy of the route ended it, and
        BrokerError, in an ExceptionGroup, when it cannot go on.
        """
        deliverer = Deliverer(
            on_lost=self._lose_bucket,
            on_progress=self._delivered,
            on_waiting=self._commit_due.set,
            on_fact=self._take_fact,
        )
        try:
            async with open_delivery(
                self.route,
                self._source,
                self._destination,
                self._clock,
                deliverer,
                books=self._books,
                provenance=self._origins.provenance if self._origins is not None else None,
            ) as self._mode:
                await self._run(self._mode.say)
        finally:
            self._timing.end()
            self._link.leave()

    async def _run(self, say: Say) -> None:
        obtain_identity = say.obtain_identity
        if self._origins is not None:
            obtain_identity = self._origins.registering(obtain_identity)
        hooks = self._hooks(say)
        config = self._link.config(await batches_taken_at_once(self._destination))
        machine = self._machine = FlowMachine(config, hooks)
        member = self._member = await self._make_member()
        self._positions = GroupPositions(self._source, member, self.route.start, self.note)
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
                    obtain_identity=obtain_identity,
                )
                self._reader = SourceReader(
                    self._source,
                    machine,
                    tasks,
                    self._clock,
                    on_progress=self._writer.pump,
                    on_trouble=self.arbiter.meet,
                    filter_text=self._crossing.transit.filter_text,
                    read_committed=self.route.isolation is Isolation.READ_COMMITTED,
                )
                self._commits = PositionCommits(
                    machine, self._reader, self._positions, self._mode, self._books, self._pump
                )
                self._mode.begin(machine, tasks, self._reader.topic_id)
                self.arbiter.begin(machine, tasks, self._gone_on)
                self._link.begin(self._source, self._destination, self._reader, self._writer)
                self._timing.begin(
                    AtWork(
                        source=self._source,
                        partitions=machine.partitions,
                        histories=self._reader.histories,
                        on_end=machine.heard_of_end,
                        read_committed=self.route.isolation is Isolation.READ_COMMITTED,
                        settled_to=say.delivery.position
                        if self.route.delivery is Delivery.EXACTLY_ONCE
                        else None,
                        heartbeats=self._heartbeats,
                    )
                )
                self._start(tasks, machine, member)
                if not self._closing:
                    await member.run()
                raise _RouteClosedError  # ends the other tasks of the group
        except* _RouteClosedError:
            self._log.info("route_closed", batches=machine.counts.batches, bytes=machine.counts.bytes)
        if self.arbiter.failure is not None:
            raise RouteHaltedError(self.arbiter.failure)

    def _hooks(self, say: Say) -> Hooks:
        """What the machine asks beside its own rules."""
        certainty = Certainty(lambda: self._member is not None and self._member.is_in_doubt)
        return Hooks(
            admissions=(*say.admissions, certainty),
            pace=self._link.bandwidth,
            origins=say.origins or (self._origins.provenance if self._origins is not None else None),
            transit=self._crossing.transit,
            delivery=say.delivery,
            remedies=self._crossing.remedies(say.remedies),
            on_copied=self._arrived,
        )

    def _start(self, tasks: asyncio.TaskGroup, machine: FlowMachine, member: SourceMembership) -> None:
        """Everything that goes on beside the membership, until that ends."""
        assert self._reader is not None
        assert self._writer is not None
        work: dict[str, Coroutine[Any, Any, None]] = {
            "look at what waits": self._timing.follow_source(),
            "look at the link": self._link.run(machine),
            "perform": self._writer.perform(),
            "follow destination leaders": self._writer.follow_leaders(),
            "follow source leaders": self._reader.follow_leaders(),
            "commit": self._commits.run(self._commit_due, lambda: self.route.commit_interval_ms),
            "follow batch limits": self._crossing.follow_limits(machine.partitions),
            "balance": self._balancer.run(machine, member),
        }
        if self._origins is not None:
            work["origins"] = self._origins.follow(machine, self._reader.room.set)
        for name, coroutine in work.items():
            tasks.create_task(coroutine, name=name)

    def look_again(self) -> None:
        """Partitions that stand may have been released."""
        self.arbiter.look_again()

    async def close(self, *, for_good: bool = False) -> None:
        """Finish what is in flight, commit, give the partitions up; `run` returns then. `for_good`: others
        get them at once; else they wait for this process, a session timeout long.
        """
        self._closing = True
        if self._member is not None:
            await self._member.close(for_good=for_good)

    # ---- starting

    async def _make_member(self) -> SourceMembership:
        if self._coordination is not None:
            return ZooKeeperMembership(
                self._coordination,
                self.route.group,
                frozenset(self._topics),
                PartitionOwner(
                    prepare=self._prepare,
                    begin=self._begin,
                    give_up=self._give_up,
                    lose=self._release,
                    look_again=self._look_again,
                    count=self._link.set_members,
                ),
                self._clock,
            )
        settings = await group_settings(self._source, self.route, self._instance_id)
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
        self._link.set_members(self._balancer.members)
        self._begin(partitions, await self._prepare(partitions))

    async def _prepare(self, partitions: Collection[TopicPartition]) -> Points:
        self._successors.notice(partitions)
        return await self._find_starts(partitions)

    def _begin(self, partitions: Collection[TopicPartition], points: Points) -> None:
        self._copy(points)
        late = frozenset(partitions) - points.keys()
        if late:
            self._tasks.create_task(
                self._start_later(late, self.route.refresh_interval_ms), name="start later"
            )

    async def _find_starts(self, partitions: Collection[TopicPartition]) -> Points:
        """Take these over, and find where to begin, as far as it can be told. Raises BrokerError."""
        await self._crossing.make_ready({source.topic for source in partitions} & self._topics.keys())
        wanted = [self._crossing.assignment(source) for source in partitions if source.topic in self._topics]
        return await self._positions.go_on(await self._mode.take_over(wanted))

    def _copy(self, points: Points) -> None:
        """Copy these from there on, as far as they are this process's."""
        assert self._machine is not None
        assert self._writer is not None
        assert self._reader is not None
        assert self._member is not None
        mine = {
            source
            for source in points.keys() & self._member.assignment - self._machine.partitions.keys()
            if source.topic in self._topics
        }
        assignments = [_placed(self._crossing.assignment(source), points[source]) for source in mine]
        self._machine.assign(assignments)
        if self._books is not None:
            self._books.begin(assignments)
        for source in mine:
            self._mode.take_note(source, min(points[source].lanes), points[source].note)
        self._mode.joined(mine)
        self._successors.begin({source: points[source] for source in mine})
        self.arbiter.joined(mine)
        self._writer.look_up_leaders()
        self._writer.pump()
        self._reader.spread()

    async def _start_later(self, partitions: frozenset[TopicPartition], wait_ms: int) -> None:
        """Try again for partitions that could not be started, as long as they are this process's."""
        assert self._member is not None
        while partitions := partitions & self._member.assignment:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = self.route.refresh_interval_ms
            try:
                points = await self._find_starts(partitions & self._member.assignment)
            except (AuthenticationError, ConfigurationError):
                raise
            except BrokerError as error:
                self._log.info("positions_not_read", error=str(error))
            else:
                self._copy(points)
                partitions -= points.keys()

    async def _take_anew(self, sources: frozenset[TopicPartition]) -> None:
        """What these lead to has more partitions, or fewer: give them up, and go on with other lanes."""
        topics = sorted({source.topic for source in sources})
        self.note("destination_partitions_changed", topics=topics, partitions=len(sources))
        await self._give_up(sources)
        await self._start_later(sources, 0)

    def _lose_bucket(self, lost: LostBucket) -> None:
        """Its partitions are copied no more, until it is taken over anew: while the group leaves it here."""
        assert self._machine is not None
        self._machine.counts.buckets_lost += 1
        self.note(
            "bucket_fenced" if lost.is_fenced else "transaction_given_up",
            bucket=str(lost.key),
            partitions=len(lost.sources),
            reason=lost.reason,
        )
        self._release(lost.sources)
        self._tasks.create_task(self._start_later(lost.sources, lost.wait_ms), name="take over again")

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Let what is in flight be answered, commit, and forget the partitions."""
        assert self._machine is not None
        self._machine.stop(partitions)
        deadline_ms = self._clock.monotonic_ms() + DRAIN_TIMEOUT_MS
        while (
            self._machine.in_flight(partitions) and (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0
        ):
            await self._acknowledged.wait(left_ms)
        await self._mode.settle(partitions, max(deadline_ms - self._clock.monotonic_ms(), 0))
        moved = self._machine.uncommitted()
        await self._commits.commit({source: at for source, at in moved.items() if source in partitions})
        self._release(partitions)

    async def _lose(self, partitions: Collection[TopicPartition]) -> None:
        self._release(partitions)

    def _release(self, partitions: Collection[TopicPartition]) -> None:
        assert self._machine is not None
        assert self._reader is not None
        self._mode.leaving(partitions)
        self._machine.release(partitions)
        if self._books is not None:
            self._books.end(partitions)
        self._reader.spread()

    # ---- what happens

    def _arrived(self, copied: Copied) -> None:
        self._timing.take(copied)
        if copied.source.topic == HEARTBEATS_TOPIC:
            return
        if (keep := self._mode.say.on_copied) is not None:
            keep(copied)
        elif self._books is not None:
            self._books.take(copied)

    def _delivered(self) -> None:
        """What had been acknowledged may have come to count."""
        self._timing.settle()
        self._look_again()

    def _look_again(self) -> None:
        self._pump()
        self._on_acknowledged()

    def _on_acknowledged(self) -> None:
        assert self._reader is not None
        self._reader.room.set()
        self._acknowledged.set()
        self._mode.acknowledged()

    def _pump(self) -> None:
        if self._writer is not None:
            self._writer.pump()

    def _gone_on(self, trouble: Trouble) -> None:
        assert self._reader is not None
        assert self._writer is not None
        if trouble.kind is TroubleKind.TOPIC_RECREATED:
            self._reader.accept_topic(trouble.source)
        self._writer.pump()

    def _end_for_failure(self) -> None:
        self._tasks.create_task(self.close(), name="close")

    def _take_fact(self, fact: Fact) -> None:
        self.arbiter.take_fact(fact)
        if isinstance(fact, SourceTruncated | TopicRecreated) and self._books is not None:
            self._books.restart(fact.source, fact.resumed_at)
        if (name := EVENT_NAMES.get(type(fact))) is not None:
            self.note(name, **details_of(fact))


class RouteHaltedError(BrokerError):
    """A failure policy of the route stops it; the message says why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(f"{trouble.kind.value} at {trouble.source}: {trouble.problem}")
        self.trouble = trouble


def _placed(assignment: Assignment, point: StartingPoint) -> Assignment:
    """The assignment from where it is to begin, over the lanes that this was found for."""
    return replace(
        assignment,
        destinations=point.destinations or assignment.destinations,
        position=min(point.lanes),
        lane_positions=point.lanes if point.destinations else (),
        leader_epoch=point.leader_epoch,
        former=point.former,
    )


class _RouteClosedError(Exception):
    """Raised within the task group to end it: the way the standard library's documentation gives."""
