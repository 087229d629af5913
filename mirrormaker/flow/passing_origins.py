"""Records that come to the source from elsewhere, on their way through an exactly-once route.

They have a transactional id for each bucket and path. It is taken over, as the bucket's own is, when the
first such record of the bucket is met, and only then is it read how far they have come: whoever writes has
fenced everybody else who could, and knows all that these did. What an owner before left open beyond that lies
behind the bucket's position, so it is met again, and aborted then.

Owned by the copier's event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection

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
from mirrormaker.flow.books import Books
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.owned_bucket import OwnedBucket, log_taken_over
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.positions import Arrival, SourceId, place_in
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.provenance import Provenance
from mirrormaker.flow.transaction_steps import HOME

RETRY_MS = 1_000

_log = logger("exactly_once")


class PassingOrigins:
    """See the module; of one route."""

    def __init__(
        self,
        provenance: Provenance,
        kept: KeptTopic,
        books: Books | None,
        *,
        bucket_of: Callable[[Partition], OwnedBucket | None],
        is_held: Callable[[OwnedBucket], bool],
        id_of: Callable[[TopicPartition], SourceId],
        on_refused: Callable[[Collection[TopicPartition], ErrorCode, str], None],
        on_taken: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        """`kept`: the topic of positions. `is_held`: whether the bucket is this process's as it was.
        `on_refused`: the destination refuses what these partitions wait for, and says why. `on_taken`: these
        wait no more; none where the bucket is not held.
        """
        self.provenance = provenance
        self._kept = kept
        self._books = books
        self._bucket_of = bucket_of
        self._is_held = is_held
        self._id_of = id_of
        self._on_refused = on_refused
        self._on_taken = on_taken
        self._wanted: dict[ProducerKey, set[TopicPartition]] = defaultdict(set)
        """Being taken over, and the partitions that wait for it."""
        self._not_taken: dict[ProducerKey, str] = {}
        """Why these could not be taken over, as the log says it already."""
        self._machine: FlowMachine
        self._tasks: asyncio.TaskGroup

    def begin(self, machine: FlowMachine, tasks: asyncio.TaskGroup) -> None:
        """See `DeliveryMode`."""
        self._machine, self._tasks = machine, tasks

    def is_ready(self, partition: Partition, origin: int) -> bool:
        """See `FencedOrigins`. Raises CorruptRecordsError where it cannot be told how far they have come."""
        if origin in partition.origin_floors:
            return True
        bucket = self._bucket_of(partition)
        if bucket is None or bucket.transaction.is_lost:
            return False
        if bucket.transaction.identity(origin) is None:
            self._want(bucket, origin, partition.source)
            return False
        self._find_floors(partition, origin, bucket)
        return True

    def awaits_refused(self, source: TopicPartition) -> bool:
        """Whether it waits for what could not be taken over."""
        return any(source in self._wanted.get(key, ()) for key in self._not_taken)

    def _want(self, bucket: OwnedBucket, origin: int, source: TopicPartition) -> None:
        wanted = bucket.key._replace(origin=origin)
        if wanted not in self._wanted:
            self._tasks.create_task(self._take_over(bucket, wanted), name=f"take {wanted} over")
        self._wanted[wanted].add(source)

    async def _take_over(self, bucket: OwnedBucket, wanted: ProducerKey) -> None:
        """Until that is done, or the bucket is not held: it may be another process's."""
        taken: Collection[TopicPartition] = ()
        try:
            while self._is_held(bucket):
                try:
                    identity = await bucket.fence(wanted.origin)
                    await self._kept.read_to_end()
                except (AuthenticationError, ConfigurationError):
                    raise
                except BrokerError as error:
                    self._tell_refused(bucket, wanted, error)
                    await asyncio.sleep(RETRY_MS / 1000)
                else:
                    log_taken_over(identity)
                    bucket.transaction.take_origin(wanted.origin, identity)
                    taken = self._wanted[wanted]
                    break
        finally:
            del self._wanted[wanted]
            self._not_taken.pop(wanted, None)
        self._on_taken(taken)

    def _tell_refused(self, bucket: OwnedBucket, wanted: ProducerKey, error: BrokerError) -> None:
        """Log it when it is another reason than before."""
        if not self._is_held(bucket):
            return
        if self._not_taken.get(wanted) != str(error):
            self._not_taken[wanted] = str(error)
            _log.warning("origin_not_taken_over", bucket=str(wanted), error=str(error))
        if isinstance(error, ProtocolError):
            self._on_refused(self._wanted[wanted] & bucket.transaction.sources, error.code, str(error))

    def _find_floors(self, partition: Partition, origin: int, bucket: OwnedBucket) -> None:
        """Before which offsets the destination has what comes from there; the books are told where. What was
        stored of a log that was another says nothing beyond the position. One that a process knew which was
        killed before it stored the position is the one that there is now.
        """
        path = self.provenance.been(origin)
        value = self._kept.get(self._id_of(partition.source).on(path).key())
        if value is None:
            partition.origin_floors[origin] = ()
            return
        try:
            destinations = [lane.destination for lane in partition.lanes]
            place = place_in(value, destinations, partition.spread)
            if place.logs_gone < bucket.logs_gone(partition):
                partition.origin_floors[origin] = ()
                return
            if any(each.end > partition.acknowledged for each in place.former):
                raise ValueError("its records are spread otherwise at the destination now")
        except ValueError as error:
            raise CorruptRecordsError(f"how far records from {path[0]} have come: {error}") from error
        bucket.take_logs_gone(partition, place.logs_gone)
        partition.origin_floors[origin] = place.lanes
        for arrival in place.arrived:
            if self._books is not None and arrival.first >= partition.lanes[arrival.lane].acknowledged:
                self._books.take(_copied(partition, origin, arrival))

    def take_copied(self, copied: Copied) -> None:
        """Records arrived; the books are told too."""
        if copied.origin != HOME:
            partition = self._machine.partitions[copied.source]
            bucket = self._bucket_of(partition)
            if bucket is not None:
                bucket.note_arrival(copied, partition)
        if self._books is not None:
            self._books.take(copied)


def _copied(partition: Partition, origin: int, arrival: Arrival) -> Copied:
    return Copied(
        source=partition.source,
        first=arrival.first,
        next=arrival.first + arrival.length,
        destination=partition.lanes[arrival.lane].destination,
        base_offset=arrival.to,
        count=arrival.length,
        crc=arrival.crc,
        source_crc=arrival.source_crc,
        max_timestamp=-1,
        append_time_ms=None,
        origin=origin,
    )
