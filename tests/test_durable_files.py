"""What is written to the disk, and what of it may fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mirrormaker import durable_files
from mirrormaker.durable_files import sync, sync_all


def test_a_folder_that_cannot_be_synced_is_no_error_and_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    file = tmp_path / "a"
    file.write_text("a")
    monkeypatch.setattr(os, "fsync", refuse)
    sync(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        sync(file)


@pytest.mark.parametrize("one_by_one_max", [0, 100])
def test_all_of_a_folder_is_synced_one_by_one_or_with_its_filesystem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_by_one_max: int
) -> None:
    monkeypatch.setattr(durable_files, "SYNCED_ONE_BY_ONE_MAX", one_by_one_max)
    synced: list[str] = []
    monkeypatch.setattr(durable_files, "sync", lambda path: synced.append(path.name))
    (tmp_path / "t/h").mkdir(parents=True)
    (tmp_path / "t/h/f").write_text("f")
    sync_all(tmp_path / "t")
    assert synced == ([tmp_path.name] if one_by_one_max == 0 else ["f", "h", "t", tmp_path.name])
