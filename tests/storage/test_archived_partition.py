from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.records.batch import rebase
from broker.records.builder import BatchBuilder
from broker.records.control import Marker, MarkerType, build_marker
from broker.storage.archive import ArchiveError, SealedSegment
from broker.storage.archived_partition import ArchivedPartition, archived_partitions
from broker.storage.transactions import AbortedTransaction
from broker.storage.url_archive import ArchiveReader, UrlArchive
from broker.types import BrokerId, TopicPartition


def batch(base: int, *values: bytes, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(size_max=1 << 20, producer_id=producer_id, transactional=producer_id >= 0)
    for value in values:
        builder.append(1_000, None, value)
    built = builder.build()
    rebase(built, 0, base, 3)
    return bytes(built)


def marker(base: int, kind: MarkerType, producer_id: int) -> bytes:
    built = build_marker(
        Marker(type=kind, coordinator_epoch=0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1_000
    )
    rebase(built, 0, base, 3)
    return bytes(built)


def archived(
    directory: Path,
    *segments: tuple[int, int, bytes],
    aborted: tuple[AbortedTransaction, ...] = (),
    cut: int = 0,
) -> ArchivedPartition:
    """A partition of segments (base offset, next offset, bytes), read back; each chunk `cut` bytes long."""
    archive = UrlArchive(str(directory), cluster_id="C", broker_id=BrokerId(1))
    for base, end, content in segments:
        archive.store(
            SealedSegment(
                topic_partition=TopicPartition("flights", 0),
                topic_id=UUID(int=9),
                base_offset=base,
                next_offset=end,
                size=len(content),
                max_timestamp_ms=1_000,
                aborted=aborted,
                chunks=lambda content=content: iter([content]),  # type: ignore[misc]
            )
        )
    reader = ArchiveReader(str(directory), chunk_bytes=cut or 1 << 20)
    (partition,) = archived_partitions(reader, reader.manifests())
    return partition


def test_aborted_records_and_markers_are_no_committed_records(tmp_path: Path) -> None:
    content = b"".join(
        [
            batch(0, b"plain"),
            batch(1, b"aborted", producer_id=5),
            batch(2, b"committed", producer_id=6),
            marker(3, MarkerType.ABORT, 5),
            batch(4, b"later", producer_id=5),
            marker(5, MarkerType.COMMIT, 6),
            marker(6, MarkerType.COMMIT, 5),
        ]
    )
    partition = archived(tmp_path, (0, 7, content), aborted=(AbortedTransaction(5, 1, 3, 2),))
    assert [record.value for record, _ in partition.records()] == [b"plain", b"committed", b"later"]
    assert sum(1 for _ in partition.batches()) == 7


@given(cut=st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_batches_are_whole_however_the_bytes_come(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = b"".join(batch(base, b"v%d" % base) for base in range(5))
    partition = archived(tmp_path_factory.mktemp("archive"), (0, 5, content), cut=cut)
    assert [record.offset for record, _ in partition.records()] == [0, 1, 2, 3, 4]
    assert b"".join(bytes(each.data) for each in partition.batches()) == content


def test_what_two_replicas_archived_is_read_once(tmp_path: Path) -> None:
    batches = [batch(base, b"v%d" % base) for base in range(6)]
    partition = archived(
        tmp_path, (0, 4, b"".join(batches[:4])), (2, 6, b"".join(batches[2:])), (0, 2, b"".join(batches[:2]))
    )
    assert [record.offset for record, _ in partition.records()] == [0, 1, 2, 3, 4, 5]
    assert partition.gaps == []


def test_missing_offsets_are_known(tmp_path: Path) -> None:
    partition = archived(tmp_path, (0, 1, batch(0, b"x")), (5, 6, batch(5, b"y")))
    assert partition.gaps == [(1, 5)]


@pytest.mark.parametrize("content", [batch(0, b"x")[:-1], batch(0, b"x")[:-1] + b"?"])
def test_records_damaged_before_they_were_archived_are_named(tmp_path: Path, content: bytes) -> None:
    partition = archived(tmp_path, (0, 1, content))
    with pytest.raises(ArchiveError, match=r"flights.*holds damaged records"):
        list(partition.records())
