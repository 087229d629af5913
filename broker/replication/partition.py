"""One hosted partition's leadership, in-sync replicas and high watermark, as a pure machine.

    OFFLINE --lead--> LEADER --follow--> FOLLOWER --lead--> LEADER      any --stop--> OFFLINE

Rules.

Orders. One with a leader epoch below the current one is refused; with the same epoch it changes the replicas,
the ISR and the partition epoch alone.

High watermark. A leader's is the smallest log end offset of the maximal ISR: the in-sync replicas, those
whose joining is being written, and the leader itself. It never goes back while it leads. A new leader knows
nothing of its followers' ends, so it moves it only once each of them has fetched in its epoch. Followers that
are about to join hold it back too, for as long as they keep up: a busy leader would run away from them for
ever. A follower takes the high watermark it is told, up to its own end.

Fetches of followers. An end counts that was fetched in the current epoch by a broker epoch that is not older
than the one seen before.

Changes of the ISR. One at a time is proposed, to be written on condition that the state is at the partition
epoch that it was proposed for. Until it is known what became of it, or a newer order comes, those that it
adds count for the high watermark and those that it removes still do: a write whose outcome is unknown may
take effect late, so it is written again until it succeeds or is refused. One that is refused because another
wrote the state stays in force too, and nothing more is proposed before the next order: that other may have
seen it written.

Joining takes a follower that has reached the high watermark and the start of the leader's epoch: below that
start there may be committed records that this leader does not yet know to be committed. Who left the ISR has
to fetch again first.

Leaving: a member that was not caught up for too long, that is too many records behind where that is bounded,
that turns out to have lost what it had (it fetches below the high watermark), or that is away: the controller
says so, but leaves it to the leader to take it out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from broker.errors import ErrorCode, ProtocolError
from broker.replication.follower_progress import (
    NEVER_MS,
    UNKNOWN_OFFSET,
    FollowerProgress,
    LagBounds,
)
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition


class Role(Enum):
    """What this node is to the partition."""

    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the controller says of a partition. `controller_epoch` is that of who wrote its state last."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    partition_epoch: int
    controller_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A proposed ISR, to be written if the state is still at `partition_epoch`."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[BrokerId, ...]


class Partition:
    """State of one partition on node `local`; offsets are log end offsets, times monotonic milliseconds."""

    __slots__ = (
        "_absent",
        "_change",
        "_counted",
        "_followers",
        "_is_superseded",
        "_refusal",
        "assignment",
        "epoch_start_offset",
        "flushed_end",
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
        self.flushed_end: int | None = None
        """What of its own log a leader counts for the high watermark, where that is to be on the disk before
        anybody may rely on it; None: all of it.
        """
        self.high_watermark = min(high_watermark, log_end_offset)
        self.epoch_start_offset = log_end_offset
        """Where the log ended when this node began to lead in the current epoch."""
        self.assignment = Assignment(
            leader=NO_LEADER, leader_epoch=LeaderEpoch(-1), isr=(), replicas=(), partition_epoch=-1
        )
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._counted: tuple[FollowerProgress, ...] = ()
        """Those followers that the high watermark waits for."""
        self._absent: tuple[BrokerId, ...] = ()
        """Replicas whose brokers are not alive, or lost their disk."""
        self._change: IsrChange | None = None
        self._is_superseded = False
        """Whether another wrote the state, and nothing is to be proposed before the next order."""

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.assignment.leader_epoch

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        return self.assignment.isr

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """The ISR, united with the one that is being written."""
        proposed = self._change.isr if self._change is not None else ()
        return frozenset((*self.assignment.isr, *proposed))

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def has_followers(self) -> bool:
        """Whether this node leads, and others hold replicas."""
        return bool(self._followers)

    @property
    def is_settled(self) -> bool:
        """Whether a leader's high watermark has reached what its log held when its epoch began: before, more
        may be committed than it knows.
        """
        return self.high_watermark >= self.epoch_start_offset

    # Orders of the controller

    def lead(self, assignment: Assignment, *, now_ms: int) -> bool:
        """Lead from now on; True when this is a new epoch.

        Raises ProtocolError STALE_CONTROLLER_EPOCH for an assignment that is older than the current one.
        """
        self._refuse_older(assignment)
        is_new = assignment.leader_epoch > self.leader_epoch or self.role is not Role.LEADER
        known = {} if is_new else self._followers
        others = dict.fromkeys((*assignment.replicas, *assignment.isr))
        others.pop(self.local, None)
        for follower, progress in known.items():
            progress.isr_changed(was_in_sync=follower in self.isr, is_in_sync=follower in assignment.isr)
        self._followers = {
            replica: known.get(replica)
            or FollowerProgress(caught_up_ms=now_ms if replica in assignment.isr else NEVER_MS)
            for replica in others
        }
        if is_new:
            self.epoch_start_offset = self.log_end_offset
        if is_new or assignment.partition_epoch > self.assignment.partition_epoch:
            self._change, self._is_superseded = None, False
        self.assignment = assignment
        self.role = Role.LEADER
        self._recount()
        self.advance()
        return is_new

    def follow(self, assignment: Assignment) -> bool:
        """Follow another leader, or none; True when this is a new epoch. Raises as `lead` does."""
        self._refuse_older(assignment)
        is_new = assignment.leader_epoch > self.leader_epoch or self.role is not Role.FOLLOWER
        self.assignment = assignment
        self.role = Role.FOLLOWER
        self._forget_followers()
        return is_new

    def stop(self, refusal: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Neither lead nor follow until the next order; what is asked of a leader is refused so."""
        self.role = Role.OFFLINE
        self._refusal = refusal
        self._forget_followers()

    def told_absent(self, absent: tuple[BrokerId, ...]) -> bool:
        """The replicas that are away; True when this node leads and some of them are in its ISR."""
        self._absent = absent
        return self.is_leader and any(replica in self.assignment.isr for replica in absent)

    # The log and the followers

    def appended(self, log_end_offset: int) -> bool:
        """The local log grew; True when the high watermark moved with it."""
        self.log_end_offset = log_end_offset
        return self.advance()

    def truncated(self, log_end_offset: int) -> None:
        """The local log was cut."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def fetched(
        self,
        follower: BrokerId,
        offset: int,
        *,
        broker_epoch: int,
        now_ms: int,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> bool:
        """A follower whose log starts there asked for `offset` in the current leader epoch, so it has all
        before; True when the high watermark moved.

        Raises ProtocolError: UNKNOWN_LEADER_EPOCH when the node holds no replica, NOT_LEADER_OR_FOLLOWER when
        it has been registered anew since it sent this.
        """
        progress = self._progress(follower)
        if broker_epoch < progress.broker_epoch:
            raise ProtocolError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {follower} has registered since: its epoch is {progress.broker_epoch}",
            )
        progress.broker_epoch = broker_epoch
        keeps_up = progress.fetched(
            offset, self.log_end_offset, log_start_offset=log_start_offset, now_ms=now_ms
        )
        if keeps_up and not progress.is_awaited and follower not in self.assignment.isr:
            progress.is_awaited = True
            self._recount()
        return self.advance()

    def told_high_watermark(self, high_watermark: int) -> None:
        """The leader's high watermark, as a follower hears it."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.log_end_offset))

    def advance(self) -> bool:
        """Move a leader's high watermark as far as the maximal ISR allows; True when it moved."""
        if self.role is not Role.LEADER:
            return False
        committed = self.log_end_offset if self.flushed_end is None else self.flushed_end
        for progress in self._counted:
            committed = min(committed, progress.log_end_offset)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def progress_of(self, follower: BrokerId) -> FollowerProgress:
        """What is known of it. Raises ProtocolError UNKNOWN_LEADER_EPOCH for one without a replica."""
        return self._progress(follower)

    def count_holding(self, next_offset: int) -> int:
        """In-sync replicas, the leader among them, that are known to have everything below `next_offset`."""
        followers = self._followers
        return 1 + sum(
            followers[replica].log_end_offset >= next_offset
            for replica in self.assignment.isr
            if replica in followers
        )

    def holding(self, offset: int) -> list[tuple[BrokerId, FollowerProgress]]:
        """In-sync followers whose logs hold `offset`, or end there."""
        isr = self.assignment.isr
        return [
            (follower, progress)
            for follower, progress in self._followers.items()
            if progress.log_start_offset <= offset <= progress.log_end_offset and follower in isr
        ]

    def low_watermark(self, log_start_offset: int) -> int:
        """Below it no in-sync replica has records any more, where this log starts at `log_start_offset`; -1
        while that is not known of all.
        """
        followers = self._followers
        starts = (
            followers[replica].log_start_offset for replica in self.assignment.isr if replica in followers
        )
        return min([log_start_offset, *starts])

    # Changes of the ISR: proposed here, written by the driver, which tells what became of them

    def needs_change(self, follower: BrokerId, bounds: LagBounds) -> bool:
        """Whether its last fetch says that a follower is to join the ISR, or to leave it, at once."""
        if self._change is not None or self._is_superseded:
            return False
        return self._has_lost_records(follower) or self._may_join(follower, bounds)

    def candidates(self, bounds: LagBounds) -> dict[BrokerId, int]:
        """Followers that may join the ISR, with the broker epochs that they fetched in."""
        return {
            follower: progress.broker_epoch
            for follower, progress in self._followers.items()
            if self._may_join(follower, bounds)
        }

    def laggards(self, bounds: LagBounds, *, now_ms: int) -> list[BrokerId]:
        """Members of the ISR that are to leave it."""
        return [
            follower
            for follower, progress in self._followers.items()
            if follower in self.assignment.isr
            and (follower in self._absent or self._lags(follower, progress, bounds, now_ms=now_ms))
        ]

    def _lags(
        self, follower: BrokerId, progress: FollowerProgress, bounds: LagBounds, *, now_ms: int
    ) -> bool:
        return progress.log_end_offset < self.log_end_offset and (
            progress.is_late(bounds, now_ms=now_ms)
            or self._has_lost_records(follower)
            or not progress.is_within(bounds, self.log_end_offset)
        )

    def give_up_waiting(self, bounds: LagBounds, *, now_ms: int) -> bool:
        """Let the high watermark go on without those that were about to join and did not keep up; True when
        it moved.
        """
        given_up = False
        for progress in self._followers.values():
            if progress.is_awaited and progress.is_late(bounds, now_ms=now_ms):
                progress.is_awaited, given_up = False, True
        if given_up:
            self._recount()
        return given_up and self.advance()

    def propose(
        self, *, joining: Collection[BrokerId], leaving: Collection[BrokerId], bounds: LagBounds
    ) -> IsrChange | None:
        """A change of the ISR that is to be written; None when there is nothing to change, or not now. One
        that was proposed before is to be written again while nobody knows what became of it.

        `joining` are candidates that are registered in the broker epoch that they fetched in.
        """
        if self.role is not Role.LEADER or self._is_superseded:
            return None
        if self._change is not None:
            return self._change
        assignment = self.assignment
        wanted = (set(assignment.isr) - set(leaving)) | {
            follower for follower in joining if self._may_join(follower, bounds)
        }
        if wanted == set(assignment.isr):
            return None
        in_order = dict.fromkeys((*assignment.replicas, *assignment.isr))
        change = self._change = IsrChange(
            leader_epoch=assignment.leader_epoch,
            partition_epoch=assignment.partition_epoch,
            isr=tuple(replica for replica in in_order if replica in wanted),
        )
        self._recount()
        return change

    def isr_written(self, isr: tuple[BrokerId, ...], partition_epoch: int, leader_epoch: LeaderEpoch) -> bool:
        """The state holds this ISR, written by this leader; True when the high watermark moved. What an order
        has told already changes nothing.
        """
        current = self.assignment
        if (
            self.role is not Role.LEADER
            or leader_epoch != current.leader_epoch
            or partition_epoch <= current.partition_epoch
        ):
            return False
        self.assignment = replace(current, isr=isr, partition_epoch=partition_epoch)
        for follower, progress in self._followers.items():
            progress.isr_changed(was_in_sync=follower in current.isr, is_in_sync=follower in isr)
        self._change = None
        self._recount()
        return self.advance()

    def isr_superseded(self, change: IsrChange) -> None:
        """Another than this leader wrote the state: an order will come. Until then `change` may be in force
        as well as not.
        """
        if change is self._change:
            self._is_superseded = True

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

    def require_follower(self, follower: BrokerId, named_epoch: int) -> None:
        """Raise ProtocolError unless this node leads in the epoch that `follower` named, and that one holds a
        replica.
        """
        self.require_leader(named_epoch)
        if named_epoch < 0:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"broker {follower} does not say which leader epoch it follows"
            )
        self._progress(follower)

    def require_in_sync(self, count: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS when fewer than `count` replicas are in sync."""
        if len(self.assignment.isr) < count:
            raise ProtocolError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(self.isr)} replicas in sync, min.insync.replicas is {count}",
            )

    # Inner workings

    def _progress(self, follower: BrokerId) -> FollowerProgress:
        progress = self._followers.get(follower)
        if progress is None:  # it may know of an assignment that this node is not told of yet
            raise ProtocolError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {follower} holds no replica of {self.topic_partition} here",
            )
        return progress

    def _may_join(self, follower: BrokerId, bounds: LagBounds) -> bool:
        progress = self._followers.get(follower)
        return (
            progress is not None
            and progress.has_asked
            and follower not in self.assignment.isr
            and progress.log_end_offset >= max(self.high_watermark, self.epoch_start_offset)
            and progress.is_within(bounds, self.log_end_offset)
        )

    def _has_lost_records(self, follower: BrokerId) -> bool:
        """Whether a member of the ISR does not have what was committed with its consent."""
        progress = self._followers.get(follower)
        return (
            progress is not None
            and UNKNOWN_OFFSET < progress.log_end_offset < self.high_watermark
            and follower in self.assignment.isr
        )

    def _recount(self) -> None:
        counted = self.maximal_isr
        self._counted = tuple(
            progress
            for follower, progress in self._followers.items()
            if progress.is_awaited or follower in counted
        )

    def _forget_followers(self) -> None:
        self._followers, self._counted = {}, ()
        self._change, self._is_superseded = None, False

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
