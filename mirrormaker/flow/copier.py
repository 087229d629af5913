"""A route at work in this process: a member of its group at the source, which copies what it is assigned.

The copier puts the parts together, joins the group, and keeps them running until it is closed. Which
partitions it has, and how they come and go, is `holdings`'. Everything runs as tasks of one group on one
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from broker.client.cluster import Cluster
from broker.client.offsets import earliest_offsets
from broker.clock import Clock
from broker.errors import BrokerError, RequestTimedOutError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.arbiter import Arbiter
from mirrormaker.flow.balancer import Balancer
from mirrormaker.flow.bandwidth.links import Link
from mirrormaker.flow.bucket_losses import LostBucket
from mirrormaker.flow.certainty import Certainty
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.crossing import Crossing
from mirrormaker.flow.delivery import Deliverer, DeliveryMode, Say
from mirrormaker.flow.delivery_modes import open_delivery
from mirrormaker.flow.engine import Engine
from mirrormaker.flow.facts import (
    EVENT_NAMES,
    Fact,
    FlowCounts,
    RecordsMaybeLost,
    details_of,
)
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.holdings import Holdings
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.losses import Loss, LossNotes
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.membership import PartitionOwner, SourceMembership
from mirrormaker.flow.memberships import make_membership
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.renewed_topics import RenewedTopics
from mirrormaker.flow.route_link import ExpectedRoundTrips, RouteLink
from mirrormaker.flow.route_parts import RouteParts
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.skips import SkipNotes
from mirrormaker.flow.standing import Standing
from mirrormaker.flow.timing.route_timing import AtWork
from mirrormaker.flow.topic_looks import TopicLooks
from mirrormaker.flow.trouble import ANOTHER_LOG, Trouble, TroubleKind
from mirrormaker.flow.writer import DestinationWriter, batches_taken_at_once
from mirrormaker.topology.model import Delivery, Isolation, Membership, RouteSpec
from mirrormaker.topology.shared_positions import PositionOwners


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
        self._source = source
        self._destination = destination
        self._clock = clock
        self._parts = parts
        self._topics: Mapping[str, str] = {}
        self._engine: Engine | None = None
        self._holdings: Holdings | None = None
        self._member: SourceMembership | None = None
        self._balancer = Balancer(route, clock)
        self._link = RouteLink(route, link, expected, clock, parts.timing, on_admitted=self._pump)
        self._crossing = Crossing(route, destination, parts.heartbeats)
        self._looks = TopicLooks(parts.look_at_topics)
        self._renewed = RenewedTopics(destination, self._looks)
        self._commit_due = Signal()
        self._closing = False
        self.takes_part = False
        """`run` has something in its hands, or had: `close` ends it well. Before, it may be cancelled."""
        self._log = logger("copier").bind(route=route.name)
        self._losses = LossNotes(route.name, destination, clock)
        self.arbiter = Arbiter(
            route,
            parts.halts,
            SkipNotes(route.name, destination, clock),
            on_event=self.note,
            on_failure=self._end_for_failure,
        )

    @property
    def machine(self) -> FlowMachine | None:
        """None before `run`."""
        return self._engine.machine if self._engine is not None else None

    @property
    def counts(self) -> FlowCounts:
        return self._engine.machine.counts if self._engine is not None else FlowCounts()

    @property
    def generation(self) -> int:
        """Generation of the group this process takes part in, -1 while it takes part in none."""
        return self._member.generation if self._member is not None else -1

    @property
    def problem(self) -> str | None:
        """Why it is given nothing to copy, or what it copies does not come to count."""
        if self._member is not None and self._member.problem is not None:
            return f"no partitions are shared out: {self._member.problem}"
        return None if self._holdings is None else self._holdings.problem

    @property
    def not_begun(self) -> Mapping[TopicPartition, Standing]:
        """How partitions stand that are this process's and could not be begun."""
        return {} if self._holdings is None else self._holdings.not_begun

    def ways(self) -> dict[TopicPartition, TopicPartition]:
        """Where each partition leads that this process copies, heartbeats aside; of one that is spread, the
        first place.
        """
        partitions = self.machine.partitions if self.machine is not None else {}
        return {
            source: partition.lanes[0].destination
            for source, partition in partitions.items()
            if source.topic != HEARTBEATS_TOPIC
        }

    def set_topics(self, topics: Mapping[str, str]) -> None:
        """Copy these, source name to destination name; the group rebalances when they change."""
        self._topics = dict(topics)
        self._looks.looked()
        if self._holdings is not None:
            self._holdings.set_topics(topics)

    @property
    def link(self) -> RouteLink:
        """The way that it takes, and how that is used."""
        return self._link

    def change(self, route: RouteSpec, expected: ExpectedRoundTrips) -> None:
        """Go on with `route`, which differs in bounds and intervals, or in what `set_topics` is told of."""
        self.route = self.arbiter.route = route
        self._link.change(route, expected)
        self._commit_due.set()
        if self._holdings is not None:
            self._holdings.route = route
        if self._member is not None:
            self._member.look_every(route.refresh_interval_ms)

    async def run(self) -> None:
        """Take part until `close`. Raises RouteHaltedError when a policy of the route ended it, and
        BrokerError, in an ExceptionGroup, when it cannot go on.
        """
        deliverer = Deliverer(
            on_lost=self._lose_bucket,
            on_not_taken=self._tell_not_taken,
            on_progress=self._delivered,
            on_waiting=self._commit_due.set,
            on_fact=self._take_fact,
            find_refusal=self.arbiter.refusal,
            on_begun_anew=self._parts.events.note_begun_anew,
        )
        origins = self._parts.origins
        try:
            async with open_delivery(
                self.route,
                self._source,
                self._destination,
                self._clock,
                deliverer,
                books=self._parts.books,
                provenance=origins.provenance if origins is not None else None,
                find_owners=lambda: PositionOwners(self.route, self._parts.find_beside()),
            ) as mode:
                await self._run(mode)
        finally:
            self._parts.timing.end()
            self._link.leave()

    async def _run(self, mode: DeliveryMode) -> None:
        config = self._link.config(await batches_taken_at_once(self._destination))
        machine = FlowMachine(config, self._hooks(mode.say))
        try:
            async with asyncio.TaskGroup() as tasks:
                engine = self._engine = self._make_engine(machine, mode, tasks)
                holdings = Holdings(
                    self.route,
                    self._source,
                    engine,
                    self._parts,
                    self._clock,
                    self._take_fact,
                    self._losses,
                )
                member = self._member = await self._make_member(holdings)
                holdings.begin(member, self._topics)
                self._holdings = holdings
                self._begin(engine, holdings)
                self._start(engine, holdings, member)
                if not self._closing:
                    self.takes_part = True
                    await member.run()
                raise _RouteClosedError  # ends the other tasks of the group
        except* _RouteClosedError:
            self._log.info("route_closed", batches=machine.counts.batches, bytes=machine.counts.bytes)
        if self.arbiter.failure is not None:
            raise RouteHaltedError(self.arbiter.failure)

    # ---- starting

    def _hooks(self, say: Say) -> Hooks:
        """What the machine asks beside its own rules."""
        origins = self._parts.origins
        certainty = Certainty(lambda: self._member is not None and self._member.is_in_doubt)
        return Hooks(
            admissions=(*say.admissions, certainty),
            pace=self._link.bandwidth,
            origins=say.origins or (origins.provenance if origins is not None else None),
            transit=self._crossing.transit,
            delivery=say.delivery,
            remedies=self._crossing.remedies(say.remedies),
            on_copied=self._arrived,
        )

    def _make_engine(self, machine: FlowMachine, mode: DeliveryMode, tasks: asyncio.TaskGroup) -> Engine:
        obtain_identity = mode.say.obtain_identity
        if self._parts.origins is not None:
            obtain_identity = self._parts.origins.registering(obtain_identity)
        books = self._parts.books
        writer = DestinationWriter(
            self._destination,
            machine,
            tasks,
            self._clock,
            on_acknowledged=self._on_acknowledged,
            on_fact=self._take_fact,
            obtain_identity=obtain_identity,
            introduce=None if books is None else books.introduce,
            find_held=self._renewed.find_held,
        )
        reader = SourceReader(
            self._source,
            machine,
            tasks,
            self._clock,
            on_progress=writer.pump,
            on_trouble=self.arbiter.meet,
            find_epochs=self._copied_epochs,
            filter_text=self._crossing.transit.filter_text,
            read_committed=self.route.isolation is Isolation.READ_COMMITTED,
            begin_history=self._parts.timing.appearances.begin_history,
        )
        return Engine(
            machine=machine,
            reader=reader,
            writer=writer,
            mode=mode,
            crossing=self._crossing,
            arbiter=self.arbiter,
            tasks=tasks,
        )

    async def _copied_epochs(self, source: TopicPartition) -> Iterable[EpochStart]:
        """See `FindEpochs`: by the books, where there are any."""
        books = self._parts.books
        if books is None:
            return ()
        reached = await books.reached([self._crossing.assignment(source)])
        if not books.is_known:
            raise RequestTimedOutError("destination: it is still being read what was copied")
        return reached[source].starts if source in reached else ()

    async def _make_member(self, holdings: Holdings) -> SourceMembership:
        return await make_membership(
            self.route,
            self._source,
            self._parts,
            lambda: frozenset(self._topics),
            PartitionOwner(
                prepare=holdings.prepare,
                begin=holdings.take,
                give_up=holdings.give_up,
                lose=holdings.release,
                look_again=self._look_again,
                count=self._link.set_members,
            ),
            self._balancer,
            self._clock,
        )

    def _begin(self, engine: Engine, holdings: Holdings) -> None:
        """Tell everybody that there is something to take part in."""
        machine, reader, mode = engine.machine, engine.reader, engine.mode
        is_exact = self.route.delivery is Delivery.EXACTLY_ONCE
        mode.begin(machine, engine.tasks, reader.ranges.topic_id)
        self.arbiter.begin(
            machine, engine.tasks, self._gone_on, holdings.store, self._is_copied_still, self._find_start
        )
        self._link.begin(self._source, self._destination, reader, engine.writer)
        self._parts.timing.begin(
            AtWork(
                source=self._source,
                partitions=machine.partitions,
                histories=reader.answers.histories,
                on_end=machine.heard_of_end,
                read_committed=self.route.isolation is Isolation.READ_COMMITTED,
                share=lambda: holdings.share,
                settled_to=mode.say.delivery.position if is_exact else None,
                heartbeats=self._parts.heartbeats,
            )
        )

    def _start(self, engine: Engine, holdings: Holdings, member: SourceMembership) -> None:
        """Everything that goes on beside the membership, until that ends."""
        machine, reader, writer = engine.machine, engine.reader, engine.writer
        work: dict[str, Coroutine[Any, Any, None]] = {
            "look at what waits": self._parts.timing.follow_source(),
            "look at the link": self._link.run(machine),
            "perform": writer.perform(),
            "follow destination leaders": writer.follow_leaders(),
            "follow source leaders": reader.follow_leaders(),
            "commit": holdings.commits.run(self._commit_due, lambda: self.route.commit_interval_ms),
            "follow batch limits": self._crossing.follow_limits(machine, writer.pump),
            "balance": self._balancer.run(machine, member),
        }
        if self._parts.origins is not None:
            work["origins"] = self._parts.origins.follow(machine, reader.room.set)
        for name, coroutine in work.items():
            engine.tasks.create_task(coroutine, name=name)

    # ---- ending

    async def close(self, *, for_good: bool = False) -> None:
        """Finish what is in flight, commit, give the partitions up; `run` returns then. `for_good`: others
        get them at once; else they wait for this process, a session timeout long.
        """
        self._closing = True
        if self._holdings is not None:
            self._holdings.is_ending = True
        if self._member is not None:
            await self._member.close(for_good=for_good)

    def _end_for_failure(self) -> None:
        assert self._engine is not None
        self._engine.tasks.create_task(self.close(), name="close")

    # ---- what happens

    def look_again(self) -> None:
        """Partitions that stand may have been released."""
        self.arbiter.look_again()

    def _arrived(self, copied: Copied) -> None:
        self._parts.timing.take(copied)
        if copied.source.topic == HEARTBEATS_TOPIC:
            return
        assert self._engine is not None
        if (keep := self._engine.mode.say.on_copied) is not None:
            keep(copied)
        elif self._parts.books is not None:
            self._parts.books.take(copied)

    def _delivered(self) -> None:
        """What had been acknowledged may have come to count."""
        self._parts.timing.settle()
        self._look_again()

    def _look_again(self) -> None:
        self._pump()
        self._on_acknowledged()

    def _on_acknowledged(self) -> None:
        assert self._engine is not None
        self._engine.reader.room.set()
        self._engine.acknowledged.set()
        self.arbiter.acknowledged()
        self._engine.mode.acknowledged()

    def _is_noted(self, fact: RecordsMaybeLost) -> bool:
        """What an owner before may have lost is noted before the partition is begun."""
        return fact.destination is None and self.route.membership is not Membership.ZOOKEEPER

    def _pump(self) -> None:
        if self._engine is not None:
            self._engine.writer.pump()

    def _lose_bucket(self, lost: LostBucket) -> None:
        assert self._holdings is not None
        self._holdings.lose_bucket(lost)

    def _tell_not_taken(self, source: TopicPartition, error: BrokerError) -> None:
        assert self._holdings is not None
        self._holdings.not_taken(source, error)

    async def _is_copied_still(self, topic: str) -> bool:
        """Whether one that was made anew is to be copied as it is now: it may have fewer partitions than its
        copy.
        """
        await self._looks.another()
        return topic in self._topics

    async def _find_start(self, source: TopicPartition) -> int:
        """The oldest offset that the source has. Raises BrokerError."""
        return (await earliest_offsets(self._source, [source]))[source]

    def _gone_on(self, trouble: Trouble) -> None:
        assert self._engine is not None
        if trouble.kind is TroubleKind.TOPIC_RECREATED:
            self._engine.reader.accept_topic(trouble.source)
        partition, books = self._engine.machine.partitions.get(trouble.source), self._parts.books
        if trouble.kind in ANOTHER_LOG and partition is not None and books is not None:
            positions = tuple(lane.position for lane in partition.lanes)
            books.restart(trouble.source, positions)  # before they are stored
        self._engine.writer.pump()

    def _take_fact(self, fact: Fact) -> None:
        self.arbiter.take_fact(fact)
        books = self._parts.books
        if isinstance(fact, RecordsMaybeLost) and fact.destination is not None and books is not None:
            books.lose(fact.source, fact.destination, fact.first, fact.next)
        if isinstance(fact, RecordsMaybeLost) and not self._is_noted(fact):
            assert self._engine is not None
            self._losses.keep(Loss(fact.source, fact.first, fact.next), self._engine.tasks)
        if (name := EVENT_NAMES.get(type(fact))) is not None:
            self.note(name, **details_of(fact))


class RouteHaltedError(BrokerError):
    """A failure policy of the route stops it; the message says why."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(f"{trouble.kind.value} at {trouble.source}: {trouble.problem}")
        self.trouble = trouble


class _RouteClosedError(Exception):
    """Raised within the task group to end it: the way the standard library's documentation gives."""
