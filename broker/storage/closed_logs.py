"""Where each log of a data root ended when it was closed, so that the next start reads no data.

The file `log-ends-checkpoint`, as Kafka's own checkpoints: a line `0` (version), a line with the number of
entries, and a line for each log: topic, partition, and the fields of `ClosedLog` in their order. It is
written before the mark of a clean end and removed with it. An entry holds only for a log whose newest segment
has the very sizes that it names; any other log, and every log of a root that Apache Kafka closed, is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from broker.storage.checkpoints import decode_lines, encode_lines
from broker.storage.disk import Disk
from broker.types import TopicPartition


class ClosedLog(NamedTuple):
    """A closed log's end, and its newest segment: base offset, sizes of its files (bytes), and what an append
    to it must know (timestamps in milliseconds, -1: none). Then how many segments there were, and the latest
    leader epoch (-1: none).
    """

    end_offset: int
    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int
    largest_timestamp: int
    largest_timestamp_offset: int
    bytes_since_index_entry: int
    segment_count: int
    leader_epoch: int


def read_closed_logs(disk: Disk, path: Path) -> dict[TopicPartition, ClosedLog]:
    """The entries of the file; none when there is no file. Raises StorageError when it is malformed."""
    if not disk.exists(path):
        return {}
    return dict(decode_lines(disk.read_file(path), path, _entry))


def write_closed_logs(disk: Disk, path: Path, closed: Mapping[TopicPartition, ClosedLog]) -> None:
    """Replace the file, durably. Raises StorageError."""
    lines = [f"{topic} {partition} {' '.join(map(str, log))}" for (topic, partition), log in closed.items()]
    disk.write_file(path, encode_lines(lines))


def _entry(words: list[str]) -> tuple[TopicPartition, ClosedLog]:
    topic, partition, *fields = words
    if len(fields) != len(ClosedLog._fields):
        raise ValueError(f"{len(fields)} fields")
    return TopicPartition(topic, int(partition)), ClosedLog._make(map(int, fields))
