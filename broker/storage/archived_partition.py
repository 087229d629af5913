"""The archived part of one partition: its segments in order, read as batches or as committed records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader
from broker.records.reader import iterate_entries, read_batches
from broker.records.record import Record
from broker.storage.archive import ArchiveError, Manifest
from broker.storage.transactions import AbortedTransaction
from broker.storage.url_archive import ArchiveReader, contiguous
from broker.types import TopicPartition

BATCH_SIZE_MAX = 1 << 30
"""Bound of what one archived batch may unpack to."""


class ArchivedBatch(NamedTuple):
    """One batch, or one entry of magic 0 or 1 (then without header); `data` are its bytes."""

    data: memoryview
    next_offset: int
    header: BatchHeader | None
    records: list[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """What an archive holds of a partition; `segments`: those to read, each with the offset to start at."""

    reader: ArchiveReader
    topic_id: UUID
    topic_partition: TopicPartition
    segments: tuple[tuple[Manifest, int], ...]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(manifest.size for manifest, _ in self.segments)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of offsets between segments that the archive does not hold; the end of each is exclusive."""
        return [
            (before.next_offset, after.base_offset)
            for (before, _), (after, _) in pairwise(self.segments)
            if after.base_offset > before.next_offset
        ]

    def batches(self) -> Iterator[ArchivedBatch]:
        """Every batch once, in order. Blocks. Raises ArchiveError for what cannot be read or is damaged."""
        for manifest, start in self.segments:
            yield from self.batches_of(manifest, start)

    def records(self) -> Iterator[tuple[Record, int]]:
        """Every committed record once, in order, with the bytes of the archive that are done with it."""
        for manifest, start in self.segments:
            for batch in self.batches_of(manifest, start):
                size = len(batch.data)
                if not _is_hidden(batch.header, manifest.aborted):
                    for record in batch.records:
                        yield record, size
                        size = 0

    def batches_of(self, manifest: Manifest, start: int) -> Iterator[ArchivedBatch]:
        """The batches of one segment from offset `start` on."""
        try:
            for entry in _entries(self.reader.chunks(manifest)):
                for fetched in read_batches(entry, start_offset=start, size_max=BATCH_SIZE_MAX):
                    yield ArchivedBatch(entry, fetched.next_offset, fetched.header, fetched.records)
        except CorruptRecordsError as error:
            raise ArchiveError(f"{manifest.path} holds damaged records: {error}") from error


def archived_partitions(
    reader: ArchiveReader, manifests: Sequence[Manifest], *, since_ms: int = -1
) -> list[ArchivedPartition]:
    """The partitions that the segments belong to, in their order; segments whose records are all older than
    `since_ms` are left out.
    """
    by_partition: dict[tuple[UUID, TopicPartition], list[Manifest]] = {}
    for manifest in manifests:
        by_partition.setdefault((manifest.topic_id, manifest.topic_partition), []).append(manifest)
    return [
        ArchivedPartition(
            reader=reader,
            topic_id=topic_id,
            topic_partition=topic_partition,
            segments=tuple(
                (manifest, start)
                for manifest, start in contiguous(found)
                if not 0 <= manifest.max_timestamp_ms < since_ms
            ),
        )
        for (topic_id, topic_partition), found in by_partition.items()
    ]


def _entries(chunks: Iterator[bytes]) -> Iterator[memoryview]:
    """The bytes of each batch or legacy entry. Raises CorruptRecordsError when the last one is torn."""
    rest = b""
    for chunk in chunks:
        buffer = rest + chunk
        end = 0
        view = memoryview(buffer)
        for position, size in iterate_entries(buffer):
            end = position + size
            yield view[position:end]
        rest = buffer[end:]
    if rest:
        raise CorruptRecordsError(f"{len(rest)} bytes at the end are no whole batch")


def _is_hidden(header: BatchHeader | None, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether a consumer of committed records does not see the batch."""
    if header is None or not (header.is_transactional or header.is_control):
        return False
    return header.is_control or any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )
