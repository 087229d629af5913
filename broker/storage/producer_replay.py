"""Producer states, and the index of aborted transactions, from what a log holds.

Both follow from the headers of batches and the markers among them, from a snapshot on: a marker says how a
transaction ended, and the snapshot before its segment where it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from broker.errors import CorruptRecordsError, DiskFullError
from broker.storage.partition_directory import PartitionDirectory
from broker.storage.producers import ProducerStates
from broker.storage.segment import Segment
from broker.storage.transactions import AbortedTransaction


class FoundAborted(NamedTuple):
    """An aborted transaction and the segment that holds its marker."""

    segment: Segment
    aborted: AbortedTransaction


def replay(
    producers: ProducerStates, segments: Sequence[Segment], start: int, end: int, *, now_ms: int
) -> list[FoundAborted]:
    """Let `producers`, who stand at offset `start`, see every batch up to offset `end`.

    Raises CorruptRecordsError, StorageError.
    """
    found = []
    for segment, after in zip(segments, [*segments[1:], None], strict=True):
        if after is not None and after.base_offset <= start:
            continue
        if segment.base_offset >= end or start >= end:
            break
        for position, header in segment.headers(segment.locate(max(start, segment.base_offset))):
            if header.base_offset >= end:
                break
            aborted = producers.replay(header, now_ms, segment.marker(position, header))
            if aborted is not None:
                found.append(FoundAborted(segment, aborted))
    return found


def rebuild_aborted(
    directory: PartitionDirectory, segments: Sequence[Segment], index: int, end: int, *, now_ms: int
) -> None:
    """Make the index of aborted transactions of `segments[index]`, which ends at offset `end`, anew; it is
    left sealed, if the disk has room.

    Raises CorruptRecordsError, StorageError.
    """
    segment, producers = segments[index], ProducerStates()
    start = _load_newest(directory, producers, segment.base_offset)
    segment.forget_aborted()
    for place, aborted in replay(producers, segments[: index + 1], start, end, now_ms=now_ms):
        if place is segment:
            segment.note_aborted(aborted)
    if segment.aborted is not None:
        with suppress(DiskFullError):
            segment.aborted.seal()


def _load_newest(directory: PartitionDirectory, producers: ProducerStates, offset_max: int) -> int:
    """Load the newest sound snapshot up to an offset; where it was taken, 0 without one."""
    for offset in reversed(directory.snapshot_offsets()):
        if offset <= offset_max:
            try:
                producers.load(directory.disk.read_file(directory.snapshot_path(offset)))
            except CorruptRecordsError:
                continue
            return offset
    return 0
