"""Appends to a log beside the bare work that cannot be avoided: one checksum and one write per batch.

Run: `python -m ops.bench.append_log [--directory DIR] [--seconds S]`. For each batch size it prints what the
bare loop and the log reach in the same run, and the ratio. Also how long reads take that a consumer makes
while following the end, and while catching up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from crc32c import crc32c

from broker.clock import SystemClock
from broker.records.batch import ATTRIBUTES_POSITION, rebase
from broker.records.builder import BatchBuilder
from broker.storage.disk import SystemDisk
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_opening import open_log
from broker.types import TopicPartition

SIZES = (16 << 10, 1 << 20)
FILE_BYTES_MAX = 512 << 20
FETCH_BYTES = 1 << 20
ROUNDS = 4


def build_batch(size: int) -> bytearray:
    """One uncompressed batch of about `size` bytes."""
    builder = BatchBuilder(size_max=size)
    while builder.append(1_700_000_000_000, b"key", os.urandom(1000)):
        pass
    return builder.build()


def bare_loop(directory: Path, batch: bytearray, seconds: float) -> float:
    """Appends per second of a loop that checks the CRC and writes."""
    descriptor = os.open(directory / "bare", os.O_RDWR | os.O_CREAT)
    view, position, count = memoryview(batch), 0, 0
    end = perf_counter() + seconds
    start = perf_counter()
    try:
        while perf_counter() < end:
            crc32c(view[ATTRIBUTES_POSITION:])
            os.pwrite(descriptor, view, position)
            position += len(batch)
            count += 1
            if position > FILE_BYTES_MAX:
                os.ftruncate(descriptor, 0)
                position = 0
        return count / (perf_counter() - start)
    finally:
        os.close(descriptor)
        (directory / "bare").unlink()


@contextmanager
def fresh_log(directory: Path) -> Iterator[Log]:
    """A log that keeps as much as the bare loop does."""
    config = LogConfig(max_message_bytes=2 << 20, segment_bytes=256 << 20, retention_bytes=512 << 20)
    path = directory / "bench-0"
    log = open_log(
        SystemDisk(), path, config, SystemClock(), topic_partition=TopicPartition("bench", 0), clean=False
    )
    try:
        yield log
    finally:
        log.delete()


def append_loop(log: Log, batch: bytearray, seconds: float) -> float:
    """Appends per second to the log."""
    clock, view, count = SystemClock(), memoryview(batch), 0
    end = perf_counter() + seconds
    start = perf_counter()
    while perf_counter() < end:
        rebase(view, 0, 0, -1)  # as a producer sends it
        log.append(view, 0, now_ms=clock.now_ms())
        count += 1
        if not count % 256:
            log.delete_old_segments(clock.now_ms())
            log.files.remove_deleted()
    return count / (perf_counter() - start)


def best_of_rounds(directory: Path, batch: bytearray, seconds: float) -> tuple[float, float]:
    """The best of several turns of each, taken alternately: other work on the machine then weighs on both."""
    bare = appended = 0.0
    for _ in range(ROUNDS):
        bare = max(bare, bare_loop(directory, batch, seconds))
        with fresh_log(directory) as log:
            appended = max(appended, append_loop(log, batch, seconds))
    return bare, appended


def microseconds_per_call(call: Callable[[], object], count: int) -> float:
    start = perf_counter()
    for _ in range(count):
        call()
    return (perf_counter() - start) / count * 1e6


def report_reads(log: Log) -> None:
    """What a read costs without sending: at the end, and sequentially from the start."""
    batch = build_batch(1 << 10)
    clock = SystemClock()
    for _ in range(100_000):
        rebase(batch, 0, 0, -1)
        log.append(batch, 0, now_ms=clock.now_ms())
    offset = log.log_end_offset - 1

    def tail() -> None:
        log.read(offset, max_bytes=FETCH_BYTES, up_to=log.log_end_offset)

    print(f"read at the end            {microseconds_per_call(tail, 100_000):8.1f} us")
    offset, count, start = log.log_start_offset, 0, perf_counter()
    while offset < log.log_end_offset:
        offset = log.read(offset, max_bytes=FETCH_BYTES, up_to=log.log_end_offset).next_offset
        count += 1
    print(f"read of 1 MiB, sequential  {(perf_counter() - start) / count * 1e6:8.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--directory", type=Path, default=None, help="where to write; default: a temporary directory"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each figure")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="append-log-", dir=arguments.directory))
    try:
        for size in SIZES:
            batch = build_batch(size)
            bare, appended = best_of_rounds(directory, batch, arguments.seconds / ROUNDS)
            print(
                f"{len(batch):8d} bytes: bare {bare:8.0f}/s {1e6 / bare:6.1f} us   log {appended:8.0f}/s "
                f"{1e6 / appended:6.1f} us {appended * len(batch) / 1e6:6.0f} MB/s x{appended / bare:.2f}",
                flush=True,
            )
        with fresh_log(directory) as log:
            report_reads(log)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
