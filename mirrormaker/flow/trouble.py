"""What can keep a partition from going on, told from what both ends say. Pure.

The policies of a route (`on` of the topology) are named by kind. Some kinds pass by themselves: rights are
given, room is made; such a partition is tried again and again, and no record is lost by waiting. Others
stay as they are until somebody decides: what the source has lost does not come back. What the route itself
cannot take across, as a record that is too large, is between the two: it is tried again, as a limit may be
raised, and somebody may decide to leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.missing_rights import UNAUTHORIZED_CODES
from mirrormaker.topology.model import FailurePolicies, FailurePolicy


class TroubleKind(Enum):
    """Named as the policies are."""

    SOURCE_GAP = "source_gap"
    TOPIC_RECREATED = "topic_recreated"
    TOPIC_DELETED = "topic_deleted"
    SOURCE_TRUNCATED = "source_truncated"
    PARTITION_MISMATCH = "partition_mismatch"
    UNAUTHORIZED = "unauthorized"
    DESTINATION_FULL = "destination_full"
    OVERSIZE = "oversize"
    NOT_SHALLOW = "not_shallow"
    RECORD_ERROR = "record_error"


PASSING = frozenset({TroubleKind.UNAUTHORIZED, TroubleKind.DESTINATION_FULL, TroubleKind.PARTITION_MISMATCH})
"""Waiting for the end of these loses nothing, and there is nothing behind them to go on at."""
OBSTACLES = frozenset({TroubleKind.OVERSIZE, TroubleKind.NOT_SHALLOW, TroubleKind.RECORD_ERROR})
"""A batch or record that cannot cross: tried again ever later, and left out when somebody says so."""
ANOTHER_LOG = frozenset({TroubleKind.SOURCE_TRUNCATED, TroubleKind.TOPIC_RECREATED})
"""Behind these offsets of the source mean other records than before."""
NO_POSITION = -1
WHOLE_TOPIC = -1
"""The partition of what befell a topic as a whole."""
WHOLE_ROUTE = TopicPartition("*", WHOLE_TOPIC)
"""The place of what befell a route as a whole; no topic has that name."""
FULL_CODES = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""What a node says whose disk is full. It may be anything else that befell its disk, and may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A partition of the source cannot go on as before."""

    kind: TroubleKind
    source: TopicPartition
    position: int
    """Source offset that was to be copied next; `NO_POSITION` where it is not known yet where to begin."""
    resume_at: int
    """Source offset where copying would go on behind the trouble."""
    problem: str
    """In words, for people."""
    lost: tuple[int, int] | None = None
    """Source offsets, the second exclusive, of records that are no more at the source: not copied ones of a
    gap, copied ones of a truncation; of an obstacle, what cannot cross. None where nobody can tell.
    """
    topic_id: str | None = None
    """Of one that was made anew, where the source tells."""

    def is_same(self, other: Trouble) -> bool:
        """Whether who wants to go on behind this wants to go on behind the other: it is of one place, and a
        topic that was made anew is one however far the former had come, of which not all who begin know.
        """
        if self.kind is not other.kind:
            return False
        if self.kind is TroubleKind.TOPIC_RECREATED and None not in (self.topic_id, other.topic_id):
            return self.topic_id == other.topic_id
        return self.position == other.position


def place_name(source: TopicPartition) -> str:
    """The place of a trouble, for people: a partition, or a topic as a whole."""
    return source.topic if source.partition == WHOLE_TOPIC else str(source)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """What the source has of a partition now."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The source's log parts from what was read of it: its newest epoch not above ours, and where it ends."""

    epoch: int
    end_offset: int

    def parting(self, epoch_end: int | None, position: int) -> int:
        """Where it parts from what was read up to `position`; `epoch_end`: see `diverged`, and may lie behind
        that where records were given back.
        """
        return min(self.end_offset, position, position if epoch_end is None else epoch_end)


def recreated(source: TopicPartition, position: int, found: SourceRange, topic_id: TopicId) -> Trouble:
    """Another topic has the name now, one of that id where the source tells."""
    return Trouble(
        kind=TroubleKind.TOPIC_RECREATED,
        source=source,
        position=position,
        resume_at=found.start,
        problem="the topic was deleted and created again: its offsets mean other records now",
        topic_id=None if topic_id == NO_TOPIC_ID else str(topic_id),
    )


def gap(source: TopicPartition, position: int, start: int) -> Trouble:
    """The source begins at `start` now, behind what was to be copied next."""
    return Trouble(
        kind=TroubleKind.SOURCE_GAP,
        source=source,
        position=position,
        resume_at=start,
        problem=f"the source deleted offsets {position} to {start - 1} before they were copied",
        lost=(position, start),
    )


def out_of_range(
    source: TopicPartition, position: int, leader_epoch: int, found: SourceRange
) -> Trouble | None:
    """What it means that the source refused `position` as out of range; None: that has passed.

    `leader_epoch` of the last record read, -1 when not known: a source that has the offset and refuses still
    does not know that epoch, so its log is another one.
    """
    if position < found.start:
        return gap(source, position, found.start)
    if position > found.end:
        return _truncated(source, position, found.end, "")
    if leader_epoch >= 0:
        return Trouble(
            kind=TroubleKind.SOURCE_TRUNCATED,
            source=source,
            position=position,
            resume_at=position,
            problem=f"the source knows nothing of leader epoch {leader_epoch}, of which the last record"
            " copied is: which of its records are others now nobody can tell",
        )
    return None


def diverged(source: TopicPartition, position: int, epoch_end: int | None, at: Divergence) -> Trouble | None:
    """What it means that the source's log parts from what was read; None: before `position` it does not.

    `epoch_end`: where what was read of its epoch ends, None where nothing was read that is newer.
    """
    end = at.parting(epoch_end, position)
    if end == position:
        return None
    return _truncated(source, position, end, f", and has others of epoch {at.epoch} or later instead")


def went_back(
    source: TopicPartition, position: int, lost: tuple[int, int], *, begun_at: int | None = None
) -> Trouble:
    """The source has lost what was its end, and the group's position went back to `position` with it; `lost`:
    what had been copied of that. `begun_at`: the position, where copying has gone on from there since, or
    goes on behind it.
    """
    end, reached = lost
    went_back_to = position if begun_at is None else begun_at
    return Trouble(
        kind=TroubleKind.SOURCE_TRUNCATED,
        source=source,
        position=position,
        resume_at=position,
        problem=f"the source lost offsets {end} to {reached - 1}, which had been copied, and the position "
        f"with them, which went back to {went_back_to}",
        lost=lost,
    )


def _truncated(source: TopicPartition, position: int, end: int, more: str) -> Trouble:
    return Trouble(
        kind=TroubleKind.SOURCE_TRUNCATED,
        source=source,
        position=position,
        resume_at=end,
        problem=f"the source lost offsets {end} to {position - 1}, which were read of it{more}",
        lost=(end, position),
    )


def kind_of_refusal(code: ErrorCode) -> TroubleKind | None:
    """What it is that a cluster keeps refusing with `code`; None: no policy is about that."""
    if code in UNAUTHORIZED_CODES:
        return TroubleKind.UNAUTHORIZED
    return TroubleKind.DESTINATION_FULL if code in FULL_CODES else None


def refused(source: TopicPartition, position: int, error: ProtocolError, where: str) -> Trouble | None:
    """What it means that `where` keeps refusing with that; None: no policy is about it."""
    kind = kind_of_refusal(error.code)
    if kind is None:
        return None
    return Trouble(
        kind=kind,
        source=source,
        position=position,
        resume_at=position,
        problem=f"{where}: {error}",
    )


def policy_for(kind: TroubleKind, policies: FailurePolicies) -> FailurePolicy:
    """What a route does about it. A record that a step cannot process stops its partition alone."""
    match kind:
        case TroubleKind.SOURCE_GAP:
            return policies.source_gap
        case TroubleKind.TOPIC_RECREATED:
            return policies.topic_recreated
        case TroubleKind.TOPIC_DELETED:
            return policies.topic_deleted
        case TroubleKind.SOURCE_TRUNCATED:
            return policies.source_truncated
        case TroubleKind.PARTITION_MISMATCH:
            return policies.partition_mismatch
        case TroubleKind.UNAUTHORIZED:
            return policies.unauthorized
        case TroubleKind.DESTINATION_FULL:
            return policies.destination_full
        case TroubleKind.OVERSIZE:
            return policies.oversize
        case TroubleKind.NOT_SHALLOW:
            return policies.not_shallow
        case TroubleKind.RECORD_ERROR:
            return FailurePolicy.PAUSE_PARTITION  # parked and noted ones never get here
