from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import fsspec
import pytest

from broker.errors import ConfigurationError, StorageError
from broker.storage.archive import ArchiveError, Manifest, SealedSegment, load_archive
from broker.storage.transactions import AbortedTransaction
from broker.storage.url_archive import ArchiveReader, UrlArchive, contiguous, directories_above
from broker.types import BrokerId, TopicPartition

TOPIC_ID = UUID(int=7)
BYTES = b"0123456789" * 100


def sealed(
    base: int = 0, end: int = 10, content: bytes = BYTES, aborted: tuple[AbortedTransaction, ...] = ()
) -> SealedSegment:
    return SealedSegment(
        topic_partition=TopicPartition("flights", 3),
        topic_id=TOPIC_ID,
        base_offset=base,
        next_offset=end,
        size=len(BYTES),
        max_timestamp_ms=1234,
        aborted=aborted,
        chunks=lambda: iter([content[:600], content[600:]]),
    )


@pytest.fixture(params=["directory", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "directory":
        yield str(tmp_path / "not" / "made [yet]")
        return
    root = f"memory://{uuid4()}"
    yield root
    fsspec.filesystem("memory").rm(root, recursive=True)


def opened(url: str) -> UrlArchive:
    return UrlArchive(url, cluster_id="C1", broker_id=BrokerId(4))


def test_a_stored_segment_is_read_back_with_what_is_known_of_it(url: str) -> None:
    aborted = AbortedTransaction(5, 2, 9, 10)
    opened(url).store(sealed(aborted=(aborted,)))
    reader = ArchiveReader(url)
    (manifest,) = reader.manifests()
    assert manifest.topic_partition == TopicPartition("flights", 3)
    assert (manifest.topic_id, manifest.cluster_id, manifest.broker_id) == (TOPIC_ID, "C1", 4)
    assert (manifest.base_offset, manifest.next_offset, manifest.size) == (0, 10, len(BYTES))
    assert manifest.aborted == (aborted,)
    assert b"".join(reader.chunks(manifest)) == BYTES


def test_storing_again_reads_nothing(url: str) -> None:
    archive = opened(url)
    archive.store(sealed())

    def unread() -> Iterator[bytes]:
        raise AssertionError("the segment was read again")
        yield b""

    again = sealed()
    object.__setattr__(again, "chunks", unread)
    archive.store(again)
    assert len(ArchiveReader(url).manifests()) == 1


def test_an_upload_that_was_cut_short_is_not_listed_and_is_made_whole_by_the_next(url: str) -> None:
    def breaks() -> Iterator[bytes]:
        yield BYTES[:600]
        raise StorageError("the disk broke")

    archive = opened(url)
    broken = sealed()
    object.__setattr__(broken, "chunks", breaks)
    with pytest.raises(StorageError):
        archive.store(broken)
    assert ArchiveReader(url).manifests() == []
    archive.store(sealed())
    (manifest,) = ArchiveReader(url).manifests()
    assert b"".join(ArchiveReader(url).chunks(manifest)) == BYTES


def test_a_segment_that_gives_fewer_bytes_than_it_has_is_refused(url: str) -> None:
    with pytest.raises(ArchiveError, match="600 bytes"):
        opened(url).store(sealed(content=BYTES[:600]))
    assert ArchiveReader(url).manifests() == []


def test_damage_in_the_archive_is_found_when_it_is_read(url: str) -> None:
    opened(url).store(sealed())
    reader = ArchiveReader(url)
    (manifest,) = reader.manifests()
    files, root = fsspec.core.url_to_fs(url)
    files.pipe_file(f"{root}/{manifest.path}.log", BYTES[:-1] + b"x")
    with pytest.raises(ArchiveError, match="is damaged"):
        list(reader.chunks(manifest))


def test_a_manifest_that_is_none_is_named(url: str) -> None:
    opened(url).store(sealed())
    (manifest,) = ArchiveReader(url).manifests()
    files, root = fsspec.core.url_to_fs(url)
    files.pipe_file(f"{root}/{manifest.path}.json", b"[1]")
    with pytest.raises(ArchiveError, match=r"\.json is no manifest"):
        ArchiveReader(url).manifests()


def test_only_the_topic_asked_for_is_listed(url: str) -> None:
    opened(url).store(sealed())
    assert ArchiveReader(url).manifests(topic="others") == []
    assert len(ArchiveReader(url).manifests(topic="flights")) == 1


def test_an_archive_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="missing"):
        ArchiveReader(str(tmp_path / "missing")).manifests()


def test_a_directory_that_cannot_be_written_to_is_an_error_that_names_the_url(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArchiveError, match="file"):
        opened(str(tmp_path / "file")).store(sealed())


@pytest.mark.parametrize("url", ["gopher://x/y", "s3://bucket/prefix"])
def test_a_url_that_no_installed_package_serves_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=url.partition(":")[0]):
        opened(url)


@pytest.mark.parametrize(
    "path", ["broker.storage.nothing:X", "broker.storage.disk:Nothing", "x", "json:dumps"]
)
def test_a_class_that_is_no_archive_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"log\.archive\.class"):
        load_archive(path, "/tmp", cluster_id="C1", broker_id=BrokerId(1))


@pytest.mark.parametrize(
    ("root", "above"),
    [
        ("/mnt/archive", ["/mnt/archive/C1/0", "/mnt/archive/C1", "/mnt/archive", "/mnt"]),
        ("/archive", ["/archive/C1/0", "/archive/C1", "/archive", "/"]),
        ("", ["/C1/0", "/C1", "/"]),
    ],
)
def test_directories_are_synced_up_to_that_of_the_root_even_when_that_is_the_file_systems_own(
    root: str, above: list[str]
) -> None:
    assert directories_above(f"{root}/C1/0/1-2.log", root) == above


def test_overlapping_segments_of_two_replicas_are_read_once() -> None:
    def of(base: int, end: int) -> Manifest:
        return Manifest(
            cluster_id="C1",
            topic="flights",
            topic_id=TOPIC_ID,
            partition=0,
            base_offset=base,
            next_offset=end,
            size=1,
            crc32c=0,
            max_timestamp_ms=0,
            archived_ms=0,
            broker_id=BrokerId(1),
        )

    ranges = [(0, 10), (0, 4), (4, 12), (12, 20), (15, 18), (30, 40)]
    chosen = contiguous([of(*each) for each in ranges])
    assert [(each.base_offset, each.next_offset, start) for each, start in chosen] == [
        (0, 10, 0),
        (4, 12, 10),
        (12, 20, 12),
        (30, 40, 30),
    ]
