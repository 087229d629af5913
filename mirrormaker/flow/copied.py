"""What has arrived where: for whoever keeps books of it. Pure; costs nothing while nobody listens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from broker.records.batch import iterate_batches
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk, SourceRun
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.stamp import records_crc

_CRC_MODULUS = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Records that the destination has acknowledged, told in the order of their lane.

    Record `i` of the source run (see `offset_runs`) is record `i` from `base_offset` on.
    """

    source: TopicPartition
    first: int
    """Source offset of the first record."""
    next: int
    """Source offset after the last record."""
    destination: TopicPartition
    base_offset: int | None
    """Destination offset of the first record. None: it was there already, and the destination does not say
    where.
    """
    count: int
    crc: int
    """Sum, modulo 2**32, of the CRC-32C of the record bytes of each batch (what follows its header), as they
    are at the destination. So sums of neighbours add up, however they are cut.
    """
    max_timestamp: int
    """Of the records as sent, in ms."""
    append_time_ms: int | None
    """The time that the destination gave all of them instead; None: they keep theirs."""
    origin: int
    runs: tuple[SourceRun, ...] = ()
    """Where the source offsets have gaps; empty: they are the `count` offsets from `first` on."""

    def offset_runs(self) -> Iterator[tuple[SourceRun, int | None]]:
        """Runs of source offsets, each with the destination offset of its first record."""
        base = self.base_offset
        for run in self.runs or (SourceRun(self.first, self.count),):
            yield run, base
            base = None if base is None else base + run.length


def describe_copied(lane: Lane, chunk: Chunk) -> Copied:
    """What a chunk, just acknowledged, brought where."""
    runs = chunk.runs or (SourceRun(chunk.first_offset, chunk.count),)
    crcs = (
        records_crc(chunk.records, position, header) for position, header in iterate_batches(chunk.records)
    )
    return Copied(
        source=lane.partition.source,
        first=runs[0].first,
        next=runs[-1].first + runs[-1].length,
        destination=lane.destination,
        base_offset=chunk.base_offset,
        count=chunk.count,
        crc=sum(crcs) % _CRC_MODULUS,
        max_timestamp=chunk.max_timestamp,
        append_time_ms=chunk.append_time_ms,
        origin=chunk.origin,
        runs=chunk.runs,
    )
