"""Logs that this node is to hold no longer: deleted, or set aside under a name that no start opens.

A log is deleted when the controller says so, or when it is certain that other nodes have its partition. One
of which that is not certain, be its topic gone or another of that name, is kept for whoever runs the cluster:
its directory is renamed to `…-stray`, and removing it or giving it its name back is up to them. Blocks.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from broker.storage.log_directories import LogDirectories
from broker.types import TopicId, TopicPartition


class Retirement(Enum):
    """What becomes of a log."""

    DELETED = "deleted"
    SET_ASIDE = "set aside"


def retire_log(directories: LogDirectories, partition: TopicPartition, how: Retirement) -> Path | None:
    """Take the log of a partition out of use, and what is being copied of it; where it was set aside, None
    when it was deleted or there was none. Raises StorageError.
    """
    for directory in directories.live.values():  # or the copy would be all there is of the partition
        directory.drop_future(partition)
    holder = directories.find(partition)
    if holder is None:
        return None
    if how is Retirement.SET_ASIDE:
        return holder.set_aside(partition)
    holder.delete_log(partition)
    return None


def is_of_another_topic(directories: LogDirectories, partition: TopicPartition, topic_id: TopicId) -> bool:
    """Whether there is a log of the partition, but of a topic that had the name before."""
    holder = directories.find(partition)
    return (
        holder is not None and bool(topic_id.int) and holder.logs[partition].topic_id not in (None, topic_id)
    )
