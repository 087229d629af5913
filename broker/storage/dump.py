"""The dump of any file of a data directory, told apart by its name.

Logs and indexes of all magics, transaction indexes, producer snapshots, checkpoints, and the logs of Kafka
0.7 and MetaQ. Nothing is ever written, and no bytes, whatever they are, make a dump fail: what they should
not be comes out as Damage between the lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from broker.errors import CorruptRecordsError, StorageError
from broker.records.batch import SEQUENCE_LIMIT
from broker.storage.checkpoints import (
    read_leader_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from broker.storage.disk import Disk
from broker.storage.dump_line import Damage, DumpLine, Finding, LineKind, OptionalLong
from broker.storage.filenames import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    FileKind,
    SegmentFileName,
    parse_segment_file_name,
    segment_file_name,
)
from broker.storage.index import OffsetIndex, TimeIndex
from broker.storage.index_check import (
    OffsetIndexCheck,
    TimeIndexCheck,
    offset_entries,
    read_index,
    size_damage,
    time_entries,
)
from broker.storage.legacy_files import LegacyFormat, dump_legacy_file, parse_legacy_file_name
from broker.storage.log_dump import LogDumpOptions, dump_log
from broker.storage.stored_batches import walk

OFFSET_CHECKPOINTS = frozenset(
    {RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE}
)

_SNAPSHOT_HEADER = Struct(">hIi")
_SNAPSHOT_CHECKED = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_ABORTED = Struct(">hqqqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What is shown of a file. `verify_only` checks an index against its log and shows no entries;
    `sanity_only` checks what a start of a node checks.
    """

    log: LogDumpOptions = field(default_factory=LogDumpOptions)
    verify_only: bool = False
    sanity_only: bool = False


def dump_file(disk: Disk, path: Path, options: DumpOptions) -> Iterator[Finding]:
    """Lines and damage of the file at `path`.

    Raises StorageError when it cannot be read or its name is not that of a file of a data directory.
    """
    if (segment := parse_segment_file_name(path.name)) is not None:
        return _dump_segment_file(disk, path, segment, options)
    if (legacy := parse_legacy_file_name(path.name)) is not None:
        return _dump_legacy(disk, path, *legacy, print_data=options.log.print_data)
    if path.name in OFFSET_CHECKPOINTS or path.name in _TEXT_FILES:
        return dump_text_file(disk, path)
    raise StorageError(
        f"{path} has the name of no file that a node writes (such as {segment_file_name(0, FileKind.LOG)})"
    )


def _dump_segment_file(
    disk: Disk, path: Path, name: SegmentFileName, options: DumpOptions
) -> Iterator[Finding]:
    match name.kind:
        case FileKind.LOG:
            return _dump_log(disk, path, name.offset, options.log)
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
            return _dump_index(disk, path, name, options)
        case FileKind.TRANSACTION_INDEX:
            return dump_transaction_index(disk.read_file(path))
        case FileKind.PRODUCER_SNAPSHOT:
            return dump_snapshot(disk.read_file(path))


def _dump_log(disk: Disk, path: Path, base_offset: int, options: LogDumpOptions) -> Iterator[Finding]:
    file = disk.open(path)
    try:
        yield from dump_log(file, base_offset, options)
    finally:
        file.close()


def _dump_legacy(
    disk: Disk, path: Path, base_position: int, file_format: LegacyFormat, *, print_data: bool
) -> Iterator[Finding]:
    file = disk.open(path)
    try:
        yield from dump_legacy_file(file, file_format, base_position, print_data=print_data)
    finally:
        file.close()


# Indexes


def _dump_index(disk: Disk, path: Path, name: SegmentFileName, options: DumpOptions) -> Iterator[Finding]:
    data, size = read_index(disk, path)
    is_offsets = name.kind is FileKind.OFFSET_INDEX
    yield from size_damage(size, (OffsetIndex if is_offsets else TimeIndex).entry.size)
    if options.sanity_only:
        yield from _sanity(data, name)
        return
    if not options.verify_only:
        yield from _index_lines(data, name)
    log_name = segment_file_name(name.offset, FileKind.LOG) + name.state.value
    log_path = path.with_name(log_name)
    if not disk.exists(log_path):
        yield Damage(None, f"not verified: {log_name} is not beside it")
        return
    yield from _verify_index(disk, log_path, data, name)


def _index_lines(data: bytes, name: SegmentFileName) -> Iterator[DumpLine]:
    if name.kind is FileKind.OFFSET_INDEX:
        for entry in offset_entries(data, name.offset):
            yield DumpLine(LineKind.ENTRY, {"offset": entry.offset, "position": entry.position})
    else:
        for found in time_entries(data, name.offset):
            yield DumpLine(LineKind.ENTRY, {"timestamp": found.timestamp, "offset": found.offset})


def _sanity(data: bytes, name: SegmentFileName) -> Iterator[Finding]:
    entries = (
        [entry.offset for entry in offset_entries(data, name.offset)]
        if name.kind is FileKind.OFFSET_INDEX
        else [entry.offset for entry in time_entries(data, name.offset)]
    )
    if entries and entries[-1] < max(name.offset, entries[0]):
        yield Damage(
            None, f"the last offset is {entries[-1]}, the first {entries[0]}, the base {name.offset}"
        )
    else:
        yield DumpLine(LineKind.NOTE, {"sanity check": "passed"})


def _verify_index(disk: Disk, log_path: Path, data: bytes, name: SegmentFileName) -> Iterator[Damage]:
    offsets = OffsetIndexCheck(
        offset_entries(data, name.offset) if name.kind is FileKind.OFFSET_INDEX else []
    )
    times = TimeIndexCheck(time_entries(data, name.offset) if name.kind is FileKind.TIME_INDEX else [])
    yield from offsets.order()
    yield from times.order()
    end_offset = name.offset
    file = disk.open(log_path)
    try:
        for position, header in walk(file, 0, file.size()):
            yield from offsets.see(position, header)
            yield from times.see(header)
            end_offset = header.next_offset
    except CorruptRecordsError as error:
        yield Damage(None, f"{log_path.name} is damaged: {error.message}")
    finally:
        file.close()
    yield from offsets.finish(end_offset)
    yield from times.finish()


# Transactions and producers


def dump_transaction_index(data: bytes) -> Iterator[Finding]:
    """Lines and damage of a `.txnindex`."""
    yield from size_damage(len(data), _ABORTED.size)
    last = -1
    for at in range(0, len(data) - _ABORTED.size + 1, _ABORTED.size):
        version, producer_id, first_offset, last_offset, stable_offset = _ABORTED.unpack_from(data, at)
        yield DumpLine(
            LineKind.ENTRY,
            {
                "version": version,
                "producerId": producer_id,
                "firstOffset": first_offset,
                "lastOffset": last_offset,
                "lastStableOffset": stable_offset,
            },
        )
        if version != 0:
            yield Damage(at, f"version {version}, expected 0")
        if not 0 <= first_offset <= last_offset or last_offset <= last:
            yield Damage(
                at, f"transaction of offsets {first_offset} to {last_offset} after one that ends at {last}"
            )
        last = last_offset


def dump_snapshot(data: bytes) -> Iterator[Finding]:
    """Lines and damage of a producer `.snapshot`."""
    if len(data) < _SNAPSHOT_HEADER.size:
        yield Damage(0, f"{len(data)} bytes are no snapshot")
        return
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != 1:
        yield Damage(0, f"version {version}, expected 1")
        return
    if (actual := crc32c(data[_SNAPSHOT_CHECKED:])) != crc:
        yield Damage(2, f"checksum is {actual}, not {crc}")
    held = (len(data) - _SNAPSHOT_HEADER.size) / _SNAPSHOT_ENTRY.size
    if held != count:
        yield Damage(_SNAPSHOT_CHECKED, f"{count} entries announced, room for {held:g}")
    whole = len(data) - (len(data) - _SNAPSHOT_HEADER.size) % _SNAPSHOT_ENTRY.size
    for packed in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size : whole]):
        yield _producer_line(*packed)


def _producer_line(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> DumpLine:
    has_batch = last_sequence >= 0
    return DumpLine(
        LineKind.ENTRY,
        {
            "producerId": producer_id,
            "producerEpoch": producer_epoch,
            "coordinatorEpoch": coordinator_epoch,
            "currentTxnFirstOffset": OptionalLong(first_offset if first_offset >= 0 else None),
            "lastTimestamp": timestamp,
            "firstSequence": (last_sequence - offset_delta) % SEQUENCE_LIMIT if has_batch else None,
            "lastSequence": last_sequence if has_batch else None,
            "lastOffset": last_offset if has_batch else None,
            "offsetDelta": offset_delta if has_batch else None,
            "timestamp": timestamp if has_batch else None,
        },
    )


# Text files


_TEXT_FILES = frozenset({LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, META_PROPERTIES_FILE})


def dump_text_file(disk: Disk, path: Path) -> Iterator[Finding]:
    """Lines and damage of a checkpoint, `partition.metadata` or `meta.properties`. Raises StorageError when
    it cannot be read.
    """
    disk.read_file(path)  # that it is there and readable is no matter of damage
    try:
        yield from _text_lines(disk, path)
    except StorageError as error:
        yield Damage(None, str(error))


def _text_lines(disk: Disk, path: Path) -> Iterator[Finding]:
    if path.name == LEADER_EPOCH_FILE:
        previous = None
        for entry in read_leader_epochs(disk, path):
            yield DumpLine(LineKind.ENTRY, {"epoch": entry.epoch, "startOffset": entry.start_offset})
            if previous is not None and not (
                entry.epoch > previous.epoch and entry.start_offset > previous.start_offset
            ):
                yield Damage(
                    None,
                    f"epoch {entry.epoch} from offset {entry.start_offset} follows "
                    f"epoch {previous.epoch} from offset {previous.start_offset}",
                )
            previous = entry
    elif path.name == PARTITION_METADATA_FILE:
        yield DumpLine(LineKind.ENTRY, {"topicId": str(read_partition_metadata(disk, path))})
    elif path.name == META_PROPERTIES_FILE:
        if (meta := read_meta_properties(disk, path)) is not None:
            yield DumpLine(LineKind.ENTRY, {"brokerId": meta.broker_id, "clusterId": meta.cluster_id})
    else:
        for (topic, partition), offset in read_offsets(disk, path).items():
            yield DumpLine(LineKind.ENTRY, {"topic": topic, "partition": partition, "offset": offset})
