"""Reads that would wait for the disk are noticed, and done elsewhere."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.storage.disk import SystemDisk
from broker.storage.page_cache import (
    PROBE_DISTANCE,
    ColdReadError,
    is_resident,
    may_wait,
    resident_only,
    warm,
)

SIZE = 8 * PROBE_DISTANCE


@pytest.fixture
def cold_file(tmp_path: Path) -> Path:
    """A file whose pages were dropped from memory; skips where the file system keeps them anyway."""
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if is_resident(descriptor, 0, SIZE):
            pytest.skip("this file system does not drop pages on request")
    finally:
        os.close(descriptor)
    return path


def test_a_cold_file_is_resident_once_it_was_warmed(cold_file: Path) -> None:
    descriptor = os.open(cold_file, os.O_RDONLY)
    try:
        warm(descriptor, 0, SIZE)
        assert is_resident(descriptor, 0, SIZE)
        assert is_resident(descriptor, SIZE - 1, 1)
    finally:
        os.close(descriptor)


def test_a_descriptor_that_cannot_be_probed_counts_as_resident() -> None:
    reader, writer = os.pipe()
    try:
        assert is_resident(reader, 0, 10)
    finally:
        os.close(reader)
        os.close(writer)


def test_reads_that_must_not_wait_say_what_is_cold_and_find_it_once_it_is_warm(cold_file: Path) -> None:
    file = SystemDisk().open(cold_file)
    try:
        with resident_only, pytest.raises(ColdReadError) as cold:
            file.pread(100, SIZE // 2)
        cold.value.warm()
        with resident_only:
            assert len(file.pread(100, SIZE // 2)) == 100
    finally:
        file.close()


def test_reads_that_must_not_wait_end_at_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"short")
    file = SystemDisk().open(path)
    try:
        with resident_only:
            assert (file.pread(100, 1), file.pread(5, 0), file.pread(9, 5)) == (b"hort", b"short", b"")
    finally:
        file.close()


def test_a_cold_file_that_went_meanwhile_is_no_error(tmp_path: Path) -> None:
    ColdReadError(tmp_path / "gone", 0, 10).warm()


def test_other_threads_may_wait_while_one_must_not() -> None:
    with resident_only, ThreadPoolExecutor(1) as executor:
        assert not may_wait()
        assert executor.submit(may_wait).result()
    assert may_wait()
