"""What has arrived where: for whoever keeps books of it. Pure; costs nothing while nobody listens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from broker.types import TopicPartition
from mirrormaker.flow.chunk import Chunk, SourceRun
from mirrormaker.flow.lane import Lane


@dataclass(slots=True, kw_only=True)
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
    """Destination offset of the first record. None: some were there already, and the destination does not say
    where.
    """
    count: int
    crc: int | None
    """Sum of the checksums that the batches have in their headers at the destination. So sums of neighbours
    add up, however they are cut. None: the destination gave the batches times, and with these others; or
    they have more, of a log that is gone.
    """
    source_crc: int | None
    """The same of the batches at the source. None: they were not copied as they are."""
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

    def source_runs(self) -> Iterator[tuple[SourceRun, int | None]]:
        """The same with every source offset once: where several records were made of one, the first of them
        stands for it.
        """
        end = self.first
        for run, base in self.offset_runs():
            again = max(end - run.first, 0)
            end = max(run.first + run.length, end)
            if again < run.length:
                first = SourceRun(run.first + again, run.length - again)
                yield first, None if base is None else base + again

    def before(self, offset: int) -> Copied | None:
        """What lies before a source offset; None: nothing does."""
        found = [run for run, _ in self.offset_runs() if run.first < offset]
        runs = tuple(SourceRun(run.first, min(run.length, offset - run.first)) for run in found)
        count = sum(run.length for run in runs)
        if count == self.count or not runs:
            return self if runs else None
        end = runs[-1].first + runs[-1].length
        gaps = runs if self.runs else ()
        return replace(self, next=end, count=count, crc=None, source_crc=None, runs=gaps)

    @property
    def end_offset(self) -> int | None:
        """Destination offset after the last record."""
        return None if self.base_offset is None else self.base_offset + self.count


def describe_copied(lane: Lane, chunk: Chunk) -> Copied | None:
    """What a chunk, just acknowledged, brought where; None: nothing of the log that its source has now."""
    runs = chunk.runs
    first, last = (runs[0].first, runs[-1]) if runs else (chunk.first_offset, None)
    copied = Copied(
        source=lane.partition.source,
        first=first,
        next=first + chunk.count if last is None else last.first + last.length,
        destination=lane.destination,
        base_offset=chunk.base_offset,
        count=chunk.count,
        crc=chunk.crc if chunk.append_time_ms is None else None,
        source_crc=chunk.source_crc,
        max_timestamp=chunk.max_timestamp,
        append_time_ms=chunk.append_time_ms,
        origin=chunk.origin,
        runs=runs,
    )
    return copied if chunk.former_from is None else copied.before(chunk.former_from)
