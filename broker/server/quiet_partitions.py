"""Partitions of which there is nothing to say: most of a session's, most of the time.

A follower or a client that has everything asks for all of its partitions with every fetch, and whoever leads
thousands of them would look closely at each for the sake of the few that grew. So what was found once is
noted: as long as neither the question nor anything that an answer depends on changed, there is again nothing
to say. All that is new then is that a follower was heard at this time.
"""

from __future__ import annotations

from broker.replication.partition import Role
from broker.replication.replica import Replica
from broker.server.fetch_sessions import FetchedPartition
from broker.types import BrokerId
from broker.wire.messages.fetch import FetchPartition


class QuietRead:
    """One partition of which a client gets all that it may read now, and is told all there is to tell.

    Up to where transactions are decided follows from high watermark and log start, as long as this node
    leads in one epoch: whatever opens or ends one is appended beyond the high watermark.
    """

    __slots__ = ("_assignment", "_files", "_machine", "_offset", "_replica", "_told")

    def __init__(self, replica: Replica, offset: int) -> None:
        """What comes next for the client is `offset`: the end of what it may read."""
        machine, files = replica.machine, replica.log.files
        self._replica = replica
        self._machine = machine
        self._assignment = machine.assignment
        self._files = files
        self._offset = offset
        self._told = (machine.high_watermark, replica.last_stable_offset, files.start)

    def holds(self, replica: Replica, found: FetchedPartition) -> bool:
        """Whether the client asks for what comes next, in the history that this log has, and nothing has."""
        machine, wanted, epoch = self._machine, found.wanted, self._assignment.leader_epoch
        return (
            wanted.fetch_offset == self._offset
            and found.told == self._told
            and machine.high_watermark == self._told[0]
            and machine.assignment is self._assignment
            and machine.role is Role.LEADER
            and self._replica is replica
            and replica.log.files is self._files
            and self._files.start == self._told[2]
            and wanted.current_leader_epoch in (-1, epoch)
            and wanted.last_fetched_epoch in (-1, epoch)
        )


class QuietPartition:
    """One partition whose follower is in sync, has the whole log, and was told all there is to tell."""

    __slots__ = (
        "_assignment",
        "_broker_epoch",
        "_end",
        "_files",
        "_high_watermark",
        "_machine",
        "_progress",
        "_replica",
        "_start",
        "_wanted",
    )

    def __init__(self, replica: Replica, wanted: FetchPartition, follower: BrokerId) -> None:
        machine, files = replica.machine, replica.log.files
        self._replica = replica
        self._wanted = wanted
        self._machine = machine
        self._assignment = machine.assignment
        self._high_watermark = machine.high_watermark
        self._files = files
        self._start, self._end = files.start, files.end
        self._progress = machine.progress_of(follower)
        self._broker_epoch = self._progress.broker_epoch

    @classmethod
    def of(cls, replica: Replica, wanted: FetchPartition, follower: BrokerId) -> QuietPartition | None:
        """The note of a partition that was read and gave no answer; None unless it will give none again."""
        machine = replica.machine
        if wanted.fetch_offset != replica.log.log_end_offset or follower not in machine.isr:
            return None
        return cls(replica, wanted, follower)

    def heard_again(self, replica: Replica, wanted: FetchPartition, broker_epoch: int, now_ms: int) -> bool:
        """Whether all that was noted still holds; then the follower has everything at this time, too."""
        machine, files, progress = self._machine, self._files, self._progress
        if (
            self._wanted is not wanted
            or self._replica is not replica
            or replica.log.files is not files
            or files.end != self._end
            or machine.high_watermark != self._high_watermark
            or machine.assignment is not self._assignment
            or machine.role is not Role.LEADER
            or files.start != self._start
            or not self._broker_epoch == broker_epoch == progress.broker_epoch
            or replica.cutting is not None
        ):
            return False
        progress.caught_up_ms = progress.fetched_at_ms = now_ms
        return True
