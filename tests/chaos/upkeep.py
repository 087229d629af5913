"""What operators do to the topics of a running node, and where its records are afterwards.

Everything is asked until it is done: a node that is about to come back, or has lost ZooKeeper, is no failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from broker.errors import ErrorCode
from broker.storage.archived_partition import ArchivedPartition, archived_partitions
from broker.storage.url_archive import ArchiveReader
from broker.types import HostPort
from broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.chaos.load import (
    CLIENT_SETTINGS,
    PARTITIONS,
    PATIENCE_SECONDS,
    NotInTimeError,
    Placed,
    is_tombstone,
    key_of,
    number_of,
)
from tests.node.raw_client import connected

PATIENCE_PER_REQUEST_SECONDS = 5


class Operator:
    """Alters topics of one node; remembers up to where it had their records deleted."""

    def __init__(self, address: HostPort) -> None:
        self.deleted: dict[tuple[str, int], int] = {}
        """Topic and partition -> the offset below which records were deleted."""
        self._address = address
        self._admin = AdminClient({"bootstrap.servers": str(address), **CLIENT_SETTINGS})

    def alter(self, topic: str, **settings: object) -> None:
        """Set settings of a topic, written with underscores."""
        resource = ConfigResource("topic", topic)
        for name, value in settings.items():
            entry = ConfigEntry(  # type: ignore[no-untyped-call]
                name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET
            )
            resource.add_incremental_config(entry)

        def attempt() -> bool:
            try:
                (altered,) = self._admin.incremental_alter_configs([resource]).values()
                altered.result(PATIENCE_PER_REQUEST_SECONDS)
            except KafkaException:
                return False
            return True

        _repeat(attempt, f"{topic} is given {settings}")

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Delete everything below the offset."""
        wanted = TopicPartition(topic, partition, offset)
        self.deleted[topic, partition] = max(offset, self.deleted.get((topic, partition), 0))

        def attempt() -> bool:
            try:
                (deleted,) = self._admin.delete_records([wanted]).values()
                return deleted.result(PATIENCE_PER_REQUEST_SECONDS).low_watermark >= offset
            except KafkaException:
                return False

        _repeat(attempt, f"{wanted} is deleted")

    def move(self, topic: str, partition: int, root: Path) -> None:
        """Have the partition move to another data directory, some time."""
        wanted = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(root), topics=[wanted])])

        def attempt() -> bool:
            try:
                with connected(self._address) as client:
                    (result,) = client.request(request).results
            except OSError:
                return False
            return result.partitions[0].error_code == ErrorCode.NONE

        _repeat(attempt, f"{topic}-{partition} is told to move to {root}")


def _repeat(attempt: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not attempt():
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not within {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.2)


def archived(url: Path, topic: str) -> Placed:
    """Every record of the topic that is in the archive; what several segments hold counts once."""
    placed: Placed = {partition: [] for partition in range(PARTITIONS)}
    reader = ArchiveReader(str(url))
    manifests = reader.manifests(topic=topic) if url.exists() else []
    for found in archived_partitions(reader, manifests):
        placed[found.topic_partition.partition] = _records_of(found)
    return placed


def _records_of(partition: ArchivedPartition) -> list[tuple[int, int]]:
    return [(record.offset, number_of(record.value, record.headers)) for record, _ in partition.records()]


Records = Sequence[tuple[int, int]]
"""Offset and number of records of one partition."""


def assert_numbered(answered: Records) -> Records:
    """What was acknowledged in the order of offsets, which are the numbers when nothing was doubled."""
    records = sorted(answered)
    assert records == [(number, number) for number in range(len(records))], "something was written twice"
    return records


def assert_kept_or_deleted(written: Records, log: Records, archive: Records, deleted_below: int) -> None:
    """Every record that nobody asked to be deleted is in the log or in the archive, as it was written."""
    _assert_written(written, log)
    _assert_written(written, archive)
    assert not log or log == written[log[0][0] :], "the log has holes or ends too early"
    kept = {offset for offset, _ in (*log, *archive)}
    missing = [offset for offset in range(deleted_below, len(written)) if offset not in kept]
    assert not missing, f"{len(missing)} records are lost, the first {missing[0]}"


def assert_newest_of_each_key(written: Records, log: Records, archive: Records = ()) -> None:
    """What a read from the beginning ends with is each key's last value, and nothing was made up."""
    _assert_written(written, log)
    _assert_written(written, archive)
    live, kept = _newest(log), _newest(sorted({*log, *archive}))
    for key, number in _newest(written).items():
        if is_tombstone(number):
            assert live.get(key, number) == number, f"{key} is back: {live[key]}, deleted by {number}"
        else:
            assert kept.get(key) == number, f"{key} is {kept.get(key)}, not {number}"


def _assert_written(written: Records, found: Records) -> None:
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets)), "records are out of order"
    foreign = set(found) - set(written)
    assert not foreign, f"{len(foreign)} records were not written so, the first {min(foreign)}"


def _newest(records: Records) -> dict[str, int]:
    return {key_of(number): number for _, number in records}


class Footprint:
    """The most that a process was seen to use."""

    def __init__(self) -> None:
        self.descriptors = 0
        self.resident_bytes = 0

    def look(self, pid: int) -> None:
        """Take note of what the process uses now."""
        self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{pid}/fd")))
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        self.resident_bytes = max(self.resident_bytes, pages * os.sysconf("SC_PAGE_SIZE"))


def assert_sound(root: Path) -> None:
    """`broker verify` finds nothing wrong in the data directory of a node that was stopped."""
    command = [sys.executable, "-m", "broker.cli", "verify", str(root)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
