"""Files of this machine that are there, with all that is in them, also after it has lost its power."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Have the file hold this: whatever happens, it holds what it held before, or all of this. Raises
    OSError, and has changed nothing then.
    """
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync(file.parent)


def make_folder(folder: Path) -> None:
    """Have the folder, and those around it. Raises OSError."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def sync(path: Path) -> None:
    """Have what is in a file, or which names a folder has, on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(top: Path) -> None:
    """Have a folder on the disk with all that is in it. Raises OSError."""
    for path in _all_below(top):
        sync(path)
    sync(top.parent)


def _all_below(top: Path) -> Iterator[Path]:
    """Files before the folder that they are in."""
    for folder, _, names in os.walk(top, topdown=False):
        yield from (Path(folder, name) for name in names)
        yield Path(folder)
