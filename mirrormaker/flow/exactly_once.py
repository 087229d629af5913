"""Exactly once: data and positions of a bucket in one transaction at the destination.

Whoever takes a bucket over initializes its transactional id first, which fences the owner before and aborts
what that left open, and then reads how far its committed transactions came. `bucket_transaction` decides what
goes into a transaction and when it ends; this asks the destination. A bucket that is lost is given back to
the copier, which takes it over anew while its group says that it is this process's.

Owned by the copier's event loop; a task for each bucket.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.producer_identity import NO_IDENTITY
from broker.client.producer_identity import ProducerIdentity as ClientIdentity
from broker.client.producer_settings import ProducerSettings
from broker.client.transaction_requests import TransactionRequests
from broker.clock import Clock
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.bucket_transaction import (
    FENCED_CODES,
    AddPartitions,
    BucketTransaction,
    Commit,
    LanePositions,
    Phase,
    Step,
    TransactionTerms,
    WritePositions,
)
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.delivery import KnownStart, Say
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.positions import (
    POSITIONS_AT,
    POSITIONS_TOPIC,
    SourceId,
    has_predecessor,
    positions_in,
    transactional_id,
)
from mirrormaker.flow.positions_writer import PositionsWriter
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.remedies import Remedy
from mirrormaker.flow.signal import Signal
from mirrormaker.topology.model import RouteSpec, Start

TRANSACTION_TIMEOUT_MS = 15_000
"""Beside the commit interval: after so long the destination aborts what an owner that is gone, and that
nobody replaced, left open. A new owner aborts it at once.
"""
COORDINATOR_WAIT_MS = 10_000
"""How long a request to a coordinator is repeated before the bucket is given up."""
LOST_WAIT_MS = 100
LOST_WAIT_MAX_MS = 5_000
FENCED_WAIT_MS = 4_000
"""Longer than a heartbeat takes: the group tells by then whether the bucket is another's."""

_log = logger("exactly_once")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBucket:
    """A bucket that this process wrote and cannot go on writing as it did."""

    key: ProducerKey
    sources: frozenset[TopicPartition]
    reason: str
    is_fenced: bool
    """Somebody else has taken it over, or the destination aborted its transaction as too old."""
    wait_ms: int
    """Before it is taken over again, if it is still this process's."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Bucket:
    transaction: BucketTransaction
    requests: TransactionRequests
    writer: PositionsWriter
    work: Signal = field(default_factory=Signal)
    task: asyncio.Task[None] = field(init=False)


@asynccontextmanager
async def open_exactly_once(
    route: RouteSpec,
    source: Cluster,
    destination: Cluster,
    clock: Clock,
    *,
    on_lost: Callable[[LostBucket], None],
    on_progress: Callable[[], None],
) -> AsyncIterator[ExactlyOnce]:
    """The delivery of one route, with the topic of positions at hand. `on_lost`: the machine is to forget the
    partitions at once. `on_progress`: look at the machine again.

    Raises as `KeptTopic` does when it begins.
    """
    async with KeptTopic(destination, POSITIONS_TOPIC) as kept:
        lane = destination.new_lane("transactions")
        mode = ExactlyOnce(route, source, destination, clock, kept, lane, on_lost, on_progress)
        try:
            yield mode
        finally:
            await destination.release_lane(lane)


class ExactlyOnce:
    """See the module, `DeliveryMode` and `hooks` for what its methods say."""

    def __init__(
        self,
        route: RouteSpec,
        source: Cluster,
        destination: Cluster,
        clock: Clock,
        kept: KeptTopic,
        lane: str,
        on_lost: Callable[[LostBucket], None],
        on_progress: Callable[[], None],
    ) -> None:
        self.say = Say(
            admissions=(self,), delivery=self, remedies=self, obtain_identity=self._obtain_identity
        )
        self._route = route
        self._source = source
        self._destination = destination
        self._clock = clock
        self._kept = kept
        self._lane = lane
        self._on_lost = on_lost
        self._on_progress = on_progress
        self._machine: FlowMachine
        self._tasks: asyncio.TaskGroup
        self._topic_id: Callable[[TopicPartition], TopicId]
        self._buckets: dict[ProducerKey, _Bucket] = {}
        self._taking = asyncio.Lock()
        self._joining: dict[TopicPartition, tuple[ProducerKey, LanePositions | None]] = {}
        """Partitions that were taken over and have not joined yet, with what is stored of them."""
        self._losses: Counter[ProducerKey] = Counter()
        """In a row, without a commit in between."""
        self._taken = asyncio.Event()
        """Set, and replaced, when a bucket was taken over."""
        self._progress = Signal()

    # ---- the machine's side

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        return wanted

    def fetched(self, size: int, now_ms: int) -> None:
        pass

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        bucket = self._buckets.get(lane.key_of(chunk.origin))
        if bucket is None:
            return False
        if bucket.transaction.admit(lane, chunk):
            return True
        bucket.work.set()
        return False

    def wake_at_ms(self, now_ms: int) -> int | None:
        return None

    def position(self, partition: Partition) -> int:
        bucket = self._buckets.get(partition.lanes[0].key_of(0))
        stored = bucket.transaction.committed(partition.source) if bucket is not None else None
        return partition.committed if stored is None else stored

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        bucket = self._buckets.get(lane.key_of(chunk.origin))
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

    async def take_over(
        self, partitions: Collection[Assignment]
    ) -> Mapping[TopicPartition, KnownStart | None]:
        async with self._taking:
            return await self._take_over(partitions)

    async def _take_over(
        self, partitions: Collection[Assignment]
    ) -> Mapping[TopicPartition, KnownStart | None]:
        for assignment in partitions:
            bucket = self._buckets.get(_key_of(assignment))
            if bucket is not None and bucket.transaction.has_used(assignment.destinations):
                bucket.transaction.lose(f"{assignment.source} came back")
                self._give_back(bucket)
        missing = {_key_of(assignment) for assignment in partitions} - self._buckets.keys()
        outcomes = await asyncio.gather(*(self._fence(key) for key in missing), return_exceptions=True)
        for key, outcome in zip(missing, outcomes, strict=True):
            if isinstance(outcome, AuthenticationError | ConfigurationError) or (
                outcome is not None and not isinstance(outcome, BrokerError)
            ):
                raise outcome
            if outcome is not None:
                _log.warning("bucket_not_taken_over", bucket=str(key), error=str(outcome))
        await self._kept.read_to_end()
        self._taken.set()
        self._taken = asyncio.Event()
        found: dict[TopicPartition, KnownStart | None] = {}
        for assignment in partitions:
            key = _key_of(assignment)
            if key in self._buckets:
                found[assignment.source] = stored = self._find(assignment)
                self._joining[assignment.source] = key, None if isinstance(stored, Start) else stored
        return found

    def _find(self, assignment: Assignment) -> KnownStart | None:
        """What the topic of positions says. Raises ConfigurationError where no start is exact."""
        known = self._source.topics.get(assignment.source.topic)
        source = SourceId(
            cluster_id=self._source.cluster_id,
            topic_id=known.topic_id if known is not None else NO_TOPIC_ID,
            partition=assignment.source,
            to=assignment.destinations[0].topic,
        )
        lanes = len(assignment.destinations)
        value = self._kept.get(source.key())
        if value is None:
            is_anew = has_predecessor((key for key, _ in self._kept.entries()), source)
            return Start.EARLIEST if is_anew else None
        try:
            return positions_in(value, lanes)
        except ValueError as error:
            raise ConfigurationError([f"{POSITIONS_TOPIC}: {source.key()}: {error}"]) from error

    def joined(self, sources: Collection[TopicPartition]) -> None:
        for source in sources:
            partition = self._machine.partitions.get(source)
            key, stored = self._joining.pop(source, (None, None))
            bucket = None if key is None else self._buckets.get(key)
            if partition is None or key is None:
                continue
            if bucket is None:  # it was lost meanwhile
                self._on_lost(self._lost(key, frozenset({source}), "lost before it was copied"))
            else:
                bucket.transaction.join(partition, stored)
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
        for source in sources:
            self._joining.pop(source, None)
        awaited = {key for key, _ in self._joining.values()}
        for key, bucket in list(self._buckets.items()):
            for source in bucket.transaction.sources.intersection(sources):
                bucket.transaction.leave(source)
            bucket.work.set()
            if not bucket.transaction.sources and key not in awaited:
                del self._buckets[key]
                bucket.task.cancel()

    def acknowledged(self) -> None:
        for bucket in self._buckets.values():
            if bucket.transaction.phase is Phase.CLOSING:
                bucket.work.set()

    def note_of(self, source: TopicPartition) -> str:
        return ""

    def take_note(self, source: TopicPartition, position: int, note: str) -> None:
        pass

    # ---- buckets

    async def _fence(self, key: ProducerKey) -> None:
        """Become the only one who can write the bucket. Raises BrokerError."""
        name = transactional_id(self._route.name, key)
        requests = TransactionRequests(self._destination, name, self._settings(), lane=self._lane)
        identity, _ = await requests.init(NO_IDENTITY)
        assert identity is not None, "an initialized producer has an identity"
        own = ProducerIdentity(identity.producer_id, identity.epoch, name)
        transaction = BucketTransaction(key, own, POSITIONS_AT, self._terms(key), self._clock.monotonic_ms())
        bucket = _Bucket(
            transaction=transaction,
            requests=requests,
            writer=PositionsWriter(
                self._destination, own, self._clock, route=self._route.name, lane=self._lane
            ),
        )
        self._buckets[key] = bucket
        bucket.task = self._tasks.create_task(self._drive(bucket), name=f"transactions of {name}")
        _log.info("bucket_taken_over", transactional_id=name, epoch=own.epoch)

    def _settings(self) -> ProducerSettings:
        return ProducerSettings(
            transaction_timeout_ms=self._route.commit_interval_ms + TRANSACTION_TIMEOUT_MS,
            max_block_ms=COORDINATOR_WAIT_MS,
        )

    def _terms(self, key: ProducerKey) -> TransactionTerms:
        interval_ms = self._route.commit_interval_ms
        return TransactionTerms(
            interval_ms=interval_ms, phase_ms=interval_ms * key.bucket // self._route.buckets
        )

    async def _obtain_identity(self, key: ProducerKey) -> ProducerIdentity:
        """Of the bucket as it was taken over last. Lanes that ask have sent nothing under it: where they did,
        they are released, and ask anew when the bucket was taken over again.
        """
        while (bucket := self._buckets.get(key)) is None or bucket.transaction.is_lost:
            await self._taken.wait()
        return bucket.transaction.identity

    async def _drive(self, bucket: _Bucket) -> None:
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

    async def _try(self, bucket: _Bucket, step: Step) -> None:
        transaction = bucket.transaction
        try:
            refused = await self._take(bucket, step)
        except BrokerError as error:
            is_fenced = isinstance(error, ProtocolError) and error.code in FENCED_CODES
            transaction.lose(str(error), is_fenced=is_fenced)
            return
        transaction.done(self._clock.monotonic_ms(), refused)
        if isinstance(step, Commit):
            self._machine.counts.transactions += 1
            self._losses.pop(transaction.key, None)
        self._progress.set()
        self._on_progress()

    async def _take(self, bucket: _Bucket, step: Step) -> frozenset[TopicPartition]:
        """The partitions that were refused. Raises BrokerError when the bucket cannot go on."""
        match step:
            case AddPartitions(partitions=partitions):
                return await self._add(bucket, partitions)
            case WritePositions(positions=positions):
                await bucket.writer.write([(self._id_of(source), at) for source, at in positions.items()])
            case Commit():
                identity = _as_producer(bucket.transaction.identity)
                await bucket.requests.end(identity, commit=True, by_leaders=False)
        return frozenset()

    async def _add(self, bucket: _Bucket, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Partitions that may not be written are refused one by one, and hold nobody else back."""
        identity = _as_producer(bucket.transaction.identity)
        try:
            await bucket.requests.add_partitions(identity, partitions)
        except ProtocolError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED or partitions == {POSITIONS_AT}:
                raise
            if len(partitions) == 1:
                _log.warning("partition_not_writable", error=str(error))
                return partitions
        else:
            return frozenset()
        each = [await self._add(bucket, frozenset({partition})) for partition in sorted(partitions)]
        return frozenset().union(*each)

    def _give_back(self, bucket: _Bucket) -> None:
        """The bucket is lost: the copier may take it over again."""
        transaction = bucket.transaction
        if self._buckets.get(transaction.key) is not bucket:
            return
        del self._buckets[transaction.key]
        self._losses[transaction.key] += 1
        self._progress.set()
        self._on_lost(
            self._lost(transaction.key, transaction.sources, transaction.lost_because, transaction.is_fenced)
        )

    def _lost(
        self, key: ProducerKey, sources: frozenset[TopicPartition], reason: str, is_fenced: bool = False
    ) -> LostBucket:
        backoff_ms = min(LOST_WAIT_MS << min(self._losses[key], 16), LOST_WAIT_MAX_MS)
        wait_ms = max(backoff_ms, FENCED_WAIT_MS) if is_fenced else backoff_ms
        return LostBucket(key=key, sources=sources, reason=reason, is_fenced=is_fenced, wait_ms=wait_ms)

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


def _as_producer(identity: ProducerIdentity) -> ClientIdentity:
    return ClientIdentity(identity.producer_id, identity.epoch)
