"""Notes: what is kept beside tables and in checkpoints, each an object of JSON in a file of its own.

A note is written to the disk before anything is done that it speaks of. One that is empty or cut short, as
a host leaves it that lost its power before it had written it (by an older version, or on a filesystem that
says so too early), was not written yet: nothing that follows it had begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mirrormaker.pipelines.table_files import TableFiles

GARBLED = "is empty or cut short, as a host may leave it that loses its power"


def read_note(files: TableFiles, path: str) -> dict[str, Any] | None:
    """What the note says; None where there is none, or not a whole one."""
    try:
        told = json.loads(files.read_text(path) or "")
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def is_garbled(files: TableFiles, path: str) -> bool:
    """Whether there is a note, and not a whole one."""
    return read_note(files, path) is None and files.read_text(path) is not None


def write_note(files: TableFiles, path: str, told: Mapping[str, Any]) -> None:
    """Have the note say this. Raises FileError."""
    files.write_text(path, json.dumps(told))
