"""One partition of the source: what is fetched of it, and its lanes to the destination. Pure.

Most have one lane. Where records are spread over several destination partitions there is a lane to each:
lanes fail and recover by themselves, but a lane that cannot take more holds back the fetching of its source
partition. A position counts once all lanes are past it. A lane that threw records away has them fetched
again; the others then leave out what they have (`Lane.position`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.read_epochs import ReadEpochs
from mirrormaker.flow.remedies import TOO_LARGE_CODES
from mirrormaker.flow.returned import Returned
from mirrormaker.flow.trouble import ANOTHER_LOG, Trouble, TroubleKind
from mirrormaker.topology.model import PartitionPolicy

if TYPE_CHECKING:
    from mirrormaker.flow.intake import Intake

REFUSALS_COUNTED = 16
"""Of requests with several batches: each doubles how many go alone."""
_WEIGHTS = {state: weight for weight, state in enumerate(LaneState)}


class Partition:
    """The machine's record of one partition; only the machine changes it."""

    __slots__ = (
        "alone_until",
        "awaits_origins",
        "bucket",
        "buffered_bytes",
        "committed",
        "copied_bytes",
        "copied_chunks",
        "copied_offsets",
        "epochs",
        "fetch_bytes",
        "fetch_not_before_ms",
        "former",
        "is_bound",
        "is_merged",
        "is_released",
        "lanes",
        "last_timestamp",
        "leaves_at",
        "logs_gone",
        "obstacle",
        "origin_floors",
        "position",
        "refused_together",
        "returned",
        "source",
        "source_end",
        "source_error",
        "source_failures",
        "source_problem",
        "spread",
        "taken_batches",
        "trouble",
    )

    def __init__(
        self,
        source: TopicPartition,
        destinations: Sequence[TopicPartition],
        bucket: int,
        position: int,
        fetch_bytes: int,
        *,
        is_merged: bool = False,
        leader_epoch: int = -1,
    ) -> None:
        """`is_merged`: other source partitions may write to the same destinations. `leader_epoch` of the
        record before `position`, -1 when it is not known.
        """
        self.source = source
        self.bucket = bucket
        self.is_merged = is_merged
        self.is_released = False
        self.position = position
        """The source offset to fetch next: the least of all lanes."""
        self.epochs = ReadEpochs(position, leader_epoch)
        """Of all that was read."""
        self.returned = Returned()
        """What of it came straight from the destination, and does not go there again."""
        self.logs_gone = 0
        """How often what was read from some offset on turned out to be of a log that is gone."""
        self.trouble: Trouble | None = None
        """Why it stands until somebody has it go on; what is queued goes on in any case."""
        self.lanes = tuple(
            Lane(self, index, destination, position) for index, destination in enumerate(destinations)
        )
        self.committed = position
        self.alone_until = position
        """Before this source offset the destination gets one batch a request."""
        self.refused_together = 0
        """How often it refused several since it took several."""
        self.is_bound = False
        """Its window held it back: batches are gathered."""
        self.leaves_at: int | None = None
        """It is about to be given away: nothing more is taken in, and nothing is sent from here on."""
        self.taken_batches = 0
        """Batches of the source that were taken in, while it was bound."""
        self.buffered_bytes = 0
        self.fetch_bytes = fetch_bytes
        """Asked for at a time; grows while no whole batch fits."""
        self.fetch_not_before_ms = 0
        self.former: tuple[FormerLanes, ...] = ()
        """What is there beyond where lanes stand: it went where the topics had other partitions, or records
        another policy.
        """
        self.spread = PartitionPolicy.SAME
        """How records are shared out over its lanes."""
        self.origin_floors: dict[int, Sequence[int]] = {}
        """By origin and lane, before which offset the destination has all of its records."""
        self.awaits_origins = False
        """It has to be found out where the batch at `position` has been."""
        self.source_problem: str | None = None
        self.source_error: ErrorCode | None = None
        """What the source refused with, where that is the problem."""
        self.obstacle: Trouble | None = None
        """In front of which it rests, to be tried again."""
        self.source_failures = 0
        """Fetches that failed since the last one that brought something."""
        self.source_end = -1
        """First source offset that readers of committed records do not see yet; -1: not heard of."""
        self.last_timestamp = -1
        self.copied_bytes = 0
        self.copied_chunks = 0
        self.copied_offsets = 0

    @property
    def leader_epoch(self) -> int:
        """Of the record before `position`, or of one that was before it once; -1: not known."""
        return self.epochs.latest

    @property
    def acknowledged(self) -> int:
        """The source offset up to which the destination has everything."""
        lanes = self.lanes
        return lanes[0].acknowledged if len(lanes) == 1 else min(lane.acknowledged for lane in lanes)

    @property
    def waits_from(self) -> int:
        """The first source offset that the destination lacks: where offsets mean other records by now, the
        one at which copying would go on with those.
        """
        trouble = self.trouble
        if trouble is None or trouble.kind not in ANOTHER_LOG:
            return self.acknowledged
        if trouble.kind is TroubleKind.TOPIC_RECREATED:
            return trouble.resume_at
        return min(self.acknowledged, trouble.resume_at)

    @property
    def waits_to_begin(self) -> bool:
        """Whether nothing was read of it yet, as its topic is another than the one that was copied."""
        trouble = self.trouble
        is_anew = trouble is not None and trouble.kind is TroubleKind.TOPIC_RECREATED
        return is_anew and not self.copied_chunks and not any(lane.queue for lane in self.lanes)

    @property
    def in_flight(self) -> int:
        """Chunks that have been sent and not answered."""
        return sum(lane.in_flight for lane in self.lanes)

    def leave(self) -> None:
        """Take nothing more in, and send only what has the lanes equally far: where records are shared out
        over them it may be another way from there on.
        """
        end = max(lane.sent_to for lane in self.lanes)
        while (further := max(lane.dealt_with(end) for lane in self.lanes)) > end:
            end = further
        self.leaves_at = end

    @property
    def evens_out(self) -> bool:
        """Whether lanes still have something to send before it leaves, and can."""
        behind = [lane for lane in self.lanes if lane.lacks(self.leaves_at)]
        return bool(behind) and all(lane.may_go_on for lane in behind)

    def even_out(self) -> None:
        """Lanes that have all before it leaves are equally far, whatever came last in each. Not where some of
        that has still to be read for one of them.
        """
        end = self.leaves_at
        if end is None or any(lane.lacks(end) or lane.position < end for lane in self.lanes):
            return
        for lane in self.lanes:
            lane.acknowledged = max(lane.acknowledged, end)

    @property
    def worst_lane(self) -> Lane:
        """The one whose state says most about how the partition stands."""
        if len(self.lanes) == 1:
            return self.lanes[0]
        return max(self.lanes, key=lambda lane: (_WEIGHTS[lane.state], lane.attempts))

    @property
    def state(self) -> LaneState:
        """Of the worst lane; so are `error` and `attempts`."""
        return self.worst_lane.state

    @property
    def error(self) -> ErrorCode | None:
        return self.worst_lane.error

    @property
    def attempts(self) -> int:
        return self.worst_lane.attempts

    @property
    def stands_for_size(self) -> bool:
        """Whether what comes next is larger than the destination takes, as far as is known."""
        if self.obstacle is not None:
            return self.obstacle.kind is TroubleKind.OVERSIZE
        return any(lane.state is LaneState.PAUSED and lane.error in TOO_LARGE_CODES for lane in self.lanes)

    @property
    def sends_alone(self) -> bool:
        """Whether the destination gets one batch a request of what comes next."""
        return self.position < self.alone_until

    def may_fetch(self, now_ms: int) -> bool:
        """Whether more of it is wanted now; the buffer's bounds are the machine's business."""
        if self.fetch_not_before_ms > now_ms or self.awaits_origins or self.trouble is not None:
            return False
        if self.leaves_at is not None:
            return False
        for lane in self.lanes:  # noqa: SIM110 - asked for every partition and fetch
            if not lane.may_take():
                return False
        return True

    def floors(self, origin: int) -> Sequence[int]:
        """By lane, before which offset the destination has all that comes from there; none while that is
        `position` for all.
        """
        own = self.origin_floors.get(origin, ())
        if not own and len(self.lanes) == 1:
            return ()
        floors = [lane.position for lane in self.lanes]
        if own:
            floors = [max(pair) for pair in zip(floors, own, strict=True)]
        return () if all(floor == self.position for floor in floors) else floors

    def advance_lanes(self, positions: Sequence[int]) -> None:
        """Lanes that are further than the others: they have what is before these positions."""
        for lane, position in zip(self.lanes, positions, strict=False):
            lane.position = lane.acknowledged = lane.committed = position

    def commit_lanes(self, positions: Sequence[int]) -> None:
        """At most once: these were stored, with the position; nothing before them is sent after a crash."""
        for lane, position in zip(self.lanes, positions, strict=True):
            lane.committed = position

    def count_taken(self, intake: Intake) -> None:
        """An answer was taken in."""
        for span in intake.returned:
            self.returned.read(*span)
        if self.is_bound:
            as_they_were = sum(chunk.batches for chunk in intake.chunks if not chunk.is_rebuilt)
            self.taken_batches += as_they_were + intake.deep.total()

    def take_apart(self, refused: Chunk) -> None:
        """The destination refused batches that shared a request: it gets them one by one, so that only the
        bad one is refused; where there was none, ever more that follow them, too.
        """
        offsets = refused.next_offset - refused.first_offset
        self.alone_until = refused.next_offset + offsets * ((1 << self.refused_together) - 1)
        self.refused_together = min(self.refused_together + 1, REFUSALS_COUNTED)

    def count_copied(self, chunk: Chunk) -> None:
        """A chunk of it arrived, and so did all before it in its lane."""
        if chunk.batches > 1:
            self.refused_together = 0
        if chunk.max_timestamp > self.last_timestamp:
            self.last_timestamp = chunk.max_timestamp
        self.copied_bytes += chunk.size
        self.copied_chunks += 1
        offsets = chunk.next_offset - chunk.first_offset
        self.copied_offsets += offsets if offsets > chunk.count and len(self.lanes) == 1 else chunk.count

    def distrust_epoch(self) -> None:
        """Of which epoch the record before `position` is does not count."""
        self.epochs.latest = -1

    def read_to(self, offset: int, leader_epoch: int, records: memoryview) -> None:
        """These records were read, from `position` up to `offset`; the one before that is of this epoch."""
        self.epochs.read(self.position, offset, leader_epoch, records)

    def extend_to(self, offset: int) -> None:
        """Everything of the source before `offset` is dealt with once the present queues are acknowledged."""
        self.position = offset
        for lane in self.lanes:
            lane.extend_to(offset)

    def begin_anew(self, offset: int) -> None:
        """The source is another log now, from `offset` on: offsets of the former mean nothing in it."""
        self.position = self.alone_until = offset
        self.epochs.cut(0)
        self.returned.cut(0)
        self._lose_from(offset)
        self.committed = min(self.committed, offset)
        for lane in self.lanes:
            lane.begin_anew(offset)

    def return_to(self, offset: int) -> None:
        """The source ends at `offset` now: what is queued or acknowledged beyond that moves no position."""
        self.position = self.alone_until = offset
        self.epochs.cut(offset)
        self.returned.cut(offset)
        self._lose_from(offset)
        for lane in self.lanes:
            lane.return_to(offset)

    def return_lanes_to(self, offset: int) -> None:
        """The same where `position` is not beyond: lanes may be further."""
        self._lose_from(offset)
        for lane in self.lanes:
            if lane.position > offset:
                lane.return_to(offset)

    def _lose_from(self, offset: int) -> None:
        """What is known to be there of source offsets from here on is of a log that is gone."""
        self.logs_gone += 1
        self.origin_floors.clear()
        self.former = tuple(each.up_to(offset) for each in self.former)
