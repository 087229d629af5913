"""Small file systems of a test's own: one that can be filled, one that can be made to fail."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_EXT4_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


@contextmanager
def mounted_tmpfs(path: Path, *, size: int) -> Iterator[Path]:
    """A file system of `size` bytes at `path`. Skips the test where mounting is not permitted."""
    path.mkdir(parents=True)
    with _mounted(path, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield path


@contextmanager
def mounted_ext4(path: Path, *, size: int) -> Iterator[Path]:
    """As `mounted_tmpfs`, on a block device whose failure `fail` can have."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    path.mkdir(parents=True)
    image = path.with_name(f"{path.name}.image")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    with _mounted(path, "-o", "loop", str(image)):
        yield path


def fail(path: Path) -> None:
    """From now on everything on the ext4 file system at `path` ends with EIO, as on a disk that died."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


@contextmanager
def _mounted(path: Path, *arguments: str) -> Iterator[None]:
    mount = subprocess.run(["mount", *arguments, str(path)], capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"mounting is not permitted here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True)
