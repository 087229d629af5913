"""A bucket of an exactly-once route as its owner has it: its transactions, and the requests that they take.

Owned by the copier's event loop; one step is taken at a time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from broker.client.cluster import Cluster, CoordinatorNotToldError
from broker.client.operations import DESCRIBE, WRITE
from broker.client.producer_identity import NO_IDENTITY
from broker.client.producer_identity import ProducerIdentity as ClientIdentity
from broker.client.producer_settings import ProducerSettings
from broker.client.transaction_requests import TransactionRequests
from broker.clock import Clock
from broker.errors import ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.books import BucketBooks
from mirrormaker.flow.bucket_transaction import BucketTransaction
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.positions import POSITIONS_AT, Arrival, Place, SourceId, transactional_id, value_of
from mirrormaker.flow.producers import ProducerIdentity, ProducerKey
from mirrormaker.flow.provenance import Path
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.transaction_steps import (
    HOME,
    AddPartitions,
    Commit,
    LanePositions,
    Places,
    Refusals,
    Step,
    TransactionTerms,
    Write,
)
from mirrormaker.flow.transaction_writer import TransactionWriter
from mirrormaker.missing_rights import UNAUTHORIZED_CODES, missing_right, right_to_write
from mirrormaker.topology.model import RouteSpec

TRANSACTION_TIMEOUT_MS = 25_000
"""Beside the commit interval: after so long the destination aborts what an owner that is gone, and that
nobody replaced, left open. A new owner aborts it at once. Longer than a commit is put off
(`commit_times`) and its last batches may take to settle, together.
"""
COORDINATOR_WAIT_MS = 10_000
"""How long a request to a coordinator is repeated before the bucket is given up."""
ARRIVALS_MAX = 10_000
"""Stretches of records from elsewhere that a position tells of, some 500 KB. Transactions end before there
are so many (`passing_runs_max`), but for one chunk with more: of what is beyond, where it is is not known.
"""

_T = TypeVar("_T")

_log = logger("exactly_once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terrain:
    """Where the buckets of a route are, and how their records are named there."""

    route: RouteSpec
    destination: Cluster
    clock: Clock
    lane: str
    """The connections to use."""
    path_of: Callable[[int], Path]
    """By number of an origin, the clusters where its records have been before the source."""
    id_of: Callable[[TopicPartition], SourceId]
    """Of a partition that is being copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Producer:
    """Under which records of one origin go."""

    name: str
    """The transactional id."""
    identity: ClientIdentity
    requests: TransactionRequests
    writer: TransactionWriter


class OwnedBucket:
    """See the module; from `open` until it is lost or given up."""

    def __init__(self, key: ProducerKey, terrain: Terrain, books: BucketBooks | None) -> None:
        self.key = key
        self.work = Signal()
        self.task: asyncio.Task[None] | None = None
        self.transaction: BucketTransaction
        self._terrain = terrain
        self._books = books
        self._producers: dict[int, _Producer] = {}
        self._arrived: dict[tuple[int, TopicPartition], list[Arrival]] = defaultdict(list)
        """By origin and source, what the transaction at hand brought from elsewhere."""
        self._logs_gone: dict[TopicPartition, int] = {}
        """Of its partitions, as they joined."""

    async def open(self) -> ProducerIdentity:
        """Become the only one who can write the bucket, under this. Raises BrokerError."""
        identity = await self.fence(HOME)
        clock = self._terrain.clock
        self.transaction = BucketTransaction(
            self.key, identity, POSITIONS_AT, self._terms(), clock.monotonic_ms(), self._books
        )
        return identity

    async def fence(self, origin: int) -> ProducerIdentity:
        """Become the only one who can write what came from there. Raises BrokerError."""
        terrain = self._terrain
        name = transactional_id(terrain.route.name, self.key, terrain.path_of(origin))
        timeout_ms = terrain.route.commit_interval_ms + TRANSACTION_TIMEOUT_MS
        settings = ProducerSettings(transaction_timeout_ms=timeout_ms, max_block_ms=COORDINATOR_WAIT_MS)
        requests = TransactionRequests(terrain.destination, name, settings, lane=terrain.lane)
        with self._needing(name), self._lasting(timeout_ms):
            identity, _ = await requests.init(NO_IDENTITY)
        assert identity is not None, "an initialized producer has an identity"
        own = ProducerIdentity(identity.producer_id, identity.epoch, name)
        writer = TransactionWriter(terrain.destination, own, terrain.clock, lane=terrain.lane)
        self._producers[origin] = _Producer(name=name, identity=identity, requests=requests, writer=writer)
        return own

    def _terms(self) -> TransactionTerms:
        route = self._terrain.route
        interval_ms = route.commit_interval_ms
        return TransactionTerms(
            interval_ms=interval_ms, phase_ms=interval_ms * self.key.bucket // route.buckets
        )

    # ---- partitions

    def join(self, partition: Partition, stored: Place | None) -> None:
        """It is copied from where it stands; `stored`: what the destination says of it."""
        self.transaction.join(partition, None if stored is None else stored.lanes)
        self._logs_gone[partition.source] = 0 if stored is None else stored.logs_gone

    def logs_gone(self, partition: Partition) -> int:
        """How often its log became another, as the destination is told it."""
        return self._logs_gone[partition.source] + partition.logs_gone

    def take_logs_gone(self, partition: Partition, count: int) -> None:
        """It became another so often by what the destination was told of records from elsewhere."""
        self._logs_gone[partition.source] = count - partition.logs_gone

    def note_arrival(self, copied: Copied, partition: Partition) -> None:
        """Records from elsewhere have arrived."""
        lane = next(lane.index for lane in partition.lanes if lane.destination == copied.destination)
        arrived = self._arrived[copied.origin, copied.source]
        for run, to in copied.source_runs():
            is_whole = run.length == copied.count
            sums = (copied.crc, copied.source_crc) if is_whole else (None, None)
            _put(arrived, Arrival(lane, run.first, run.length, to, *sums))

    # ---- steps

    async def take(self, step: Step, partitions: Mapping[TopicPartition, Partition]) -> Refusals:
        """Take one; the partitions that were refused. Raises BrokerError when the bucket cannot go on."""
        match step:
            case AddPartitions(places=places):
                return await self._add_all(places)
            case Write(positions=positions, entries=entries):
                writes = [
                    self._write_positions(origin, each, partitions) for origin, each in positions.items()
                ]
                if entries:
                    writes.append(self._write_entries(entries))
                await _all_of(writes)
            case Commit(origins=origins):
                await _all_of(self._commit(self._producers[origin]) for origin in origins)
                if HOME in origins:
                    self._arrived.clear()
        return {}

    async def _commit(self, producer: _Producer) -> None:
        with self._needing(producer.name):
            await producer.requests.end(producer.identity, commit=True, by_leaders=False)

    async def _write_positions(
        self,
        origin: int,
        positions: Mapping[TopicPartition, LanePositions],
        partitions: Mapping[TopicPartition, Partition],
    ) -> None:
        entries = []
        path = self._terrain.path_of(origin)
        for source, lanes in positions.items():
            partition = partitions[source]
            destinations = tuple(lane.destination for lane in partition.lanes)
            logs_gone, spread = self.logs_gone(partition), partition.spread
            place = Place(lanes, destinations=destinations, logs_gone=logs_gone, spread=spread)
            if origin == HOME:
                epoch = partition.epochs.told_before(min(lanes))
                place = place._replace(leader_epoch=epoch, former=partition.former)
            else:
                place = place._replace(arrived=tuple(self._arrived[origin, source]))
            key = self._terrain.id_of(source).on(path).key()
            entries.append((key, value_of(self._terrain.route.name, place)))
        with self._needing(self._producers[origin].name, POSITIONS_AT.topic):
            await self._producers[origin].writer.write(POSITIONS_AT, entries)

    async def _write_entries(self, entries: Iterable[Entry]) -> None:
        assert self._books is not None
        try:
            with self._needing(self._producers[HOME].name, self._books.at.topic):
                await self._producers[HOME].writer.write(self._books.at, entries)
        except ProtocolError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._books.refused()  # what is copied anew is committed without
            raise

    @contextmanager
    def _lasting(self, timeout_ms: int) -> Iterator[None]:
        """Where the destination allows no transactions that long, which settings say so is told."""
        try:
            yield
        except ProtocolError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise ProtocolError(
                error.code,
                f"'commit_interval_ms' is too long for {self._terrain.destination.name!r}: a transaction of"
                f" {timeout_ms // 1000} s is beyond its 'transaction.max.timeout.ms'",
            ) from error

    @contextmanager
    def _needing(self, transactional_id: str, topic: str = "") -> Iterator[None]:
        """What is done within takes the right to write both; of what is lacking is told which, and where."""
        try:
            yield
        except ProtocolError as error:
            if error.code not in UNAUTHORIZED_CODES:
                raise
            destination, name, needed = self._terrain.destination, transactional_id, WRITE
            if isinstance(error, CoordinatorNotToldError):
                needed = DESCRIBE
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                name, needed = topic, right_to_write(destination.topics.get(topic))
            raise missing_right(error.code, destination.name, name, needed) from error

    async def _add_all(self, places: Places) -> Refusals:
        by_origin: dict[int, set[TopicPartition]] = defaultdict(set)
        for origin, destination in places:
            by_origin[origin].add(destination)
        refused = await _all_of(
            self._add(self._producers[origin], frozenset(each)) for origin, each in by_origin.items()
        )
        pairs = zip(by_origin, refused, strict=True)
        outcome = {
            (origin, destination): code for origin, each in pairs for destination, code in each.items()
        }
        if self._books is not None and (HOME, self._books.at) in outcome:
            self._books.refused()
        return outcome

    async def _add(
        self, producer: _Producer, partitions: frozenset[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Partitions that may not be written, or are not there, are refused one by one, and hold nobody else
        back. The mirror's own topics are made again, and waited for.
        """
        own = {POSITIONS_AT} if self._books is None else {POSITIONS_AT, self._books.at}
        requests, awaits_topics = producer.requests, partitions <= own
        try:
            with self._needing(producer.name, min(partitions).topic):
                await requests.add_partitions(producer.identity, partitions, awaits_topics=awaits_topics)
        except ProtocolError as error:
            is_absent = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not awaits_topics
            is_refused = is_absent or error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if not is_refused or partitions == {POSITIONS_AT}:
                raise
            if len(partitions) == 1:
                return dict.fromkeys(partitions, error.code)
        else:
            return {}
        each = [await self._add(producer, frozenset({partition})) for partition in sorted(partitions)]
        return {partition: code for refused in each for partition, code in refused.items()}


def log_taken_over(identity: ProducerIdentity) -> None:
    """Nobody else can write under it any more."""
    _log.info("bucket_taken_over", transactional_id=identity.transactional_id, epoch=identity.epoch)


def _put(arrived: list[Arrival], arrival: Arrival) -> None:
    """The stretch after these; of those beyond the bound, one of each lane."""
    if len(arrived) >= ARRIVALS_MAX:
        arrival = arrival._replace(to=None, crc=None, source_crc=None)
    beyond = range(ARRIVALS_MAX, len(arrived)) if arrival.to is None else ()
    for index in (*beyond, *range(len(arrived) - 1, len(arrived))):
        if index >= 0 and (joined := arrived[index].followed_by(arrival)) is not None:
            arrived[index] = joined
            return
    arrived.append(arrival)


async def _all_of(tasks: Iterable[Awaitable[_T]]) -> list[_T]:
    """All at once, and what each returns. Raises the first failure once all are done."""
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    found: list[_T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        found.append(outcome)
    return found
