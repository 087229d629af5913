"""Recovery of a log after kill -9, beside plain loops that read and checksum the same bytes.

    python -m ops.bench.recovery [--gibibytes N] [--sizes BYTES ...] [--directory DIR]

A node is filled with batches of one size by produce requests and killed; nothing was flushed, so all of the
log has to be checked. Printed is the time of the log's recovery on the files that the node left, and that of
two loops over them: one reads and checksums batch by batch, as their headers say, the other chunk by chunk
whatever is in them. Turns alternate, the best of each counts; seconds are processor time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from socket import MSG_WAITALL, create_connection
from struct import Struct
from time import process_time

from crc32c import crc32c

from broker.clock import SystemClock
from broker.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, LENGTH_OVERHEAD
from broker.storage.disk import SystemDisk
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_opening import open_log
from broker.types import TopicPartition
from ops.bench._nodes import nodes
from ops.bench.broker_append import TOPIC, build_batch, create_topic, produce_frame

GOAL = 1.5
ROUNDS = 3
SIZES = (1 << 10, 16 << 10, 1 << 20)
READ_BYTES = 4 << 20
IN_FLIGHT_BYTES = 4 << 20
NODE_SETTINGS = {"message.max.bytes": 2 << 20, "log.segment.bytes": (1 << 31) - 1}
_ANSWER_SIZE = Struct(">i")
_HEADER = Struct(">qiibI")


def fill(port: int, batch: bytearray, total: int) -> None:
    """Produce so many bytes of one batch again and again."""
    create_topic(port)
    request = produce_frame(batch)
    burst = max(1, IN_FLIGHT_BYTES // len(request))
    with closing(create_connection(("127.0.0.1", port))) as connection:
        for _ in range(-(-total // (burst * len(batch)))):
            connection.sendall(request * burst)
            for _ in range(burst):
                size = _ANSWER_SIZE.unpack(connection.recv(4, MSG_WAITALL))[0]
                connection.recv(size, MSG_WAITALL)


def by_batch(files: Sequence[Path]) -> None:
    """Read and checksum every batch as its header says."""
    view = memoryview(bytearray(READ_BYTES))
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        position = 0
        while (held := os.preadv(descriptor, [view], position)) >= HEADER_SIZE:
            at = 0
            while held - at >= HEADER_SIZE:
                _, length, _, _, crc = _HEADER.unpack_from(view, at)
                end = at + length + LENGTH_OVERHEAD
                if end > held:
                    break
                assert crc32c(view[at + ATTRIBUTES_POSITION : end]) == crc
                at = end
            position += at
        os.close(descriptor)


def by_chunk(files: Sequence[Path]) -> None:
    """Read and checksum all bytes."""
    view = memoryview(bytearray(READ_BYTES))
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        position = checksum = 0
        while held := os.preadv(descriptor, [view], position):
            checksum = crc32c(view[:held], checksum)
            position += held
        os.close(descriptor)


def recover(directory: Path) -> Log:
    """Open the log as a node does after a crash, and leave it so that the next time everything is checked."""
    log = open_log(
        SystemDisk(),
        directory,
        LogConfig(),
        SystemClock(),
        topic_partition=TopicPartition(TOPIC, 0),
        clean=False,
    )
    log.abandon()
    return log


def processor_seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def measure(directory: Path, batch: bytearray, total: int) -> bool:
    """Print one batch size's figures; whether the goal is met."""
    with nodes(directory, NODE_SETTINGS) as cluster:
        fill(cluster.bootstrap[0].port, batch, total)
        cluster.kill_node(1)
    log = directory / "cluster" / "node-1" / f"{TOPIC}-0"
    files = sorted(log.glob("*.log"))
    size = sum(file.stat().st_size for file in files)
    works = (lambda: by_chunk(files), lambda: by_batch(files), lambda: recover(log))
    chunks, batches, recovery = (
        min(times)
        for times in zip(*([processor_seconds(work) for work in works] for _ in range(ROUNDS)), strict=True)
    )
    assert recover(log).recovery_report.checked_size == size, "everything is sound, and everything is checked"
    print(
        f"{len(batch):8d} bytes a batch, {size / 1e9:.2f} GB: recovery {recovery:.2f} s; "
        f"plain loop by batch {batches:.2f} s x{recovery / batches:.2f} (goal {GOAL}), "
        f"by chunk {chunks:.2f} s x{recovery / chunks:.2f}",
        flush=True,
    )
    return recovery <= GOAL * batches


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gibibytes", type=float, default=2.0, help="how much each size is tried with")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="of a batch")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: temporary")
    arguments = parser.parse_args()
    met = True
    for size in arguments.sizes:
        directory = Path(tempfile.mkdtemp(prefix="recovery-", dir=arguments.directory))
        try:
            met &= measure(directory, build_batch(size), int(arguments.gibibytes * (1 << 30)))
        finally:
            shutil.rmtree(directory)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
