"""A whole data directory checked without changing it: who it belongs to, its checkpoints, every partition.

Damage is what a node would lose, refuse or serve wrongly; notes are leftovers and other things worth
knowing, which a start of a node sees to. A directory that a node is using can be checked too: what is at the
end of its active segments may then be a write under way, and is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.errors import StorageError
from broker.storage.checkpoints import read_meta_properties, read_offsets, read_partition_metadata
from broker.storage.disk import TEMPORARY_SUFFIX, DirectoryEntry, Disk
from broker.storage.filenames import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    ROOT_FILES,
    DirectoryState,
    FileKind,
    parse_directory_name,
    parse_segment_file_name,
)
from broker.storage.partition_check import Gaps, PartitionTally, PartitionToCheck, check_partition
from broker.storage.root_claim import OF_KRAFT
from broker.storage.segment_check import Problem, damaged, noted
from broker.types import TopicId, TopicPartition

_LOST_AND_FOUND = "lost+found"
_ABSENT_SHOWN_MAX = 5
_MEANINGS: Mapping[str, str] = {
    RECOVERY_POINT_FILE: "what was flushed up to",
    HIGH_WATERMARK_FILE: "the high watermark is",
    LOG_START_OFFSET_FILE: "the log starts at",
    CLEANER_OFFSET_FILE: "what was compacted up to",
}
_STATES: Mapping[DirectoryState, str] = {
    DirectoryState.DELETE: "is being removed; the next start of the node goes on with it",
    DirectoryState.FUTURE: "is a replica being moved between directories",
    DirectoryState.STRAY: "is a replica that its cluster does not know",
}


@dataclass(slots=True)
class VerifyTally:
    """What was looked at; sizes in bytes."""

    partitions: int = 0
    segments: int = 0
    entries: int = 0
    records: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One check of the data root, or of the single partition's directory, at `path`.

    `deep` opens every batch; `on_bytes` is told of every so many bytes of log done.
    """

    disk: Disk
    path: Path
    deep: bool = True
    in_use: bool = False
    on_bytes: Callable[[int], None] = field(default=lambda _: None)
    tally: VerifyTally = field(default_factory=VerifyTally)

    def log_size(self) -> int:
        """Bytes of log that there are to check. Raises StorageError."""
        return sum(
            entry.size
            for directory in self._partition_directories()
            for entry in self.disk.list_directory(directory)
            if (name := parse_segment_file_name(entry.name)) is not None and name.kind is FileKind.LOG
        )

    def problems(self) -> Iterator[Problem]:
        """Check everything; problems come as they are found.

        Raises StorageError when the directory cannot be listed or is neither a data root nor a partition's.
        """
        if self._is_partition():
            yield from self._check_one(self.path)
            return
        entries = self.disk.list_directory(self.path)
        if not any(entry.name == META_PROPERTIES_FILE or _is_live(entry) for entry in entries):
            raise StorageError(
                f"{self.path} is no data directory: it has no {META_PROPERTIES_FILE} and no partition"
            )
        yield from self._check_names(entries)
        yield from self._check_meta()
        ends = yield from self._check_partitions(entries)
        yield from self._check_topic_ids(entries)
        for name in _MEANINGS:
            yield from self._check_offsets(name, ends)

    def _is_partition(self) -> bool:
        return parse_directory_name(self.path.name) is not None and any(
            parse_segment_file_name(entry.name) for entry in self.disk.list_directory(self.path)
        )

    def _partition_directories(self) -> list[Path]:
        if self._is_partition():
            return [self.path]
        return [self.path / entry.name for entry in self.disk.list_directory(self.path) if _is_live(entry)]

    # The root

    def _check_names(self, entries: list[DirectoryEntry]) -> Iterator[Problem]:
        names = {entry.name for entry in entries}
        for entry in entries:
            path = self.path / entry.name
            parsed = parse_directory_name(entry.name) if entry.is_directory else None
            if parsed is not None:
                if parsed.state is not DirectoryState.LIVE:
                    yield noted(path, _STATES[parsed.state])
            elif entry.is_directory:
                if entry.name != _LOST_AND_FOUND:
                    yield damaged(path, "is no partition's directory: a node refuses to start with it")
            elif entry.name.endswith(TEMPORARY_SUFFIX):
                yield noted(path, "was being written when the node ended")
            elif entry.name not in ROOT_FILES:
                yield noted(path, "is no file of a data directory")
        if self.in_use:
            yield noted(self.path, "a running process uses this directory")
        elif CLEAN_SHUTDOWN_FILE not in names:
            yield noted(self.path, "was not shut down cleanly: the next start of the node checks the logs")

    def _check_meta(self) -> Iterator[Problem]:
        path = self.path / META_PROPERTIES_FILE
        try:
            meta = read_meta_properties(self.disk, path)
            if meta is None:
                yield noted(path, "is missing: the next node that starts here takes the directory")
            elif meta.is_of_kraft:
                yield noted(path, OF_KRAFT)
        except StorageError as error:
            yield damaged(path, _without_path(error, path))

    def _check_offsets(self, name: str, ends: Mapping[TopicPartition, PartitionTally]) -> Iterator[Problem]:
        path = self.path / name
        try:
            offsets = read_offsets(self.disk, path)
        except StorageError as error:
            yield damaged(path, _without_path(error, path))
            return
        absent = []
        for partition, offset in offsets.items():
            tally = ends.get(partition)
            if tally is None:
                absent.append(str(partition))
            elif not 0 <= offset <= tally.end_offset and not self.in_use:
                yield damaged(
                    path, f"{partition}: {_MEANINGS[name]} {offset}, and the log ends at {tally.end_offset}"
                )
        if absent:
            shown = ", ".join(absent[:_ABSENT_SHOWN_MAX]) + (
                ", ..." if len(absent) > _ABSENT_SHOWN_MAX else ""
            )
            yield noted(path, f"partitions that are not here: {len(absent)} ({shown})")

    def _check_topic_ids(self, entries: list[DirectoryEntry]) -> Iterator[Problem]:
        """Partitions of one topic that carry different ids."""
        known: dict[str, TopicId] = {}
        for entry in entries:
            parsed = parse_directory_name(entry.name) if _is_live(entry) else None
            if parsed is None:
                continue
            path = self.path / entry.name / PARTITION_METADATA_FILE
            try:
                topic_id = read_partition_metadata(self.disk, path)
            except StorageError:
                continue  # told already
            topic = parsed.topic_partition.topic
            if topic_id is not None and known.setdefault(topic, topic_id) != topic_id:
                yield damaged(
                    path, f"topic id {topic_id}, and {known[topic]} in another partition of {topic}"
                )

    # Partitions

    def _check_partitions(
        self, entries: list[DirectoryEntry]
    ) -> Generator[Problem, None, dict[TopicPartition, PartitionTally]]:
        ends = {}
        for entry in entries:
            parsed = parse_directory_name(entry.name)
            if parsed is None or not _is_live(entry):
                continue
            tally = yield from self._check_one(self.path / entry.name)
            if tally is not None:
                ends[parsed.topic_partition] = tally
        return ends

    def _check_one(self, path: Path) -> Generator[Problem, None, PartitionTally | None]:
        partition = PartitionToCheck(
            disk=self.disk,
            path=path,
            deep=self.deep,
            in_use=self.in_use,
            closed=self.disk.exists(path.parent / CLEAN_SHUTDOWN_FILE),
            gaps=self._gaps(path),
            on_bytes=self._count,
        )
        try:
            found = yield from check_partition(partition)
        except StorageError as error:
            yield damaged(path, str(error))
            return None
        self.tally.partitions += 1
        self.tally.segments += found.segments
        self.tally.entries += found.entries
        self.tally.records += found.records
        return found

    def _gaps(self, path: Path) -> Gaps:
        """Whether the log of a partition's directory may have gaps: the root names every one that may."""
        root, name = path.parent, parse_directory_name(path.name)
        if name is None or not self.disk.exists(root / META_PROPERTIES_FILE):
            return Gaps.UNKNOWN
        try:
            compacted = read_offsets(self.disk, root / CLEANER_OFFSET_FILE)
        except StorageError:
            return Gaps.UNKNOWN
        return Gaps.RIGHT if name.topic_partition in compacted else Gaps.WRONG

    def _count(self, size: int) -> None:
        self.tally.size += size
        self.on_bytes(size)


def _is_live(entry: DirectoryEntry) -> bool:
    parsed = parse_directory_name(entry.name) if entry.is_directory else None
    return parsed is not None and parsed.state is DirectoryState.LIVE


def _without_path(error: StorageError, path: Path) -> str:
    return str(error).removeprefix(f"{path}").lstrip(": ")
