"""The archive that comes with the node: a directory or object store by its URL, through fsspec.

    URL/CLUSTER_ID/TOPIC/TOPIC_ID/PARTITION/FIRST-NEXT.log     the bytes of the segment
                                           /FIRST-NEXT.json    its manifest, written last

A `.log` without manifest is what an interrupted upload left; it is written again. Replicas cut their segments
at different offsets, so after a change of leaders archived ranges may overlap: `contiguous` leaves nothing
out and reads nothing twice. In local directories every file and name is synced before `store` returns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import fsspec
from crc32c import crc32c
from fsspec.implementations.local import LocalFileSystem

from broker.errors import ConfigurationError
from broker.storage.archive import ArchiveError, Manifest, SealedSegment, segment_path
from broker.types import BrokerId

LOG_SUFFIX = ".log"
MANIFEST_SUFFIX = ".json"
_PART_SUFFIX = ".part"


class UrlArchive:
    """See the module's description. Any thread."""

    def __init__(self, url: str, *, cluster_id: str, broker_id: BrokerId) -> None:
        """Raises ConfigurationError for a URL that no installed package serves."""
        self._files, self._root = _file_system(url)
        self._url = url
        self._cluster_id = cluster_id
        self._broker_id = broker_id

    def store(self, segment: SealedSegment) -> None:
        """See SegmentArchive."""
        path = segment_path(
            self._cluster_id,
            segment.topic_partition,
            segment.topic_id,
            segment.base_offset,
            segment.next_offset,
        )
        base = f"{self._root}/{path}"
        try:
            if self._holds(base, segment):
                return
            self._files.makedirs(base.rpartition("/")[0], exist_ok=True)
            checksum = self._write(base + LOG_SUFFIX, segment.chunks())
            self._check_size(base + LOG_SUFFIX, segment.size)
            manifest = Manifest(
                cluster_id=self._cluster_id,
                topic=segment.topic_partition.topic,
                topic_id=segment.topic_id,
                partition=segment.topic_partition.partition,
                base_offset=segment.base_offset,
                next_offset=segment.next_offset,
                size=segment.size,
                crc32c=checksum,
                max_timestamp_ms=segment.max_timestamp_ms,
                archived_ms=time.time_ns() // 1_000_000,
                broker_id=self._broker_id,
                aborted=segment.aborted,
            )
            self._write(base + MANIFEST_SUFFIX, iter([manifest.encode()]))
        except _FAILURES as error:
            raise ArchiveError(f"cannot archive to {self._url}: {_reason(error)}") from error

    def _holds(self, base: str, segment: SealedSegment) -> bool:
        self._files.invalidate_cache()
        if not self._files.exists(base + MANIFEST_SUFFIX):
            return False
        manifest = Manifest.decode(self._files.cat_file(base + MANIFEST_SUFFIX), base + MANIFEST_SUFFIX)
        return manifest.size == segment.size and self._files.size(base + LOG_SUFFIX) == segment.size

    def _write(self, path: str, chunks: Iterator[bytes]) -> int:
        """Write a file as a whole; the checksum of its bytes."""
        checksum = 0
        local = isinstance(self._files, LocalFileSystem)
        target = path + _PART_SUFFIX if local else path
        with self._files.open(target, "wb") as file:
            for chunk in chunks:
                checksum = crc32c(chunk, checksum)
                file.write(chunk)
            if local:
                file.flush()
                os.fsync(file.fileno())
        if local:
            os.replace(target, path)
            _sync_directories(path, self._root)
        return checksum

    def _check_size(self, path: str, expected: int) -> None:
        self._files.invalidate_cache()
        actual = self._files.size(path)
        if actual != expected:
            raise ArchiveError(f"{path} has {actual} bytes in {self._url}, {expected} were written")


class ArchiveReader:
    """Reading what was archived to a URL, of any cluster."""

    def __init__(self, url: str, *, chunk_bytes: int = 4 << 20) -> None:
        """Raises ConfigurationError for a URL that no installed package serves."""
        self._files, self._root = _file_system(url)
        self._url = url
        self._chunk_bytes = chunk_bytes

    def manifests(self, *, topic: str | None = None) -> list[Manifest]:
        """Every archived segment, or those of one topic, in the order of topic, topic id, partition, offset.

        Raises ArchiveError.
        """
        try:
            self._files.invalidate_cache()
            paths = [
                path
                for cluster in self._directories(self._root)
                for directory in self._directories(cluster)
                if topic is None or directory.rpartition("/")[2] == topic
                for path in self._files.find(directory)
                if path.endswith(MANIFEST_SUFFIX)
            ]
            found = [Manifest.decode(self._files.cat_file(path), path) for path in paths]
        except _FAILURES as error:
            raise ArchiveError(f"cannot read {self._url}: {_reason(error)}") from error
        return sorted(
            found,
            key=lambda each: (each.topic_partition.topic, str(each.topic_id), each.partition, each.path),
        )

    def _directories(self, path: str) -> list[str]:
        entries = self._files.ls(path, detail=True)
        return sorted(entry["name"].rstrip("/") for entry in entries if entry["type"] == "directory")

    def chunks(self, manifest: Manifest) -> Iterator[bytes]:
        """The bytes of a segment. Raises ArchiveError, at the end when they are not what was archived."""
        checksum = size = 0
        try:
            with self._files.open(f"{self._root}/{manifest.path}{LOG_SUFFIX}", "rb") as file:
                while chunk := file.read(self._chunk_bytes):
                    checksum = crc32c(chunk, checksum)
                    size += len(chunk)
                    yield chunk
        except _FAILURES as error:
            raise ArchiveError(f"cannot read {manifest.path} of {self._url}: {_reason(error)}") from error
        if (size, checksum) != (manifest.size, manifest.crc32c):
            raise ArchiveError(
                f"{manifest.path} of {self._url} is damaged: {size} bytes with checksum {checksum:08x}, "
                f"{manifest.size} with {manifest.crc32c:08x} were archived"
            )


def contiguous(manifests: Sequence[Manifest]) -> list[tuple[Manifest, int]]:
    """Segments of one partition that cover everything archived, each with the offset from which it is to be
    read: what an earlier one holds is not taken again.
    """
    chosen: list[tuple[Manifest, int]] = []
    covered = -1
    for manifest in sorted(manifests, key=lambda manifest: (manifest.base_offset, -manifest.next_offset)):
        if manifest.next_offset > covered:
            chosen.append((manifest, max(covered, manifest.base_offset)))
            covered = manifest.next_offset
    return chosen


_FAILURES = (OSError, ValueError, RuntimeError)
"""What file systems of fsspec raise; those of object stores translate their own errors to OSError."""


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _file_system(url: str) -> tuple[Any, str]:
    try:
        files, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigurationError([f"archive {url!r}: {error}"]) from error
    return files, str(root).rstrip("/")


def directories_above(path: str, root: str) -> list[str]:
    """The directories that hold the names on the way from `root` to `path`, the innermost first: the last is
    that of `root` itself.
    """
    above = [str(parent) for parent in PurePath(path).parents]
    return above[: above.index(str(PurePath(root or "/").parent)) + 1]


def _sync_directories(path: str, root: str) -> None:
    """Make the names on the way from `root` to `path` survive a loss of power."""
    for directory in directories_above(path, root):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
