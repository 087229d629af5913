"""What the destination refuses of partitions whose buckets are lost with that, and taken over again.

The lanes that tell what is refused go with their bucket: so that is remembered here until it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.facts import Fact, PartitionPaused, PartitionRecovered
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.flow.trouble import Trouble, kind_of_refusal


class BucketRefusals:
    """Of the partitions of one exactly-once delivery."""

    def __init__(
        self,
        on_fact: Callable[[Fact], None],
        find_refusal: Callable[[TopicPartition], Trouble | None],
        stored: Callable[[Partition], LanePositions | None],
        is_awaited: Callable[[TopicPartition], bool],
    ) -> None:
        """`find_refusal`: what a partition waits for. `stored`: its positions that are sure to be at the
        destination. `is_awaited`: whether records from elsewhere are refused of it.
        """
        self._on_fact = on_fact
        self._find_refusal = find_refusal
        self._stored = stored
        self._is_awaited = is_awaited
        self._returning: set[TopicPartition] = set()
        """Those with data that was refused as their bucket was lost, and that comes again."""

    def lost(self, partitions: Mapping[TopicPartition, Partition], code: ErrorCode | None, said: str) -> None:
        """The bucket of these is lost, with that code if with any."""
        self._returning |= {source for source, partition in partitions.items() if _is_refused(partition)}
        if code is not None:
            self.tell(partitions, code, said)

    def returning(self, sources: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of which data is refused, to be handed to `return_with` once they are given up."""
        return frozenset(self._returning.intersection(sources))

    def return_with(self, sources: Collection[TopicPartition]) -> None:
        """These are given up only to be taken over again."""
        self._returning |= set(sources)

    def leave(self, sources: Collection[TopicPartition]) -> None:
        """These are given up."""
        self._returning -= set(sources)

    def tell(self, partitions: Mapping[TopicPartition, Partition], code: ErrorCode, said: str) -> None:
        """What has to be written to commit is refused as long as that is repeated: no data, of which the
        machine tells, but positions, the ledger, or the coordinator's own state. Told unless that is known.
        """
        kind = kind_of_refusal(code)
        if kind is None:
            return
        for source, partition in sorted(partitions.items()):
            known = self._find_refusal(source)
            if known is None:
                self._returning.discard(source)
            if partition.trouble is None and (known is None or known.kind is not kind):
                self._on_fact(
                    PartitionPaused(
                        source=source,
                        destination=partition.lanes[0].destination,
                        error=code,
                        offset=partition.committed,
                        said=said,
                    )
                )

    def recovered(self, partitions: Mapping[TopicPartition, Partition], failures: int) -> None:
        """Of these something was taken: those that were refused before are so no more, unless just now."""
        for source, partition in sorted(partitions.items()):
            refusal = self._find_refusal(source)
            if refusal is None or _is_refused(partition) or self._is_awaited(source):
                continue
            if source in self._returning and not self._has_passed(partition, refusal):
                continue
            self._on_fact(PartitionRecovered(source=source, failures=failures))

    def _has_passed(self, partition: Partition, refusal: Trouble) -> bool:
        """Whether what was refused is committed."""
        stored = self._stored(partition)
        return stored is not None and min(stored) > refusal.position


def _is_refused(partition: Partition) -> bool:
    """Whether the destination refuses what comes next of it just now, and a policy is about that."""
    codes = [lane.refused_with for lane in partition.lanes]
    return any(code is not None and kind_of_refusal(code) for code in codes)
