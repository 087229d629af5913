"""A node that follows partitions of this one, as one of its fetches names it."""

from __future__ import annotations

from broker.replication.isr_changes import IsrChanges
from broker.replication.replica import Replica
from broker.replication.replication_quotas import ReplicationQuota
from broker.server.fetch_sessions import FetchedPartition
from broker.server.quiet_partitions import QuietPartition
from broker.storage.file_range import FileRange
from broker.types import BrokerId
from broker.wire.messages.fetch import FetchPartition, FetchRequest


class FollowingNode:
    """Who fetches, and when; `broker_epoch` is that of its registration, -1 from versions that do not say."""

    __slots__ = (
        "_isr_changes",
        "_now_ms",
        "_quota",
        "broker_epoch",
        "broker_id",
        "is_heard",
        "throttled_bytes",
        "withheld",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: int,
        *,
        isr_changes: IsrChanges,
        quota: ReplicationQuota,
        now_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._isr_changes = isr_changes
        self._quota = quota
        self._now_ms = now_ms
        self.throttled_bytes = 0
        """What the answer holds under the quota, as far as it was read."""
        self.withheld: Replica | None = None
        """The last one of which the quota keeps back what there is."""
        self.is_heard = False
        """Whether it was taken in what the node has: once, as it stood when it asked."""

    @classmethod
    def of(
        cls, request: FetchRequest, isr_changes: IsrChanges, quota: ReplicationQuota, now_ms: int
    ) -> FollowingNode | None:
        """The node that sent the request at this (monotonic) time; None when it comes from a client."""
        state = request.replica_state
        broker_id, epoch = (
            (request.replica_id, -1) if request.replica_id >= 0 else (state.replica_id, state.replica_epoch)
        )
        if broker_id < 0:
            return None
        return cls(BrokerId(broker_id), epoch, isr_changes=isr_changes, quota=quota, now_ms=now_ms)

    def fetched(self, replica: Replica, wanted: FetchPartition) -> None:
        """The node has everything below what it asks for, in the history that the leader has.

        Raises ProtocolError as `Replica.fetched_by` does.
        """
        if self.is_heard:
            return
        replica.fetched_by(
            self.broker_id,
            wanted.fetch_offset,
            broker_epoch=self.broker_epoch,
            now_ms=self._now_ms,
            log_start_offset=wanted.log_start_offset,
        )
        self._isr_changes.fetched(replica, self.broker_id)

    def is_quiet(self, replica: Replica, found: FetchedPartition) -> bool:
        """Whether there is nothing to say of the partition, as before; then its fetch is taken in."""
        noted = found.noted
        return isinstance(noted, QuietPartition) and noted.heard_again(
            replica, found.wanted, self.broker_epoch, self._now_ms
        )

    def note_quiet(self, replica: Replica, found: FetchedPartition) -> None:
        """There was nothing to say of it within a session."""
        found.noted = QuietPartition.of(replica, found.wanted, self.broker_id)

    # The replication quota

    def begin_reading(self) -> None:
        """The answer is read anew."""
        self.throttled_bytes, self.withheld = 0, None

    def read(
        self, replica: Replica, offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool
    ) -> FileRange | None:
        """As `Replica.read`, but no more than the quota leaves for the node; what it keeps back is noted."""
        if not self._is_throttled(replica):
            return replica.read(offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=min_one_batch)
        room = self._quota.room() - self.throttled_bytes
        records = None
        if room > 0:
            records = replica.read(
                offset, max_bytes=min(max_bytes, room), up_to=up_to, min_one_batch=min_one_batch
            )
        if records is None:
            self.withheld = replica
        else:
            self.throttled_bytes += len(records)
        return records

    def _is_throttled(self, replica: Replica) -> bool:
        """Whether it is to be copied slowly, as the node is not in sync."""
        machine = replica.machine
        if not self._quota.in_force or self.broker_id in machine.isr:
            return False
        throttled = replica.log.config.leader_replication_throttled_replicas
        return throttled.holds(machine.topic_partition.partition, machine.local)

    def sent(self) -> None:
        """The answer leaves."""
        self._quota.record(self.throttled_bytes)
