"""One partition of a fetch: the records it gets, and what is told along with them.

Asked for every partition of every fetch, and most have nothing new: what is the same for all partitions of a
request is found out once, before the first.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from broker.errors import ErrorCode, ProtocolError
from broker.replication.partition import Role
from broker.replication.replica import READ_COMMITTED, Replica
from broker.replication.waits import Isolation
from broker.server.fetch_sessions import IDS_FROM, FetchedPartition
from broker.server.following_node import FollowingNode
from broker.server.quiet_partitions import QuietRead
from broker.server.read_choice import FOLLOWERS_FROM, ReadChoice
from broker.storage.file_range import FileRange
from broker.types import BrokerId, Buffer
from broker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)

_MIN_BATCH_FROM = 3
"""First version that gets a whole batch even over its limits."""
_ZSTD_FROM = 10
_NO_EPOCH_END = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()


class PartitionReader:
    """Reads for one request in `version`; within a session, what was told before is not told again."""

    __slots__ = (
        "_choice",
        "_follower",
        "_has_session",
        "_is_by_id",
        "_is_committed_only",
        "_knows_followers",
        "_knows_zstd",
        "_may_exceed_limits",
    )

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        follower: FollowingNode | None,
        choice: ReadChoice | None,
        *,
        has_session: bool,
    ) -> None:
        self._follower = follower
        self._choice = choice
        self._has_session = has_session
        self._is_by_id = version >= IDS_FROM
        self._is_committed_only = follower is None and request.isolation_level == READ_COMMITTED
        self._knows_followers = version >= FOLLOWERS_FROM
        self._knows_zstd = version >= _ZSTD_FROM
        self._may_exceed_limits = version >= _MIN_BATCH_FROM

    @property
    def isolation(self) -> Isolation:
        """Up to where the request may read."""
        if self._follower is not None:
            return Isolation.LOG_END
        return Isolation.STABLE if self._is_committed_only else Isolation.COMMITTED

    def is_quiet(self, found: FetchedPartition, replica: Replica) -> bool:
        """Whether a session has nothing to tell of the partition, as was noted."""
        if self._follower is not None:
            return self._follower.is_quiet(replica, found)
        noted = found.noted
        return isinstance(noted, QuietRead) and noted.holds(replica, found)

    def note(self, found: FetchedPartition, replica: Replica, answer: PartitionData | None) -> None:
        """Note whether there is nothing more to tell of the partition once `answer` came. Where others may be
        chosen to serve it, that is asked each time.
        """
        if self._follower is not None:
            if answer is None:
                self._follower.note_quiet(replica, found)
        elif self._has_session and self._choice is None:
            records = None if answer is None else cast(object, answer.records)
            offset = records.next_offset if isinstance(records, FileRange) else found.wanted.fetch_offset
            up_to = replica.last_stable_offset if self._is_committed_only else replica.high_watermark
            is_all = offset == up_to and replica.machine.role is Role.LEADER
            found.noted = QuietRead(replica, offset) if is_all else None

    def read(
        self, found: FetchedPartition, replica: Replica, left: int, *, is_first: bool
    ) -> tuple[PartitionData | None, bool]:
        """The answer, None when a session has nothing to tell; and whether there is more than `left`, the
        bytes that the request may still get, or the partition's own limit let through. `is_first`: no other
        partition has records yet.

        Raises ProtocolError for a partition that is not to be read so, ColdReadError within `resident_only`.
        """
        wanted, log, machine, follower = found.wanted, replica.log, replica.machine, self._follower
        if self._require_role(found, replica) is Role.FOLLOWER:
            _require_committed(replica, wanted.fetch_offset)
        elif (
            self._choice is not None
            and (chosen := self._choice.choose(replica, wanted.fetch_offset)) is not None
        ):
            return _elsewhere(replica, wanted, chosen), False
        offset, size_max = wanted.fetch_offset, wanted.partition_max_bytes
        diverging = _diverging_epoch(wanted, replica) if wanted.last_fetched_epoch >= 0 else None
        if follower is not None and diverging is None:
            follower.fetched(replica, wanted)
        high_watermark, log_start_offset = machine.high_watermark, log.log_start_offset
        last_stable_offset = log.last_stable_offset(high_watermark)
        up_to = last_stable_offset if self._is_committed_only else high_watermark
        if follower is not None:
            up_to = log.log_end_offset
        records, is_cut = None, False
        if diverging is None:
            if offset != up_to or offset < log_start_offset:
                read = replica.read if follower is None else partial(follower.read, replica)
                records = read(
                    offset,
                    max_bytes=min(left, size_max),
                    up_to=up_to,
                    min_one_batch=is_first if self._may_exceed_limits else left > 0,
                )
            end = offset if records is None else records.next_offset
            is_cut = end < up_to and (follower is None or follower.withheld is not replica)
            if (
                records is None
                and self._has_session
                and found.is_told(high_watermark, last_stable_offset, log_start_offset)
            ):
                return None, is_cut
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            diverging_epoch=diverging or _NO_EPOCH_END,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=[] if self._is_committed_only else None,
            records=b"",
        )
        if records is not None:
            if self._is_committed_only:
                answer.aborted_transactions = _aborted(replica, offset, records.next_offset)
            answer.records = cast(Buffer, records)  # sent from the file, see `Connection`
        return answer, is_cut

    def _require_role(self, found: FetchedPartition, replica: Replica) -> Role:
        """The role in which the replica serves the request. Raises ProtocolError unless it may, in the epoch
        and of the topic that the client means, in a form that it understands.
        """
        wanted, log, machine, follower = found.wanted, replica.log, replica.machine, self._follower
        role = Role.LEADER
        if follower is not None:
            machine.require_follower(follower.broker_id, wanted.current_leader_epoch)
        elif self._knows_followers and machine.role is Role.FOLLOWER:
            machine.require_epoch(wanted.current_leader_epoch)
            role = Role.FOLLOWER
        else:
            machine.require_leader(wanted.current_leader_epoch)
        if self._is_by_id and log.topic_id is not None and log.topic_id != found.topic_id:
            raise ProtocolError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"the log of {found.topic} has id {log.topic_id}"
            )
        if not self._knows_zstd and log.config.compression_type == "zstd":
            raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Fetch 10 or later")
        return role


def _require_committed(replica: Replica, offset: int) -> None:
    """Raise ProtocolError unless this replica, which does not lead, knows that all before `offset` is
    committed: OFFSET_NOT_AVAILABLE where that may come yet.
    """
    if replica.cutting is not None:
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica.topic_partition} is being cut")
    if offset > replica.high_watermark:
        raise ProtocolError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{replica.topic_partition} is known here to be committed up to {replica.high_watermark}",
        )


def _elsewhere(replica: Replica, wanted: FetchPartition, chosen: BrokerId) -> PartitionData:
    """No records, but from which replica to read them."""
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.log.log_start_offset,
        preferred_read_replica=chosen,
        records=b"",
    )


def _aborted(replica: Replica, start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that records between two offsets may belong to."""
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in replica.aborted_transactions(start, end)
    ]


def _diverging_epoch(partition: FetchPartition, replica: Replica) -> EpochEndOffset | None:
    """Where the log parts from the history that the client has (KIP-595), None when it does not.

    Raises ProtocolError OFFSET_OUT_OF_RANGE for an epoch that this log knows nothing of.
    """
    epoch = partition.last_fetched_epoch
    end = replica.epoch_end(epoch)
    if end.epoch < 0:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"leader epoch {epoch} is unknown here")
    if end.epoch == epoch and end.end_offset >= partition.fetch_offset:
        return None
    return EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
