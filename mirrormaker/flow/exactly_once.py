"""Exactly once: data and positions of a bucket in one transaction at the destination.

Whoever takes a bucket over initializes its transactional id first, which fences the owner before and aborts
what that left open, and then reads how far its committed transactions came. `bucket_transaction` decides what
goes into a transaction and when it ends; `owned_bucket` asks the destination. A bucket that is lost is given
back to the copier, which takes it over anew while its group says that it is this process's.

Records that come to the source from elsewhere have transactional ids of their own (see `passing_origins`).

Owned by the copier's event loop; a task for each bucket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    ProtocolError,
)
from broker.telemetry import logger
from broker.types import TopicId, TopicPartition
from mirrormaker.flow.books import Books
from mirrormaker.flow.bucket_losses import BucketLosses, LostBucket
from mirrormaker.flow.bucket_refusals import BucketRefusals
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.delivery import Deliverer, Kept, KnownStart, Say
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.fenced_origins import FencedOrigins
from mirrormaker.flow.kept_starts import KeptStarts
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.noted_lanes import NotedLanes, kept_at
from mirrormaker.flow.owned_bucket import OwnedBucket, Terrain, log_taken_over
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.passing_origins import PassingOrigins
from mirrormaker.flow.positions import POSITIONS_TOPIC, Place, SourceId
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.provenance import Provenance
from mirrormaker.flow.remedies import Remedy
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.transaction_steps import FENCED_CODES, HOME, Commit, LanePositions, Phase, Step
from mirrormaker.topology.model import RouteSpec
from mirrormaker.topology.shared_positions import PositionOwners

_log = logger("exactly_once")


@asynccontextmanager
async def open_exactly_once(
    route: RouteSpec,
    source: Cluster,
    destination: Cluster,
    clock: Clock,
    deliverer: Deliverer,
    *,
    books: Books | None,
    provenance: Provenance | None,
    find_owners: Callable[[], PositionOwners],
) -> AsyncIterator[ExactlyOnce]:
    """The delivery of one route, with the topic of positions at hand. `books`: are written in the
    transactions. `provenance`: of a route that has it. `find_owners`: see `open_delivery`.

    Raises as `KeptTopic` does when it begins.
    """
    async with KeptTopic(destination, POSITIONS_TOPIC, on_begun_anew=deliverer.on_begun_anew) as kept:
        lane = destination.new_lane("transactions")
        work = _Work(
            route=route,
            source=source,
            destination=destination,
            clock=clock,
            kept=kept,
            lane=lane,
            deliverer=deliverer,
            books=books,
            provenance=provenance,
            find_owners=find_owners,
        )
        try:
            yield ExactlyOnce(work)
        finally:
            await destination.release_lane(lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What it works with; see `open_exactly_once`."""

    route: RouteSpec
    source: Cluster
    destination: Cluster
    clock: Clock
    kept: KeptTopic
    lane: str
    deliverer: Deliverer
    books: Books | None
    provenance: Provenance | None
    find_owners: Callable[[], PositionOwners]


class ExactlyOnce:
    """See the module, `DeliveryMode` and `hooks` for what its methods say."""

    def __init__(self, work: _Work) -> None:
        self._passing = passing = None if work.provenance is None else self._pass(work, work.provenance)
        self.say = Say(
            admissions=(self,),
            delivery=self,
            remedies=self,
            obtain_identity=self._obtain_identity,
            origins=None if passing is None else FencedOrigins(passing.provenance, passing.is_ready),
            on_copied=passing.take_copied
            if passing is not None
            else (None if work.books is None else work.books.take),
        )
        self._source = work.source
        self._starts = KeptStarts(work.route.name, work.source, work.kept, work.find_owners)
        self._clock = work.clock
        self._kept = work.kept
        self._books = work.books
        self._deliverer = work.deliverer
        self._terrain = Terrain(
            route=work.route,
            destination=work.destination,
            clock=work.clock,
            lane=work.lane,
            path_of=lambda origin: () if work.provenance is None else work.provenance.been(origin),
            id_of=self._id_of,
        )
        self._machine: FlowMachine
        self._tasks: asyncio.TaskGroup
        self._topic_id: Callable[[TopicPartition], TopicId]
        self._buckets: dict[ProducerKey, OwnedBucket] = {}
        self._joining: dict[TopicPartition, tuple[ProducerKey, Place | None]] = {}
        """Partitions that are being taken over, or were and have not joined yet: then with what this route
        stored of them.
        """
        self._lanes = NotedLanes()
        self._losses = BucketLosses()
        self._not_taken: dict[TopicPartition, str] = {}
        """Why the buckets of these could not be taken over, as the log says it already."""
        self._refusals = BucketRefusals(
            work.deliverer.on_fact,
            work.deliverer.find_refusal,
            self._stored,
            lambda source: passing is not None and passing.awaits_refused(source),
        )
        self._taken = asyncio.Event()
        """Set, and replaced, when a bucket was taken over."""
        self._progress = Signal()

    def _pass(self, work: _Work, provenance: Provenance) -> PassingOrigins:
        return PassingOrigins(
            provenance,
            work.kept,
            work.books,
            bucket_of=self._bucket_of,
            is_held=self._is_held,
            id_of=self._id_of,
            on_refused=self._tell_refused,
            on_taken=self._go_on,
        )

    # ---- the machine's side

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        return wanted

    def fetched(self, size: int, now_ms: int) -> None:
        pass

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        bucket = self._buckets.get(lane.key_of(HOME))
        if bucket is None:
            return False
        if bucket.transaction.admit(lane, chunk):
            return True
        bucket.work.set()
        return False

    def wake_at_ms(self, now_ms: int) -> int | None:
        return None

    def position(self, partition: Partition) -> int:
        stored = self._stored(partition)
        return partition.committed if stored is None else min(stored)

    def _stored(self, partition: Partition) -> LanePositions | None:
        """The positions that are sure to be at the destination, None for none."""
        bucket = self._bucket_of(partition)
        return bucket.transaction.committed(partition.source) if bucket is not None else None

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        bucket = self._buckets.get(lane.key_of(HOME))
        if bucket is None:
            return Remedy.REPEAT
        remedy = bucket.transaction.remedy(lane, chunk, code)
        if bucket.transaction.is_lost:
            bucket.work.set()
        return remedy

    # ---- the copier's side

    def begin(
        self,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        topic_id: Callable[[TopicPartition], TopicId],
    ) -> None:
        """See `DeliveryMode`; so for the others."""
        self._machine, self._tasks, self._topic_id = machine, tasks, topic_id
        if self._passing is not None:
            self._passing.begin(machine, tasks)

    async def take_over(
        self, partitions: Collection[Assignment]
    ) -> Mapping[TopicPartition, KnownStart | None]:
        keys = {assignment.source: _key_of(assignment) for assignment in partitions}
        self._joining |= {source: (key, None) for source, key in keys.items()}
        for assignment in partitions:
            bucket = self._buckets.get(keys[assignment.source])
            if bucket is not None and bucket.transaction.has_used(assignment.destinations):
                bucket.transaction.lose(f"{assignment.source} came back")
                self._give_back(bucket)
        refusals = await self._fence_all(set(keys.values()) - self._buckets.keys())
        self._log_refusals(refusals)
        self._let_go()
        await self._kept.read_to_end()
        self._tell_taken()
        found: dict[TopicPartition, KnownStart | None] = {}
        for assignment in partitions:
            source, key = assignment.source, keys[assignment.source]
            if source not in self._joining:
                continue  # given up meanwhile
            try:
                if key not in self._buckets:
                    raise refusals.get(key, BrokerError("the bucket was lost meanwhile"))
                self._not_taken.pop(source, None)
                found[source], own = self._starts.find(assignment)
            except BrokerError as error:
                del self._joining[source]
                self._deliverer.on_not_taken(source, error)
            else:
                self._joining[source] = key, own
        return found

    async def _fence_all(self, keys: Collection[ProducerKey]) -> Mapping[ProducerKey, BrokerError]:
        """Take these buckets over; why that was refused of some."""
        outcomes = await asyncio.gather(*(self._fence(key) for key in keys), return_exceptions=True)
        refusals: dict[ProducerKey, BrokerError] = {}
        for key, outcome in zip(keys, outcomes, strict=True):
            if isinstance(outcome, BrokerError) and not isinstance(
                outcome, AuthenticationError | ConfigurationError
            ):
                refusals[key] = outcome
            elif outcome is not None:
                raise outcome
        return refusals

    def _log_refusals(self, refusals: Mapping[ProducerKey, BrokerError]) -> None:
        """Each once, until the reason is another."""
        for refused, error in refusals.items():
            sources = [source for source, (key, _) in self._joining.items() if key == refused]
            if any(self._not_taken.get(source) != str(error) for source in sources):
                _log.warning("bucket_not_taken_over", bucket=str(refused), error=str(error))
            self._not_taken |= dict.fromkeys(sources, str(error))

    def joined(self, sources: Collection[TopicPartition]) -> None:
        for source in sources:
            partition = self._machine.partitions.get(source)
            key, stored = self._joining.pop(source, (None, None))
            bucket = None if key is None else self._buckets.get(key)
            if partition is None or key is None:
                continue
            if bucket is None:  # it was lost meanwhile
                self._tell_lost(self._losses.lost(key, frozenset({source}), "lost before it was copied"))
            else:
                bucket.join(partition, stored)
                self._lanes.begin(partition)
                bucket.work.set()

    async def settle(self, sources: Collection[TopicPartition], timeout_ms: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        concerned = [
            each for each in self._buckets.values() if not each.transaction.sources.isdisjoint(sources)
        ]
        for bucket in concerned:
            bucket.transaction.hurry()
            bucket.work.set()
        while any(not bucket.transaction.has_stored(sources) for bucket in concerned):
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            await self._progress.wait(left_ms)

    def leaving(self, sources: Collection[TopicPartition]) -> None:
        self._lanes.end(sources)
        self._refusals.leave(sources)
        for source in sources:
            self._joining.pop(source, None)
            self._not_taken.pop(source, None)
        for bucket in self._buckets.values():
            for source in bucket.transaction.sources.intersection(sources):
                bucket.transaction.leave(source)
            bucket.work.set()
        self._let_go()

    def _let_go(self) -> None:
        """Give up the buckets that have no partitions, and get none."""
        awaited = {key for key, _ in self._joining.values()}
        for key, bucket in list(self._buckets.items()):
            if not bucket.transaction.sources and key not in awaited:
                del self._buckets[key]
                if bucket.task is not None:
                    bucket.task.cancel()

    def acknowledged(self) -> None:
        for bucket in self._buckets.values():
            if bucket.transaction.phase is Phase.CLOSING:
                bucket.work.set()

    def keep(self, source: TopicPartition, position: int, reached: LanePositions) -> Kept | None:
        """The group's copy of what stands at the destination: another delivery would go on there."""
        partition = self._machine.partitions.get(source)
        stored = None if partition is None else self._stored(partition)
        return Kept(position) if partition is None or stored is None else kept_at(partition, stored)

    def kept(self, kept: Mapping[TopicPartition, Kept]) -> None:
        self._lanes.kept(kept)

    def unnoted(self) -> Mapping[TopicPartition, int]:
        return self._lanes.moved(self._machine.partitions, self._stored)

    # ---- buckets

    def _bucket_of(self, partition: Partition) -> OwnedBucket | None:
        return self._buckets.get(partition.lanes[0].key_of(HOME))

    def _is_held(self, bucket: OwnedBucket) -> bool:
        return self._buckets.get(bucket.key) is bucket and not bucket.transaction.is_lost

    async def _fence(self, key: ProducerKey) -> None:
        """Become the only one who can write the bucket. Raises BrokerError."""
        books = None if self._books is None else self._books.of_bucket(self._deliverer.on_progress)
        bucket = OwnedBucket(key, self._terrain, books)
        identity = await bucket.open()
        if not self._losses.is_lost(key):
            log_taken_over(identity)
        self._buckets[key] = bucket
        bucket.task = self._tasks.create_task(self._drive(bucket), name=f"transactions of {key}")

    async def _obtain_identity(self, key: ProducerKey) -> ProducerIdentity:
        """Of the bucket as it was taken over last. Lanes that ask have sent nothing under it: where they did,
        they are released, and ask anew when the bucket was taken over again.
        """
        while True:
            bucket = self._buckets.get(key._replace(origin=HOME))
            if bucket is not None and not bucket.transaction.is_lost:
                identity = bucket.transaction.identity(key.origin)
                if identity is not None:
                    return identity
            await self._taken.wait()

    def _tell_taken(self) -> None:
        self._taken.set()
        self._taken = asyncio.Event()

    def _go_on(self, sources: Collection[TopicPartition]) -> None:
        """Records from elsewhere, that these have waited with, can be taken in."""
        self._refusals.recovered(self._held(sources), 0)
        self._tell_taken()
        self._machine.take_origins()
        self._deliverer.on_progress()

    async def _drive(self, bucket: OwnedBucket) -> None:
        """Take the bucket's steps until it is lost, or cancelled."""
        transaction = bucket.transaction
        while not transaction.is_lost:
            now_ms = self._clock.monotonic_ms()
            step = transaction.next_step(now_ms)
            if step is not None:
                await self._try(bucket, step)
            elif not transaction.is_lost:
                wake_at_ms = transaction.wake_at_ms()
                await bucket.work.wait(None if wake_at_ms is None else max(wake_at_ms - now_ms, 1))
        self._give_back(bucket)

    async def _try(self, bucket: OwnedBucket, step: Step) -> None:
        transaction = bucket.transaction
        try:
            refused = await bucket.take(step, self._machine.partitions)
        except BrokerError as error:
            code = error.code if isinstance(error, ProtocolError) else None
            transaction.lose(str(error), is_fenced=code in FENCED_CODES, code=code)
            return
        transaction.done(self._clock.monotonic_ms(), frozenset(refused))
        for code in set(refused.values()):
            self._machine.refused({to for (_, to), said in refused.items() if said is code}, code)
        if isinstance(step, Commit) and HOME in step.origins:
            self._machine.counts.transactions += 1
            self._have_gone_on(bucket)
        self._progress.set()
        self._deliverer.on_progress()

    def _give_back(self, bucket: OwnedBucket) -> None:
        """The bucket is lost: the copier may take it over again."""
        transaction = bucket.transaction
        if self._buckets.get(transaction.key) is not bucket:
            return
        del self._buckets[transaction.key]
        self._losses.count(transaction.key)
        held = self._held(transaction.sources)
        self._refusals.lost(held, transaction.lost_with, transaction.lost_because)
        self._progress.set()
        reason, is_fenced = transaction.lost_because, transaction.is_fenced
        self._tell_lost(self._losses.lost(transaction.key, transaction.sources, reason, is_fenced))

    def _tell_lost(self, lost: LostBucket) -> None:
        """It is to be taken over again: what is refused of it is waited for."""
        returning = self._refusals.returning(lost.sources)
        self._deliverer.on_lost(lost)
        self._refusals.return_with(returning)

    def _held(self, sources: Collection[TopicPartition]) -> Mapping[TopicPartition, Partition]:
        partitions = self._machine.partitions
        return {source: partitions[source] for source in partitions.keys() & sources}

    def _tell_refused(self, sources: Collection[TopicPartition], code: ErrorCode, said: str) -> None:
        self._refusals.tell(self._held(sources), code, said)

    def _have_gone_on(self, bucket: OwnedBucket) -> None:
        """A transaction was committed."""
        failures = self._losses.end(bucket.transaction.key)
        self._refusals.recovered(self._held(bucket.transaction.sources), failures)

    # ---- sources

    def _id_of(self, source: TopicPartition) -> SourceId:
        """Of a partition that is being copied."""
        return SourceId(
            cluster_id=self._source.cluster_id,
            topic_id=self._topic_id(source),
            partition=source,
            to=self._machine.partitions[source].lanes[0].destination.topic,
        )


def _key_of(assignment: Assignment) -> ProducerKey:
    return ProducerKey(assignment.bucket, 0, assignment.source if assignment.is_merged else None)
