"""One hosted partition's leadership, in-sync replicas and high watermark, as a pure machine.

    OFFLINE --lead--> LEADER --follow--> FOLLOWER --lead--> LEADER      any --stop--> OFFLINE

Rules. An order with a leader epoch below the current one is refused; with the same epoch it changes the ISR
and partition epoch alone. A leader's high watermark is the smallest log end offset of the maximal ISR (the
in-sync replicas, and those whose joining is being written): it never goes back while it leads. A new leader
knows nothing of its followers' ends, so it moves the high watermark only once each of them has fetched. A
follower takes the high watermark it is told, up to its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, Offset, TopicPartition

UNKNOWN_OFFSET = Offset(-1)


class Role(Enum):
    """What this node is to the partition."""

    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the controller says of a partition."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    partition_epoch: int


@dataclass(slots=True, kw_only=True)
class FollowerProgress:
    """What a leader knows of one follower."""

    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = 0
    """When it last had everything that the leader had at its previous fetch; monotonic."""
    fetched_at_ms: int = 0
    leader_end_at_fetch: int = 0


class Partition:
    """State of one partition on node `local`; offsets are log end offsets, times monotonic milliseconds."""

    __slots__ = (
        "_followers",
        "_joining",
        "_refusal",
        "assignment",
        "high_watermark",
        "local",
        "log_end_offset",
        "role",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        local: BrokerId,
        *,
        log_end_offset: int,
        high_watermark: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.local = local
        self.role = Role.OFFLINE
        self._refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.log_end_offset = log_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self.assignment = Assignment(
            leader=NO_LEADER, leader_epoch=LeaderEpoch(-1), isr=(), replicas=(), partition_epoch=-1
        )
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._joining: frozenset[BrokerId] = frozenset()

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.assignment.leader_epoch

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        return self.assignment.isr

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    # Orders of the controller

    def lead(self, assignment: Assignment, *, now_ms: int) -> bool:
        """Lead from now on; True when this is a new epoch.

        Raises ProtocolError STALE_CONTROLLER_EPOCH for an assignment that is older than the current one.
        """
        self._refuse_older(assignment)
        is_new = assignment.leader_epoch > self.leader_epoch or self.role is not Role.LEADER
        others = [replica for replica in assignment.replicas if replica != self.local]
        if is_new:
            self._followers = {replica: FollowerProgress(caught_up_ms=now_ms) for replica in others}
        else:
            known = self._followers
            self._followers = {
                replica: known.get(replica) or FollowerProgress(caught_up_ms=now_ms) for replica in others
            }
        self.assignment = assignment
        self.role = Role.LEADER
        self._joining = frozenset()
        self.advance()
        return is_new

    def follow(self, assignment: Assignment) -> bool:
        """Follow another leader, or none; True when this is a new epoch. Raises as `lead` does."""
        self._refuse_older(assignment)
        is_new = assignment.leader_epoch > self.leader_epoch or self.role is not Role.FOLLOWER
        self.assignment = assignment
        self.role = Role.FOLLOWER
        self._followers = {}
        self._joining = frozenset()
        return is_new

    def stop(self, refusal: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Neither lead nor follow until the next order; what is asked of a leader is refused so."""
        self.role = Role.OFFLINE
        self._refusal = refusal
        self._followers = {}

    # The log and the followers

    def appended(self, log_end_offset: int) -> bool:
        """The local log grew; True when the high watermark moved with it."""
        self.log_end_offset = log_end_offset
        return self.advance()

    def truncated(self, log_end_offset: int) -> None:
        """The local log was cut."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def fetched(self, follower: BrokerId, offset: int, *, now_ms: int) -> bool:
        """A follower asked for `offset`, so it has all before; True when the high watermark moved.

        Raises ProtocolError when the node is no replica of the partition.
        """
        progress = self._followers.get(follower)
        if progress is None:
            raise ProtocolError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {follower} holds no replica of {self.topic_partition}",
            )
        if offset >= self.log_end_offset:
            progress.caught_up_ms = now_ms
        elif offset >= progress.leader_end_at_fetch:
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_at_ms)
        progress.fetched_at_ms = now_ms
        progress.leader_end_at_fetch = self.log_end_offset
        progress.log_end_offset = offset
        return self.advance()

    def told_high_watermark(self, high_watermark: int) -> None:
        """The leader's high watermark, as a follower hears it."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.log_end_offset))

    def advance(self) -> bool:
        """Move a leader's high watermark as far as the maximal ISR allows; True when it moved."""
        if self.role is not Role.LEADER:
            return False
        committed = self.log_end_offset
        isr = self.assignment.isr
        if len(isr) > 1 or self._joining:
            committed = min(committed, self._smallest_end([*isr, *self._joining]))
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    # Changes of the ISR: proposed here, written by the driver, confirmed by `isr_changed`

    def laggards(self, *, lag_time_max_ms: int, now_ms: int) -> list[BrokerId]:
        """Members of the ISR that were not caught up for longer than the bound."""
        if self.role is not Role.LEADER:
            return []
        return [
            replica
            for replica, progress in self._followers.items()
            if replica in self.isr
            and progress.log_end_offset < self.log_end_offset
            and now_ms - progress.caught_up_ms > lag_time_max_ms
        ]

    def may_join(self, follower: BrokerId) -> bool:
        """Whether a follower outside the ISR has reached the high watermark."""
        progress = self._followers.get(follower)
        return (
            self.role is Role.LEADER
            and progress is not None
            and follower not in self.isr
            and follower not in self._joining
            and progress.log_end_offset >= self.high_watermark
        )

    def joining(self, followers: Sequence[BrokerId]) -> None:
        """The ISR is about to be written with these added: until told otherwise they count for the high
        watermark.
        """
        self._joining = self._joining.union(followers)

    def isr_changed(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> bool:
        """The ISR was written; True when the high watermark moved."""
        current = self.assignment
        self.assignment = Assignment(
            leader=current.leader,
            leader_epoch=current.leader_epoch,
            isr=isr,
            replicas=current.replicas,
            partition_epoch=partition_epoch,
        )
        self._joining = frozenset()
        return self.advance()

    # Checks

    def require_leader(self, expected_epoch: int = -1) -> None:
        """Raise ProtocolError unless this node leads, in the epoch that a client named (-1: any)."""
        if self.role is not Role.LEADER:
            code = self._refusal if self.role is Role.OFFLINE else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ProtocolError(code, f"broker {self.local} does not lead {self.topic_partition}")
        self.require_epoch(expected_epoch)

    def require_epoch(self, expected_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH when a client's leader epoch is not the current
        one.
        """
        if expected_epoch < 0 or expected_epoch == self.leader_epoch:
            return
        code = (
            ErrorCode.FENCED_LEADER_EPOCH
            if expected_epoch < self.leader_epoch
            else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
        raise ProtocolError(
            code, f"leader epoch of {self.topic_partition} is {self.leader_epoch}, not {expected_epoch}"
        )

    def require_in_sync(self, count: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS when fewer than `count` replicas are in sync."""
        if len(self.assignment.isr) < count:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(self.isr)} replicas in sync, min.insync.replicas is {count}",
            )

    def _smallest_end(self, replicas: Sequence[BrokerId]) -> int:
        ends = [self._followers[replica].log_end_offset for replica in replicas if replica in self._followers]
        return min(ends, default=self.log_end_offset)

    def _refuse_older(self, assignment: Assignment) -> None:
        current = self.assignment
        if (assignment.leader_epoch, assignment.partition_epoch) < (
            current.leader_epoch,
            current.partition_epoch,
        ):
            raise ProtocolError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"{self.topic_partition} is at epoch {current.leader_epoch}, not {assignment.leader_epoch}",
            )
