"""Descriptors are bounded, and a file in use stays open whatever becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.errors import StorageError
from broker.storage.disk import SystemDisk
from broker.storage.open_files import FilePool


def test_a_file_is_opened_at_first_use(tmp_path: Path) -> None:
    pool = FilePool(SystemDisk())
    file = pool.file(tmp_path, "a", create=True)
    assert not (tmp_path / "a").exists()
    with file as opened:
        opened.pwrite(b"x", 0)
    assert (tmp_path / "a").read_bytes() == b"x"


def test_files_not_used_lately_make_room(tmp_path: Path) -> None:
    pool = FilePool(SystemDisk(), files_max=3)
    files = [pool.file(tmp_path, str(index), create=True) for index in range(20)]
    for index, file in enumerate(files):
        with file as opened:
            opened.pwrite(b"%d" % index, 0)
        assert pool.open_count <= 3
    for index, file in enumerate(files):
        with file as opened:
            assert opened.pread(10, 0) == b"%d" % index


def test_pinned_files_stay_open_over_the_bound(tmp_path: Path) -> None:
    pool = FilePool(SystemDisk(), files_max=1)
    first = pool.file(tmp_path, "first", create=True)
    opened = first.pin()
    for index in range(5):
        with pool.file(tmp_path, str(index), create=True):
            pass
    opened.pwrite(b"still open", 0)
    assert opened.pread(10, 0) == b"still open"
    first.release()


def test_a_retired_file_is_closed_at_the_last_release(tmp_path: Path) -> None:
    pool = FilePool(SystemDisk())
    file = pool.file(tmp_path, "a", create=True)
    opened = file.pin()
    file.pin()
    opened.pwrite(b"data", 0)
    file.retire()
    (tmp_path / "a").unlink()
    file.release()
    assert opened.pread(4, 0) == b"data"
    descriptor = opened.fileno()
    file.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(StorageError, match="closed"):
        file.pin()
    assert pool.open_count == 0
