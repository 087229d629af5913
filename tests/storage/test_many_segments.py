"""A log of many segments needs few descriptors, whatever is done with it."""

from __future__ import annotations

from pathlib import Path

from broker.storage.disk import SystemDisk, SystemFile
from broker.storage.index import IndexCache
from broker.storage.log_config import LogConfig
from broker.storage.open_files import FilePool
from tests.storage.samples import NOW_MS, DiskAt, append, contents

SEGMENTS = 1000
FILES_MAX = 40
CONFIG = LogConfig(segment_bytes=80, retention_ms=-1)
"""One batch to a segment."""


class UnsyncedFile(SystemFile):
    """Saves the time that a real sync takes."""

    __slots__ = ()

    def sync(self) -> None:
        return


class UnsyncedDisk(SystemDisk):
    """The machine's, with files that do not survive it."""

    def open(self, path: Path, *, create: bool = False) -> SystemFile:
        return UnsyncedFile(super().open(path, create=create).fileno(), path)

    def sync_directory(self, path: Path) -> None:
        return


def test_a_thousand_segments_fit_in_a_pool_of_forty_files(tmp_path: Path) -> None:
    place = DiskAt(UnsyncedDisk(), tmp_path)
    pool = FilePool(place.disk, files_max=FILES_MAX)
    most_pinned = 32 * 3 + 1  # what a flush keeps open
    log = place.log(CONFIG, pool=pool, cache=IndexCache())
    for number in range(SEGMENTS):
        append(log, b"%06d" % number, timestamps=[NOW_MS + number])
        assert pool.open_count <= FILES_MAX
    assert log.segment_count == SEGMENTS
    log.flush()
    assert pool.open_count <= most_pinned
    assert log.recovery_point == SEGMENTS
    found = log.offset_for_timestamp(NOW_MS + SEGMENTS // 2)
    assert found is not None
    assert found.offset == SEGMENTS // 2
    log.abandon()
    recovered = place.log(CONFIG, pool=pool, cache=IndexCache())  # all of it is scanned: no recovery point
    assert [offset for offset, _ in contents(recovered)] == list(range(SEGMENTS))
    assert pool.open_count <= FILES_MAX
    recovered.flush()
    closed = recovered.close()
    assert pool.open_count == 0
    again = place.log(CONFIG, clean=True, closed=closed, pool=pool, cache=IndexCache())
    assert pool.open_count == 0
    assert contents(again)[-1] == (SEGMENTS - 1, b"%06d" % (SEGMENTS - 1))
    again.close()
