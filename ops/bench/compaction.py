"""Compaction of a log beside the bare work on the same bytes: read, check every batch's CRC, write.

Run: `python -m ops.bench.compaction [--directory DIR] [--megabytes N]`. For each kind of log it prints what a
pass reads a second, the processor time for each GB, and how much that is of the bare loop's. Each key was
written several times, in random order, so that most batches lose some of their records.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from crc32c import crc32c

from broker.clock import SystemClock
from broker.records.batch import ATTRIBUTES_POSITION, Codec, iterate_batches
from broker.records.builder import BatchBuilder
from broker.storage.compaction.cleanable import CleanableRange
from broker.storage.compaction.cleaning import Cleaning, CleaningBounds, CleaningReport
from broker.storage.disk import SystemDisk
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_opening import open_log
from broker.types import TopicPartition

ROUNDS = 3
PIECE_BYTES = 8 << 20
BATCH_BYTES = 16 << 10
BOUNDS = CleaningBounds(
    map_bytes=128 << 20, map_load_factor=0.9, buffer_bytes=256 << 10, batch_size_max=1 << 30
)


class Workload(NamedTuple):
    """A kind of log: size of a value (bytes), codec, and how often each key was written."""

    value_bytes: int
    codec: Codec
    writes: int

    def __str__(self) -> str:
        return f"{self.value_bytes:6d} B, {self.codec.name.lower():6}, each key {self.writes:2d} times"


WORKLOADS = (
    Workload(100, Codec.NONE, 4),
    Workload(1_000, Codec.NONE, 4),
    Workload(1_000, Codec.NONE, 1),
    Workload(1_000, Codec.LZ4, 4),
    Workload(1_000, Codec.ZSTD, 4),
    Workload(10_000, Codec.NONE, 4),
)


class Cost(NamedTuple):
    """Seconds by the clock and of the processor for so many bytes read."""

    size: int
    elapsed_seconds: float
    processor_seconds: float

    def __str__(self) -> str:
        rate = self.size / self.elapsed_seconds / 1e6
        return f"{rate:6.0f} MB/s {self.processor_seconds / self.size * 1e9:6.2f} CPU s/GB"


def filled(directory: Path, workload: Workload, megabytes: int) -> Log:
    """A log of sealed segments, its keys in random order."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=64 << 20)
    log = open_log(
        SystemDisk(),
        directory / "bench-0",
        config,
        SystemClock(),
        topic_partition=TopicPartition("bench", 0),
        clean=False,
    )
    generator = random.Random(1)
    count = (megabytes << 20) // (workload.value_bytes + 20)
    key_count = max(count // workload.writes, 1)
    half_random = [generator.randbytes(workload.value_bytes // 2) for _ in range(64)]
    builder = _builder(workload)
    for _ in range(count):
        value = generator.choice(half_random) + bytes(workload.value_bytes - workload.value_bytes // 2)
        key = b"key-%010d" % generator.randrange(key_count)
        if not builder.append(1_700_000_000_000, key, value):
            log.append(builder.build(), 0, now_ms=0)
            builder = _builder(workload)
            builder.append(1_700_000_000_000, key, value)
    log.append(builder.build(), 0, now_ms=0)
    log.roll()
    log.flush()
    return log


def _builder(workload: Workload) -> BatchBuilder:
    return BatchBuilder(workload.codec, size_max=max(BATCH_BYTES, 2 * workload.value_bytes))


def bare_loop(log: Log, directory: Path) -> Cost:
    """Read every byte once, check each batch, write it to another file, sync that."""
    started, started_processor, size = perf_counter(), process_time(), 0
    target = os.open(directory / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for segment in log.segments[:-1]:
        position = 0
        with segment.log as file:
            while position < segment.size:
                piece = memoryview(file.pread(min(PIECE_BYTES, segment.size - position), position))
                end = 0
                for at, header in iterate_batches(piece):
                    end = at + header.size
                    if crc32c(piece[at + ATTRIBUTES_POSITION : end]) != header.crc:
                        raise SystemExit(f"{file}: a batch is damaged")
                os.pwrite(target, piece[:end], size)
                position += end
                size += end
    os.fsync(target)
    os.close(target)
    cost = Cost(size, perf_counter() - started, process_time() - started_processor)
    (directory / "bare").unlink()
    return cost


def compaction(log: Log) -> tuple[Cost, CleaningReport]:
    """One pass over everything, all of it dirty: it reads the bytes twice, and they are counted once."""
    dirty = CleanableRange(
        start_offset=0,
        end_offset=log.log_end_offset,
        clean_size=0,
        dirty_size=log.size,
        is_overdue=False,
    )
    size = log.size
    started, started_processor = perf_counter(), process_time()
    cleaning = Cleaning(log, dirty, BOUNDS, now_ms=SystemClock().now_ms())
    for step in cleaning.steps():
        step()
    return Cost(size, perf_counter() - started, process_time() - started_processor), cleaning.report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--directory", type=Path, default=None, help="where to write; default: a temporary directory"
    )
    parser.add_argument("--megabytes", type=int, default=128, help="size of each log, uncompressed")
    arguments = parser.parse_args()
    for workload in WORKLOADS:
        bare: list[Cost] = []
        passes: list[Cost] = []
        for _ in range(ROUNDS):
            directory = Path(tempfile.mkdtemp(prefix="compaction-", dir=arguments.directory))
            try:
                log = filled(directory, workload, arguments.megabytes)
                bare.append(bare_loop(log, directory))
                cost, report = compaction(log)
                passes.append(cost)
            finally:
                shutil.rmtree(directory)
        least, best = (min(costs, key=lambda cost: cost.processor_seconds) for costs in (bare, passes))
        ratio = best.processor_seconds / best.size / (least.processor_seconds / least.size)
        left = report.size_after / report.size_before
        print(f"{workload}: bare {least}   pass {best}   x{ratio:4.1f}, {left:4.0%} left", flush=True)


if __name__ == "__main__":
    main()
