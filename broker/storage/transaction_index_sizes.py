"""How large the index of aborted transactions is, of every segment of a data root that has one.

A segment without aborted transactions has no `.txnindex`, so that one which was lost looks like one that
never was, and its aborted records like committed ones. The file `transaction-index-checkpoint` tells them
apart: as Kafka's own checkpoints a line `0` (version), a line with the number of entries, and a line `topic
partition baseOffset size` for each index (bytes). It is stored before the recovery points that go with it, so
it names every index below them, and at a clean end every index there is; above a recovery point indexes are
made anew anyhow. An index that is smaller than its line says is made anew from the log. A line of a segment
that was cut, compacted or deleted since costs at most that. Apache Kafka leaves no such file: of its roots
nothing is known until a node has stored one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.storage.checkpoints import decode_lines, encode_lines
from broker.storage.disk import Disk
from broker.storage.log import Log
from broker.types import TopicPartition

IndexSizes = Mapping[int, int]
"""Of one log: the sizes (bytes) of indexes of aborted transactions by their segments' base offsets."""


def index_sizes(logs: Iterable[Log]) -> dict[TopicPartition, IndexSizes]:
    """Those of logs at this moment, but for logs that have none."""
    found = {
        log.topic_partition: {
            segment.base_offset: index.size
            for segment in log.segments
            if (index := segment.aborted) is not None
        }
        for log in logs
    }
    return {partition: sizes for partition, sizes in found.items() if sizes}


def read_index_sizes(disk: Disk, path: Path) -> dict[TopicPartition, dict[int, int]]:
    """What is stored; nothing when there is no file. Raises StorageError when it is malformed."""
    found: dict[TopicPartition, dict[int, int]] = {}
    if disk.exists(path):
        for partition, base_offset, size in decode_lines(disk.read_file(path), path, _entry):
            found.setdefault(partition, {})[base_offset] = size
    return found


def write_index_sizes(disk: Disk, path: Path, sizes: Mapping[TopicPartition, IndexSizes]) -> None:
    """Replace the file, durably. Raises StorageError."""
    lines = [
        f"{topic} {partition} {base_offset} {size}"
        for (topic, partition), indexes in sizes.items()
        for base_offset, size in indexes.items()
    ]
    disk.write_file(path, encode_lines(lines))


def _entry(words: list[str]) -> tuple[TopicPartition, int, int]:
    topic, partition, base_offset, size = words
    return TopicPartition(topic, int(partition)), int(base_offset), int(size)
