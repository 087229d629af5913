"""What goes into cutting a fetch answer into chunks, and what comes out of it. Pure; the cutting itself is in
`cutting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from broker.client.aborted import AbortedTransaction
from broker.records.batch import BatchHeader, Codec
from broker.records.record import Record
from mirrormaker.flow.chunk import Chunk, DeepReason
from mirrormaker.flow.obstacles import Aside, Obstacle
from mirrormaker.flow.returned import Span
from mirrormaker.flow.trouble import TroubleKind

UNBOUNDED = 1 << 30
TURN_BYTES = 512 << 10
"""About what is decoded before others have a turn of the event loop."""
TURN_NS_PER_BYTE = 400
"""What time that functions of the file take counts as: a fifth of a second is a turn."""


class OriginUnknownError(Exception):
    """It has to be found out where a batch has been; the walk stops before it."""


class Origins(Protocol):
    """Where batches have been before they came to the source."""

    def origin_of(self, header: BatchHeader) -> int | None:
        """The number of the batch's origin, 0 for what was born at the source; None: it must not go on.

        Raises OriginUnknownError, and CorruptRecordsError when it cannot be found out.
        """
        ...

    def came_back(self, header: BatchHeader) -> bool:
        """Whether a batch that must not go on came straight from the destination."""
        ...


class Steps(Protocol):
    """What is done to the records of one partition."""

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        """What becomes of it, each with its lane; all with the offset that it has. Raises RecordError."""
        ...


class BatchLimit(NamedTuple):
    """How large batches of some topics may be."""

    bytes_max: int = UNBOUNDED
    """They take no larger batch."""
    split_bytes: int = UNBOUNDED
    """Batches of several records are split beyond this; what cannot be split may pass all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeConfig:
    """How bytes are cut up."""

    chunk_bytes: int
    """Bound on a chunk of several batches."""
    chunk_batches_max: int
    """1 toward stock brokers: they take one batch per partition and request."""
    built_batch_bytes: int = 1 << 20
    """Bound on a batch that is built anew of smaller ones."""
    deep: bool = False
    """Nothing passes as it is."""
    deep_reason: DeepReason = DeepReason.FORCED
    """Why not, where nothing else forbids it."""
    is_shallow: bool = False
    """Nothing is ever decoded."""
    origins: Origins | None = None
    """None: all batches were born at the source."""
    codec: Codec | None = None
    """Of what is sent; None: the one that it came in."""
    gather_bytes: int = 0
    """Batches smaller than this are put together up to it; 0: they are not."""
    batch_bytes_max: int = UNBOUNDED
    """The destination takes no larger batch."""
    split_bytes: int = UNBOUNDED
    """Larger ones are split where that can be."""
    side_limits: Mapping[int, BatchLimit] = field(default_factory=dict)
    """What lanes take that lead aside, for dead letters and notes, to topics with bounds of their own."""
    steps: Steps | None = None
    """With it, nothing passes as it is."""
    aside: Aside = field(default_factory=Aside)
    decoded_bytes_max: int = 64 << 20
    """Bound on what one batch may decompress to."""
    turn_bytes: int = TURN_BYTES
    """The walk stops once so many bytes were decoded."""
    called_ns: Callable[[], int] | None = None
    """How long functions that `steps` call have taken until now, all together; None: there are none."""


@dataclass(slots=True, kw_only=True)
class Intake:
    """What became of the bytes of one partition's answer."""

    position: int
    """The source offset to fetch next."""
    leader_epoch: int = -1
    """Of the batch before `position`; -1: the position has not moved, or the batch is too old to have one."""
    chunks: list[Chunk] = field(default_factory=list)
    deep: Counter[DeepReason] = field(default_factory=Counter)
    control_batches: int = 0
    aborted_batches: int = 0
    returned_batches: int = 0
    """Dropped for their origin."""
    returned: list[Span] = field(default_factory=list)
    """Those of them that came straight from the destination."""
    awaits_origins: bool = False
    """What lies at `position` can be taken once `Origins` knows where it has been."""
    filtered_records: int = 0
    """Dropped by steps."""
    left_out: dict[int, TroubleKind] = field(default_factory=dict)
    """Noted or parked instead of copied, by the source offset that the note or letter names."""
    damage: str | None = None
    """Why the bytes at `position` cannot be read; what came before them is in the chunks."""
    obstacle: Obstacle | None = None
    """Why the records at `position` cannot go on."""
    left_at: int | None = None
    """Where in the answer another turn goes on."""
    aborted_left: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that count from there on."""
    effort: int = 0
    """What it took of the turn, in decoded bytes; time that steps took by themselves counts as such."""


Floors = Callable[[int], Sequence[int]]
"""By number of an origin, and by lane, the offset before which the destination has all of its records; none
where it has no more than what lies before the position.
"""


def _no_floors(origin: int) -> Sequence[int]:
    return ()


NO_FLOORS: Floors = _no_floors
