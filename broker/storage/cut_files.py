"""What recovery cuts off a log that is damaged: kept beside the log, in files named `….log.cut`.

Nobody reads them but people (`broker dump-log`): replicas have what was cut from their leaders, but a
partition with one replica has it nowhere else. The torn end that a killed process leaves is none of that, as
nobody was told that it is there; nor are zeros. A file is named by the offset where the log was cut, or by
its segment's; it goes with the log's directory.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from broker.errors import DiskFullError
from broker.records.batch import LENGTH_OVERHEAD, MAGIC_POSITION
from broker.storage.disk import Disk, File
from broker.storage.filenames import CUT_SUFFIX, FileKind, segment_file_name

_MAGIC_MAX = 2
_PIECE_BYTES = 1 << 20


def cut_path(directory: Path, offset: int) -> Path:
    """Where what lay from `offset` on is kept."""
    return directory / (segment_file_name(offset, FileKind.LOG) + CUT_SUFFIX)


def is_torn(file: File, position: int, size: int, next_offset: int) -> bool:
    """Whether what is from `position` on is a write that did not come to its end: an entry that would follow,
    but for its last bytes, or zeros.
    """
    head = file.pread(MAGIC_POSITION + 1, position)
    if len(head) > MAGIC_POSITION:
        offset, length = int.from_bytes(head[:8], "big"), int.from_bytes(head[8:LENGTH_OVERHEAD], "big")
        follows = offset >= next_offset and head[MAGIC_POSITION] <= _MAGIC_MAX
        if follows and position + LENGTH_OVERHEAD + length > size:
            return True
    elif position + len(head) >= size:
        return True
    return all(
        not any(file.pread(min(_PIECE_BYTES, size - at), at)) for at in range(position, size, _PIECE_BYTES)
    )


def keep(disk: Disk, file: File, position: int, size: int, path: Path) -> bool:
    """Store durably what `file` has from `position` on; whether the disk had room. Raises StorageError."""
    kept = disk.open(path, create=True)
    try:
        for at in range(position, size, _PIECE_BYTES):
            kept.pwrite(file.pread(min(_PIECE_BYTES, size - at), at), at - position)
        kept.truncate(size - position)
        kept.sync()
    except DiskFullError:
        with suppress(DiskFullError):
            disk.remove(path)
        return False
    finally:
        kept.close()
    disk.sync_directory(path.parent)
    return True
