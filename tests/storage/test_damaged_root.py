"""Whatever happens to files of a root that has everything: what is sound is served, and damage is met once.

Offsets are not looked at where data files are damaged: no checksum covers those of a batch.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from broker.errors import CorruptRecordsError
from broker.records.control import Marker, MarkerType, build_marker
from broker.storage.filenames import LOCK_FILE, META_PROPERTIES_FILE
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, TopicId, TopicPartition
from tests.storage.compaction_samples import COMPACTED, Seen, compact, put, seen
from tests.storage.samples import NOW_MS, ManualClock, append, build, numbered

ROOT = Path("/data/root")
PLAIN = TopicPartition("plain", 0)
STATES = TopicPartition("states", 0)
TRANSACTIONS = TopicPartition("transactions", 0)
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=0)

ROUNDS = 40

Files = dict[Path, bytes]


def config_of(partition: TopicPartition) -> LogConfig:
    return COMPACTED if partition == STATES else CONFIG


def opened(disk: MemoryDisk) -> LogDirectory:
    directory = LogDirectory.open(disk, ROOT, ManualClock(), broker_id=BrokerId(1), cluster_id="jfk")
    directory.load(config_of)
    return directory


def fill(plain: Log, states: Log, transactions: Log) -> None:
    """Some more of everything, in the epoch after the latest."""
    epoch = plain.leader_epochs.latest + 1
    for _ in range(6):
        append(plain, *numbered(3), epoch=epoch, producer=(9, 0, plain.log_end_offset))
    for number in range(12):
        put(states, (b"k%d" % (number % 5), b"%d" % number), (b"once-%d-%d" % (epoch, number), b"x"))
    for number in range(6):
        sequence = 2 * (epoch * 6 + number)
        batch = build(numbered(2), producer=(7, 0, sequence), transactional=True)
        transactions.append(batch, epoch, now_ms=NOW_MS)
        end = MarkerType.ABORT if number % 2 else MarkerType.COMMIT
        marker = Marker(type=end, coordinator_epoch=0)
        written = build_marker(marker, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
        transactions.append_marker(written, marker, epoch, now_ms=NOW_MS)


def made(*, is_clean: bool) -> tuple[Files, dict[TopicPartition, list[Seen]]]:
    """The files of a root, and what its logs hold; half of it was flushed and compacted."""
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    directory = opened(disk)
    partitions = (PLAIN, STATES, TRANSACTIONS)
    for number, partition in enumerate(partitions, start=1):
        directory.create_log(partition, TopicId(UUID(int=number)), config_of(partition))
    logs = [directory.logs[partition] for partition in partitions]
    fill(*logs)
    compact(directory.logs[STATES], checkpoint=directory.checkpoints.store_compaction)
    for log in logs:
        log.flush()
    directory.checkpoints.store_offsets()
    fill(*logs)
    records = {partition: seen(directory.logs[partition]) for partition in partitions}
    if is_clean:
        directory.close()
    else:
        directory.abandon()
    return files_of(disk, ROOT), records


def files_of(disk: MemoryDisk, path: Path) -> Files:
    found: Files = {}
    for entry in disk.list_directory(path):
        if entry.is_directory:
            found |= files_of(disk, path / entry.name)
        elif entry.name != LOCK_FILE:
            found[path / entry.name] = disk.read_file(path / entry.name)
    return found


def damage(files: Files, random: Random) -> list[Path]:
    """Damage a few files in some way; which."""
    damaged = []
    for _ in range(random.choice((1, 1, 2, 3))):
        path = random.choice([path for path in files if path.name != META_PROPERTIES_FILE])
        data = files[path]
        position = random.randrange(len(data)) if data else 0
        match random.randrange(5):
            case 0:
                files[path] = data[:position]
            case 1:
                files[path] = data + random.randbytes(random.randrange(1, 100))
            case 2:
                files[path] = data[:position] + bytes(min(40, len(data) - position)) + data[position + 40 :]
            case 3 if data:
                files[path] = (
                    data[:position]
                    + bytes([data[position] ^ 1 << random.randrange(8)])
                    + data[position + 1 :]
                )
            case _:
                del files[path]
        damaged.append(path)
    return damaged


def read_what_is_sound(log: Log) -> list[Seen]:
    """Every record of the log that a consumer gets before it meets damage."""
    try:
        return seen(log)
    except CorruptRecordsError:
        return []


def bounds(log: Log) -> tuple[object, ...]:
    return log.log_start_offset, log.log_end_offset, log.segment_count, log.size, log.leader_epochs.entries


def use(log: Log) -> None:
    """Take a role and write, as a node does."""
    if log.topic_id is None:
        log.assign_topic_id(TopicId(UUID(int=1)))
    put(log, (b"after", b"damage"))


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_root_opens_serves_nothing_false_and_is_mended_once(is_clean: bool) -> None:
    whole, records = made(is_clean=is_clean)
    for seed in range(ROUNDS):
        random = Random(seed)
        files = dict(whole)
        damaged = damage(files, random)
        disk = MemoryDisk()
        for partition in records:
            disk.make_directory(ROOT / str(partition))
        for path, data in files.items():
            disk.write_file(path, data)
        directory = opened(disk)
        first = {}
        for partition, log in directory.logs.items():
            found = read_what_is_sound(log)
            false = {record[1:] for record in found} - {record[1:] for record in records[partition]}
            assert not false, (seed, damaged, partition)
            if not any(path.parent.name == str(partition) and path.suffix == ".log" for path in damaged):
                assert found == records[partition], (seed, damaged, partition)
            use(log)
            first[partition] = (bounds(log), read_what_is_sound(log))
        directory.close()
        directory = opened(disk)
        for partition, log in directory.logs.items():
            assert not log.recovery_report.is_notable, (seed, damaged, partition, log.recovery_report)
            assert (bounds(log), read_what_is_sound(log)) == first[partition], (seed, damaged, partition)
        directory.close()
