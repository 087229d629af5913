"""What travels: a run of whole batches of a partition, produced, acknowledged and repeated as one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.errors import ErrorCode


class DeepReason(Enum):
    """Why a batch could not cross as it is and was decoded and built anew."""

    FORCED = "forced"
    LEGACY_FORMAT = "legacy_format"
    LOG_APPEND_TIME = "log_append_time"
    DELETE_HORIZON = "delete_horizon"
    COMPACTED = "compacted"
    RESUMED_INSIDE = "resumed_inside"
    CODEC = "codec"
    """The route gives batches another codec."""
    GATHERED = "gathered"
    """It shares a bigger batch with its neighbours."""
    OVERSIZE = "oversize"
    """It is larger than the destination takes, and was split."""
    FILTERED = "filtered"
    TRANSFORMED = "transformed"
    SPREAD = "spread"
    """Its records go to several partitions."""


class Frame:
    """Received bytes that stay in memory until the last chunk cut from them is let go."""

    __slots__ = ("holders", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.holders = 0


class SourceRun(NamedTuple):
    """Source offsets without a gap."""

    first: int
    length: int


@dataclass(slots=True, eq=False, kw_only=True)
class Chunk:
    """A run of batches with where the source goes on after it, and how its sending stands."""

    records: bytearray | memoryview
    """The batches, one right behind the other."""
    batches: int
    """How many."""
    frame: Frame
    first_offset: int
    next_offset: int
    """Of the source: what is committed once this chunk and all before it are acknowledged."""
    first_timestamp: int
    """Of its first record, -1 where that has none."""
    max_timestamp: int
    count: int
    """Sequence numbers, which is records."""
    size: int
    """Of the records, in bytes."""
    lane: int = 0
    """Index of the lane that it takes."""
    origin: int = 0
    """Under whose producer id it goes: 0 for what was born at the source."""
    runs: tuple[SourceRun, ...] = ()
    """Source offsets of the records, where there are gaps; empty: `count` offsets from `first_offset` on."""
    is_rebuilt: bool = False
    """Its batches are the mirror's own, not the source's."""
    crc: int = 0
    """Sum of the checksums (CRC-32C) of its batches as they were sent last."""
    source_crc: int | None = None
    """The same of the source's batches; None: not known before it was sent, or `is_rebuilt`."""
    base_sequence: int = -1
    """-1 until it is stamped; a repeat keeps it."""
    is_repeat: bool = False
    """It was sent before under the same sequence."""
    in_flight: bool = False
    acknowledged: bool = False
    maybe_written: bool = False
    """It is at the destination, or might be: its sequence may not be given to other records."""
    former_from: int | None = None
    """From here on its offsets are those of a topic that is gone, one of the same name took its place; or of
    what a log lost that was its end. None: none are.
    """
    error: ErrorCode | None = None
    said: str | None = None
    """Why the destination refuses it, in its own words; None: it said no more than `error`."""
    base_offset: int | None = None
    """Of its first record at the destination, once acknowledged; None when the destination did not say."""
    append_time_ms: int | None = None
    """The time that the destination gave its records; None: they keep theirs."""
