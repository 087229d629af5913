"""Puts the log of one partition together from what is on disk. Blocks; any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from broker.clock import Clock
from broker.storage.closed_logs import ClosedLog
from broker.storage.disk import Disk
from broker.storage.filenames import LEADER_EPOCH_FILE
from broker.storage.flush_watch import FlushWatch
from broker.storage.index import IndexCache
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_files import LogFiles
from broker.storage.open_files import FilePool
from broker.storage.partition_directory import PartitionDirectory
from broker.storage.producers import ProducerStates
from broker.storage.recovery import Recovery
from broker.types import TopicPartition


def open_log(
    disk: Disk,
    directory: Path,
    config: LogConfig,
    clock: Clock,
    *,
    topic_partition: TopicPartition,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    closed: ClosedLog | None = None,
    transaction_index_sizes: Mapping[int, int] | None = None,
    pool: FilePool | None = None,
    cache: IndexCache | None = None,
    watch: FlushWatch | None = None,
    compacted_end: int | None = None,
    on_recovery_point_lowered: Callable[[], None] = lambda: None,
    on_gap: Callable[[], None] = lambda: None,
    on_cut: Callable[[], None] = lambda: None,
) -> Log:
    """Open the log in `directory`, making it when there is none; unless `clean`, everything from the
    recovery point on is checked. With `closed`, what `close` returned, nothing is read that fits it.
    An index of aborted transactions that is smaller than it was known to be (bytes, by its segment's base
    offset) is made anew.

    `on_gap` is called before the first gap in the offsets is stored, and has to store `compacted_end`;
    `on_cut` before anything is cut off that a crash left damaged.
    Blocks on the disk. Raises StorageError.
    """
    place = PartitionDirectory(disk, directory, pool or FilePool(disk), cache or IndexCache())
    producers = ProducerStates()
    epochs = LeaderEpochs(disk, directory / LEADER_EPOCH_FILE)
    recovery = Recovery(
        place,
        config,
        producers,
        epochs,
        now_ms=clock.now_ms(),
        has_gaps=config.compacts or compacted_end is not None,
        transaction_index_sizes=transaction_index_sizes or {},
        on_cut=on_cut,
    )
    recovered = recovery.open(
        clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset, closed=closed
    )
    files = LogFiles(
        place,
        config,
        recovered,
        clock,
        producers=producers,
        leader_epochs=epochs,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        topic_partition=topic_partition,
        watch=watch or FlushWatch(),
    )
    return Log(
        topic_partition,
        config,
        files,
        clock,
        topic_id=recovery.topic_id,
        producers=producers,
        leader_epochs=epochs,
        recovery_report=recovered.report,
        compacted_end=compacted_end,
        on_recovery_point_lowered=on_recovery_point_lowered,
        on_gap=on_gap,
    )
