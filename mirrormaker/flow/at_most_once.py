"""At most once: the source's group has a position before what lies before it is sent. Pure.

So nothing comes twice, whoever goes on where, and a crash loses what had been committed and was not there
yet: at most what the buffer holds, and a window of that where the destination takes nothing. With each
position the one that the destination had acknowledged is stored, so that the next owner can tell how much
that may be.

Lanes of a partition are not equally far at all times: one that fails throws away what it has not sent, and
all are where they are when they are stopped. Then each lane's own position is stored, and it goes on there
(see `lane_note`). Where that cannot be, as ZooKeeper keeps no notes, all count as far as the furthest, and
what the others lack is told.

A chunk that may have been written is repeated only under its own sequence numbers, which the destination
knows again. When that is no longer possible, or does not help, it is given up, and told of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker.errors import BrokerError, ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.delivery import AtLeast, GroupDelivery, Kept, KnownStart, Say
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.facts import Fact, RecordsMaybeLost
from mirrormaker.flow.lane import BATCHES_REMEMBERED, Lane, LaneState
from mirrormaker.flow.lane_note import Arrears, arrears, note_of
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.positions import Place
from mirrormaker.flow.progress import acknowledged
from mirrormaker.flow.remedies import Remedy, remedy_for
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.flow.withdrawal import Withdrawal

REPEATS_MAX = 10
"""Failures in a row after which a chunk of which nobody knows whether it was written is given up."""


class AtMostOnce(GroupDelivery):
    """See the module, and `hooks` for what its methods say."""

    def __init__(
        self,
        *,
        keeps_notes: bool,
        on_waiting: Callable[[], None],
        on_fact: Callable[[Fact], None],
        on_not_taken: Callable[[TopicPartition, BrokerError], None],
        withdrawal: Withdrawal | None = None,
    ) -> None:
        """`keeps_notes`: more than positions can be stored. `on_waiting`: something waits for a position to
        be committed. `on_not_taken`: why a partition is left out by `take_over`.
        """
        super().__init__(withdrawal)
        self.say = Say(admissions=(self,), delivery=self, remedies=self)
        self._kept: dict[TopicPartition, Kept] = {}
        self._untold: set[TopicPartition] = set()
        """Partitions of which the group was told nothing since they were taken over."""
        self._keeps_notes = keeps_notes
        self._on_waiting = on_waiting
        self._on_fact = on_fact
        self._on_not_taken = on_not_taken

    # ---- the machine's side

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        return wanted

    def fetched(self, size: int, now_ms: int) -> None:
        pass

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        if chunk.base_sequence >= 0 or chunk.next_offset <= lane.committed:
            return True
        self._on_waiting()
        return False

    def wake_at_ms(self, now_ms: int) -> int | None:
        return None

    def position(self, partition: Partition) -> int:
        return self._kept_of(partition).position

    def _kept_of(self, partition: Partition) -> Kept:
        """What may be sent next counts as sent; once nothing more will be, what may be there."""
        lanes, there = _reach(partition), acknowledged(partition)
        destinations = tuple(lane.destination for lane in partition.lanes)
        place = Place(lanes, destinations=destinations, former=partition.former, spread=partition.spread)
        note = note_of(place, there)
        if self._keeps_notes and note is not None:
            return Kept(min(lanes), note, lanes)
        furthest = max((*lanes, *(former.end for former in partition.former)))
        return Kept(furthest, str(min(there)), (furthest,) * len(lanes))

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        remedy = remedy_for(code, several_batches=chunk.batches > 1, failures=lane.attempts)
        if not any(each.maybe_written for each in lane.queue):
            return remedy
        if remedy is Remedy.REPEAT and lane.attempts <= REPEATS_MAX:
            return remedy
        return Remedy.SKIP

    # ---- the copier's side

    async def take_over(
        self, partitions: Collection[Assignment]
    ) -> Mapping[TopicPartition, KnownStart | None]:
        """An owner that was killed while the route was exactly once may have told the group less than it had
        committed at the destination.
        """
        if self._withdrawal is None:
            return await super().take_over(partitions)
        found = await self._withdrawal.find(partitions)
        for source, error in found.failures.items():
            self._on_not_taken(source, error)
        places = {source: AtLeast(place) for source, place in found.places.items()}
        sources = {each.source for each in partitions} - found.failures.keys()
        return {source: places.get(source) for source in sources}

    def joined(self, sources: Collection[TopicPartition]) -> None:
        """What the destination says of them counts until the group has been told as much."""
        self._untold |= set(sources)

    def keep(self, source: TopicPartition, position: int, reached: LanePositions) -> Kept | None:
        """As far as lanes are now: what lies beyond is not sent before it is stored that they are further."""
        partition = self._machine.partitions.get(source)
        if partition is None:
            return None
        kept = self._kept_of(partition)
        partition.commit_lanes([min(each) for each in zip(kept.lanes, _committed(partition), strict=True)])
        return kept

    def kept(self, kept: Mapping[TopicPartition, Kept]) -> None:
        """See `DeliveryMode`."""
        self._kept |= kept
        told = self._untold & kept.keys()
        if told:
            self._untold -= told
            super().joined(told)
        for source, each in kept.items():
            if source in self._machine.partitions:
                self._machine.partitions[source].commit_lanes(each.lanes)

    def unnoted(self) -> Mapping[TopicPartition, int]:
        """What was on its way when positions were stored has arrived since, or a lane is further. Of one of
        which nothing was stored by this process, what the owner before had on its way is told by now, and not
        on its way any more. Of a partition that stands, or that the source has not answered for, nobody knows
        whether its topic is the one that was read.
        """
        return {
            source: kept.position
            for source, partition in self._machine.partitions.items()
            if partition.trouble is None
            and self._is_answered_for(partition)
            and self._kept.get(source) != (kept := self._kept_of(partition))
        }

    def _is_answered_for(self, partition: Partition) -> bool:
        return partition.source in self._kept or (self._keeps_notes and partition.source_end >= 0)

    def leaving(self, sources: Collection[TopicPartition]) -> None:
        """See `DeliveryMode`. What lanes lack is told here where it cannot be stored."""
        self._untold -= set(sources)
        for source in sources:
            self._kept.pop(source, None)
            partition = self._machine.partitions.get(source)
            if partition is not None and not self._keeps_notes and _is_stopping(partition):
                lacked = arrears(self._kept_of(partition).lanes, acknowledged(partition))
                tell_arrears(self._machine, self._on_fact, source, lacked)


def tell_arrears(
    machine: FlowMachine, on_fact: Callable[[Fact], None], source: TopicPartition, lacked: Arrears | None
) -> None:
    """What was on its way when a partition's owner ended, if that was anything, is not sent any more."""
    if lacked is not None:
        machine.counts.records_maybe_lost += lacked.count
        on_fact(
            RecordsMaybeLost(
                source=source, first=lacked.first, next=lacked.next, count=lacked.count, error=None
            )
        )


def _is_stopping(partition: Partition) -> bool:
    return any(lane.state is LaneState.STOPPING for lane in partition.lanes)


def _committed(partition: Partition) -> LanePositions:
    return tuple(lane.committed for lane in partition.lanes)


def _reach(partition: Partition) -> LanePositions:
    """By lane, behind everything that may be at the destination before this is asked again."""
    if _is_stopping(partition):
        return tuple(map(_maybe_written_to, partition.lanes))
    return tuple(map(_may_be_written_to, partition.lanes))


def _may_be_written_to(lane: Lane) -> int:
    """Behind what may be sent until it is asked again: everything that is queued; where the destination takes
    nothing, what it may have, and a window of what is next.
    """
    takes = lane.state is LaneState.COPYING and lane.leader is not None and not lane.attempts
    if takes or len(lane.queue) <= BATCHES_REMEMBERED:
        return lane.position
    return max(lane.queue[BATCHES_REMEMBERED - 1].next_offset, _maybe_written_to(lane))


def _maybe_written_to(lane: Lane) -> int:
    """Behind everything that may be at the destination."""
    ends = (chunk.next_offset for chunk in lane.queue if chunk.in_flight or chunk.maybe_written)
    return max(ends, default=lane.acknowledged)
