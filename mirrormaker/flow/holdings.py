"""The partitions that a copier has of its group: how it comes by them, and how it gives them up.

Each starts where the route's delivery or the group has its position; one of which that cannot be told now is
tried again while it is this process's. Before it is given up, what is in flight is answered and what counts
is stored. Owned by the event loop of the copier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    CorruptRecordsError,
    ErrorCode,
    ProtocolError,
)
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.at_most_once import tell_arrears
from mirrormaker.flow.attempts import Attempt, Attempts
from mirrormaker.flow.booked_points import BookedPoints
from mirrormaker.flow.books import ReadSoFar, Written
from mirrormaker.flow.bucket_losses import LostBucket
from mirrormaker.flow.commits import PositionCommits
from mirrormaker.flow.engine import Engine
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.facts import Fact
from mirrormaker.flow.group_positions import GroupPositions, StartingPoint
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.lane_note import Arrears, arrears_in, noted_place
from mirrormaker.flow.losses import LossNotes, losses_of
from mirrormaker.flow.membership import Points, SourceMembership
from mirrormaker.flow.position_note import Led
from mirrormaker.flow.positions import Place
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.route_parts import RouteParts
from mirrormaker.flow.standing import UNREADABLE, Standing, standing_by
from mirrormaker.flow.successors import Successors
from mirrormaker.flow.trouble import NO_POSITION, Trouble, refused
from mirrormaker.topology.model import Membership, RouteSpec

DRAIN_TIMEOUT_MS, ANSWERS_MS = 5_000, 1_000
"""How long partitions that are given up may wait for answers of the destination; so much of that once nothing
more is sent.
"""
LAST_COMMIT_TIMEOUT_MS = 3_000
"""How long positions may take to be stored when the route ends: what is not stored is copied again."""


STORE_TIMEOUT_MS = 5_000
"""How long the position behind a trouble may take to be stored: so long its halt stays."""


class _Arrived(NamedTuple):
    """How far a partition had come when it was let go."""

    committed: int
    acknowledged: int


class Holdings:
    """See the module. `begin` before the member takes part; the rest is what it tells."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        engine: Engine,
        parts: RouteParts,
        clock: Clock,
        on_fact: Callable[[Fact], None],
        losses: LossNotes,
    ) -> None:
        self.route = route
        self._source = source
        self._engine = engine
        self._books = parts.books
        self._note = parts.events.note
        self._booked = None if parts.books is None else BookedPoints(source, engine, parts.books, self._note)
        self._clock = clock
        self._on_fact = on_fact
        self._losses = losses
        self._topics: frozenset[str] = frozenset()
        self._share: frozenset[TopicPartition] | None = None
        self._successors = Successors(source, parts.halts, engine.arbiter)
        self._regrowth: asyncio.Task[None] | None = None
        self._lost: dict[ProducerKey, LostBucket] = {}
        """Buckets that were lost, each as it was last, until they are committed again."""
        self._attempts = Attempts()
        self._taking = asyncio.Lock()
        self._arrived: dict[TopicPartition, _Arrived] = {}
        """Of partitions that this process had."""
        self._not_begun: dict[TopicPartition, Trouble] = {}
        """What the arbiter was told of before they were begun."""
        self._unread: dict[TopicPartition, str] = {}
        """Why it could not be told where these begin, nor of others."""
        self._to_store: set[TopicPartition] = set()
        """Those of which somebody waits for the position to be stored."""
        self._not_taken: dict[TopicPartition, str] = {}
        """Why these could not be taken over, unless the arbiter was told."""
        self.is_ending = False
        """Partitions that are given up now are not taken again by this copier."""
        self._member: SourceMembership
        self._positions: GroupPositions
        self.commits: PositionCommits
        self._log = logger("copier").bind(route=route.name)

    def begin(self, member: SourceMembership, topics: Collection[str]) -> None:
        """What `member` is given of these source topics is copied."""
        engine = self._engine
        self._member = member
        self._topics = frozenset(topics)
        self._positions = GroupPositions(
            self._source,
            member,
            self.route.start,
            self._note,
            self._find_written,
            self._meet,
            self._find_led,
            self._losses.write_forgotten,
        )
        self.commits = PositionCommits(
            engine.machine, engine.reader, self._positions, engine.mode, self._books, self._committed
        )

    def _committed(self) -> None:
        """Positions are stored: more may be sent, and a release may have come to its end."""
        self._engine.writer.pump()
        self._engine.arbiter.stored()

    def set_topics(self, topics: Collection[str]) -> None:
        """Copy these source topics; the group rebalances when they change."""
        changed = self._topics != frozenset(topics)
        self._topics = frozenset(topics)
        if changed:
            self._member.subscribe(self._topics)
        self._engine.writer.look_up_leaders()
        if self._regrowth is None or self._regrowth.done():
            outgrown = self._engine.crossing.outgrown(self._engine.machine.partitions.values())
            if outgrown:
                self._regrowth = self._start_task(self._take_anew(outgrown), "take anew")

    @property
    def share(self) -> frozenset[TopicPartition] | None:
        """What the group gave this process last, of its topics, whether it can be copied now or not, and also
        while the process is no member; None: nothing yet.
        """
        if self._share is None:
            return None
        return frozenset(source for source in self._share if source.topic in self._topics)

    @property
    def not_begun(self) -> Mapping[TopicPartition, Standing]:
        """How those of this process's partitions stand that could not be begun, where it is known why. What
        was found since goes before what the arbiter was told.
        """
        awaited = self._member.assignment - self._engine.machine.partitions.keys()
        lost = {
            source: standing_by(refusal)
            for source in awaited
            if (refusal := self._engine.arbiter.refusal(source)) is not None
        }
        refusals = {source: standing_by(trouble) for source, trouble in self._not_begun.items()}
        unknown = self._positions.not_started | self._not_taken | self._unread
        unreadable = {
            source: Standing(state=UNREADABLE, problem=problem) for source, problem in unknown.items()
        }
        return {source: at for source, at in (lost | refusals | unreadable).items() if source in awaited}

    # ---- coming

    async def prepare(self, partitions: Collection[TopicPartition]) -> Points:
        """Take these over, and find where to begin, as far as it can be told. Raises BrokerError."""
        self._successors.notice(partitions)
        return await self._find_starts(self._attempts.make(partitions))

    def take(self, partitions: Collection[TopicPartition], points: Points) -> None:
        """Copy these from there on; those without a point as soon as there is one."""
        self._share = self._member.assignment
        self._copy(points)
        late = frozenset(partitions) - points.keys()
        if late:
            self._start_task(self._start_later(self._attempts.make(late)), "start later")

    async def _find_starts(self, attempt: Attempt) -> Points:
        """Of what is left to the attempt in the end. Raises BrokerError."""
        crossing = self._engine.crossing
        await crossing.make_ready({source.topic for source in attempt.left} & self._topics)
        async with self._taking:  # what is taken over from others must be this process's still
            wanted = [crossing.assignment(source) for source in attempt.left if source.topic in self._topics]
            if not wanted:
                return {}
            known = await self._engine.mode.take_over(wanted)
        points = await self._positions.go_on(known)
        assigned = {assignment.source: assignment for assignment in wanted}
        points = {source: self._on_lanes(point, assigned[source]) for source, point in points.items()}
        of_group = [each for each in wanted if not isinstance(known.get(each.source), Place)]
        if self._booked is not None:  # what is committed with the records goes back nowhere
            points = await self._booked.compared(of_group, points, self._positions.tell)
        unnoted = await self._note_losses({source: points[source] for source in attempt.left & points.keys()})
        for source in attempt.left & known.keys() - unnoted:
            self._not_taken.pop(source, None)
        return {source: points[source] for source in attempt.left & points.keys() - unnoted}

    async def _note_losses(self, points: Points) -> frozenset[TopicPartition]:
        """What the owner before may have lost is noted before these are begun; returns those of which it
        cannot be: they are tried again, and keep no other. Raises AuthenticationError.
        """
        losses = losses_of({source: self._arrears_of(source, point) for source, point in points.items()})
        try:
            await self._losses.write(losses)
        except AuthenticationError:
            raise
        except BrokerError as error:
            unnoted = frozenset(loss.source for loss in losses)
            problem = f"destination: what may have been lost is not noted: {error}"
            if any(self._not_taken.get(source) != problem for source in unnoted):
                self._log.warning("losses_not_noted", partitions=len(unnoted), error=str(error))
            self._not_taken |= dict.fromkeys(unnoted, problem)
            return unnoted
        return frozenset()

    def _arrears_of(self, source: TopicPartition, point: StartingPoint) -> Arrears | None:
        """What the owner before may have lost."""
        return arrears_in(min(point.lanes), self._note_for(source, point))

    def _on_lanes(self, point: StartingPoint, assignment: Assignment) -> StartingPoint:
        """The point, with what was stored along with it of where each lane goes on."""
        to, spread = assignment.destinations, assignment.spread
        place = noted_place(min(point.lanes), point.note, to, spread)
        if place is None:
            return point
        return point._replace(lanes=place.lanes, destinations=place.destinations, former=place.former)

    async def _find_written(
        self, sources: Collection[TopicPartition], kept: Mapping[TopicPartition, Place]
    ) -> Written:
        """See `FindWritten`. Raises BrokerError."""
        if self._books is None:
            return Written()
        assignments = [self._engine.crossing.assignment(source) for source in sources]
        return await self._books.written(assignments, kept)

    def _find_led(self, topic: str) -> Led | None:
        """ZooKeeper keeps positions alone."""
        return None if self.route.membership is Membership.ZOOKEEPER else self._engine.crossing.led(topic)

    def _meet(self, trouble: Trouble) -> None:
        """One of these partitions cannot be begun."""
        self._not_begun[trouble.source] = trouble
        self._engine.arbiter.meet(trouble)

    def not_taken(self, source: TopicPartition, error: BrokerError) -> None:
        """The delivery could not take it over, and is asked again."""
        code = error.code if isinstance(error, ProtocolError) else ErrorCode.NONE
        trouble = None
        if isinstance(error, ProtocolError):
            trouble = refused(source, NO_POSITION, error, "destination")
        if trouble is not None:
            self._not_taken.pop(source, None)
            self._meet(trouble)
            return
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._engine.arbiter.refusal(source) is not None:
            self._not_taken.pop(source, None)  # what was open cannot be ended for the same reason
            return
        if isinstance(error, CorruptRecordsError) and self._not_taken.get(source) != str(error):
            self._note("partition_not_started", partition=str(source), error=str(error))
        self._not_taken[source] = str(error)

    def _copy(self, points: Points) -> None:
        """Copy these from there on, as far as they are this process's."""
        engine = self._engine
        mine = {
            source
            for source in points.keys() & self._member.assignment - engine.machine.partitions.keys()
            if source.topic in self._topics
        }
        self._attempts.end(mine)
        assignments = [points[source].placed(engine.crossing.assignment(source)) for source in mine]
        engine.machine.assign(assignments)
        if self._books is not None:
            begun = {source: engine.machine.partitions[source] for source in mine}
            read = {source: ReadSoFar(each.epochs, each.returned) for source, each in begun.items()}
            self._books.begin(assignments, read)
        for source in mine:
            tell_arrears(engine.machine, self._on_fact, source, self._arrears_of(source, points[source]))
            self._arrived.pop(source, None)
        engine.mode.joined(mine)
        for source in mine & self._not_begun.keys():
            engine.arbiter.passed(source)
            del self._not_begun[source]
        same = {source for source in mine if not self._successors.is_told(source, points[source])}
        self._successors.begin({source: points[source] for source in mine})
        if self._booked is not None:
            self._booked.begin({source: points[source] for source in same})
        engine.arbiter.joined(mine)
        engine.writer.look_up_leaders()
        engine.writer.pump()
        engine.reader.spread()

    def _note_for(self, source: TopicPartition, point: StartingPoint) -> str:
        """What was stored of arrivals; more where this process has seen more of them and could not store it,
        as while the source was away.
        """
        arrived, position = self._arrived.get(source), min(point.lanes)
        if (
            arrived is None
            or not point.note.isdecimal()
            or position < arrived.committed
            or self._successors.is_other(source, point)
        ):
            return point.note
        return str(max(int(point.note), arrived.acknowledged))

    async def _start_later(self, attempt: Attempt) -> None:
        """Try again for partitions that could not be started, as long as they are this process's."""
        while attempt.left:
            await asyncio.sleep(attempt.wait_ms / 1000)
            attempt.wait_longer()
            self._attempts.end(attempt.left - self._member.assignment)
            try:
                points = await self._find_starts(attempt)
            except (AuthenticationError, ConfigurationError):
                raise
            except BrokerError as error:
                self._log.info("positions_not_read", error=str(error))
                self._unread |= dict.fromkeys(attempt.left, str(error))
            else:
                for source in attempt.left:
                    self._unread.pop(source, None)
                self._copy(points)

    async def store(self, source: TopicPartition) -> None:
        """Have it stored where the partition goes on, as far as that can be done in time; whoever has the
        next turn stores what all wait for.
        """
        stored: dict[TopicPartition, int] = {}

        def positions() -> dict[TopicPartition, int]:
            if source in self._to_store:
                stored.update(self._positions_of(self._to_store))
            return stored

        try:
            async with asyncio.timeout(STORE_TIMEOUT_MS / 1000):
                await self._engine.mode.settle([source], STORE_TIMEOUT_MS)
                self._to_store.add(source)
                await self.commits.commit(positions)
                self._to_store -= self._stored(stored)
        except TimeoutError:
            self._log.info("positions_not_committed", count=1, error=f"no answer in {STORE_TIMEOUT_MS} ms")
        finally:
            self._to_store.discard(source)

    def _positions_of(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where those of them go on that are copied here."""
        delivery, partitions = self._engine.mode.say.delivery, self._engine.machine.partitions
        return {source: delivery.position(partitions[source]) for source in sources if source in partitions}

    def _stored(self, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Those of these positions that are, or that nobody needs here any more."""
        held = self._engine.machine.partitions
        return {
            source for source, at in positions.items() if source not in held or held[source].committed == at
        }

    # ---- going

    async def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Let lanes become equally far, where that can be done in time: who has the partitions next may share
        records out otherwise. Let what is in flight be answered, commit, and forget the partitions.
        """
        machine, mode = self._engine.machine, self._engine.mode
        self._attempts.end(partitions)
        deadline_ms = self._clock.monotonic_ms() + DRAIN_TIMEOUT_MS
        machine.leave(partitions)
        await self._acknowledged_while(partial(machine.evens_out, partitions), deadline_ms - ANSWERS_MS)
        machine.stop(partitions)
        await self._acknowledged_while(partial(machine.in_flight, partitions), deadline_ms)
        await mode.settle(partitions, max(deadline_ms - self._clock.monotonic_ms(), 0))

        def moved() -> dict[TopicPartition, int]:
            return {source: at for source, at in self.commits.moved().items() if source in partitions}

        try:
            async with asyncio.timeout(LAST_COMMIT_TIMEOUT_MS / 1000 if self.is_ending else None):
                await self.commits.commit(moved)
        except TimeoutError:
            self._log.warning("positions_not_committed", count=len(moved()), error="the route ends")
        await self._write_rest(max(deadline_ms - self._clock.monotonic_ms(), 0))
        self.release(partitions)

    async def _acknowledged_while(self, is_wanted: Callable[[], object], deadline_ms: float) -> None:
        """Wait for what the destination acknowledges until that is false, or the time is up."""
        while is_wanted() and (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            await self._engine.acknowledged.wait(left_ms)

    async def _write_rest(self, timeout_ms: float) -> None:
        if self._books is None:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._books.write_rest()
        except TimeoutError:
            self._log.warning("books_not_written", error="the partitions are given up")

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the partitions at once: they may be another's already."""
        self._attempts.end(partitions)
        self._forget(partitions)
        for source in partitions:
            for why in (self._not_begun, self._not_taken, self._unread):
                why.pop(source, None)
        self._engine.arbiter.left(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        held = self._engine.machine.partitions
        self._arrived |= {
            source: _Arrived(held[source].committed, held[source].acknowledged)
            for source in held.keys() & set(partitions)
        }
        self._engine.mode.leaving(partitions)
        self._engine.machine.release(partitions)
        if self._books is not None:
            self._books.end(partitions)
        self._engine.reader.spread()

    # ---- going and coming back

    def lose_bucket(self, lost: LostBucket) -> None:
        """Its partitions are copied no more, until it is taken over anew: while the group leaves it here."""
        self._engine.machine.counts.buckets_lost += 1
        known, self._lost[lost.key] = self._lost.get(lost.key), lost
        if not lost.is_again or known is None or known.reason != lost.reason:
            self._note(
                "bucket_fenced" if lost.is_fenced else "transaction_given_up",
                bucket=str(lost.key),
                partitions=len(lost.sources),
                reason=lost.reason,
            )
        self._forget(lost.sources)
        self._engine.arbiter.left(lost.sources, at_once_again=True)
        attempt = self._attempts.make(lost.sources, lost.wait_ms)
        self._start_task(self._start_later(attempt), "take over again")

    @property
    def problem(self) -> str | None:
        """Why nothing has been committed of a bucket that is this process's since it was lost; not where
        nothing waits.
        """
        self._lost = {key: lost for key, lost in self._lost.items() if not lost.has_gone_on()}
        if not self._lost:
            return None
        mine = {source for source in self._member.assignment if self._may_wait(source)}
        held = [lost for lost in self._lost.values() if not (lost.is_fenced or lost.sources.isdisjoint(mine))]
        if not held:
            return None
        waiting = frozenset[TopicPartition]().union(*(lost.sources for lost in held)) & mine
        count = sum(source.topic != HEARTBEATS_TOPIC for source in waiting)
        what = f"{count} partitions" if count else "heartbeats"
        return f"transactions of {what} are not committed: {held[-1].reason}"

    def _may_wait(self, source: TopicPartition) -> bool:
        """Whether something of it is not committed, as far as is known."""
        partition = self._engine.machine.partitions.get(source)
        return partition is None or not 0 <= partition.source_end <= partition.committed

    async def _take_anew(self, sources: frozenset[TopicPartition]) -> None:
        """What these lead to has more partitions, or fewer: give them up, and go on with other lanes."""
        topics = sorted({source.topic for source in sources})
        self._note("destination_partitions_changed", topics=topics, partitions=len(sources))
        await self.give_up(sources)
        await self._start_later(self._attempts.make(sources, 0))

    def _start_task(self, task: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._engine.tasks.create_task(task, name=name)
