"""Names of files and directories in a data directory, exactly Kafka's. Pure.

A partition's directory is `TOPIC-N`; one being removed `TOPIC-N.UNIQUE-delete`, being moved `…-future`, left
over `…-stray`. Inside, every file of a segment is named by the 20-digit offset of the segment's first record.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from uuid import uuid4

from broker.types import TopicPartition

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
META_PROPERTIES_FILE = "meta.properties"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
LOG_ENDS_FILE = "log-ends-checkpoint"
"""Ours alone: what a clean end knows of each log."""
SESSION_FILE = "zookeeper-session"
"""Ours alone: the session of the node that holds the root."""
BOOT_FILE = "boot-id"
"""Ours alone: since which start of the machine everything written to the root is kept."""
TRANSACTION_INDEX_SIZES_FILE = "transaction-index-checkpoint"
"""Ours alone: which segments have an index of aborted transactions."""
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

ROOT_FILES = frozenset(
    {
        CLEAN_SHUTDOWN_FILE,
        LOCK_FILE,
        META_PROPERTIES_FILE,
        RECOVERY_POINT_FILE,
        HIGH_WATERMARK_FILE,
        LOG_START_OFFSET_FILE,
        CLEANER_OFFSET_FILE,
        LOG_ENDS_FILE,
        SESSION_FILE,
        BOOT_FILE,
        TRANSACTION_INDEX_SIZES_FILE,
    }
)
"""Every file that a data root itself may hold."""

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
CUT_SUFFIX = ".cut"

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_FILE_NAME = re.compile(
    r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)(?:(\.deleted|\.cleaned|\.swap)|(\.cut)(?:\.\d+)?)?"
)
_DIRECTORY_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_MARKED_DIRECTORY_NAME = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)\.[0-9a-zA-Z_-]+-(?P<state>delete|future|stray)"
)


class FileKind(Enum):
    """What a file of a segment holds, by its suffix."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"


_KINDS = {kind.value: kind for kind in FileKind}


class FileState(Enum):
    """Where a file of a segment is in its life."""

    LIVE = ""
    DELETED = DELETED_SUFFIX
    CLEANED = CLEANED_SUFFIX
    SWAP = SWAP_SUFFIX
    CUT = CUT_SUFFIX
    """Ours alone: see `cut_files`. Further ones of an offset have a number behind that."""


_STATES = {state.value or None: state for state in FileState}


class SegmentFileName(NamedTuple):
    """A parsed file name: the offset it is named by, its kind and state."""

    offset: int
    kind: FileKind
    state: FileState


class DirectoryState(Enum):
    """What becomes of a partition's directory."""

    LIVE = "live"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectoryName(NamedTuple):
    """A parsed directory name."""

    topic_partition: TopicPartition
    state: DirectoryState


@lru_cache(maxsize=1024)
def segment_file_name(offset: int, kind: FileKind) -> str:
    """`%020d.KIND`; most logs are short, and share the names of their first segment."""
    return f"{offset:020d}.{kind.value}"


@lru_cache(maxsize=1024)
def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """What the name says, or None for a name that is none of ours; see `segment_file_name`."""
    found = _FILE_NAME.fullmatch(name)
    if found is None:
        return None
    return SegmentFileName(int(found[1]), _KINDS[found[2]], _STATES[found[3] or found[4]])


def deleted_directory_name(topic_partition: TopicPartition) -> str:
    """A fresh name for a directory that is about to be removed, short enough for any file system."""
    suffix = f"-{topic_partition.partition}.{uuid4().hex}-delete"
    return topic_partition.topic[: 255 - len(suffix)] + suffix


def stray_directory_name(topic_partition: TopicPartition) -> str:
    """A fresh name for a directory that nobody has a use for, but that is kept."""
    suffix = f"-{topic_partition.partition}.{uuid4().hex}-stray"
    return topic_partition.topic[: 255 - len(suffix)] + suffix


def future_directory_name(topic_partition: TopicPartition) -> str:
    """A fresh name for the copy of a log that is about to move in; short enough for any file system."""
    return f"{topic_partition}.{uuid4().hex}-future"


def parse_directory_name(name: str) -> PartitionDirectoryName | None:
    """The partition a directory belongs to, or None for a name that is none of ours."""
    if marked := _MARKED_DIRECTORY_NAME.fullmatch(name):
        partition = TopicPartition(marked["topic"], int(marked["partition"]))
        return PartitionDirectoryName(partition, DirectoryState(marked["state"]))
    found = _DIRECTORY_NAME.fullmatch(name)
    if found is None or not is_topic_name(found["topic"]):
        return None
    return PartitionDirectoryName(
        TopicPartition(found["topic"], int(found["partition"])), DirectoryState.LIVE
    )


def is_topic_name(name: str) -> bool:
    """Whether Kafka would take it as a topic's name: letters, digits, `.`, `_`, `-`, at most 249 of them."""
    return (
        len(name) <= TOPIC_NAME_LENGTH_MAX and name not in {".", ".."} and bool(_TOPIC_NAME.fullmatch(name))
    )
