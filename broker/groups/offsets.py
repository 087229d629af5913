"""The offsets that one group committed: what the log says, what is still on its way to it, what has expired.

Nothing here is changed by a commit until the log has it: `begin` notes the partitions of a commit under way
(they are not expired meanwhile), `apply` takes in one record of the log, live or in recovery, and `end`
forgets that the commit was under way, whatever came of it. Offsets that were committed in a transaction wait
beside the others, by producer id, until `end_transaction` tells how it ended. What is later in the log
counts: an offset that waits is forgotten when a later one of its partition is taken in, as compaction would
have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from broker.errors import ErrorCode
from broker.groups.retention import Retention
from broker.types import TopicPartition

NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP_MS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A position that a group committed. `expire_timestamp_ms` is -1 unless the client asked for a retention
    of its own.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP_MS
    expire_timestamp_ms: int = NO_TIMESTAMP_MS


NOT_COMMITTED = CommittedOffset(offset=NO_OFFSET)
"""What a fetch shows for a partition without a committed offset."""

Commit = Mapping[TopicPartition, CommittedOffset]


class _Waiting(NamedTuple):
    """What a transaction committed; `turn` ascends in the order of the log."""

    turn: int
    committed: CommittedOffset | None


class Offsets:
    """Committed offsets of one group; owned by the group's driver."""

    def __init__(self, metadata_size_max: int) -> None:
        self._metadata_size_max = metadata_size_max
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._under_way: Counter[TopicPartition] = Counter()
        self._transactional: dict[int, dict[TopicPartition, _Waiting]] = {}
        self._transactional_under_way: Counter[TopicPartition] = Counter()
        self._turns = count()

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def is_empty(self) -> bool:
        """Nothing is committed, under way, or waiting for a transaction."""
        return not self._committed and not self._under_way and not self._transactional

    @property
    def is_settled(self) -> bool:
        """No commit is under way and no transaction is open."""
        return not self._under_way and not self._transactional

    @property
    def partitions(self) -> set[TopicPartition]:
        """Every partition that the log may hold an offset of."""
        waiting = (partition for offsets in self._transactional.values() for partition in offsets)
        return {*self._committed, *self._under_way, *waiting}

    @property
    def committed(self) -> Commit:
        return self._committed

    def errors(self, commit: Commit) -> dict[TopicPartition, ErrorCode]:
        """Partitions of `commit` that must not be written, each with the reason."""
        return {
            partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            for partition, committed in commit.items()
            if len(committed.metadata) > self._metadata_size_max
        }

    def begin(self, partitions: Collection[TopicPartition], *, transactional: bool = False) -> None:
        """A commit of these was handed to the log."""
        self._under_way.update(partitions)
        if transactional:
            self._transactional_under_way.update(partitions)

    def end(self, partitions: Collection[TopicPartition], *, transactional: bool = False) -> None:
        """The commit that began with these was written or has failed."""
        self._under_way.subtract(partitions)
        self._under_way += Counter()
        if transactional:
            self._transactional_under_way.subtract(partitions)
            self._transactional_under_way += Counter()

    def apply(self, partition: TopicPartition, committed: CommittedOffset | None) -> None:
        """Take in what the log says; None is a tombstone."""
        self._put(partition, committed)
        self._forget_waiting(partition, before=next(self._turns))

    def apply_transactional(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset | None
    ) -> None:
        """As `apply`, for a record that counts only if its transaction commits."""
        waiting = _Waiting(next(self._turns), committed)
        self._transactional.setdefault(producer_id, {})[partition] = waiting

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of `producer_id` ended: what it committed here counts now, or never."""
        offsets = self._transactional.pop(producer_id, {})
        for partition, (turn, offset) in offsets.items() if committed else ():
            self._put(partition, offset)
            self._forget_waiting(partition, before=turn)

    def _put(self, partition: TopicPartition, committed: CommittedOffset | None) -> None:
        if committed is None:
            self._committed.pop(partition, None)
        else:
            self._committed[partition] = committed

    def _forget_waiting(self, partition: TopicPartition, *, before: int) -> None:
        """Forget what waits for `partition` from before a turn."""
        for offsets in self._transactional.values():
            waiting = offsets.get(partition)
            if waiting is not None and waiting.turn < before:
                del offsets[partition]

    def is_stable(self, partition: TopicPartition) -> bool:
        """No open transaction is about to change the offset of `partition`."""
        return partition not in self._transactional_under_way and all(
            partition not in offsets for offsets in self._transactional.values()
        )

    def fetch(self, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of `partitions`, NOT_COMMITTED where there is none; None asks for all that there
        are.
        """
        if partitions is None:
            return dict(self._committed)
        return {partition: self._committed.get(partition, NOT_COMMITTED) for partition in partitions}

    def expired(self, retention: Retention, now_ms: int) -> list[TopicPartition]:
        """Partitions whose offsets have outlived their retention and have no commit under way. Source:
        KIP-211.
        """
        return [
            partition
            for partition, committed in self._committed.items()
            if partition.topic not in retention.kept_topics
            and partition not in self._under_way
            and self.is_stable(partition)
            and now_ms >= _expiry_ms(committed, retention)
        ]

    def of_topics(self, topics: Collection[str]) -> list[TopicPartition]:
        """Partitions of `topics` with a committed offset."""
        return [partition for partition in self._committed if partition.topic in topics]


def _expiry_ms(committed: CommittedOffset, retention: Retention) -> int:
    if committed.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return committed.expire_timestamp_ms
    base_ms = retention.base_timestamp_ms
    return (committed.commit_timestamp_ms if base_ms is None else base_ms) + retention.retention_ms
