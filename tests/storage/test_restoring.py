"""Segments put back into a data root by runs that are cut short, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from broker.records.batch import rebase
from broker.records.builder import BatchBuilder
from broker.storage.archive import SealedSegment
from broker.storage.archived_partition import ArchivedPartition, archived_partitions
from broker.storage.checkpoints import EpochStart, read_leader_epochs, write_leader_epochs
from broker.storage.disk import SystemDisk
from broker.storage.filenames import LEADER_EPOCH_FILE
from broker.storage.restoring import restore_partitions
from broker.storage.url_archive import ArchiveReader, UrlArchive
from broker.types import BrokerId, TopicPartition

PARTITION = TopicPartition("flights", 0)
SEGMENTS = 4
BATCHES = 3
"""In each segment, each of a leader epoch of its own."""


class CutShortError(Exception):
    """The run ends here, as by a signal."""


@dataclass
class Cut:
    """Ends a run after so many batches."""

    left: int

    def __call__(self, _size: int) -> None:
        if not self.left:
            raise CutShortError
        self.left -= 1


def batch(offset: int) -> bytes:
    builder = BatchBuilder(size_max=1 << 20)
    builder.append(1_000 + offset, b"%d" % offset, b"value")
    built = builder.build()
    rebase(built, 0, offset, offset)
    return bytes(built)


@pytest.fixture
def partition(tmp_path: Path) -> ArchivedPartition:
    archive = UrlArchive(str(tmp_path / "archive"), cluster_id="C", broker_id=BrokerId(1))
    for base in range(0, SEGMENTS * BATCHES, BATCHES):
        content = b"".join(map(batch, range(base, base + BATCHES)))

        def chunks(content: bytes = content) -> Iterator[bytes]:
            return iter([content])

        archive.store(
            SealedSegment(
                topic_partition=PARTITION,
                topic_id=UUID(int=9),
                base_offset=base,
                next_offset=base + BATCHES,
                size=len(content),
                max_timestamp_ms=1_000 + base + BATCHES - 1,
                aborted=(),
                chunks=chunks,
            )
        )
    reader = ArchiveReader(str(tmp_path / "archive"))
    (found,) = archived_partitions(reader, reader.manifests())
    return found


@pytest.mark.parametrize("batches", range(SEGMENTS * BATCHES))
def test_a_run_that_was_cut_short_is_ended_by_the_next(
    partition: ArchivedPartition, tmp_path: Path, batches: int
) -> None:
    disk, root = SystemDisk(), tmp_path / "root"
    directory = root / str(PARTITION)
    directory.mkdir(parents=True)
    last = SEGMENTS * BATCHES
    write_leader_epochs(disk, directory / LEADER_EPOCH_FILE, [EpochStart(last, last)], durable=False)
    with pytest.raises(CutShortError):
        restore_partitions(disk, root, [partition], Cut(batches))
    restore_partitions(disk, root, [partition], lambda _size: None)
    whole = [EpochStart(epoch, epoch) for epoch in range(last + 1)]
    assert read_leader_epochs(disk, directory / LEADER_EPOCH_FILE) == whole


def test_an_index_that_a_crash_took_is_made_by_the_next_run(
    partition: ArchivedPartition, tmp_path: Path
) -> None:
    disk, root = SystemDisk(), tmp_path / "root"
    root.mkdir()
    restore_partitions(disk, root, [partition], lambda _size: None)
    taken = [*sorted((root / str(PARTITION)).glob("*.timeindex"))[1:3]]
    for path in taken:
        path.unlink()
    restore_partitions(disk, root, [partition], lambda _size: None)
    assert all(path.exists() for path in taken)
