"""Reads that would wait for the disk are noticed, and done elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.server.page_cache import PROBE_DISTANCE, is_resident, warm

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
