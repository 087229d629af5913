"""What decides how a lane is judged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.types import TopicPartition
from mirrormaker.audit.findings import Difference, DifferenceKind
from mirrormaker.audit.lane_runs import OtherPasses
from mirrormaker.audit.ranges import NOTHING, Range, holds
from mirrormaker.topology.model import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTerms:
    """See the module."""

    source: TopicPartition
    destination: TopicPartition
    delivery: Delivery
    is_exclusive: bool = True
    """Nobody but the route writes to the destination partition."""
    is_shared: bool = False
    """Several lanes of the route lead there."""
    destination_start: int = 0
    """First offset that is kept there."""
    written_meanwhile: Range = NOTHING
    """Offsets there that are not read: records came to stand there while the audit began, or readers of
    committed ones do not get them yet.
    """
    is_source_compacted: bool = False
    compacted_to: int = 0
    """Offsets of a compacted destination before this may have been compacted away: its end, which compaction
    never lowers. 0: it is not compacted.
    """
    repeated_to: int = 0
    """Source offsets before this have been judged already: a pass before had them."""
    lost: Sequence[Range] = ()
    """Source offsets that may have been lost while the route delivered at most once."""
    is_elsewhere: Callable[[int], bool] = lambda _: False
    """Whether the record at a source offset is in another lane to the same topic, by the ledger."""
    kin: OtherPasses = field(default_factory=OtherPasses)
    """Of the lane: they may have what this one left out, or left to another lane."""
    gone: set[int] = field(default_factory=set)
    """Source offsets whose copies the destination has deleted that passes before wrote, and of which passes
    behind have others; shared by all passes of the lane.
    """

    def may_be_lost(self, offset: int) -> bool:
        """Whether at most once may have lost the record at a source offset, or not told the ledger of it."""
        is_lossy = self.delivery is Delivery.AT_MOST_ONCE
        return is_lossy or holds(self.lost, offset)

    def difference(
        self, kind: DifferenceKind, offset: int | None, to: int | None, source: TopicPartition | None = None
    ) -> Difference:
        """One of this lane, at these offsets of both sides; `source`: of another."""
        return Difference(
            kind=kind,
            source=source or self.source,
            source_offset=offset,
            destination=self.destination,
            destination_offset=to,
        )
