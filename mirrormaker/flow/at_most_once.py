"""At most once: the source's group has a position before what lies before it is sent. Pure.

So nothing comes twice, whoever goes on where, and a crash loses what had been committed and was not there
yet: at most what the buffer holds. With each position the one that the destination had acknowledged is
stored, so that the next owner can tell how much that may be.

A chunk that may have been written is repeated only under its own sequence numbers, which the destination
knows again. When that is no longer possible, or does not help, it is given up, and told of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.delivery import GroupDelivery, Say
from mirrormaker.flow.facts import Fact, RecordsMaybeLost
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.remedies import Remedy, remedy_for

REPEATS_MAX = 10
"""Failures in a row after which a chunk of which nobody knows whether it was written is given up."""


class AtMostOnce(GroupDelivery):
    """See the module, and `hooks` for what its methods say."""

    def __init__(self, *, on_waiting: Callable[[], None], on_fact: Callable[[Fact], None]) -> None:
        """`on_waiting`: something waits for a position to be committed."""
        self.say = Say(admissions=(self,), delivery=self, remedies=self)
        self._noted: dict[TopicPartition, str] = {}
        self._on_waiting = on_waiting
        self._on_fact = on_fact

    # ---- the machine's side

    def fetch_bytes(self, partition: Partition, wanted: int, now_ms: int) -> int:
        return wanted

    def fetched(self, size: int, now_ms: int) -> None:
        pass

    def may_send(self, lane: Lane, chunk: Chunk, now_ms: int) -> bool:
        if chunk.base_sequence >= 0 or chunk.next_offset <= lane.partition.committed:
            return True
        self._on_waiting()
        return False

    def wake_at_ms(self, now_ms: int) -> int | None:
        return None

    def position(self, partition: Partition) -> int:
        """Everything that is queued may be sent next; once nothing more will be sent, what may be there."""
        if any(lane.state is LaneState.STOPPING for lane in partition.lanes):
            return min(_maybe_written_to(lane) for lane in partition.lanes)
        return partition.position

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        remedy = remedy_for(code, several_batches=chunk.batches > 1, failures=lane.attempts)
        if not any(each.maybe_written for each in lane.queue):
            return remedy
        if remedy is Remedy.REPEAT and lane.attempts <= REPEATS_MAX:
            return remedy
        return Remedy.SKIP

    # ---- the copier's side

    def note_of(self, source: TopicPartition) -> str:
        """What the destination has at least."""
        partition = self._machine.partitions.get(source)
        return "" if partition is None else str(max(partition.acknowledged, 0))

    def noted(self, notes: Mapping[TopicPartition, str]) -> None:
        """See `DeliveryMode`."""
        self._noted |= notes

    def unnoted(self) -> Mapping[TopicPartition, int]:
        """What was on its way when positions were stored has arrived since. Of a partition that stands, or
        of which nothing was stored by this process, nobody knows whether its topic is the one that was read.
        """
        return {
            source: self.position(partition)
            for source, partition in self._machine.partitions.items()
            if partition.trouble is None
            and source in self._noted
            and self._noted[source] != self.note_of(source)
        }

    def leaving(self, sources: Collection[TopicPartition]) -> None:
        """See `DeliveryMode`."""
        for source in sources:
            self._noted.pop(source, None)

    def take_note(self, source: TopicPartition, position: int, note: str) -> None:
        """What was on its way when this partition's last owner ended."""
        if note.isdigit() and (missing := position - int(note)) > 0:
            self._machine.counts.records_maybe_lost += missing
            self._on_fact(
                RecordsMaybeLost(source=source, first=int(note), next=position, count=missing, error=None)
            )


def _maybe_written_to(lane: Lane) -> int:
    """Behind everything that may be at the destination."""
    ends = (chunk.next_offset for chunk in lane.queue if chunk.in_flight or chunk.maybe_written)
    return max(ends, default=lane.acknowledged)
