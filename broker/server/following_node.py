"""A node that follows partitions of this one, as one of its fetches names it."""

from __future__ import annotations

from broker.replication.isr_changes import IsrChanges
from broker.replication.replica import Replica
from broker.types import BrokerId
from broker.wire.messages.fetch import FetchPartition, FetchRequest


class FollowingNode:
    """Who fetches, and when; `broker_epoch` is that of its registration, -1 from versions that do not say."""

    __slots__ = ("_isr_changes", "_now_ms", "broker_epoch", "broker_id", "is_heard")

    def __init__(self, broker_id: BrokerId, broker_epoch: int, isr_changes: IsrChanges, now_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self._isr_changes = isr_changes
        self._now_ms = now_ms
        self.is_heard = False
        """Whether it was taken in what the node has: once, as it stood when it asked."""

    @classmethod
    def of(cls, request: FetchRequest, isr_changes: IsrChanges, now_ms: int) -> FollowingNode | None:
        """The node that sent the request at this (monotonic) time; None when it comes from a client."""
        if request.replica_id >= 0:
            return cls(BrokerId(request.replica_id), -1, isr_changes, now_ms)
        state = request.replica_state
        if state.replica_id >= 0:
            return cls(BrokerId(state.replica_id), state.replica_epoch, isr_changes, now_ms)
        return None

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
