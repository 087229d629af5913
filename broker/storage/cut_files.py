"""What recovery cuts off a log that is damaged: kept beside the log, in files named `….log.cut`, further ones
of the same offset `….log.cut.2` and so on.

Nobody reads them but people (`broker dump-log`): replicas have what was cut from their leaders, but a
partition with one replica has it nowhere else. The torn end that a killed process leaves is none of that, as
nobody was told that it is there; nor are zeros. A file is named by the offset where the log was cut, or by
its segment's; it goes with the log's directory.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from broker.errors import DiskFullError
from broker.records.batch import LENGTH_OVERHEAD, MAGIC_POSITION
from broker.storage.disk import TEMPORARY_SUFFIX, Disk, File
from broker.storage.filenames import CUT_SUFFIX, FileKind, segment_file_name
from broker.storage.stored_entries import find_entry

_MAGIC_MAX = 2
_PIECE_BYTES = 1 << 20


def is_torn(file: File, position: int, size: int, next_offset: int) -> bool:
    """Whether what is from `position` on is a write that did not come to its end: an entry that would follow,
    but for its last bytes, or zeros. Where a sound entry lies behind, that entry only says a length that it
    does not have.
    """
    head = file.pread(MAGIC_POSITION + 1, position)
    if len(head) > MAGIC_POSITION:
        offset, length = int.from_bytes(head[:8], "big"), int.from_bytes(head[8:LENGTH_OVERHEAD], "big")
        follows = offset >= next_offset and head[MAGIC_POSITION] <= _MAGIC_MAX
        if follows and position + LENGTH_OVERHEAD + length > size:
            return find_entry(file, position + 1, size, offset_min=next_offset) is None
    elif position + len(head) >= size:
        return True
    return all(
        not any(file.pread(min(_PIECE_BYTES, size - at), at)) for at in range(position, size, _PIECE_BYTES)
    )


def keep_rest(disk: Disk, file: File, position: int, size: int, directory: Path, offset: int) -> Path | None:
    """Store durably what `file` has from `position` on, where the log was cut at `offset`; returns where,
    None where the disk has no room. Raises StorageError.
    """
    path = _free_path(disk, directory, offset)
    unfinished = path.with_name(path.name + TEMPORARY_SUFFIX)
    kept = disk.open(unfinished, create=True)
    try:
        for at in range(position, size, _PIECE_BYTES):
            kept.pwrite(file.pread(min(_PIECE_BYTES, size - at), at), at - position)
        kept.sync()
        disk.rename(unfinished, path)
    except DiskFullError:
        with suppress(DiskFullError):
            disk.remove(unfinished)
        return None
    finally:
        kept.close()
    disk.sync_directory(directory)
    return path


def keep_segment(disk: Disk, log: Path, offset: int) -> Path:
    """Have the file of a whole segment, which begins at `offset`, by such a name, not yet durably; returns
    which. Raises StorageError.
    """
    path = _free_path(disk, log.parent, offset)
    disk.rename(log, path)
    return path


def _free_path(disk: Disk, directory: Path, offset: int) -> Path:
    """What was kept of the same offset before stays."""
    first = directory / (segment_file_name(offset, FileKind.LOG) + CUT_SUFFIX)
    further = (first.with_name(f"{first.name}.{number}") for number in count(2))
    return next(path for path in chain([first], further) if not disk.exists(path))
